"""What differs between fsspec filesystems; the only modules where their untyped objects are touched.

`Filesystem` is the part of fsspec that every filesystem has. `Dialect` is what varvite must know beyond it: safe
options, how to create exclusively, list and delete. This module has the dialect of a filesystem nothing is known of.
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
    """One answer to LIST."""

    objects: Sequence[ObjectMeta]
    """Named by their full path in the filesystem, in any order."""
    rest: str | None
    """Where the next page begins, None if this was the last."""


class Dialect(Protocol):
    """How to talk to one kind of filesystem; paths are full paths in the filesystem."""

    read_options: Mapping[str, Any]
    """Options that make `cat_file` one request."""
    put_file_options: Mapping[str, Any]
    """Options that bound the memory of `put_file`."""
    get_file_options: Mapping[str, Any]
    """Options that bound the memory of `get_file`."""
    delete_max: int
    """Most objects deleted by one call of `delete`."""

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The user's storage options over safe defaults."""
        ...

    def opened(self, fs: Filesystem) -> None:
        """Prepare a new instance."""
        ...

    def prepare_write(self, fs: Filesystem, path: str) -> None:
        """Make what must exist before an object is written."""
        ...

    def create(self, fs: Filesystem, path: str, data: bytes) -> None:
        """One exclusive write; the filesystem's own exception if the object exists."""
        ...

    def list_page(self, fs: Filesystem, prefix: str, start_after: str, rest: str | None) -> Page:
        """One page of the objects below `prefix`; more than asked for is allowed."""
        ...

    def size(self, fs: Filesystem, path: str) -> int:
        """Bytes of one object."""
        ...

    def delete(self, fs: Filesystem, paths: Sequence[str]) -> None:
        """Delete at most `delete_max` objects; missing ones are fine. A `VarviteError` names one by its full path."""
        ...


class GenericDialect:
    """A filesystem of which only fsspec's common interface is known.

    It is not known whether its `mode="create"` is exclusive (of fsspec's own filesystems most ask first and write
    then), so put-if-absent is refused unless the user vouches for it.
    """

    read_options: Mapping[str, Any] = {}
    put_file_options: Mapping[str, Any] = {}
    get_file_options: Mapping[str, Any] = {}
    delete_max = 100

    def __init__(self, protocol: str, *, exclusive_create: bool) -> None:
        self._protocol = protocol
        self._exclusive_create = exclusive_create

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"use_listings_cache": False, "skip_instance_cache": True, **given}

    def opened(self, fs: Filesystem) -> None:
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
        found = _files_below(fs, prefix.rpartition("/")[0])
        return Page([ObjectMeta(path, int(info["size"] or 0), _modified_s(info)) for path, info in found.items()], None)

    def size(self, fs: Filesystem, path: str) -> int:
        return int(fs.info(path)["size"])

    def delete(self, fs: Filesystem, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                fs.rm_file(path)


def _files_below(fs: Filesystem, directory: str) -> dict[str, dict[str, Any]]:
    """Path and facts of all files below a directory; none if it does not exist."""
    if _lists_itself(type(fs)):
        try:
            return fs.find(directory, detail=True)
        except FileNotFoundError:
            return {}
    # fsspec's own `find` leaves directories out that cannot be read: what it lists may be a part, or nothing at all.
    found: dict[str, dict[str, Any]] = {}
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
                found[name] = entry
            elif name.startswith(f"{path}/"):
                waiting.append(name)
    return found


def _lists_itself(kind: Any) -> bool:
    """Whether a kind of filesystem has a listing of its own for all that is below a directory."""
    every: Any = importlib.import_module("fsspec.spec").AbstractFileSystem
    asynchronous: Any = importlib.import_module("fsspec.asyn").AsyncFileSystem
    walk = asynchronous._find  # noqa: SLF001
    return kind.find is not every.find or getattr(kind, "_find", walk) is not walk


def _modified_s(info: Mapping[str, Any]) -> float:
    for field in ("mtime", "LastModified", "last_modified", "updated", "created"):
        found = info.get(field)
        if isinstance(found, datetime):
            return found.timestamp()
        if isinstance(found, int | float):
            return float(found)
    return 0.0
