"""Uploads in parts that nobody has completed: killed processes leave them, and S3 bills their parts.

Google and Azure delete theirs after a week; HDFS has none.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from varvite.storage.object_stores.remote.errors import failure
from varvite.storage.object_stores.remote.protocols import S3_PROTOCOLS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

_log: Final = logging.getLogger(__name__)
_GONE: Final = "NoSuchUpload"


class _Upload(NamedTuple):
    key: str
    upload_id: str
    begun_s: float


def abort_uploads(
    url: str, storage_options: Mapping[str, Any], *, before_s: float, dry_run: bool = False
) -> int | None:
    """Abort the uploads in parts below a URL that began before a time. Their uploaders get an error, and begin again.

    Args:
        url: The objects' names begin with it, and with a slash.
        storage_options: As of `open_store`.
        before_s: In seconds since 1970, by the storage's clock.
        dry_run: Only count.

    Returns:
        Their number; None if the storage deletes its own, or if they could not be listed or aborted: the log says why.
    """
    if url.partition("://")[0] not in S3_PROTOCOLS:
        return None
    # Imported here: who has no such storage needs neither fsspec nor what it loads.
    from varvite.storage.object_stores.remote.bucket.client import bucket_client

    client, bucket, prefix = bucket_client(url, storage_options)
    try:
        uploads = [upload for upload in _uploads(client, bucket, prefix) if upload.begun_s < before_s]
        if not dry_run:
            for upload in uploads:
                _abort(client, bucket, upload)
    except Exception as error:
        facts = failure(error)
        if not facts.is_of_storage:
            raise
        _log.warning("unfinished uploads below %s stay, and are billed: %s", url, facts.code or facts.text)
        return None
    return len(uploads)


def _uploads(client: Any, bucket: str, prefix: str) -> Iterator[_Upload]:
    request = {"Bucket": bucket, "Prefix": prefix}
    while True:
        answer = client.call_s3("list_multipart_uploads", **request)
        for item in answer.get("Uploads", ()):
            begun: datetime = item["Initiated"]
            yield _Upload(item["Key"], item["UploadId"], begun.timestamp())
        if not answer.get("IsTruncated"):
            return
        request |= {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}


def _abort(client: Any, bucket: str, upload: _Upload) -> None:
    try:
        client.call_s3("abort_multipart_upload", Bucket=bucket, Key=upload.key, UploadId=upload.upload_id)
    except Exception as error:
        if failure(error).code != _GONE:  # completed or aborted meanwhile
            raise
