"""Where a job's log data is: the one seam by which a job's log can be kept elsewhere than its snapshots.

Log data is all under `seg/` and `pack/`: segments and images of batches, packs, and what else may be named by one entry
alone (the files of a state that was imported, or written with the changelog off). It is written once, read by ranges,
listed and deleted by the collector: an `ObjectStore` without put-if-absent, so that each of those is a log store.

The chain is no part of it. Its entries decide which log data exists at all, which needs put-if-absent and a consistent
LIST (the commit protocol), and most log systems have neither. What is small enough travels in the entries, and so
beside the snapshots; `checkpoint.inline-size-max=0` keeps it out of them.

Invariants that an implementation must keep: I1 (what `put` and `put_file` stored is durable when they return), I9
(every process that opens the log of a job sees what the others have stored; no machine's memory is part of it). Names
are never written again with other bytes, and a reader of an entry may come at any time after its writer.
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
"""Names the one factory of a user's that tools may use."""
AREAS: Final = (layout.SEGMENTS, layout.PACKS)
_METHODS: Final = ("get", "get_range", "put", "list", "delete", "put_file", "get_file")


@runtime_checkable
class LogStore(Protocol):
    """Log data of one job under names; every method as that of `ObjectStore`, and from several threads."""

    @property
    def url(self) -> str:
        """Where it is, for people; without secrets."""
        ...

    def get(self, name: str) -> bytes: ...

    def get_range(self, name: str, offset: int, length: int) -> bytes: ...

    def put(self, name: str, data: bytes) -> None: ...

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]: ...

    def delete(self, names: Iterable[str]) -> None: ...

    def put_file(self, name: str, path: Path) -> None: ...

    def get_file(self, name: str, path: Path) -> None: ...


class LogTarget(NamedTuple):
    """Whose log a factory is to open."""

    job_id: str
    """The job's id: 32 hexadecimal digits, of no other job."""
    job: str
    """The job's directory, for people; it may change."""
    storage_url: str
    """The root of the job's storage."""


class SimpleLogStore(WholeObjects):
    """A base class for log stores that know whole objects only.

    Objects are a few MB, but for files of imported states and of a changelog that is off: as large as an SST file.
    """

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]: ...

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None: ...


class LogObjects:
    """A log store as an `ObjectStore`, for what stands above it; put-if-absent is not asked for."""

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
        """Never: it is not asked of log stores."""
        del name, path
        return False


def is_log(name: str) -> bool:
    """Whether an object's name, or a prefix of names, is of log data."""
    return name.startswith(AREAS)


def open_log(root: ObjectStore, location: LogLocation, target: LogTarget, trusted: str | None = None) -> ObjectStore:
    """The log data of a job that is not beside its chain.

    Args:
        root: The job's storage; another object store is opened with its options where they fit.
        location: Where the log is, as `job.json` says.
        target: Whose.
        trusted: The factory that the job's configuration names; None: what `VARVITE_CHANGELOG_STORAGE` says. What
            `job.json` names is never imported on its own word: whoever can write it could have any code run.

    Raises `InvalidRequestError` if the log cannot be opened, or its factory is not the trusted one.
    """
    if location.type == FILESYSTEM:
        if location.base_path is None:
            raise InvalidRequestError("the log has no base path, see job.json", object_name=layout.JOB)
        return PrefixedStore(open_like(root, location.base_path), target.job_id, job=target.job)
    trusted = trusted or os.environ.get(STORAGE_VARIABLE)
    if trusted != location.type:
        raise InvalidRequestError(
            f"the job keeps its log in the log storage {location.type!r}, but this process was told {trusted!r}; set "
            f"state.changelog.storage, or for tools the variable {STORAGE_VARIABLE}, if you trust that module",
            object_name=layout.JOB,
        )
    return LogObjects(open_custom_log(location.type, target))


def open_custom_log(name: str, target: LogTarget) -> LogStore:
    """What a factory of the user's makes. Raises `InvalidRequestError` if it is no log store."""
    made: Any = call_named(name, "log storage factory", "correct the factory", target)
    missing = [method for method in _METHODS if not callable(getattr(made, method, None))]
    if missing or not hasattr(made, "url"):
        raise InvalidRequestError(
            f"the log storage factory {name!r} made a {type(made).__name__}, which is no LogStore: it lacks "
            f"{', '.join(missing or ['url'])}; varvite.extending.SimpleLogStore is a base class"
        )
    return cast("LogStore", made)


def check_log(store: ObjectStore, token: str) -> None:
    """Write, list, read and delete one small object of log data; of slot 0, which no entry has.

    Raises:
        InvalidRequestError: The log storage cannot carry a job's log. The message says why.
        RetryableError: It did not answer.
    """
    name, body = layout.segment(0, "preflight", 0, token, 0), token.encode() * 2
    store.put(name, body)
    found = [(meta.name, meta.size_bytes) for meta in store.list(name)]
    data = store.get_range(name, 8, 16)
    store.delete([name])
    try:
        store.get(name)
    except MissingObjectError:
        left = False
    else:
        left = True
    if found != [(name, len(body))] or data != body[8:24] or left:
        raise InvalidRequestError(
            f"the log storage of {store.url} lists {found} after {name} was written, reads {data!r} of it"
            f"{', and keeps it when it is deleted' if left else ''}; choose another one"
        )
