"""Small files through Hadoop's FileSystem in Spark's JVM, which supports every URL that Spark does.

For files of a few kilobytes on the driver: one or two calls into the JVM each, no listing except `list_names`. Errors
of the file system become `RetryableError`s; a location that cannot be right, `InvalidRequestError`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from varvite.storage.errors import InvalidRequestError, MayHaveHappenedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_MISSING: Final = frozenset({"java.io.FileNotFoundException", "java.nio.file.NoSuchFileException"})
_EXISTS: Final = frozenset(
    {"org.apache.hadoop.fs.FileAlreadyExistsException", "java.nio.file.FileAlreadyExistsException"}
)
_DAMAGED: Final = frozenset({"org.apache.hadoop.fs.ChecksumException"})


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
        self._path_class: Any = jvm.org.apache.hadoop.fs.Path
        try:
            path = self._path_class(location)
            self._files: Any = path.getFileSystem(session.sessionState().newHadoopConf())
            self._root: Any = self._files.makeQualified(path)
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

    def delete(self, name: str) -> None:
        """Delete a file if it is there. Raises `MayHaveHappenedError`."""
        with self._translated("deleting", name):
            self._files.delete(self._path(name), False)

    def list_names(self, name: str = "") -> Iterator[str]:
        """Names in a directory below, in no order; nothing if it does not exist. Raises `MayHaveHappenedError`."""
        try:
            with self._translated("listing", name):
                statuses = self._files.listStatusIterator(self._path(name))
                while statuses.hasNext():
                    yield statuses.next().getPath().getName()
        except FileNotFoundError:
            return

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
