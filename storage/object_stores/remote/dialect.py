"""The differences between client libraries; only dialects touch their untyped objects.

A `Dialect` has the requests that a store makes. `Filesystem` is the part of fsspec that every filesystem has, and this
module has the dialect of a filesystem of which nothing else is known.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import posixpath
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, cast

from varvite.storage.errors import InvalidRequestError
from varvite.storage.object_stores.contract import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
    from pathlib import Path

_Answer = TypeVar("_Answer")
CONNECT_TIMEOUT_S: Final = 5
READ_TIMEOUT_S: Final = 20
PART_BYTES: Final = 16 << 20
"""A larger file is sent and fetched in parts of this size."""
CONCURRENT_PARTS: Final = 4
"""Parts of one file that are on their way at a time."""
_DELETES_AT_A_TIME: Final = 8
OF_ALL_FILESYSTEMS: Final = frozenset(
    {"batch_size", "listings_expiry_time", "max_paths", "skip_instance_cache", "use_listings_cache"}
)
"""The options that each filesystem of fsspec takes."""


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
    """Named by their full path, in any order."""
    rest: str | None
    """The position of the next page, None after the last."""


class Dialect(Protocol):
    """The requests to one kind of storage through one client library.

    Paths are full paths of the client; for S3 the first segment is the bucket. Each call but `upload` and `download` is
    one request, sent once. It raises what the library raises, which `errors` explains.
    """

    library: str
    """The package of the client."""
    survives_fork: bool
    """False if the package works in no child of a process that has made a request with it."""
    root: str
    """The path of the store's root."""
    delete_max: int
    """The largest number of objects that one call of `delete` deletes."""
    changed_in_names: str
    """Characters that names in the storage cannot have, or that it replaces: names with them are refused."""

    def open(self) -> Any:
        """Make a client; connects to nothing.

        Raises `ImportError`, `ValueError`, `TypeError` or `KeyError` if the options are wrong.
        """
        ...

    def read(self, client: Any, path: str) -> bytes:
        """The whole object."""
        ...

    def read_range(self, client: Any, path: str, offset: int, length: int) -> bytes:
        """The bytes of a range; fewer if the object ends before it."""
        ...

    def write(self, client: Any, path: str, data: bytes) -> None:
        """Store an object, replacing one of that name."""
        ...

    def create(self, client: Any, path: str, data: bytes) -> None:
        """One exclusive write; the library's own exception if the object exists."""
        ...

    def upload(self, client: Any, path: str, source: Path) -> None:
        """Store a file, in parts if it is large, in bounded memory."""
        ...

    def download(self, client: Any, path: str, target: Path) -> None:
        """Write an object into `target`, which is an empty file, in bounded memory."""
        ...

    def list_page(self, client: Any, prefix: str, start_after: str, rest: str | None) -> Page:
        """Read one page of the objects whose path begins with `prefix`; further objects are allowed."""
        ...

    def size(self, client: Any, path: str) -> int:
        """The size of an object in bytes."""
        ...

    def delete(self, client: Any, paths: Sequence[str]) -> None:
        """Delete at most `delete_max` objects; missing ones are fine. A `VarviteError` has an object's full path."""
        ...


class FsspecDialect:
    """The part that is the same for all filesystems of fsspec."""

    library = "fsspec"
    service = ""
    """The storage, for people; options that its filesystem does not take are refused. Empty: they are not known."""
    survives_fork = True
    delete_max = 100
    changed_in_names = ""
    read_options: Mapping[str, Any] = {}
    """Options that make `cat_file` one request."""
    put_file_options: Mapping[str, Any] = {}
    """Options that bound the memory of `put_file`."""
    get_file_options: Mapping[str, Any] = {}
    """Options that bound the memory of `get_file`."""

    def __init__(self, kind: Any, url: str, user_options: Mapping[str, Any]) -> None:
        """A dialect of a class of filesystems, which has no type stubs; `open` casts its instances.

        Raises `InvalidRequestError` if the filesystem of a service takes no such options.
        """
        if self.service:
            check_names(user_options, OF_ALL_FILESYSTEMS | parameters_of(kind.__init__), f"of {self.service}")
        self._kind = kind
        # Underscored, but documented by fsspec for every implementation to define.
        self.root: str = kind._strip_protocol(url).rstrip("/")  # noqa: SLF001
        self._options: Mapping[str, Any] = {**kind._get_kwargs_from_urls(url), **user_options}  # noqa: SLF001

    def open(self) -> Filesystem:
        return cast("Filesystem", self._kind(**self.options(self._options)))

    def options(self, user_options: Mapping[str, Any]) -> dict[str, Any]:
        """The user's storage options over safe defaults."""
        return {"use_listings_cache": False, "skip_instance_cache": True, **user_options}

    def prepare_write(self, client: Filesystem, path: str) -> None:
        """Make the directories that an object needs."""

    def read(self, client: Filesystem, path: str) -> bytes:
        return client.cat_file(path, **self.read_options)

    def read_range(self, client: Filesystem, path: str, offset: int, length: int) -> bytes:
        return client.cat_file(path, start=offset, end=offset + length, **self.read_options)

    def write(self, client: Filesystem, path: str, data: bytes) -> None:
        self.prepare_write(client, path)
        client.pipe_file(path, data)

    def upload(self, client: Filesystem, path: str, source: Path) -> None:
        self.prepare_write(client, path)
        client.put_file(str(source), path, **self.put_file_options)

    def download(self, client: Filesystem, path: str, target: Path) -> None:
        client.get_file(path, str(target), **self.get_file_options)


def run_in(loop: Any, request: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run a coroutine in the loop of a filesystem."""
    asyncio: Any = importlib.import_module("asyncio")  # loaded by those who have such a loop
    return asyncio.run_coroutine_threadsafe(request, loop).result()


async def delete_each(
    delete: Callable[[str], Coroutine[Any, Any, Any]], paths: Sequence[str], is_missing: Callable[[Exception], bool]
) -> None:
    """Delete objects by a request each, a few at a time. Raises the first error that says more than a missing object.

    Args:
        delete: The request to delete the object of a path.
        paths: Of the objects.
        is_missing: Answers whether an error says that there is no such object.
    """
    asyncio: Any = importlib.import_module("asyncio")
    at_a_time = asyncio.Semaphore(_DELETES_AT_A_TIME)

    async def limited(path: str) -> None:
        async with at_a_time:
            await delete(path)

    for error in await asyncio.gather(*map(limited, paths), return_exceptions=True):
        if isinstance(error, BaseException) and not (isinstance(error, Exception) and is_missing(error)):
            raise error


def parameters_of(function: Any) -> set[str]:
    """The names of the options that a function takes."""
    return {*inspect.signature(function).parameters} - {"self", "kwargs"}


def check_names(names: Iterable[str], allowed: Collection[str], where: str) -> None:
    """Raises `InvalidRequestError` for an option that does not exist, with the nearest one that does."""
    for name in names:
        if name not in allowed:
            close = difflib.get_close_matches(name, sorted(allowed), 1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(sorted(allowed))}"
            raise InvalidRequestError(f"{name!r} is no storage option {where}{hint}")


def only_in_this_process(close: Callable[..., None]) -> Callable[..., None]:
    """Wrap `close` to do nothing in a forked child, where it would close the parent's connections."""
    owner = os.getpid()

    def close_if_owner(*arguments: Any) -> None:
        if os.getpid() == owner:
            close(*arguments)

    return close_if_owner


class GenericDialect(FsspecDialect):
    """A filesystem of which only fsspec's common interface is known.

    Its `mode="create"` need not be exclusive (most of fsspec's own filesystems check first and write then), so
    put-if-absent is refused unless the user vouches for it.
    """

    def __init__(self, kind: Any, url: str, user_options: Mapping[str, Any], *, exclusive_create: bool) -> None:
        super().__init__(kind, url, user_options)
        self._protocol = url.partition("://")[0]
        self._exclusive_create = exclusive_create

    def prepare_write(self, client: Filesystem, path: str) -> None:
        client.makedirs(posixpath.dirname(path), exist_ok=True)

    def create(self, client: Filesystem, path: str, data: bytes) -> None:
        if not self._exclusive_create:
            raise InvalidRequestError(
                f"{self._protocol}:// is not known to write an object only if it is absent, which a job's storage "
                "needs; use a local directory or s3://, or pass exclusive_create=True if you know that "
                'pipe_file(..., mode="create") of this filesystem is atomic'
            )
        self.prepare_write(client, path)
        client.pipe_file(path, data, mode="create")

    def list_page(self, client: Filesystem, prefix: str, start_after: str, rest: str | None) -> Page:  # noqa: ARG002
        files = _files_below(client, prefix.rpartition("/")[0])
        return Page([ObjectMeta(path, int(info["size"] or 0), _modified_s(info)) for path, info in files.items()], None)

    def size(self, client: Filesystem, path: str) -> int:
        return int(client.info(path)["size"])

    def delete(self, client: Filesystem, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                client.rm_file(path)


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
