"""What a state worker measures of one attempt and sends along with its summary, so that nobody has to ask the workers.

Small and bounded (I10): counts, and one sample per upload up to `SAMPLES_MAX`. An attempt that uploads nothing, which
is the ordinary case, sends nothing.
"""

from __future__ import annotations

import threading
from typing import Final

import msgspec

from varve.storage.upload import UploadEnd

SAMPLES_MAX: Final = 256
"""Uploads of one summary of which size, attempts and latency are told; further ones are only counted."""


# `gc=False` as in `varve.storage.records`: each of thousands of summaries has them.
class UploadFigures(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The uploads of a worker since its last summary."""

    requests: int
    failures: int
    """After all attempts."""
    queue_max: int
    """Most uploads that had been handed in and had not ended."""
    in_flight_max_bytes: int
    """Most bytes of such uploads."""
    ended: tuple[UploadEnd, ...] = ()
    """How they ended; at most `SAMPLES_MAX`."""


class LogRead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The log that a worker read to bring its state to the base."""

    segments: int
    size_bytes: int


NOTHING_READ: Final = LogRead(0, 0)


class UploadRecorder:
    """Hears of a worker's uploads, from any thread (`UploadObserver`), until somebody takes the figures."""

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
        self._ended: list[UploadEnd] = []

    def queued(self, size_bytes: int) -> None:
        """See `UploadObserver`."""
        with self._lock:
            self._requests += 1
            self._queue += 1
            self._in_flight_bytes += size_bytes
            self._queue_max = max(self._queue_max, self._queue)
            self._in_flight_max_bytes = max(self._in_flight_max_bytes, self._in_flight_bytes)

    def ended(self, end: UploadEnd) -> None:
        """See `UploadObserver`."""
        with self._lock:
            self._queue -= 1
            self._in_flight_bytes -= end.size_bytes
            self._failures += not end.succeeded
            if len(self._ended) < SAMPLES_MAX:
                self._ended.append(end)

    def take(self) -> UploadFigures | None:
        """What was heard since the last call; None if there was nothing."""
        with self._lock:
            if not (self._requests or self._ended or self._failures):
                return None
            figures = UploadFigures(
                self._requests, self._failures, self._queue_max, self._in_flight_max_bytes, tuple(self._ended)
            )
            self._begin()
        return figures
