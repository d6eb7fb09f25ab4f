"""The contract of a log store: a job's log data may be in another place than its snapshots.

Log data is everything under `seg/` and `pack/`: segments and images of batches, packs, and other objects that only one
entry may name (the files of a state that was imported, or written with the changelog off). It is written once, read by
ranges, listed and deleted by the collector. A log store is an `ObjectStore` without put-if-absent, so every
object store is one.

The chain is not log data. Its entries decide which log data exists, which needs put-if-absent and a consistent LIST
(docs/internals/commit-protocol.md), and most log systems have neither. Small changes travel in the entries, and so
beside the snapshots; `checkpoint.inline-size-max=0` sends them to the log.

Invariants that an implementation must keep: I1 (objects are durable when `put` and `put_file` return), I9 (every
process that opens the log of a job sees the objects of all others; no object is only in a machine's memory). Names are
never written again with other bytes, and an object may be read at any time after it was written.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast, runtime_checkable

from varvite.storage.errors import InvalidRequestError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.named_objects import call_named
from varvite.storage.object_stores.open import open_like
from varvite.storage.object_stores.prefixed import PrefixedStore
from varvite.storage.object_stores.whole_objects import WholeObjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from varvite.storage.format.records import LogLocation
    from varvite.storage.object_stores.contract import ObjectMeta, ObjectStore

FILESYSTEM: Final = "filesystem"
"""The log is in an object store: that of the job, or another one."""
STORAGE_VARIABLE: Final = "VARVITE_CHANGELOG_STORAGE"
"""The variable with the only user factory that tools may import."""
AREAS: Final = (layout.SEGMENTS, layout.PACKS)
_METHODS: Final = ("get", "get_range", "put", "list", "delete", "put_file", "get_file")


@runtime_checkable
class LogStore(Protocol):
    """Log data of one job under names; methods are as those of `ObjectStore`, and called from several threads."""

    @property
    def url(self) -> str:
        """The location, for people; without secrets."""
        ...

    def get(self, name: str) -> bytes: ...

    def get_range(self, name: str, offset: int, length: int) -> bytes: ...

    def put(self, name: str, data: bytes) -> None: ...

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]: ...

    def delete(self, names: Iterable[str]) -> None: ...

    def put_file(self, name: str, path: Path) -> None: ...

    def get_file(self, name: str, path: Path) -> None: ...


class LogTarget(NamedTuple):
    """The job whose log a factory opens."""

    job_id: str
    """The job's id: 32 hexadecimal digits, of no other job."""
    job: str
    """The job's directory, for people; it may change."""
    storage_url: str
    """The root of the job's storage."""


class SimpleLogStore(WholeObjects):
    """A base class for log stores that read and write whole objects only.

    Objects have a few MB. Files of imported states, or of a changelog that is off, are as large as an SST file.
    """

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]: ...

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None: ...


class LogObjects:
    """A log store as an `ObjectStore`, for the stores above it, which never call put-if-absent."""

    def __init__(self, log: LogStore) -> None:
        self._log = log
        self.get = log.get
        self.get_range = log.get_range
        self.put = log.put
        self.list = log.list
        self.delete = log.delete
        self.put_file = log.put_file
        self.get_file = log.get_file

    @property
    def url(self) -> str:
        return self._log.url

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Raises `InvalidRequestError`."""
        del data
        raise InvalidRequestError("a log store creates nothing conditionally", object_name=name)

    def link_file(self, name: str, path: Path) -> bool:
        """Returns False: a log store cannot link."""
        del name, path
        return False


def is_log(name: str) -> bool:
    """True for the name of log data, or for a prefix of such names only."""
    return name.startswith(AREAS)


def open_log(root: ObjectStore, location: LogLocation, target: LogTarget, trusted: str | None = None) -> ObjectStore:
    """The log data of a job that is not beside its chain.

    Args:
        root: The job's storage; another object store is opened with its options where they fit.
        location: The location of the log, from `job.json`.
        target: The job.
        trusted: The factory that the job's configuration names; None: that of `VARVITE_CHANGELOG_STORAGE`. A factory is
            never imported only because `job.json` names it: whoever can write that file could run any code.

    Raises `InvalidRequestError` if the log cannot be opened, or its factory is not the trusted one.
    """
    if location.type == FILESYSTEM:
        if location.base_path is None:
            raise InvalidRequestError("the log has no base path, see job.json", object_name=layout.JOB)
        return PrefixedStore(open_like(root, location.base_path), target.job_id, job=target.job)
    trusted = trusted or os.environ.get(STORAGE_VARIABLE)
    if trusted != location.type:
        raise InvalidRequestError(
            f"the job keeps its log in the log storage {location.type!r}, but this process is configured with "
            f"{trusted!r}; set state.changelog.storage, or for tools the variable {STORAGE_VARIABLE}, if you trust "
            "that module",
            object_name=layout.JOB,
        )
    return LogObjects(open_custom_log(location.type, target))


def open_custom_log(name: str, target: LogTarget) -> LogStore:
    """Call a user's factory. Raises `InvalidRequestError` if the result is no log store."""
    log: Any = call_named(name, "log storage factory", "correct the factory", target)
    missing = [method for method in _METHODS if not callable(getattr(log, method, None))]
    if missing or not hasattr(log, "url"):
        raise InvalidRequestError(
            f"the log storage factory {name!r} made a {type(log).__name__}, which is no LogStore: it lacks "
            f"{', '.join(missing or ['url'])}; varvite.extending.SimpleLogStore is a base class"
        )
    return cast("LogStore", log)


def check_log(store: ObjectStore, token: str) -> None:
    """Write, list, read and delete one small object of log data; of slot 0, which no entry has.

    Raises:
        InvalidRequestError: The log storage cannot carry a job's log. The message says why.
        RetryableError: It did not answer.
    """
    name, body = layout.segment(0, "preflight", 0, token, 0), token.encode() * 2
    store.put(name, body)
    listed = [(meta.name, meta.size_bytes) for meta in store.list(name)]
    data = store.get_range(name, 8, 16)
    store.delete([name])
    try:
        store.get(name)
    except MissingObjectError:
        remains = False
    else:
        remains = True
    if listed != [(name, len(body))] or data != body[8:24] or remains:
        raise InvalidRequestError(
            f"the log storage of {store.url} lists {listed} after {name} was written, reads {data!r} of it"
            f"{', and keeps it when it is deleted' if remains else ''}; choose another one"
        )
