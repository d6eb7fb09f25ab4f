"""A bounded number of bytes in flight; who wants more waits, first come first served (I10)."""

from __future__ import annotations

import threading


class ByteBudget:
    """At most `limit_bytes` taken at a time; a single larger amount is let through when nothing else is taken."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._taken_bytes = 0
        self._changed = threading.Condition()
        # Held while waiting, so that small amounts cannot overtake a large one for ever.
        self._turn = threading.Lock()

    @property
    def taken_bytes(self) -> int:
        """Bytes in flight now."""
        return self._taken_bytes

    def take(self, size_bytes: int, timeout_s: float | None = None) -> bool:
        """Take so many bytes; blocks until they fit.

        Returns False if it is not this caller's turn within `timeout_s`, or if they do not fit so long after that.
        """
        if not self._turn.acquire(timeout=-1 if timeout_s is None else timeout_s):
            return False
        try:
            with self._changed:
                if not self._changed.wait_for(lambda: self._fits(size_bytes), timeout_s):
                    return False
                self._taken_bytes += size_bytes
                return True
        finally:
            self._turn.release()

    def give_back(self, size_bytes: int) -> None:
        """Give back what was taken."""
        with self._changed:
            self._taken_bytes -= size_bytes
            self._changed.notify_all()

    def _fits(self, size_bytes: int) -> bool:
        return self._taken_bytes == 0 or self._taken_bytes + size_bytes <= self._limit_bytes
