"""Meaning of an exception of s3fs and of obstore: by status and code, never by the type of the exception."""

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


class BaseError(Exception):
    """The base of obstore's exceptions, which are recognised by their names and texts."""


class GenericError(BaseError):
    pass


class InvalidPathError(BaseError):
    pass


def by_obstore(status: str, code: str = "", kind: type[Exception] = GenericError) -> Exception:
    """Exception that obstore makes of a server's answer, as it was seen."""
    body = f"<Error><Code>{code}</Code><Message>m</Message></Error>" if code else ""
    request = "Generic S3 error: Error performing PUT http://x/b/a in 1ms"
    text = f"{request} - Server returned non-2xx status code: {status}: {body}"
    return kind(f'{text}\n\nDebug source:\nGeneric {{\n    store: "S3",\n}}')


def silent(text: str, kind: type[Exception] = GenericError) -> Exception:
    return kind(f"{text}\n\nDebug source:\nGeneric {{ status: 403 }}")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (by_obstore("403 Forbidden", "SignatureDoesNotMatch"), "credentials"),
        (by_obstore("400 Bad Request", "ExpiredToken"), "credentials"),
        (by_obstore("403 Forbidden", "AccessDenied"), "grant list, read, write and delete"),
        (by_obstore("403 Forbidden"), "grant list, read, write and delete"),  # a HEAD has no body
        (by_obstore("404 Not Found", "NoSuchBucket", FileNotFoundError), "bucket does not exist"),
        (by_obstore("403 Forbidden", "RequestTimeTooSkewed"), "clock"),
        (by_obstore("501 Not Implemented", "NotImplemented"), "conditional writes"),
        (silent("Generic S3 error: Received redirect without LOCATION, this normally indicates"), "region"),
        (silent("Error performing PUT http://169.254.169.254/latest/api/token - error sending"), "no usable cred"),
        (silent('Path "n//e" contained empty path segment', InvalidPathError), "empty part in its name"),
    ],
)
@pytest.mark.parametrize("writes", [False, True])
def test_what_obstore_says_is_understood_as_what_s3fs_says(error: Exception, advice: str, writes: bool) -> None:
    found = explain(error, "writing s3://b/a", "a", writes=writes)
    assert isinstance(found, InvalidRequestError)
    assert advice in str(found)
    assert "Debug source" not in str(found)


@pytest.mark.parametrize(
    "error",
    [
        by_obstore("503 Service Unavailable", "SlowDown"),
        by_obstore("400 Bad Request", "RequestTimeout"),
        by_obstore("403 Forbidden", "QuotaExceeded"),
        by_obstore("507 Insufficient Storage"),
        by_obstore("409 Conflict", "OperationAborted"),
        silent("Generic S3 error: Error performing GET http://x/b/a in 1ms - HTTP error: error sending request"),
        silent("Generic S3 error: HTTP error: request or response body error"),
    ],
)
def test_obstores_unclear_write_may_have_happened_and_its_read_did_not(error: Exception) -> None:
    assert type(explain(error, "writing", "a", writes=True)) is MayHaveHappenedError
    assert type(explain(error, "reading", "a", writes=False)) is DidNotHappenError


def test_conflicts_ranges_and_missing_objects_of_obstore_are_seen() -> None:
    assert failure(by_obstore("412 Precondition Failed", "PreconditionFailed")).is_conflict
    assert failure(by_obstore("409 Conflict", "ConditionalRequestConflict")).is_conflict
    assert not failure(by_obstore("503 Service Unavailable", "SlowDown")).is_conflict
    assert failure(by_obstore("416 Range Not Satisfiable", "InvalidRange")).is_range_past_end
    assert failure(silent("Received non-partial response when range requested")).is_range_ignored
    missing = by_obstore("404 Not Found", "NoSuchKey", FileNotFoundError)
    assert type(explain(missing, "reading", "a", writes=False)) is MissingObjectError
    assert type(explain(missing, "writing", "a", writes=True)) is MayHaveHappenedError
