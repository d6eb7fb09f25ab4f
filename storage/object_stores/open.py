"""Opens the object store at a URL."""

from __future__ import annotations

import difflib
import os
import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from varvite.storage.errors import InvalidRequestError
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.memory import shared_memory_store
from varvite.storage.object_stores.prefixed import substore
from varvite.storage.object_stores.remote.protocols import PROTOCOLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varvite.storage.object_stores.contract import ObjectStore

_SCHEME: Final = re.compile(r"(file(?=:)|[a-z][a-z0-9+.-]*(?=://)):(.*)", re.DOTALL | re.IGNORECASE)
_SUGGESTED: Final = ("file", *chain.from_iterable(PROTOCOLS), "memory")
_ALIASES: Final[Mapping[str, str]] = {
    "s3n": "s3",
    "minio": "s3",
    "aws": "s3",
    "google": "gs",
    "local": "file",
    "mem": "memory",
}


def local_directory(url: str) -> Path | None:
    """The local directory that a URL of `open_store` names, or None."""
    match = _SCHEME.fullmatch(url)
    if match is None:
        return None if "://" in url else Path(url)
    return Path(_local_path(url, match[2])) if match[1].lower() == "file" else None


def absolute_url(url: str) -> str:
    """The URL in the form that means the same in every process: a relative path is made absolute.

    Raises `InvalidRequestError` for a path that was meant to be a URL.
    """
    if not url or "://" in url or _SCHEME.fullmatch(url):
        return url
    _refuse_almost_url(url)
    return os.path.abspath(url)  # noqa: PTH100 - resolve() would follow a link that may move


def open_store(url: str, storage_options: Mapping[str, Any] | None = None) -> ObjectStore:
    """The store at a URL; nothing is read or written yet.

    Args:
        url: A path, `file:///path` (taken as it stands, `%20` is not a space), `s3://bucket/path`,
            `gs://bucket/path`, `abfss://container@account.dfs.core.windows.net/path`, `hdfs://nameservice/path`,
            `memory://name` (one store per name in this process, for tests), or any other URL of fsspec.
        storage_options: fsspec's options for the URL's filesystem. `exclusive_create=True` vouches that
            `pipe_file(..., mode="create")` of a filesystem other than S3 is atomic. `engine` is the client of S3:
            `obstore`, or `s3fs`; by default the first that is installed and supports the other options.

    Raises `InvalidRequestError` if the URL or the options cannot be right.
    """
    match = _SCHEME.fullmatch(url)
    if not url or (match is None and "://" in url):
        raise InvalidRequestError(
            f"{_without_secrets(url)!r} is not a storage location; give a path or <protocol>://<path>"
        )
    if match is None:
        _refuse_almost_url(url)
        _refuse_options(url, storage_options)
        return LocalStore(url)
    scheme, rest = match[1].lower(), match[2]
    if scheme == "file":
        _refuse_options(url, storage_options)
        return LocalStore(_local_path(url, rest))
    if scheme == "memory":
        _refuse_options(url, storage_options)
        name, _, prefix = rest.removeprefix("//").strip("/").partition("/")
        return substore(shared_memory_store(name), prefix)
    return _open_remote(f"{scheme}:{rest}", scheme, dict(storage_options or {}))


def open_like(store: ObjectStore, url: str) -> ObjectStore:
    """The store at a URL, with the options of `store` if both are of one kind. Errors as `open_store`."""
    return open_beside(url, store.url, getattr(store, "storage_options", None))


def open_beside(url: str, other_url: str, other_options: Mapping[str, Any] | None) -> ObjectStore:
    """The store at a URL, with the options of another URL if both are of one kind. Errors as `open_store`.

    A store of another kind has the credentials of this process's environment.
    """
    is_alike = local_directory(url) is None and _kind(url) == _kind(other_url)
    return open_store(url, other_options if is_alike else None)


def _kind(url: str) -> str:
    scheme = url.partition(":")[0].lower()
    return next((names[0] for names in PROTOCOLS if scheme in names), scheme)


def _open_remote(url: str, scheme: str, options: dict[str, Any]) -> ObjectStore:
    # Imported here: workers with a local store need neither fsspec nor what it loads.
    from varvite.storage.object_stores.remote.engine import known_protocols
    from varvite.storage.object_stores.remote.store import RemoteStore

    protocols = known_protocols()
    if scheme not in protocols:
        close = difflib.get_close_matches(scheme, [*_ALIASES, *_SUGGESTED, *protocols], 1, 0.5)
        suggestion = f"did you mean {_ALIASES.get(close[0], close[0])}://? " if close else ""
        raise InvalidRequestError(
            f"{scheme}:// is no known kind of storage; {suggestion}supported are paths and file:// of a local or "
            "shared filesystem, s3://, gs://, abfss:// and hdfs://. Another filesystem of fsspec is possible if its "
            "put-if-absent is atomic, which the storage option exclusive_create=True vouches"
        )
    exclusive_create = bool(options.pop("exclusive_create", False))
    return RemoteStore(url, options, exclusive_create=exclusive_create)


def _local_path(url: str, rest: str) -> str:
    path = rest
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        path = slash + path
        if host not in ("", "localhost"):
            named = host.rpartition("@")[2]
            raise InvalidRequestError(f"the file URL names the host {named!r}; write file:///path with three slashes")
    if not path.startswith("/"):
        raise InvalidRequestError(f"{url!r} is not absolute; write file:///path, or a plain path")
    return path


def _without_secrets(url: str) -> str:
    """The URL without a user name and password."""
    head, at, tail = url.rpartition("@")
    return f"{head.partition(':')[0] if ':' in head else ''}:…@{tail}" if at else url


def _refuse_almost_url(path: str) -> None:
    """Raises `InvalidRequestError` for a path like `s3:/bucket/x`: a URL that lacks a slash, not an empty directory."""
    scheme, colon, rest = path.partition(":")
    if colon and "/" not in scheme and len(scheme) > 1:
        # Imported here as in `_open_remote`.
        from varvite.storage.object_stores.remote.engine import known_protocols

        if scheme.lower() in {*_SUGGESTED, *_ALIASES, *known_protocols()}:
            shown, rest = _without_secrets(path), rest.rpartition("@")[2].lstrip("/")
            raise InvalidRequestError(
                f"{shown!r} is not a storage location: write {scheme.lower()}://{rest}, or ./{shown} for a directory "
                "of this name"
            )


def _refuse_options(url: str, storage_options: Mapping[str, Any] | None) -> None:
    if storage_options:
        raise InvalidRequestError(f"{url!r} takes no storage options, but got {sorted(storage_options)}; remove them")
