"""Clock and randomness as values that are passed in, so that a simulation can own them."""

from __future__ import annotations

import secrets
import time
from typing import Protocol


class Clock(Protocol):
    """The source of time."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch; may jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since boot, sleep included; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block for this time."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        # CLOCK_BOOTTIME counts suspended time, which CLOCK_MONOTONIC does not: a driver that slept must notice.
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class TokenSource(Protocol):
    """The source of 128-bit tags and tokens."""

    def token(self) -> str:
        """32 hex digits, never the same twice."""
        ...


class SystemTokens:
    """Tokens from the operating system's random source."""

    def token(self) -> str:
        return secrets.token_hex(16)
