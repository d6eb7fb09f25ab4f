"""The dialect of S3 and its clones through s3fs, as measured on Ceph RGW and moto.

* One attempt per call: retries of s3fs and of botocore multiply (50 attempts in 41 s were measured), and `RemoteStore`
  must know how often a write was sent. The HTTP client below may still resend once.
* No listing cache: with it, other clients' objects are invisible and existing ones are "not found".
* Checksum headers only where the protocol requires them: several clones refuse the others. Objects carry their own.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from varvite.storage.errors import InvalidRequestError, MayHaveHappenedError
from varvite.storage.object_stores.contract import ObjectMeta
from varvite.storage.object_stores.remote.dialect import (
    CONCURRENT_PARTS,
    CONNECT_TIMEOUT_S,
    OF_ALL_FILESYSTEMS,
    PART_BYTES,
    READ_TIMEOUT_S,
    FsspecDialect,
    Page,
    check_names,
    only_in_this_process,
    parameters_of,
)
from varvite.storage.object_stores.remote.errors import DELETE_DENIED, NO_SUCH_OBJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varvite.storage.errors import VarviteError
    from varvite.storage.object_stores.remote.dialect import Filesystem

_CONFIG: Final[Mapping[str, Any]] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "read_timeout": READ_TIMEOUT_S,
    "max_pool_connections": 32,
    "retries": {"total_max_attempts": 1, "mode": "standard"},
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}
_MAPPINGS: Final = ("client_kwargs", "config_kwargs", "s3_additional_kwargs")
DIRECTORY_BUCKET: Final = "--x-s3"
"""The suffix of bucket names of S3 Express. Such buckets refuse StartAfter, and a prefix that does not end with "/"."""


class _S3Filesystem(Protocol):
    """The part of `s3fs.S3FileSystem` beyond `Filesystem` that is used, with types."""

    retries: int
    close_session: Callable[..., None]

    def call_s3(self, method: str, **arguments: Any) -> dict[str, Any]: ...


def _s3(fs: Filesystem) -> _S3Filesystem:
    return cast("_S3Filesystem", fs)


def check_options(kind: Any, options: Mapping[str, Any]) -> None:
    """Check that s3fs, botocore and their sessions take these options; connects to nothing.

    Raises `InvalidRequestError`. s3fs itself would fail at its first request, with an error about an internal call.
    """
    session: Any = importlib.import_module("aiobotocore.session").AioSession
    check_names(options, OF_ALL_FILESYSTEMS.union(*map(parameters_of, (kind.__init__, session.__init__))), "of S3")
    for name in _MAPPINGS:
        if not isinstance(options.get(name, {}), Mapping):
            raise InvalidRequestError(f'the storage option {name} is no JSON object; write it like {{"name": value}}')
    client: Any = importlib.import_module("botocore.session").Session.create_client
    names = parameters_of(client) - {"service_name", "config"}
    check_names(options.get("client_kwargs", {}), names, "in client_kwargs")
    config: Any = importlib.import_module("aiobotocore.config").AioConfig
    try:
        config(**{**_CONFIG, **options.get("config_kwargs", {})})
    except Exception as error:
        raise InvalidRequestError(f"the storage option config_kwargs cannot be used: {error}; correct it") from error


class S3Dialect(FsspecDialect):
    """S3 through s3fs; the first segment of a path is the bucket."""

    library = "s3fs"
    read_options: Mapping[str, Any] = {"max_concurrency": 1}  # otherwise a HEAD precedes every GET
    put_file_options: Mapping[str, Any] = {"chunksize": PART_BYTES, "max_concurrency": CONCURRENT_PARTS}
    get_file_options: Mapping[str, Any] = {"chunksize": PART_BYTES, "max_concurrency": CONCURRENT_PARTS}
    delete_max = 1000

    def __init__(self, kind: Any, url: str, user_options: Mapping[str, Any]) -> None:
        """Raises `InvalidRequestError` if s3fs takes no such options."""
        check_options(kind, user_options)
        super().__init__(kind, url, user_options)

    def open(self) -> Filesystem:
        fs = super().open()
        s3 = _s3(fs)
        s3.retries = 1
        s3.close_session = only_in_this_process(s3.close_session)
        return fs

    def options(self, user_options: Mapping[str, Any]) -> dict[str, Any]:
        config = {**_CONFIG, **user_options.get("config_kwargs", {})}
        return {**user_options, "config_kwargs": config, "use_listings_cache": False, "skip_instance_cache": True}

    def create(self, client: Filesystem, path: str, data: bytes) -> None:
        # A chunk as large as the data keeps it one PUT: some servers ignore the condition of a multipart upload.
        client.pipe_file(path, data, mode="create", chunksize=len(data) + 1)

    def list_page(self, client: Filesystem, prefix: str, start_after: str, rest: str | None) -> Page:
        bucket, _, key_prefix = prefix.partition("/")
        if bucket.endswith(DIRECTORY_BUCKET):  # they list whole directories, unordered
            key_prefix, start_after = key_prefix[: key_prefix.rfind("/") + 1], ""
        request = {"Bucket": bucket, "Prefix": key_prefix}
        if rest:
            request["ContinuationToken"] = rest
        elif start_after:
            request["StartAfter"] = start_after.partition("/")[2]
        answer = _s3(client).call_s3("list_objects_v2", **request)
        metas = [
            ObjectMeta(f"{bucket}/{item['Key']}", int(item["Size"]), item["LastModified"].timestamp())
            for item in answer.get("Contents", [])
        ]
        return Page(metas, answer["NextContinuationToken"] if answer.get("IsTruncated") else None)

    def size(self, client: Filesystem, path: str) -> int:
        bucket, _, key = path.partition("/")
        return int(_s3(client).call_s3("head_object", Bucket=bucket, Key=key)["ContentLength"])

    def delete(self, client: Filesystem, paths: Sequence[str]) -> None:
        bucket = paths[0].partition("/")[0]
        keys = [path.partition("/")[2] for path in paths]
        if len(keys) == 1:
            _s3(client).call_s3("delete_object", Bucket=bucket, Key=keys[0])
            return
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        answer = _s3(client).call_s3("delete_objects", Bucket=bucket, Delete=objects)
        # The request succeeds even if the server deleted nothing.
        refused = [e for e in answer.get("Errors", []) if e.get("Code") != NO_SUCH_OBJECT]
        if refused:
            raise not_deleted(bucket, refused, len(keys))


def not_deleted(bucket: str, refused: Sequence[Mapping[str, str]], count: int) -> VarviteError:
    """The error of a request that deleted not all of `count` objects; it names one of them by its full path."""
    denied = [error for error in refused if error.get("Code") in DELETE_DENIED]
    first = [*denied, *refused][0]
    kind, advice = MayHaveHappenedError, "try again"
    if denied:
        kind, advice = InvalidRequestError, "grant list, read, write and delete on the location"
    return kind(
        f"the storage did not delete {len(refused)} of {count} objects, one for {first.get('Code')} "
        f"({first.get('Message')}); {advice}",
        object_name=f"{bucket}/{first.get('Key')}",
    )
