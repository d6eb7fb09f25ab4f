"""Estimate of a range's restore time, from the times of earlier folds; pure.

A hint for a trigger and for people: nothing but the time of the next materialization depends on it (I10).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

SAMPLE_BYTES_MIN: Final = 64 << 10
"""Smallest log that is measured: with a shorter one most of the time is opening files, not replaying."""
NEWEST_PART: Final = 0.3
"""Weight of the newest measurement in the moving average."""


@dataclass(frozen=True)
class RecoveryRates:
    """Stored bytes per second; the defaults hold until the first measurement."""

    replay_bytes_per_s: float = 20e6
    """Log bytes read, decoded and folded."""
    fetch_bytes_per_s: float = 100e6
    """Snapshot bytes fetched."""

    def replayed(self, size_bytes: int, seconds: float) -> RecoveryRates:
        """The rates after a fold of `size_bytes` of log took `seconds`."""
        return replace(self, replay_bytes_per_s=_averaged(self.replay_bytes_per_s, size_bytes, seconds))

    def fetched(self, size_bytes: int, seconds: float) -> RecoveryRates:
        """The rates after fetching a base of `size_bytes` took `seconds`."""
        return replace(self, fetch_bytes_per_s=_averaged(self.fetch_bytes_per_s, size_bytes, seconds))

    def replay_ms(self, log_bytes: int) -> int:
        """Milliseconds to replay a log."""
        return round(log_bytes / self.replay_bytes_per_s * 1_000)

    def recovery_ms(self, base_bytes: int, log_bytes: int) -> int:
        """Milliseconds to fetch a base and replay the log after it."""
        return round(base_bytes / self.fetch_bytes_per_s * 1_000) + self.replay_ms(log_bytes)


def _averaged(rate: float, size_bytes: int, seconds: float) -> float:
    if size_bytes < SAMPLE_BYTES_MIN or seconds <= 0:
        return rate
    return (1 - NEWEST_PART) * rate + NEWEST_PART * size_bytes / seconds
