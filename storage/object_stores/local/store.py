"""The object store on a local (or POSIX network) filesystem.

Every object is one file below the root. A write goes to a temporary file in `<root>/.varvite-tmp`, is synced, then
gets its name by `link` (put-if-absent: the kernel refuses a second one) or `rename` (put), and the directory is
synced before the call returns (I1). So a reader never sees a part of an object. A crash leaves at most a
stale temporary file, which is never listed or read, and which a later process removes. Deletes are not synced: after a
power failure a deleted object may be back.

Where `a` is an object, `a/b` cannot be one: the layout of a job never needs that.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from varvite.storage.clock import SystemTokens
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MissingObjectError
from varvite.storage.object_stores.contract import check_range, truncated
from varvite.storage.object_stores.local.direct_write import write_all
from varvite.storage.object_stores.local.directories import DurableDirectories
from varvite.storage.object_stores.local.errors import did_not_happen, may_have_happened
from varvite.storage.object_stores.local.files import check_source, complete_or_absent
from varvite.storage.object_stores.local.listing import list_below
from varvite.storage.object_stores.names import check_name, check_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import BinaryIO, Never

    from varvite.storage.clock import TokenSource
    from varvite.storage.object_stores.contract import ObjectMeta

    _Publish = Callable[[str, int, str, int], bool]
    """(temporary name, its directory, final name, its directory) -> True if the final name is new."""

TEMPORARY: Final = ".varvite-tmp"
"""The directory of temporary files under the root; no object can be in it."""

STALE_S: Final = 24 * 3600.0
"""A temporary file of this age belongs to a process that is gone. If that process was only suspended, its write fails
without effect."""
_PUBLISH_ATTEMPTS: Final = 8
_COPY_BYTES: Final = 1 << 20


class LocalStore:
    """Durable files below one directory."""

    def __init__(self, root: str | Path, *, tokens: TokenSource | None = None) -> None:
        """The directory is made at the first write. `tokens` names the temporary files.

        Raises `InvalidRequestError` if `root` is no directory and cannot be one, `DidNotHappenError` if the disk
        fails.
        """
        self._root = Path(os.path.abspath(root))  # noqa: PTH100 - resolve() would follow a link that may move
        if "\0" in str(root):
            raise InvalidRequestError(f"{str(root)!r} has a zero character; give a directory as storage location")
        try:
            is_directory = stat.S_ISDIR(self._root.stat().st_mode)
        except FileNotFoundError:
            is_directory = True
        except OSError as error:
            raise did_not_happen(error, f"opening {self._root}") from error
        if not is_directory:
            raise InvalidRequestError(f"{self._root} is not a directory; give a directory as storage location")
        self._tokens = tokens or SystemTokens()
        self._directories = DurableDirectories(self._root)
        self._has_cleaned = False

    @property
    def url(self) -> str:
        return f"file://{self._root}"

    def get(self, name: str) -> bytes:
        path = self._path(name)
        try:
            return path.read_bytes()
        except OSError as error:
            raise self._read_error(error, name) from error

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        check_range(name, offset, length)
        path = self._path(name)
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if offset + length > size:
                    raise truncated(name, offset, length, max(0, size - offset))
                file.seek(offset)
                return file.read(length)
        except OSError as error:
            raise self._read_error(error, name) from error

    def put(self, name: str, data: bytes) -> None:
        self._write(name, partial(_write_all, data), _replace)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._write(name, partial(_write_all, data), _link)

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        check_prefix(prefix)
        try:
            return list_below(self._root, prefix, start_after, hidden=TEMPORARY)
        except OSError as error:
            raise did_not_happen(error, f"listing {prefix!r} in {self._root}") from error

    def delete(self, names: Iterable[str]) -> None:
        for name in [check_name(name) for name in names]:
            path = self._path(name)
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except IsADirectoryError:
                continue  # "a" of an object "a/b": there is no object "a"
            except OSError as error:
                raise did_not_happen(error, f"deleting {path}", name) from error
            self._remove_empty(path.parent)

    def put_file(self, name: str, path: Path) -> None:
        self._write(name, partial(_copy_file, check_source(path)), _replace)

    def get_file(self, name: str, path: Path) -> None:
        source = self._path(name)
        with complete_or_absent(path) as part:
            try:
                with source.open("rb") as file:
                    _copy_to(file, part, name)
            except OSError as error:
                raise self._read_error(error, name) from error

    def link_file(self, name: str, path: Path) -> bool:
        source = self._path(name)
        try:
            os.link(source.resolve(strict=True), path)
        except (FileNotFoundError, NotADirectoryError) as error:
            if not source.is_file():
                raise self._read_error(error, name) from error
            return False  # there is no directory for the link: a fetch has the better error text
        except FileExistsError as error:
            raise InvalidRequestError(f"{path} exists; give a path that does not exist", object_name=name) from error
        except OSError:
            return False  # another filesystem, one without links, too many links, or another user's file
        return True

    def _path(self, name: str) -> Path:
        if check_name(name).split("/", 1)[0] == TEMPORARY:
            raise InvalidRequestError(f"{TEMPORARY} is reserved for temporary files; choose another name")
        return self._root / name

    def _read_error(self, error: OSError, name: str) -> Exception:
        if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
            return MissingObjectError(f"there is no object in {self._root}; restore it", object_name=name)
        return did_not_happen(error, f"reading {self._root / name}", name)

    def _write(self, name: str, fill: Callable[[BinaryIO], None], publish: _Publish) -> bool:
        """Write a temporary file with `fill`, sync it and `publish` it; True if the name is new."""
        self._path(name)
        doing = f"writing {self._root / name}"
        try:
            with self._directories.lease(TEMPORARY) as temporary_fd:
                temporary = self._tokens.token()
                try:
                    written_s = _write_synced(temporary, temporary_fd, fill)
                    self._clean_once(temporary_fd, written_s)
                    return self._publish(temporary, temporary_fd, name, publish)
                finally:
                    with suppress(OSError):
                        os.unlink(temporary, dir_fd=temporary_fd)
        except OSError as error:
            self._directories.drop(TEMPORARY)
            raise did_not_happen(error, doing, name) from error

    def _clean_once(self, temporary_fd: int, now_s: float) -> None:
        """Remove temporary files of killed processes (I10); `now_s` is by the filesystem's clock."""
        if not self._has_cleaned:
            self._has_cleaned = True
            with suppress(OSError):
                _remove_older(temporary_fd, now_s - STALE_S)

    def _publish(self, temporary: str, temporary_fd: int, name: str, publish: _Publish) -> bool:
        """Give the temporary file its name; retry if the directory was removed, empty, meanwhile."""
        directory, _, base = name.rpartition("/")
        for _ in range(_PUBLISH_ATTEMPTS):
            try:
                with self._directories.lease(directory) as fd:
                    return publish(temporary, temporary_fd, base, fd)
            except FileNotFoundError:
                self._directories.drop(directory)
        raise DidNotHappenError(
            f"{self._root / directory} is removed again and again; stop what removes it, then try again",
            object_name=name,
        )

    def _remove_empty(self, directory: Path) -> None:
        """Remove directories that a delete left empty, so that their number stays bounded (I10)."""
        while directory != self._root:
            try:
                directory.rmdir()
            except OSError:
                return
            self._directories.drop(str(directory.relative_to(self._root)))
            directory = directory.parent


def _link(temporary: str, temporary_fd: int, base: str, fd: int) -> bool:
    try:
        os.link(temporary, base, src_dir_fd=temporary_fd, dst_dir_fd=fd, follow_symlinks=False)
    except FileExistsError:
        _check_object(base, fd)
        os.fsync(fd)  # the winner may not have synced it yet
        return False
    except OSError as error:
        _raise_publish_error(error, base)
    try:
        os.fsync(fd)
    except OSError as error:
        # A reader would take the name for a durable success: remove it, so that the caller sends it again.
        with suppress(OSError):
            os.unlink(base, dir_fd=fd)
        raise may_have_happened(error, "syncing the directory", base) from error
    return True


def _replace(temporary: str, temporary_fd: int, base: str, fd: int) -> bool:
    try:
        os.replace(temporary, base, src_dir_fd=temporary_fd, dst_dir_fd=fd)
    except OSError as error:
        _raise_publish_error(error, base)
    try:
        os.fsync(fd)
    except OSError as error:
        raise may_have_happened(error, "syncing the directory", base) from error
    return True


def _raise_publish_error(error: OSError, base: str) -> Never:
    if error.errno in (errno.EIO, errno.ESTALE, errno.ETIMEDOUT):
        raise may_have_happened(error, "naming the written file", base) from error
    raise error


def _check_object(base: str, fd: int) -> None:
    if stat.S_ISDIR(os.stat(base, dir_fd=fd).st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), base)


def _remove_older(directory_fd: int, before_s: float) -> None:
    for name in os.listdir(directory_fd):
        with suppress(OSError):  # removed by another process, or another user's
            if os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mtime < before_s:
                os.unlink(name, dir_fd=directory_fd)


def _write_synced(temporary: str, temporary_fd: int, fill: Callable[[BinaryIO], None]) -> float:
    """Write a temporary file and sync it; returns its time of modification, by the filesystem's clock, in seconds."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=temporary_fd), "wb", buffering=0) as file:
        fill(cast("BinaryIO", file))
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_mtime


def _write_all(data: bytes, file: BinaryIO) -> None:
    write_all(file.fileno(), memoryview(data))


def _copy_file(source: Path, file: BinaryIO) -> None:
    with source.open("rb") as opened:
        shutil.copyfileobj(opened, file, _COPY_BYTES)


def _copy_to(source: BinaryIO, part: Path, name: str) -> None:
    try:
        with part.open("wb") as file:
            shutil.copyfileobj(source, file, _COPY_BYTES)
    except OSError as error:
        raise did_not_happen(error, f"writing {part}", name) from error
