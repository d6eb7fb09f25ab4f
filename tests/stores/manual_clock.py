"""A clock that moves only when somebody sleeps or the test moves it."""

from __future__ import annotations

import threading


class ManualClock:
    """Time by hand; `sleeps` records every pause in seconds."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._lock = threading.Lock()
        self._start_ms = now_ms
        self._elapsed_s = 0.0
        self.sleeps: list[float] = []

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed_s * 1000)

    def monotonic_s(self) -> float:
        return self._elapsed_s

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.sleeps.append(seconds)
            self._elapsed_s += seconds

    def advance(self, seconds: float) -> None:
        """Let time pass without a sleep."""
        with self._lock:
            self._elapsed_s += seconds
