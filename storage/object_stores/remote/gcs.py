"""The dialect of Google Cloud Storage through gcsfs, as measured on fake-gcs-server.

* One attempt per request: gcsfs sleeps through 6 of its own (33 s), and drops the status of most errors.
* A random boundary in each upload: that of gcsfs is always the same, and a body that has it is cut there silently.
* An upload in one request is what carries the condition: servers ignore it in uploads in parts.
"""

from __future__ import annotations

import functools
import importlib
import io
import json
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from varvite.storage.clock import SystemTokens
from varvite.storage.object_stores.contract import ObjectMeta
from varvite.storage.object_stores.remote.dialect import (
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

    from varvite.storage.clock import TokenSource

_ERROR_BYTES_MAX: Final = 300
_OBJECT: Final = "b/{}/o/{}"


class GcsError(Exception):
    """An answer that is an error; its facts are where botocore has them."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status} {body[:_ERROR_BYTES_MAX].decode(errors='replace')}")
        is_no_bucket = status == HTTPStatus.NOT_FOUND and b"bucket does not exist" in body
        code = "NoSuchBucket" if is_no_bucket else _reason(body)
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}}

    @property
    def is_missing(self) -> bool:
        """True if there is no such object."""
        status = self.response["ResponseMetadata"]["HTTPStatusCode"]
        return status == HTTPStatus.NOT_FOUND and self.response["Error"]["Code"] != "NoSuchBucket"


def _reason(body: bytes) -> str:
    """The reason that Google's error has, or ""."""
    try:
        return str(json.loads(body)["error"]["errors"][0]["reason"])
    except (ValueError, KeyError, IndexError, TypeError):
        return ""


class GcsDialect(FsspecDialect):
    """Google Cloud Storage; the first segment of a path is the bucket."""

    library = "gcsfs"
    service = "Google Cloud Storage"

    def __init__(
        self, kind: Any, url: str, user_options: Mapping[str, Any], *, tokens: TokenSource | None = None
    ) -> None:
        super().__init__(kind, url, user_options)
        self._tokens = tokens or SystemTokens()

    def options(self, user_options: Mapping[str, Any]) -> dict[str, Any]:
        http: Any = importlib.import_module("aiohttp")
        timeout = http.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=READ_TIMEOUT_S)
        # A project is asked for to make buckets only; without one, gcsfs would search for it.
        return {"requests_timeout": timeout, "project": "-", **super().options(user_options)}

    def open(self) -> Any:
        fs: Any = super().open()
        fs._request = functools.partial(_request, fs)  # noqa: SLF001
        fs.close_session = only_in_this_process(fs.close_session)
        return fs

    def write(self, client: Any, path: str, data: bytes) -> None:
        self._send(client, path, data)

    def create(self, client: Any, path: str, data: bytes) -> None:
        self._send(client, path, data, ifGenerationMatch="0")

    def _send(self, client: Any, path: str, data: bytes, **condition: str) -> None:
        bucket, _, key = path.partition("/")
        boundary = self._tokens.token()
        about = json.dumps({"name": key})
        head = (
            f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{about}\r\n"
            f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        client.call(
            "POST",
            f"{client._location}/upload/storage/v1/b/{{}}/o",  # noqa: SLF001
            bucket,
            uploadType="multipart",
            headers={"Content-Type": f"multipart/related; boundary={boundary}"},
            data=b"".join((head.encode(), data, f"\r\n--{boundary}--".encode())),
            **condition,
        )

    def upload(self, client: Any, path: str, source: Path) -> None:
        if source.stat().st_size > PART_BYTES:
            # It aborts an upload in parts that fails.
            client.put_file(str(source), path, chunksize=PART_BYTES)
        else:
            self.write(client, path, source.read_bytes())

    def download(self, client: Any, path: str, target: Path) -> None:
        size = self.size(client, path)
        with target.open("wb") as file:
            for start in range(0, size, PART_BYTES):
                file.write(self.read_range(client, path, start, min(PART_BYTES, size - start)))

    def list_page(self, client: Any, prefix: str, start_after: str, rest: str | None) -> Page:
        bucket, _, key_prefix = prefix.partition("/")
        answer = client.call(
            "GET",
            "b/{}/o",
            bucket,
            json_out=True,
            prefix=key_prefix,
            startOffset=start_after.partition("/")[2] or None,
            pageToken=rest,
            fields="items(name,size,updated),nextPageToken",
        )
        metas = [
            ObjectMeta(
                f"{bucket}/{item['name']}", int(item["size"]), datetime.fromisoformat(item["updated"]).timestamp()
            )
            for item in answer.get("items", [])
        ]
        return Page(metas, answer.get("nextPageToken"))

    def size(self, client: Any, path: str) -> int:
        return int(client.call("GET", _OBJECT, *path.split("/", 1), json_out=True, fields="size")["size"])

    def delete(self, client: Any, paths: Sequence[str]) -> None:
        def request(path: str) -> Any:
            return client._call("DELETE", _OBJECT, *path.split("/", 1))  # noqa: SLF001

        run_in(client.loop, delete_each(request, paths, lambda e: isinstance(e, GcsError) and e.is_missing))


async def _request(client: Any, method: str, path: str, *arguments: str, **options: Any) -> tuple[Any, ...]:
    """Send one request; takes and returns what gcsfs's own does.

    Raises `GcsError` for an answer that is an error.
    """
    await client._set_session()  # noqa: SLF001
    headers, body, data = (options.pop(name, None) for name in ("headers", "json", "data"))
    for unused in ("cache_type", "cache_source"):
        options.pop(unused, None)
    sent = client.session.request(
        method=method,
        url=client._format_path(path, arguments),  # noqa: SLF001
        params=client._get_params(options),  # noqa: SLF001
        json=body,
        headers=client._get_headers(headers),  # noqa: SLF001
        data=io.BytesIO(data) if isinstance(data, bytes) else data,  # aiohttp warns of large bytes
        timeout=client.requests_timeout,
    )
    async with sent as answer:
        content = await answer.read()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise GcsError(answer.status, content)
        return answer.status, answer.headers, answer.request_info, content
