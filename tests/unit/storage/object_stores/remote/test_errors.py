"""Meaning of an exception of s3fs: by status and code, never by the type of the exception."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from aiohttp import ClientPayloadError
from aiohttp.http_exceptions import ContentLengthError
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)
from s3fs.errors import translate_boto_error

from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError, MissingObjectError
from varvite.storage.object_stores.remote.errors import explain, failure


def answered(status: int, code: str = "", **more: str) -> Exception:
    """Exception that s3fs makes of a server's answer."""
    response = {
        "Error": {"Code": code or str(status), "Message": "m", **more},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return translate_boto_error(ClientError(response, "PutObject"))


SILENT = (
    EndpointConnectionError(endpoint_url="http://x"),
    ConnectTimeoutError(endpoint_url="http://x"),
    ReadTimeoutError(endpoint_url="http://x"),
    TimeoutError(),
    ConnectionResetError(errno.ECONNRESET, "reset"),
)


@pytest.mark.parametrize(
    "error",
    [
        answered(412, "PreconditionFailed", Condition="If-None-Match"),  # as AWS says it: FileExistsError
        answered(412, "PreconditionFailed"),  # as Ceph says it: OSError(EINVAL)
        answered(409, "ConditionalRequestConflict"),
        FileExistsError("x"),
    ],
)
def test_a_conflict_is_seen_whatever_the_exception(error: Exception) -> None:
    assert failure(error).is_conflict


@pytest.mark.parametrize("error", [answered(416, "InvalidRange"), answered(400, "BadDigest"), answered(404), *SILENT])
def test_other_failures_are_no_conflict(error: Exception) -> None:
    """s3fs gives `OSError(EINVAL)` for a bad range and a bad digest, too."""
    assert not failure(error).is_conflict


def test_a_range_past_the_end_is_seen() -> None:
    assert failure(answered(416, "InvalidRange")).is_range_past_end
    assert not failure(answered(412, "PreconditionFailed")).is_range_past_end


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (answered(403, "InvalidAccessKeyId"), "credentials"),
        (answered(403, "SignatureDoesNotMatch"), "credentials"),
        (answered(400, "ExpiredToken"), "credentials"),
        (NoCredentialsError(), "no usable credentials"),
        (answered(403, "AccessDenied"), "grant list, read, write and delete"),
        (answered(404, "NoSuchBucket"), "bucket does not exist"),
        (answered(301, "PermanentRedirect"), "region"),
        (answered(400, "AuthorizationHeaderMalformed"), "region"),
        (answered(403, "RequestTimeTooSkewed"), "clock"),
        (answered(403, "RequestExpired"), "clock"),
        (answered(501, "NotImplemented"), "conditional writes"),
        (answered(400, "InvalidBucketName"), "refuses the request as wrong"),
        (ParamValidationError(report="x"), "call is wrong"),
    ],
)
@pytest.mark.parametrize("writes", [False, True])
def test_what_trying_again_cannot_cure_says_what_to_correct(error: Exception, advice: str, writes: bool) -> None:
    found = explain(error, "writing s3://b/a", "a", writes=writes)
    assert isinstance(found, InvalidRequestError)
    assert advice in str(found)
    assert "writing s3://b/a" in str(found)
    assert found.context == {"object_name": "a"}


@pytest.mark.parametrize(
    "error",
    [
        *SILENT,
        answered(500, "InternalError"),
        answered(503, "SlowDown"),
        answered(429, "TooManyRequests"),
        answered(400, "RequestTimeout"),
        answered(400, "BadDigest"),
        answered(400, "ThrottlingException"),
        answered(400, "KMS.ThrottlingException"),  # of the key that encrypts the bucket
        answered(400, "Throttling"),  # of STS, where the credentials are from
    ],
)
def test_an_unclear_write_may_have_happened_and_a_read_did_not(error: Exception) -> None:
    """A refused connection too: the HTTP client may have sent the request before, on a connection that broke."""
    assert type(explain(error, "writing", "a", writes=True)) is MayHaveHappenedError
    assert type(explain(error, "reading", "a", writes=False)) is DidNotHappenError


@pytest.mark.parametrize(
    "error",
    [
        answered(403, "QuotaExceeded"),  # Ceph: of a bucket or a user
        answered(507, "XMinioStorageFull"),
        answered(400, "XMinioAdminBucketQuotaExceeded"),
        answered(507, "InsufficientStorage"),
        answered(503, "InsufficientStorage"),
        answered(500, "InsufficientStorageCapacity"),
        answered(507),
    ],
)
def test_a_full_storage_is_no_lack_of_permission_and_may_be_tried_again(error: Exception) -> None:
    """Not "did not happen" for a write: the client may have sent it twice, and the first one filled the storage."""
    for writes, kind in ((True, MayHaveHappenedError), (False, DidNotHappenError)):
        found = explain(error, "writing s3://b/a", "a", writes=writes)
        assert type(found) is kind
        assert "writing s3://b/a: the storage is full: free space or raise the quota" in str(found)
        assert found.context == {"object_name": "a"}


def test_an_answer_that_ends_early_is_no_refusal() -> None:
    """aiohttp gives its own failure to read the body the number 400."""
    cut = ClientPayloadError("Response payload is not completed")
    cut.__cause__ = ContentLengthError("received 500 of 1000 bytes")
    assert failure(cut).status is None
    assert type(explain(cut, "reading", "a", writes=False)) is DidNotHappenError
    assert type(explain(cut, "writing", "a", writes=True)) is MayHaveHappenedError


def test_a_missing_object_is_missing_only_to_a_reader() -> None:
    """A write's 404 is a multipart upload that was completed already."""
    assert type(explain(answered(404, "NoSuchKey"), "reading", "a", writes=False)) is MissingObjectError
    assert type(explain(FileNotFoundError("a"), "reading", "a", writes=False)) is MissingObjectError
    assert type(explain(answered(404, "NoSuchUpload"), "uploading", "a", writes=True)) is MayHaveHappenedError


def test_a_listing_that_is_not_found_is_of_no_bucket() -> None:
    """A web server that is no S3 answers so; the listing of a prefix without objects is empty."""
    found = explain(answered(404), "listing s3://b/", None, writes=False)
    assert type(found) is InvalidRequestError
    assert "endpoint_url" in str(found)


def test_a_failure_of_the_local_file_is_told_from_one_of_the_storage() -> None:
    local = Path("/local/part")
    full = OSError(errno.ENOSPC, "full", str(local))
    found = explain(full, "downloading", "a", writes=False, local=local)
    assert type(found) is DidNotHappenError
    assert "disk is full" in str(found)
    written = OSError(errno.ENOSPC, "full")  # as write() into an open file says it
    assert "disk is full" in str(explain(written, "downloading", "a", writes=False, local=local))
    assert type(explain(written, "uploading", "a", writes=True, local=local)) is MayHaveHappenedError
    gone = FileNotFoundError(errno.ENOENT, "gone", str(local))
    assert not isinstance(explain(gone, "downloading", "a", writes=False, local=local), MissingObjectError)


@pytest.mark.parametrize("error", [TypeError("x"), KeyError("x"), RuntimeError("x"), AssertionError()])
def test_a_bug_is_not_disguised_as_a_storage_failure(error: Exception) -> None:
    assert explain(error, "reading", "a", writes=False) is None
