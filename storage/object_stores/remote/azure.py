"""The dialect of Azure Blob Storage, and of ADLS Gen2 by its Blob endpoint, through adlfs, as measured on Azurite.

adlfs opens the account; requests go to the SDK's client directly, because adlfs asks more often than needed and takes a
"?" at the end of a name for a version.

* One attempt per request: the SDK waits for 15 s and more between its own.
* A forked child does not close the parent's connections at its exit: it would wait for the parent's loop for ever.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

from varvite.storage.object_stores.contract import ObjectMeta
from varvite.storage.object_stores.remote.dialect import (
    CONCURRENT_PARTS,
    CONNECT_TIMEOUT_S,
    PART_BYTES,
    READ_TIMEOUT_S,
    FsspecDialect,
    Page,
    delete_each,
    only_in_this_process,
    run_in,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PAGE: Final = 5000
_NO_SUCH_BLOB: Final = "BlobNotFound"
_IS_DIRECTORY: Final = "hdi_isfolder"
"""The metadata of a directory of an account with a hierarchical namespace."""


class AzureDialect(FsspecDialect):
    """Azure Blob Storage; the first segment of a path is the container."""

    library = "adlfs"
    service = "Azure"
    delete_max = 256
    changed_in_names = "\\"  # a "/" to Azure

    def options(self, user_options: Mapping[str, Any]) -> dict[str, Any]:
        timeouts = {"connection_timeout": CONNECT_TIMEOUT_S, "read_timeout": READ_TIMEOUT_S}
        return {**timeouts, **super().options(user_options)}

    def open(self) -> Any:
        fs: Any = super().open()
        config = fs.service_client._config  # noqa: SLF001
        config.retry_policy.total_retries = 0
        config.max_block_size = config.max_single_put_size = PART_BYTES
        _keep_open_in_children(fs)
        return fs

    def read(self, client: Any, path: str) -> bytes:
        return run_in(client.loop, _read(client, path))

    def read_range(self, client: Any, path: str, offset: int, length: int) -> bytes:
        return run_in(client.loop, _read(client, path, offset=offset, length=length))

    def write(self, client: Any, path: str, data: bytes) -> None:
        run_in(client.loop, _write(client, path, data, overwrite=True))

    def create(self, client: Any, path: str, data: bytes) -> None:
        run_in(client.loop, _write(client, path, data, overwrite=False))

    def upload(self, client: Any, path: str, source: Path) -> None:
        with source.open("rb") as file:
            run_in(client.loop, _write(client, path, file, overwrite=True, max_concurrency=CONCURRENT_PARTS))

    def download(self, client: Any, path: str, target: Path) -> None:
        with target.open("wb") as file:
            run_in(client.loop, _read_into(client, path, file))

    def list_page(self, client: Any, prefix: str, start_after: str, rest: str | None) -> Page:  # noqa: ARG002
        container, _, key_prefix = prefix.partition("/")
        blobs, following = run_in(client.loop, _list(client, container, key_prefix, rest))
        metas = [
            ObjectMeta(f"{container}/{blob.name}", blob.size, blob.last_modified.timestamp())
            for blob in blobs
            if not blob.metadata or blob.metadata.get(_IS_DIRECTORY) != "true"
        ]
        return Page(metas, following)

    def size(self, client: Any, path: str) -> int:
        return int(run_in(client.loop, _blob(client, path).get_blob_properties(**client._timeout_kwargs)).size)  # noqa: SLF001

    def delete(self, client: Any, paths: Sequence[str]) -> None:
        def request(path: str) -> Any:
            return _blob(client, path).delete_blob(**client._timeout_kwargs)  # noqa: SLF001

        run_in(client.loop, delete_each(request, paths, lambda e: getattr(e, "error_code", "") == _NO_SUCH_BLOB))


def _keep_open_in_children(fs: Any) -> None:
    """Let a filesystem's connections be closed at exit in this process alone."""
    registry: Any = getattr(weakref.finalize, "_registry")  # noqa: B009
    for finalizer in list(registry):
        alive = finalizer.peek()
        if alive is not None and alive[0] is fs:
            _, close, arguments, options = finalizer.detach()
            weakref.finalize(fs, only_in_this_process(close), *arguments, **options)


def _blob(client: Any, path: str) -> Any:
    container, _, name = path.partition("/")
    return client.service_client.get_blob_client(container, name)


async def _read(client: Any, path: str, **part: int) -> bytes:
    answer = await _blob(client, path).download_blob(max_concurrency=1, **part, **client._timeout_kwargs)  # noqa: SLF001
    return await answer.readall()


async def _read_into(client: Any, path: str, file: Any) -> None:
    answer = await _blob(client, path).download_blob(
        max_concurrency=CONCURRENT_PARTS,
        **client._timeout_kwargs,  # noqa: SLF001
    )
    await answer.readinto(file)


async def _write(client: Any, path: str, data: Any, **options: Any) -> None:
    await _blob(client, path).upload_blob(data, **options, **client._timeout_kwargs)  # noqa: SLF001


async def _list(client: Any, container: str, prefix: str, rest: str | None) -> tuple[list[Any], str | None]:
    blobs = client.service_client.get_container_client(container).list_blobs(
        name_starts_with=prefix,
        results_per_page=_PAGE,
        include=["metadata"],
        **client._timeout_kwargs,  # noqa: SLF001
    )
    pages = blobs.by_page(rest)
    async for page in pages:
        return [blob async for blob in page], pages.continuation_token or None
    return [], None
