"""Events of a materializer: frozen records, one JSON line each (`docs/reference/formats/materializer-events.md`)."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import NamedTuple, Protocol

import msgspec

from varvite.storage.format.inspection import inspected
from varvite.storage.visible_text import visible_json


class LogSize(msgspec.Struct, frozen=True, kw_only=True):
    """Log that a restore of a range replays on top of its base."""

    batches: int
    segments: int
    bytes: int


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    job: str
    """The job's name under the root."""
    time_ms: int
    """Wall clock of the materializer; only for people."""


class _RangeEvent(_Event, frozen=True, kw_only=True):
    operator: str
    low: int
    """First key group, inclusive."""
    high: int
    """Last key group, exclusive."""


class Materialized(_RangeEvent, frozen=True, kw_only=True, tag="materialized"):
    """A snapshot was published."""

    trigger: str
    snapshot: int
    """Number of the snapshot."""
    base_seq: int
    """The commit of the base that it was built on; 0 is the empty state."""
    at_seq: int
    """The commit whose state it is."""
    at_batch: int
    batches: int
    """Commits folded from the local copy's version (or the base) on."""
    mutations: int
    """Mutations folded."""
    uploaded_files: int
    uploaded_bytes: int
    reused_files: int
    """Files that an earlier snapshot had uploaded already."""
    reused_bytes: int
    log_before: LogSize
    """Log after the old base, up to the newest final commit."""
    log_after: LogSize
    """The same after the new one: what is left once the job adopts it."""
    duration_ms: int


class Adopted(_RangeEvent, frozen=True, kw_only=True, tag="adopted"):
    """The job took a snapshot of this materializer as its base."""

    snapshot: int
    at_seq: int
    log: LogSize
    """Log after the new base, up to the newest final commit."""


class Failed(_RangeEvent, frozen=True, kw_only=True, tag="failed"):
    """A materialization failed; it is retried, and the job is not affected."""

    error: str
    error_type: str
    object_name: str | None
    failures: int
    """Failures in a row."""
    failing: bool
    """Are they more than `max_failures_allowed`?"""
    retry_ms: int
    """Pause before the retry."""


class Overdue(_RangeEvent, frozen=True, kw_only=True, tag="overdue"):
    """The log of a range is much longer than the limits at which it should be materialized (the watchdog's event)."""

    reason: str
    failures: int
    """Failures in a row, if there are any."""


class Collected(_Event, frozen=True, kw_only=True, tag="collected"):
    """A garbage collection deleted something."""

    deleted: int
    """Objects deleted, of all kinds."""
    entries: int
    """Chain entries among them."""
    segments: int
    """Segments and packs among them."""
    snapshot_files: int
    cut: int
    """Seq below which no retained checkpoint needs anything."""
    duration_ms: int


class JobFailed(_Event, frozen=True, kw_only=True, tag="job-failed"):
    """A step of a whole job failed; it is retried."""

    step: str
    """Text of a `Step`."""
    error: str
    error_type: str
    object_name: str | None
    failures: int
    retry_ms: int


class Waiting(_Event, frozen=True, kw_only=True, tag="waiting"):
    """There is nothing to follow yet; `job` is empty while the materializer waits for any job."""

    message: str


Event = Materialized | Adopted | Failed | Overdue | Collected | JobFailed | Waiting


class Step(Enum):
    """A step of a whole job, with the text that events, metrics and health show."""

    DISCOVER = "listing the jobs"
    FOLLOW = "following the chain"
    HEARTBEAT = "heartbeat"
    LOOK_FOR_REQUESTS = "looking for requests"
    COLLECT = "collecting garbage"
    RETAIN = "retention by time"
    LEAVE = "leaving"


class Skip(StrEnum):
    """The reason not to publish a snapshot."""

    CHANGELOG_OFF = "the job writes its snapshots itself"
    NOTHING_FINAL = "no commit after the base is final"
    NOTHING_CHANGED = "nothing changed since the base"
    AWAITING_ADOPTION = "a published snapshot is not adopted yet"


class FoldFigures(NamedTuple):
    """Amounts and times of a fold."""

    restored: bool
    """Was the base fetched first?"""
    mutations: int
    log_bytes: int
    """Stored bytes of the log that was folded."""
    fold_s: float
    base_bytes: int
    """Bytes of the base that was fetched; 0 if none was."""
    fetch_s: float


class Reporter(Protocol):
    """Receives events; called from one thread."""

    def report(self, event: Event) -> None:
        """Show, write or count one event; must not raise."""
        ...


def encode_event(event: Event) -> bytes:
    """The event as one line of JSON, with the line's end."""
    return visible_json(msgspec.json.encode(event).decode()).encode() + b"\n"


def decode_event(line: bytes | str) -> Event:
    """The event of one line; raises `msgspec.ValidationError` or `msgspec.DecodeError`."""
    return msgspec.json.decode(line, type=inspected(Event))
