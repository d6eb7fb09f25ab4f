"""The dialect of S3 and its clones through obstore (the Rust crate object_store), as measured on Ceph RGW and moto.

* One attempt per call, as with s3fs.
* It lists whole directories. What of a page does not begin with the prefix is left to the store.
* Its read timeout counts the time of sending, too, so that of large bodies is longer.
* A name that ends with "/" is listed without it, so an empty object is asked for by its name.
* Errors have few classes; their texts have the server's status and code (`errors`).
"""

from __future__ import annotations

import importlib
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from varvite.storage.object_stores.contract import ObjectMeta
from varvite.storage.object_stores.remote.dialect import CONCURRENT_PARTS, PART_BYTES, Page
from varvite.storage.object_stores.remote.errors import NO_SUCH_OBJECT
from varvite.storage.object_stores.remote.s3 import not_deleted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from varvite.storage.object_stores.remote.s3_options import ObstoreOptions

_CHUNK_BYTES: Final = 1 << 20
"""A download is written to disk in pieces of this size."""
_PAGE: Final = 1000
_WHOLE_REQUEST: Final = timedelta(days=1)
"""The client's limit for all of a request; timeouts are for each read."""
_LARGE_BYTES: Final = 1 << 20
_LARGE_TIMEOUTS: Final = 4
"""The sending of a body of `_LARGE_BYTES` or more may take this many read timeouts."""
_NOT_DELETED: Final = re.compile(r"DeleteObjects request failed for key (.*?): (.*?) \(code: (\w*)\)", re.DOTALL)


class _Clients(NamedTuple):
    """The clients of a process. They differ in their read timeout."""

    plain: Any
    patient: Any
    """For large bodies of requests."""

    def for_body(self, size_bytes: int) -> Any:
        """The client that sends a body of this size."""
        return self.patient if size_bytes >= _LARGE_BYTES else self.plain


class ObstoreDialect:
    """S3 through obstore; the first segment of a path is the bucket."""

    library = "obstore"
    survives_fork = False
    changed_in_names = ""
    delete_max = 1000

    def __init__(self, url: str, options: ObstoreOptions) -> None:
        self.root = url.partition("://")[2]
        self._bucket, self._options = self.root.partition("/")[0], options
        self._obstore: Any = None

    def open(self) -> _Clients:
        """Make the clients. Raises `ValueError` if obstore does not take the options."""
        self._obstore = importlib.import_module("obstore")
        try:
            return _Clients(self._store(1), self._store(_LARGE_TIMEOUTS))
        except Exception as error:
            raise ValueError(str(error).partition("\n")[0]) from error

    def _store(self, timeouts: int) -> Any:
        stores: Any = importlib.import_module("obstore.store")
        http = self._options.http
        limits = {
            "connect_timeout": timedelta(seconds=self._options.connect_timeout_s),
            "read_timeout": timedelta(seconds=self._options.read_timeout_s * timeouts),
            "timeout": _WHOLE_REQUEST,
        }
        return stores.S3Store(
            self._bucket,
            config=dict(self._options.config),
            client_options={**http, **limits},
            retry_config={"max_retries": 0},
        )

    def read(self, client: _Clients, path: str) -> bytes:
        return self._obstore.get(client.plain, _key(path)).bytes().to_bytes()

    def read_range(self, client: _Clients, path: str, offset: int, length: int) -> bytes:
        return self._obstore.get_range(client.plain, _key(path), start=offset, length=length).to_bytes()

    def write(self, client: _Clients, path: str, data: bytes) -> None:
        self._obstore.put(client.for_body(len(data)), _key(path), data, use_multipart=False)

    def create(self, client: _Clients, path: str, data: bytes) -> None:
        self._obstore.put(client.for_body(len(data)), _key(path), data, mode="create")

    def upload(self, client: _Clients, path: str, source: Path) -> None:
        # It aborts an upload in parts that fails.
        with source.open("rb") as file:
            store = client.for_body(source.stat().st_size)
            self._obstore.put(store, _key(path), file, chunk_size=PART_BYTES, max_concurrency=CONCURRENT_PARTS)

    def download(self, client: _Clients, path: str, target: Path) -> None:
        with target.open("wb") as file:
            for chunk in self._obstore.get(client.plain, _key(path)).stream(min_chunk_size=_CHUNK_BYTES):
                file.write(chunk)

    def list_page(self, client: _Clients, prefix: str, start_after: str, rest: str | None) -> Page:  # noqa: ARG002
        """All pages: the client goes on by the server's own tokens."""
        directory = _key(prefix).rpartition("/")[0] or None
        pages = self._obstore.list(client.plain, prefix=directory, offset=_key(start_after) or None, chunk_size=_PAGE)
        metas = [
            ObjectMeta(f"{self._bucket}/{item['path']}", int(item["size"]), item["last_modified"].timestamp())
            for page in pages
            for item in page
        ]
        return Page([meta for meta in metas if meta.size_bytes or self._is_object(client, meta.name)], None)

    def size(self, client: _Clients, path: str) -> int:
        return int(self._obstore.head(client.plain, _key(path))["size"])

    def delete(self, client: _Clients, paths: Sequence[str]) -> None:
        error = self._delete(client, paths)
        if error and error["Code"] == NO_SUCH_OBJECT:
            # Only the first error of a request is told, and this one may hide another.
            errors = [self._delete(client, [path]) for path in paths]
            error = next((error for error in errors if error and error["Code"] != NO_SUCH_OBJECT), None)
        if error:
            raise not_deleted(self._bucket, [error], len(paths))

    def _delete(self, client: _Clients, paths: Sequence[str]) -> Mapping[str, str] | None:
        """Send one request; the error of one object, if any was not deleted."""
        try:
            self._obstore.delete(client.plain, [_key(path) for path in paths])
        except Exception as error:
            refused = _NOT_DELETED.search(str(error))
            if refused is None:
                raise
            return {"Key": refused[1], "Message": refused[2], "Code": refused[3]}
        return None

    def _is_object(self, client: _Clients, path: str) -> bool:
        try:
            self.size(client, path)
        except FileNotFoundError:
            return False
        return True


def _key(path: str) -> str:
    return path.partition("/")[2]
