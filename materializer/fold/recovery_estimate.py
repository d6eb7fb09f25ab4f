"""How long a restore of a range would take, from what folding its log took so far; pure.

Only a hint for a trigger and for people: nothing but the time of the next materialization depends on it (I10).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

SAMPLE_BYTES_MIN: Final = 64 << 10
"""A shorter log says more about opening files than about replaying."""
NEWEST_PART: Final = 0.3
"""What the newest measurement counts in the moving average."""


@dataclass(frozen=True)
class RecoveryRates:
    """Stored bytes per second; the defaults hold until something was measured."""

    replay_bytes_per_s: float = 20e6
    """Log bytes read, decoded and folded."""
    fetch_bytes_per_s: float = 100e6
    """Snapshot bytes fetched."""

    def replayed(self, size_bytes: int, seconds: float) -> RecoveryRates:
        """After so many log bytes were folded in so many seconds."""
        return replace(self, replay_bytes_per_s=_averaged(self.replay_bytes_per_s, size_bytes, seconds))

    def fetched(self, size_bytes: int, seconds: float) -> RecoveryRates:
        """After a base of so many bytes was fetched in so many seconds."""
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
