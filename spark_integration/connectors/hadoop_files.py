"""Small files through Hadoop's FileSystem in Spark's JVM, which supports every URL that Spark does.

For files of a few kilobytes on the driver: one or two calls into the JVM each, no listing except `list_names`. Errors
of the file system become `RetryableError`s; a location that cannot be right, `InvalidRequestError`.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError

from varvite.storage.errors import InvalidRequestError, MayHaveHappenedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_MISSING: Final = frozenset({"java.io.FileNotFoundException", "java.nio.file.NoSuchFileException"})
_EXISTS: Final = frozenset(
    {
        "org.apache.hadoop.fs.FileAlreadyExistsException",
        "java.nio.file.FileAlreadyExistsException",
        "org.apache.spark.SparkFileAlreadyExistsException",
    }
)
_DAMAGED: Final = frozenset({"org.apache.hadoop.fs.ChecksumException"})
_NO_FILE_CONTEXT: Final = "UnsupportedFileSystemException"
"""Class of Hadoop's error if a file system is none of FileContext's."""

_FILE_MANAGER_PACKAGES: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing",
    "org.apache.spark.sql.execution.streaming",
)
"""Packages of Spark's way to write a file as a whole; Spark 4.1 moved it."""


class FileInfo(NamedTuple):
    """A file as the file system lists it."""

    url: str
    """Its URI."""
    size_bytes: int
    time_ms: int
    replication: int
    block_bytes: int


class DamagedFileError(Exception):
    """The file's bytes do not match the file system's own checksum."""


class HadoopDirectory:
    """One directory, which need not exist; names are relative to it.

    Raises:
        InvalidRequestError: Spark knows no file system for that location.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        if getattr(spark, "_jsparkSession", None) is None:
            raise InvalidRequestError(
                "varvite needs a classic Spark session, not Spark Connect: start the job on a driver"
            )
        jvm: Any = spark._jvm  # noqa: SLF001  there is no public way to Hadoop's file systems
        session: Any = spark._jsparkSession  # noqa: SLF001
        self._jvm = jvm
        self._path_class: Any = jvm.org.apache.hadoop.fs.Path
        try:
            path = self._path_class(location)
            self._conf: Any = session.sessionState().newHadoopConf()
            self._files: Any = path.getFileSystem(self._conf)
            self._root: Any = self._files.makeQualified(path)
            self._managers: dict[str, Any] = {}
            url = self._root.toUri()
            self.local_path = Path(url.getPath()) if url.getScheme() == "file" else None
            """The directory's path, if it is of the local file system."""
        except Py4JJavaError as error:
            raise InvalidRequestError(f"{location!r} is no location that Spark can use: {_reason(error)}") from None

    @property
    def location(self) -> str:
        """The directory's full URL."""
        return self._root.toString()

    def url(self, name: str) -> str:
        """Full URL of a name."""
        return self._path(name).toString()

    def read(self, name: str) -> bytes | None:
        """The whole file; None if there is none.

        Raises:
            DamagedFileError: The file system's checksum does not match.
            MayHaveHappenedError: It failed otherwise.
        """
        if self._is_absent(name):
            return None
        try:
            with self._translated("reading", name):
                stream = self._files.open(self._path(name))
                try:
                    return bytes(stream.readAllBytes())
                finally:
                    stream.close()
        except FileNotFoundError:
            return None

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that does not exist; False if it does. Directories above it are made.

        A reader may see a file that is being written: check its content. Raises `MayHaveHappenedError`.
        """
        try:
            with self._translated("writing", name):
                stream = self._files.create(self._path(name), False)
                try:
                    stream.write(bytearray(data))
                finally:
                    stream.close()
        except FileExistsError:
            return False
        return True

    def create_whole(self, name: str, data: bytes) -> bool:
        """Write a file that no reader sees in part; False if it exists.

        By Spark's own means for its logs (`spark.sql.streaming.checkpointFileManagerClass`), with their limits: not
        every file system refuses the second of two writers at the same moment. The directory above it must exist.
        Raises `MayHaveHappenedError`.
        """
        try:
            self._write_whole("CheckpointFileManager", name, data, overwrite=False)
        except FileExistsError:
            return False
        return True

    def replace_whole(self, name: str, data: bytes) -> None:
        """Write a file in the place of another one; no reader sees it in part.

        A file system without Hadoop's FileContext cannot replace one: there is no file between the two, for a moment.
        Raises `MayHaveHappenedError`.
        """
        # The manager that renames by FileSystem leaves the old file where it is, and says nothing.
        try:
            self._write_whole("FileContextBasedCheckpointFileManager", name, data, overwrite=True)
        except MayHaveHappenedError as error:
            if _NO_FILE_CONTEXT not in str(error):
                raise
            self.delete(name)
            self.create_whole(name, data)

    def _write_whole(self, manager: str, name: str, data: bytes, *, overwrite: bool) -> None:
        """Write a file by one of Spark's file managers, which it names."""
        with self._translated("writing", name):
            stream = self._manager(manager).createAtomic(self._path(name), overwrite)
            try:
                stream.write(bytearray(data))
            except BaseException:
                stream.cancel()
                raise
            stream.close()

    def delete(self, name: str) -> None:
        """Delete a file, or a directory with all below, if it is there. Raises `MayHaveHappenedError`."""
        with self._translated("deleting", name):
            self._files.delete(self._path(name), True)

    def list_files(self, name: str = "") -> list[FileInfo]:
        """All files below a directory, in no order; nothing if it does not exist. Raises `MayHaveHappenedError`."""
        infos: list[FileInfo] = []
        if self._is_absent(name):
            return infos
        try:
            with self._translated("listing", name):
                statuses = self._files.listFiles(self._path(name), True)
                while statuses.hasNext():
                    status = statuses.next()
                    url, size_bytes, time_ms = (
                        status.getPath().toUri().toString(), status.getLen(), status.getModificationTime()
                    )  # fmt: skip
                    infos.append(FileInfo(url, size_bytes, time_ms, status.getReplication(), status.getBlockSize()))
        except FileNotFoundError:
            pass
        return infos

    def move(self, name: str, target: str) -> None:
        """Move a file or directory to a name that is free, in one that is there. Raises `MayHaveHappenedError`."""
        with self._translated("moving", name):
            if not self._files.rename(self._path(name), self._path(target)):
                raise MayHaveHappenedError("moving failed, and the file system does not say why", object_name=name)

    def make_directory(self, name: str) -> None:
        """Make a directory and those above it. Raises `MayHaveHappenedError`."""
        with self._translated("making", name):
            self._files.mkdirs(self._path(name))

    def _manager(self, class_name: str) -> Any:
        """One of Spark's file managers for this directory."""
        if class_name not in self._managers:
            package = self._jvm
            for part in self._package_of_managers().split("."):
                package = getattr(package, part)
            kind = getattr(package, class_name)
            make = kind.create if class_name == "CheckpointFileManager" else kind
            self._managers[class_name] = make(self._root, self._conf)
        return self._managers[class_name]

    def _package_of_managers(self) -> str:
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        for package in _FILE_MANAGER_PACKAGES:
            try:
                loader.loadClass(f"{package}.CheckpointFileManager")
            except Py4JJavaError:
                continue
            return package
        raise InvalidRequestError("this version of Spark has no CheckpointFileManager; use one that varvite supports")

    def list_names(self, name: str = "") -> Iterator[str]:
        """Names in a directory below, in no order; nothing if it does not exist. Raises `MayHaveHappenedError`."""
        if self._is_absent(name):
            return
        try:
            with self._translated("listing", name):
                statuses = self._files.listStatusIterator(self._path(name))
                while statuses.hasNext():
                    yield statuses.next().getPath().getName()
        except FileNotFoundError:
            return

    def _is_absent(self, name: str) -> bool:
        """True if a local file does not exist, which Python knows without an exception of Java's."""
        return self.local_path is not None and not (self.local_path / name).exists()

    def _path(self, name: str) -> Any:
        return self._path_class(self._root, name) if name else self._root

    @contextmanager
    def _translated(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            kinds = _kinds(error)
            if kinds & _MISSING:
                raise FileNotFoundError(name) from None
            if kinds & _EXISTS:
                raise FileExistsError(name) from None
            if kinds & _DAMAGED:
                raise DamagedFileError(_reason(error)) from None
            raise MayHaveHappenedError(f"{action} failed: {_reason(error)}", object_name=self.url(name)) from error


def _kinds(error: Py4JJavaError) -> set[str]:
    """Class names of the Java exception and of its causes."""
    kinds: set[str] = set()
    exception: Any = error.java_exception
    while exception is not None and len(kinds) < 20:  # noqa: PLR2004  a chain of causes may be a ring
        kinds.add(exception.getClass().getName())
        exception = exception.getCause()
    return kinds


def _reason(error: Py4JJavaError) -> str:
    return str(error.java_exception.toString()).splitlines()[0]
