"""The unit of a materializer's work: one operator's key groups of a job, and the size of its log and base."""

from __future__ import annotations

import zlib
from dataclasses import dataclass


def jitter_of(name: str) -> float:
    """The place of a range or step of this name among others, at least 0 and below 1; the same in every process."""
    return _hash(name) / (1 << 32)


def _hash(name: str) -> int:
    return zlib.crc32(name.encode())


@dataclass(frozen=True, order=True)
class RangeKey:
    """One operator's key groups `[low, high)` of a job."""

    job_id: str
    operator: str
    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.operator}[{self.low},{self.high})"

    def jitter_ms(self, interval_ms: int) -> int:
        """Delay of the first materialization: the same in every process, at least 0, below `interval_ms`."""
        return _hash(self._identity) % interval_ms

    @property
    def jitter(self) -> float:
        """Its place among other ranges, at least 0 and below 1 (`jitter_of`)."""
        return jitter_of(self._identity)

    @property
    def _identity(self) -> str:
        return f"{self.job_id}/{self.operator}/{self.low}-{self.high}"


@dataclass(frozen=True)
class LogLength:
    """The log that a restore replays for a range, on top of its tile."""

    batches: int = 0
    """Commits of the line after the tile."""
    segments: int = 0
    """Segments of the range among them."""
    size_bytes: int = 0
    """Their stored bytes."""


@dataclass(frozen=True)
class RangeLoad:
    """The size of a range's base and log."""

    log: LogLength = LogLength()
    base_bytes: int | None = None
    """Stored bytes of the base; None: not known."""
    replay_ms: int = 0
    """Estimated time to replay the log."""
    share: float = 1.0
    """Its part of the operator's key groups, above 0."""
