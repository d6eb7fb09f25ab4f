"""The meaning of an exception of a client library, above all s3fs and obstore, by HTTP status and error code if any.

All error codes and names of exceptions that varvite looks for are here. An exception's type is not enough: s3fs raises
`OSError(22)` for a failed condition, a bad range and a bad digest alike. obstore says status and code in its text only.
A failed write is never reported as "did not happen": the HTTP client may have sent it twice over a connection that
broke, so that even a refused connection can follow a success.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

from varvite.storage.errors import (
    DidNotHappenError,
    InvalidRequestError,
    MayHaveHappenedError,
    MissingObjectError,
)
from varvite.storage.object_stores.local.errors import did_not_happen

if TYPE_CHECKING:
    from pathlib import Path

    from varvite.storage.errors import VarviteError

_CREDENTIALS: Final = frozenset(
    {
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
        "TokenRefreshRequired",
        "authError",
        "required",
        "AuthenticationFailed",
        "InvalidAuthenticationInfo",
        "AuthorizationException",
    }
)
"""Codes of S3, Google, Azure and Hadoop: key, secret or token are wrong."""
_NO_CREDENTIALS: Final = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "ProfileNotFound",
        "TokenRetrievalError",
        "DefaultCredentialsError",
        "RefreshError",
    }
)
"""Exceptions of botocore and google-auth: no credentials, or they cannot be obtained."""
_WRONG_CALL: Final = frozenset({"ParamValidationError", "ImportError", "ValueError", "InvalidRegionError"})
"""Exceptions of botocore and Python about options or arguments; no request was sent."""
NO_TICKET: Final = "NoKerberosTicket"
"""Code of HDFS: Kerberos, or the NameNode's answer to it, has refused."""
NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})
"""Codes of a bucket, or container, that does not exist."""
_NOT_SUPPORTED: Final = frozenset({"NotImplementedError", "NotSupportedError"})
_WRONG_REGION: Final = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
"""Codes of S3: the bucket is in another region or at another endpoint."""
_TRANSIENT: Final = frozenset(
    {
        "RequestTimeout",
        "IncompleteBody",
        "BadDigest",
        "XAmzContentSHA256Mismatch",
        # Throttling by services of AWS, also by those that provide keys and credentials.
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
        # Google's, with status 403, too.
        "rateLimitExceeded",
        "userRateLimitExceeded",
    }
)
"""Codes of answers with status 400 or 403 that a retry cures: the body was damaged on its way, or throttling."""
_FULL: Final = frozenset(
    {
        "QuotaExceeded",  # Ceph, as 403
        "XMinioStorageFull",
        "XMinioAdminBucketQuotaExceeded",  # as 400
        "InsufficientStorage",
        "InsufficientStorageCapacity",
        "NSQuotaExceededException",
        "DSQuotaExceededException",
        "QuotaByStorageTypeExceededException",
    }
)
"""Codes of a full storage or an exceeded quota."""
_CLOCK: Final = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
"""Codes of S3: this machine's clock is wrong."""
DELETE_DENIED: Final = frozenset({"AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId"})
"""Codes for one object of a bulk delete; a retry does not help."""
NO_SUCH_OBJECT: Final = "NoSuchKey"
"""Code for one object of a bulk delete: it did not exist, which is fine."""
_DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})
_FAILED_STATUS: Final = range(400, 600)
_TRANSPORT: Final = frozenset(
    {
        "OSError",
        "TimeoutError",
        "EOFError",
        "BotoCoreError",
        "ClientError",
        "HttpError",
        "GcsError",
        "AzureError",
        "BaseError",
    }
)
"""Base classes of the exceptions of botocore, gcsfs, adlfs, obstore and the network."""
_OBSTORE_STATUS: Final = re.compile(r"Server returned non-2xx status code: (\d{3})")
_OBSTORE_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_OBSTORE_DEBUG: Final = "\n\nDebug source:"
"""The beginning of that part of a text of obstore's which is not for people."""
_OBSTORE_REDIRECT: Final = "Received redirect without LOCATION"
_OBSTORE_NOT_PARTIAL: Final = "Received non-partial response when range requested"
_OBSTORE_MACHINE_ROLE: Final = re.compile(r"/latest/(api/token|meta-data/iam)")
"""The place where it looks for credentials if nothing else has any."""


@dataclass(frozen=True)
class Failure:
    """The facts of one failed call."""

    kinds: frozenset[str]
    """The names of the exception's class and its bases."""
    status: int | None
    """The HTTP status of the server's answer, None if there was none."""
    code: str
    """The server's error code, "" if there was none."""
    text: str
    """The message, for people."""

    @property
    def is_conflict(self) -> bool:
        """True if a conditional write was refused because the object exists, or is being written."""
        return self.status in (409, 412) or (self.status is None and "FileExistsError" in self.kinds)

    @property
    def is_range_past_end(self) -> bool:
        """True if a ranged read began past the object's end."""
        return self.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or self.code == "InvalidRange"

    @property
    def is_range_ignored(self) -> bool:
        """True if the answer to a ranged read was the whole object, and the client noticed it."""
        return _OBSTORE_NOT_PARTIAL in self.text

    @property
    def is_storage_full(self) -> bool:
        """True if the storage or a quota is full; then the user can free space."""
        return self.code in _FULL or self.status == HTTPStatus.INSUFFICIENT_STORAGE

    @property
    def is_of_storage(self) -> bool:
        """True for a failure of the storage or the network; anything else is a bug and must not be hidden."""
        return self.status is not None or not self.kinds.isdisjoint(_TRANSPORT | _NO_CREDENTIALS | _WRONG_CALL)


def failure(error: BaseException) -> Failure:
    """The facts of an exception: s3fs puts the server's answer into `__cause__`, obstore into the text."""
    if _OBSTORE_DEBUG in str(error):
        return _failure_of_obstore(error)
    response: dict[str, Any] = {}
    for source in (error, error.__cause__):
        answer = getattr(source, "response", None)
        if isinstance(answer, dict):
            response = cast("dict[str, Any]", answer)
            break
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if status is None:
        # adlfs and gcsfs chain or raise exceptions that carry the status themselves.
        status = next((n for n in (_status_of(error), _status_of(error.__cause__)) if n is not None), None)
    return Failure(
        kinds=frozenset(cls.__name__ for cls in type(error).__mro__),
        status=status,
        code=str(response.get("Error", {}).get("Code") or _code_of(error)),
        text=f"{type(error).__name__}: {error.__cause__ or error}",
    )


def _code_of(error: BaseException) -> str:
    """The code that adlfs's exceptions and `HdfsError` have."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def _failure_of_obstore(error: BaseException) -> Failure:
    text = str(error).partition(_OBSTORE_DEBUG)[0]
    kinds = {cls.__name__ for cls in type(error).__mro__}
    status, code = _OBSTORE_STATUS.search(text), _OBSTORE_CODE.search(text)
    if _OBSTORE_MACHINE_ROLE.search(text):
        kinds.add("NoCredentialsError")
    is_redirect = _OBSTORE_REDIRECT in text
    return Failure(
        kinds=frozenset(kinds),
        status=HTTPStatus.MOVED_PERMANENTLY if is_redirect else int(status[1]) if status else None,
        code=code[1] if code else "",
        text=f"{type(error).__name__}: {text}",
    )


def _status_of(error: BaseException | None) -> int | None:
    # aiohttp gives a status to its own failures to read an answer, such as a truncated one: the server sent none.
    if any(cls.__name__ == "HttpProcessingError" for cls in type(error).__mro__):
        return None
    for attribute in ("status_code", "code", "status"):
        value = getattr(error, attribute, None)
        if isinstance(value, int) and value in _FAILED_STATUS:
            return value
    return None


def explain(
    error: Exception, doing: str, name: str | None, *, writes: bool, local: Path | None = None
) -> VarviteError | None:
    """The error to raise instead, or None if the exception is no storage failure and must be passed on.

    Args:
        error: The filesystem's exception.
        doing: The action and its place, for the message.
        name: The object; None for a listing, or a call about several objects.
        writes: True if the call changes the storage.
        local: The local file that the call reads or writes, if any.
    """
    facts = failure(error)
    if not facts.is_of_storage:
        return None
    if local is not None and isinstance(error, OSError) and _is_of_local_disk(error, local, facts, writes=writes):
        return did_not_happen(error, f"{doing}, local file {local}", name)
    advice = None if facts.is_storage_full else _advice(facts)
    if advice:
        return InvalidRequestError(f"{doing}: {advice} ({facts.text})", object_name=name)
    missing = facts.status == HTTPStatus.NOT_FOUND or (facts.status is None and "FileNotFoundError" in facts.kinds)
    if missing and not writes:  # a write's 404 can be a multipart upload that is complete already
        return _missing(doing, name, facts)
    # A refused write may have happened, too: the client may have sent it twice, and the first one filled the storage.
    # Ceph checks the quota before the condition, so it refuses an existing object for want of space.
    kind = MayHaveHappenedError if writes else DidNotHappenError
    return kind(f"{doing}: {_transient_advice(facts, writes=writes)} ({facts.text})", object_name=name)


def _transient_advice(facts: Failure, *, writes: bool) -> str:
    if facts.is_storage_full:
        return "the storage is full: free space or raise the quota, then try again"
    if writes:
        return "no clear answer, the storage may hold it or not; read back, then try again"
    return "no answer from the storage; try again"


def _is_of_local_disk(error: OSError, local: Path, facts: Failure, *, writes: bool) -> bool:
    """True if the local file failed; a download that fills the disk does not name it."""
    return str(error.filename) == str(local) or (not writes and facts.status is None and error.errno in _DISK_ERRORS)


def _missing(doing: str, name: str | None, facts: Failure) -> VarviteError:
    if name is None:  # the listing of a prefix without objects is empty, and not an error
        advice = "the server there has no such bucket, or is no object storage; correct the URL and endpoint_url"
        return InvalidRequestError(f"{doing}: {advice} ({facts.text})")
    return MissingObjectError(f"{doing}: there is no such object ({facts.text})", object_name=name)


def _advice(facts: Failure) -> str | None:
    """The correction that the caller must make, or None if a retry may help; the first rule that applies wins."""
    silent = facts.status is None
    rules = (
        (facts.code in _CREDENTIALS, "the storage refuses the credentials; correct key, secret or token"),
        (
            not facts.kinds.isdisjoint(_NO_CREDENTIALS),
            "there are no usable credentials; give key and secret in the storage options or the environment",
        ),
        (
            facts.code == NO_TICKET,
            "the storage takes no Kerberos ticket of this process; run kinit, or set kerberos_keytab and its principal",
        ),
        (facts.code in NO_BUCKET, "the bucket does not exist; create it or correct the URL"),
        (
            facts.code in _WRONG_REGION or facts.status in (301, 307),
            "the bucket is in another region or at another endpoint; correct region and endpoint_url",
        ),
        (
            facts.code in _CLOCK,
            "the clock of this machine differs too much from the storage's; synchronise it",
        ),
        (
            (facts.status in (401, 403) and facts.code not in _TRANSIENT)
            or (silent and "PermissionError" in facts.kinds),
            "the credentials do not permit this; grant list, read, write and delete on the location",
        ),
        (
            facts.status in (405, 501) or not facts.kinds.isdisjoint(_NOT_SUPPORTED),
            "the storage cannot do this; choose a storage with conditional writes",
        ),
        (
            facts.status in (400, 411, 413, 414) and facts.code not in _TRANSIENT,
            "the storage refuses the request as wrong; correct URL and storage options",
        ),
        (
            "InvalidPathError" in facts.kinds,
            "an object there has an empty part in its name, which obstore cannot list; delete it, or set engine=s3fs",
        ),
        (silent and not facts.kinds.isdisjoint(_WRONG_CALL), "the call is wrong; correct URL and storage options"),
    )
    return next((advice for applies, advice in rules if applies), None)
