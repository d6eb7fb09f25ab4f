"""What an exception of an fsspec filesystem, above all s3fs, means: pure, by HTTP status and code where there is one.

Exception types do not say what happened: s3fs raises `OSError(22)` for a lost condition, a bad range and a bad
digest alike. A failed write is never reported as "did not happen" unless the server refused it: the HTTP client
may have sent a request twice over a connection that broke, so that even a refused connection can follow a success.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

from varvite.storage.errors import (
    DidNotHappenError,
    InvalidRequestError,
    MayHaveHappenedError,
    MissingObjectError,
)
from varvite.storage.object_stores.local.errors import happened_not

if TYPE_CHECKING:
    from pathlib import Path

    from varvite.storage.errors import VarviteError

_CREDENTIALS: Final = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
)
_NO_CREDENTIALS: Final = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "ProfileNotFound",
        "TokenRetrievalError",
    }
)
_WRONG_CALL: Final = frozenset({"ParamValidationError", "ImportError", "ValueError", "InvalidRegionError"})
_WRONG_REGION: Final = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
_PASSING_400: Final = frozenset(
    {
        "RequestTimeout",
        "IncompleteBody",
        "BadDigest",
        "XAmzContentSHA256Mismatch",
        # What services of AWS say that are called too often, also those that give keys and credentials.
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestLimitExceeded",
        "BandwidthLimitExceeded",
        "TooManyRequestsException",
        "KMS.ThrottlingException",
        "IDPCommunicationError",
    }
)
_FULL: Final = frozenset(
    {
        "QuotaExceeded",  # Ceph, as 403
        "XMinioStorageFull",
        "XMinioAdminBucketQuotaExceeded",  # as 400
        "InsufficientStorage",
        "InsufficientStorageCapacity",
    }
)
_CLOCK: Final = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})
_FAILED_STATUS: Final = range(400, 600)
_TRANSPORT: Final = frozenset(
    {"OSError", "TimeoutError", "EOFError", "BotoCoreError", "ClientError", "HttpError", "AzureError"}
)


@dataclass(frozen=True)
class Failure:
    """The facts of one failed call."""

    kinds: frozenset[str]
    """Names of the exception's class and its bases."""
    status: int | None
    """HTTP status of the server's answer, None if there was none."""
    code: str
    """The server's error code, "" if there was none."""
    text: str
    """For people."""

    @property
    def conflict(self) -> bool:
        """Whether a conditional write was refused because the object exists, or is being written."""
        return self.status in (409, 412) or (self.status is None and "FileExistsError" in self.kinds)

    @property
    def range_past_end(self) -> bool:
        """Whether a ranged read began past the object's end."""
        return self.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or self.code == "InvalidRange"

    @property
    def full(self) -> bool:
        """Whether the storage has no room, or a quota is used up; then others can make room."""
        return self.code in _FULL or self.status == HTTPStatus.INSUFFICIENT_STORAGE

    @property
    def known(self) -> bool:
        """Whether it comes from the storage or the way to it; anything else is a bug and must not be disguised."""
        return self.status is not None or not self.kinds.isdisjoint(_TRANSPORT | _NO_CREDENTIALS | _WRONG_CALL)


def failure(error: BaseException) -> Failure:
    """The facts of an exception: s3fs puts the server's answer into `__cause__`."""
    response: dict[str, Any] = {}
    for source in (error, error.__cause__):
        found = getattr(source, "response", None)
        if isinstance(found, dict):
            response = cast("dict[str, Any]", found)
            break
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if status is None:
        # adlfs and gcsfs chain or raise exceptions that carry a number of their own.
        status = next((n for n in (_number(error), _number(error.__cause__)) if n is not None), None)
    return Failure(
        kinds=frozenset(cls.__name__ for cls in type(error).__mro__),
        status=status,
        code=str(response.get("Error", {}).get("Code", "")),
        text=f"{type(error).__name__}: {error.__cause__ or error}",
    )


def _number(error: BaseException | None) -> int | None:
    # aiohttp numbers its own failures to read an answer, such as one that ends early: no server has said that.
    if any(cls.__name__ == "HttpProcessingError" for cls in type(error).__mro__):
        return None
    for attribute in ("status_code", "code", "status"):
        found = getattr(error, attribute, None)
        if isinstance(found, int) and found in _FAILED_STATUS:
            return found
    return None


def explain(
    error: Exception, doing: str, name: str | None, *, writes: bool, local: Path | None = None
) -> VarviteError | None:
    """The error to raise instead, or None if the exception is no storage failure and must be passed on.

    Args:
        error: What the filesystem raised.
        doing: What was tried and where, for the message.
        name: The object; None for a listing, or a call about several.
        writes: Whether the call changes the storage.
        local: The file of this machine that the call reads or writes, if any.
    """
    facts = failure(error)
    if not facts.known:
        return None
    if local is not None and isinstance(error, OSError) and _is_of_local_disk(error, local, facts, writes=writes):
        return happened_not(error, f"{doing}, local file {local}", name)
    advice = None if facts.full else _advice(facts)
    if advice:
        return InvalidRequestError(f"{doing}: {advice} ({facts.text})", object_name=name)
    missing = facts.status == HTTPStatus.NOT_FOUND or (facts.status is None and "FileNotFoundError" in facts.kinds)
    if missing and not writes:  # a write's 404 can be a multipart upload whose completion is done already
        return _missing(doing, name, facts)
    # A refused write may have happened, too: the client may have sent it twice, and the first one filled the storage.
    # Ceph looks at the quota before the condition, so it refuses to create an object that is there as a new one.
    kind = MayHaveHappenedError if writes else DidNotHappenError
    return kind(f"{doing}: {_what_passes(facts, writes=writes)} ({facts.text})", object_name=name)


def _what_passes(facts: Failure, *, writes: bool) -> str:
    if facts.full:
        return "the storage is full: free space or raise the quota, then try again"
    if writes:
        return "no clear answer, the storage may hold it or not; read back, then try again"
    return "no answer from the storage; try again"


def _is_of_local_disk(error: OSError, local: Path, facts: Failure, *, writes: bool) -> bool:
    """Whether this machine's file failed; a download that fills the disk does not name it."""
    return str(error.filename) == str(local) or (not writes and facts.status is None and error.errno in _DISK_ERRORS)


def _missing(doing: str, name: str | None, facts: Failure) -> VarviteError:
    if name is None:  # the listing of a prefix without objects is empty, and not an error
        what = "what answers there knows of no such bucket, or is no object storage; correct the URL and endpoint_url"
        return InvalidRequestError(f"{doing}: {what} ({facts.text})")
    return MissingObjectError(f"{doing}: there is no such object ({facts.text})", object_name=name)


def _advice(facts: Failure) -> str | None:
    """What the caller must correct, or None if nothing; the first rule that applies counts."""
    silent = facts.status is None
    rules = (
        (facts.code in _CREDENTIALS, "the storage refuses the credentials; correct key, secret or token"),
        (
            not facts.kinds.isdisjoint(_NO_CREDENTIALS),
            "there are no usable credentials; give key and secret in the storage options or the environment",
        ),
        (facts.code == "NoSuchBucket", "the bucket does not exist; create it or correct the URL"),
        (
            facts.code in _WRONG_REGION or facts.status in (301, 307),
            "the bucket is in another region or at another endpoint; correct region and endpoint_url",
        ),
        (
            facts.code in _CLOCK,
            "the clock of this machine differs too much from the storage's; synchronise it",
        ),
        (
            facts.status in (401, 403) or (silent and "PermissionError" in facts.kinds),
            "the credentials do not permit this; grant list, read, write and delete on the location",
        ),
        (
            facts.status in (405, 501) or "NotImplementedError" in facts.kinds,
            "the storage cannot do this; choose a storage with conditional writes",
        ),
        (
            facts.status in (400, 411, 413, 414) and facts.code not in _PASSING_400,
            "the storage refuses the request as wrong; correct URL and storage options",
        ),
        (silent and not facts.kinds.isdisjoint(_WRONG_CALL), "the call is wrong; correct URL and storage options"),
    )
    return next((advice for applies, advice in rules if applies), None)
