"""The differences between fsspec filesystems; only dialects touch their untyped objects.

`Filesystem` is the part of fsspec that every filesystem has. A `Dialect` adds safe options, exclusive creation, listing
and deletion. This module has the dialect of a filesystem of which nothing else is known.
"""

from __future__ import annotations

import importlib
import posixpath
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from varvite.storage.errors import InvalidRequestError
from varvite.storage.object_stores.contract import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Filesystem(Protocol):
    """The part of `fsspec.AbstractFileSystem` that is used, with types."""

    def cat_file(self, path: str, **options: Any) -> bytes: ...

    def pipe_file(self, path: str, value: bytes, **options: Any) -> Any: ...

    def put_file(self, lpath: str, rpath: str, **options: Any) -> Any: ...

    def get_file(self, rpath: str, lpath: str, **options: Any) -> Any: ...

    def find(self, path: str, **options: Any) -> Any: ...

    def ls(self, path: str, detail: bool = True) -> Any: ...

    def rm_file(self, path: str) -> Any: ...

    def makedirs(self, path: str, exist_ok: bool = False) -> Any: ...

    def info(self, path: str) -> Any: ...


class Page(NamedTuple):
    """One page of a LIST."""

    objects: Sequence[ObjectMeta]
    """Named by their full path in the filesystem, in any order."""
    rest: str | None
    """The position of the next page, None after the last."""


class Dialect(Protocol):
    """The requests to one kind of filesystem; paths are full paths in the filesystem."""

    read_options: Mapping[str, Any]
    """Options that make `cat_file` one request."""
    put_file_options: Mapping[str, Any]
    """Options that bound the memory of `put_file`."""
    get_file_options: Mapping[str, Any]
    """Options that bound the memory of `get_file`."""
    delete_max: int
    """The largest number of objects that one call of `delete` deletes."""

    def options(self, user_options: Mapping[str, Any]) -> dict[str, Any]:
        """The user's storage options over safe defaults."""
        ...

    def prepare(self, fs: Filesystem) -> None:
        """Prepare a new instance."""
        ...

    def prepare_write(self, fs: Filesystem, path: str) -> None:
        """Make the directories that an object needs."""
        ...

    def create(self, fs: Filesystem, path: str, data: bytes) -> None:
        """One exclusive write; the filesystem's own exception if the object exists."""
        ...

    def list_page(self, fs: Filesystem, prefix: str, start_after: str, rest: str | None) -> Page:
        """Read one page of the objects whose path begins with `prefix`; further objects are allowed."""
        ...

    def size(self, fs: Filesystem, path: str) -> int:
        """The size of an object in bytes."""
        ...

    def delete(self, fs: Filesystem, paths: Sequence[str]) -> None:
        """Delete at most `delete_max` objects; missing ones are fine. A `VarviteError` has an object's full path."""
        ...


class GenericDialect:
    """A filesystem of which only fsspec's common interface is known.

    Its `mode="create"` need not be exclusive (most of fsspec's own filesystems check first and write then), so
    put-if-absent is refused unless the user vouches for it.
    """

    read_options: Mapping[str, Any] = {}
    put_file_options: Mapping[str, Any] = {}
    get_file_options: Mapping[str, Any] = {}
    delete_max = 100

    def __init__(self, protocol: str, *, exclusive_create: bool) -> None:
        self._protocol = protocol
        self._exclusive_create = exclusive_create

    def options(self, user_options: Mapping[str, Any]) -> dict[str, Any]:
        return {"use_listings_cache": False, "skip_instance_cache": True, **user_options}

    def prepare(self, fs: Filesystem) -> None:
        pass

    def prepare_write(self, fs: Filesystem, path: str) -> None:
        fs.makedirs(posixpath.dirname(path), exist_ok=True)

    def create(self, fs: Filesystem, path: str, data: bytes) -> None:
        if not self._exclusive_create:
            raise InvalidRequestError(
                f"{self._protocol}:// is not known to write an object only if it is absent, which a job's storage "
                "needs; use a local directory or s3://, or pass exclusive_create=True if you know that "
                'pipe_file(..., mode="create") of this filesystem is atomic'
            )
        fs.pipe_file(path, data, mode="create")

    def list_page(self, fs: Filesystem, prefix: str, start_after: str, rest: str | None) -> Page:  # noqa: ARG002
        files = _files_below(fs, prefix.rpartition("/")[0])
        return Page([ObjectMeta(path, int(info["size"] or 0), _modified_s(info)) for path, info in files.items()], None)

    def size(self, fs: Filesystem, path: str) -> int:
        return int(fs.info(path)["size"])

    def delete(self, fs: Filesystem, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                fs.rm_file(path)


def _files_below(fs: Filesystem, directory: str) -> dict[str, dict[str, Any]]:
    """Path and info of all files below a directory; none if it does not exist."""
    if _has_own_listing(type(fs)):
        try:
            return fs.find(directory, detail=True)
        except FileNotFoundError:
            return {}
    # fsspec's own `find` skips directories that cannot be read, so its listing may be incomplete.
    files: dict[str, dict[str, Any]] = {}
    waiting = [directory]
    while waiting:
        path = waiting.pop()
        try:
            entries: list[dict[str, Any]] = fs.ls(path, detail=True)
        except FileNotFoundError:
            continue  # it does not exist yet, or was removed meanwhile
        for entry in entries:
            name = str(entry["name"]).rstrip("/")
            if entry["type"] != "directory":
                files[name] = entry
            elif name.startswith(f"{path}/"):
                waiting.append(name)
    return files


def _has_own_listing(kind: Any) -> bool:
    """True if a class of filesystems overrides fsspec's recursive listing."""
    every: Any = importlib.import_module("fsspec.spec").AbstractFileSystem
    asynchronous: Any = importlib.import_module("fsspec.asyn").AsyncFileSystem
    walk = asynchronous._find  # noqa: SLF001
    return kind.find is not every.find or getattr(kind, "_find", walk) is not walk


def _modified_s(info: Mapping[str, Any]) -> float:
    for field in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = info.get(field)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return 0.0
