"""Measurements of one attempt that a state worker sends along with its summary, so that workers need no polling.

Small and bounded (I10): numbers of the attempt in one width (`AttemptFigures`), which every summary has; and of uploads
counts, and one sample each up to `SAMPLES_MAX` (`UploadFigures`), which an attempt that uploads nothing, the ordinary
case, does not send.
"""

from __future__ import annotations

import math
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from varvite.changelog.working_stores.contract import StoreSize
from varvite.storage.transfer.upload import UploadOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping

SAMPLES_MAX: Final = 256
"""Uploads of one summary that have size, attempts and latency; further ones are only counted."""


# `gc=False` as in `varvite.storage.format.records`: each of thousands of summaries has them.
class UploadFigures(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The uploads of a worker since its last summary."""

    requests: int
    failures: int
    """After all attempts."""
    queue_max: int
    """Most uploads that had been handed in and had not ended."""
    in_flight_max_bytes: int
    """Most bytes of such uploads."""
    ended: tuple[UploadOutcome, ...] = ()
    """Their outcomes; at most `SAMPLES_MAX`."""


class LogRead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The log that a worker read to bring its state to the base."""

    segments: int
    size_bytes: int


NOTHING_READ: Final = LogRead(0, 0)
PHASES: Final = ("restore", "process", "early_upload", "timers", "answer", "checkpoint", "hand_over")
"""Phases of an attempt."""
COUNTS: Final = (
    "rows_in", "rows_out", "event_time_max_ms", "row_bytes_max", "state_rows", "state_bytes", "log_segments",
    "log_bytes", "late_rows",
)  # fmt: skip
"""The whole numbers of `AttemptFigures`, in the order in which they are packed."""
UNKNOWN: Final = -(1 << 63)
"""Packed in place of a number that is not known; of a phase that there was not, NaN."""
_PACKED: Final = struct.Struct(f"<{len(COUNTS)}q{len(PHASES)}d")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFigures:
    """Numbers of one attempt; packed they have one width, so that the driver reads those of thousands as columns."""

    rows_in: int = 0
    rows_out: int = 0
    event_time_max_ms: int | None = None
    """Of the rows; None without any."""
    row_bytes_max: int | None = None
    """Largest mean size of a row of an input Arrow batch; None without input."""
    late_rows: int = 0
    """Rows that were dropped, because they came behind the watermark."""
    state_size: StoreSize | None = None
    """About the state that the worker holds; None if its store cannot say cheaply."""
    log_read: LogRead = NOTHING_READ
    """The log that the worker read to come to the base."""
    timings_ms: Mapping[str, float] = field(default_factory=dict[str, float])
    """By phase (`PHASES`); one that there was not is missing."""

    def packed(self) -> bytes:
        """All of it in one width: `COUNTS`, then `PHASES`, each in eight bytes."""
        size = self.state_size or StoreSize(None, None)
        counts = (self.rows_in, self.rows_out, self.event_time_max_ms, self.row_bytes_max, size.rows, size.size_bytes)
        return _PACKED.pack(
            *(UNKNOWN if count is None else count for count in counts),
            self.log_read.segments,
            self.log_read.size_bytes,
            self.late_rows,
            *(self.timings_ms.get(phase, math.nan) for phase in PHASES),
        )

    @staticmethod
    def unpacked(packed: bytes) -> AttemptFigures:
        """The same again; a `StoreSize` that knows nothing is none."""
        numbers = _PACKED.unpack(packed)
        rows_in, rows_out, event_time_max_ms, row_bytes_max, rows, size_bytes, segments, log_bytes, late_rows = (
            None if count == UNKNOWN else count for count in numbers[: len(COUNTS)]
        )
        phases = zip(PHASES, numbers[len(COUNTS) :], strict=True)
        return AttemptFigures(
            rows_in=rows_in or 0,
            rows_out=rows_out or 0,
            event_time_max_ms=event_time_max_ms,
            row_bytes_max=row_bytes_max,
            late_rows=late_rows or 0,
            state_size=None if rows is None and size_bytes is None else StoreSize(rows, size_bytes),
            log_read=LogRead(segments or 0, log_bytes or 0),
            timings_ms={phase: spent_ms for phase, spent_ms in phases if not math.isnan(spent_ms)},
        )


class UploadRecorder:
    """Counts a worker's uploads, from any thread (`UploadObserver`), until the figures are taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue = 0
        self._in_flight_bytes = 0
        self._begin()

    def _begin(self) -> None:
        self._requests = 0
        self._failures = 0
        self._queue_max = self._queue
        self._in_flight_max_bytes = self._in_flight_bytes
        self._ended: list[UploadOutcome] = []

    def queued(self, size_bytes: int) -> None:
        with self._lock:
            self._requests += 1
            self._queue += 1
            self._in_flight_bytes += size_bytes
            self._queue_max = max(self._queue_max, self._queue)
            self._in_flight_max_bytes = max(self._in_flight_max_bytes, self._in_flight_bytes)

    def ended(self, end: UploadOutcome) -> None:
        with self._lock:
            self._queue -= 1
            self._in_flight_bytes -= end.size_bytes
            self._failures += not end.succeeded
            if len(self._ended) < SAMPLES_MAX:
                self._ended.append(end)

    def take(self) -> UploadFigures | None:
        """The figures since the last call; None if there was no upload."""
        with self._lock:
            if not (self._requests or self._ended or self._failures):
                return None
            figures = UploadFigures(
                self._requests, self._failures, self._queue_max, self._in_flight_max_bytes, tuple(self._ended)
            )
            self._begin()
        return figures
