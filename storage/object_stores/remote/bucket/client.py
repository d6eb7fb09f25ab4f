"""The client by which requests for a bucket as a whole are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from varvite.storage.object_stores.remote.engine import ENGINE, S3FS, dialect_of
from varvite.storage.object_stores.remote.process_clients import ProcessClients
from varvite.storage.object_stores.remote.protocols import HDFS_PROTOCOLS, S3_PROTOCOLS

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_STORE: Final = frozenset({ENGINE, "exclusive_create"})
"""Options that no client takes."""


class BucketClient(NamedTuple):
    """A client of this process, and the place that it is for."""

    client: Any
    """That of the storage's dialect; s3fs for S3, because obstore has no such requests."""
    bucket: str
    """The bucket or container; of HDFS the host and the directory."""
    prefix: str
    """Of the names below the URL; ends with a slash, or is empty."""


def bucket_client(url: str, storage_options: Mapping[str, Any]) -> BucketClient:
    """A client for the bucket of a URL. Raises `InvalidRequestError` if URL or options cannot be right."""
    protocol, _, path = url.partition("://")
    options = {name: value for name, value in storage_options.items() if name not in _OF_STORE}
    if protocol in S3_PROTOCOLS:
        options[ENGINE] = S3FS
    dialect = dialect_of(url, options, exclusive_create=False)
    clients = ProcessClients(dialect.open, url=url, library=dialect.library, survives_fork=dialect.survives_fork)
    bucket, _, key = dialect.root.partition("/") if protocol not in HDFS_PROTOCOLS else (path, "", "")
    return BucketClient(clients.client(), bucket, f"{key}/" if key else "")
