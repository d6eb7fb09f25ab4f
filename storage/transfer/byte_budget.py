"""A bounded number of bytes in flight; who wants more waits, first come first served (I10).

Bytes that somebody has given up are still held, by a thread that hangs, and count until it lets go of them. They must
not stop everything else, though: nobody can say whether such a thread ever ends. So an amount that is the only one that
somebody waits for is let through beside them, one at a time, until `GIVEN_UP_MAX` are given up; from then on it waits
until one of those ends, or all fits. What is held is thereby bounded: the limit or an amount above it, and
`GIVEN_UP_MAX` amounts that hang.
"""

from __future__ import annotations

import threading
from typing import Final

GIVEN_UP_MAX: Final = 8
"""Amounts that may be given up at the same time before nothing is let through beyond the limit."""


class ByteBudget:
    """At most `limit_bytes` taken at a time; a single larger amount is let through when nobody waits for another."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._taken_bytes = 0
        self._given_up_bytes = 0
        self._given_up = 0
        self._changed = threading.Condition()
        # Held while waiting, so that small amounts cannot overtake a large one for ever.
        self._turn = threading.Lock()

    @property
    def taken_bytes(self) -> int:
        """Bytes in flight now that somebody waits for."""
        return self._taken_bytes

    @property
    def given_up_bytes(self) -> int:
        """Bytes that nobody waits for any more, and that are still held."""
        return self._given_up_bytes

    def resize(self, limit_bytes: int) -> None:
        """Another limit from now on; what is taken stays taken."""
        with self._changed:
            self._limit_bytes = limit_bytes
            self._changed.notify_all()

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

    def give_up(self, size_bytes: int) -> None:
        """Nobody waits for what was taken any more, but it is still held."""
        with self._changed:
            self._taken_bytes -= size_bytes
            self._given_up_bytes += size_bytes
            self._given_up += 1
            self._changed.notify_all()

    def give_back(self, size_bytes: int, *, given_up: bool = False) -> None:
        """Give back what was taken, and perhaps given up since."""
        with self._changed:
            if given_up:
                self._given_up_bytes -= size_bytes
                self._given_up -= 1
            else:
                self._taken_bytes -= size_bytes
            self._changed.notify_all()

    def _fits(self, size_bytes: int) -> bool:
        if self._taken_bytes == 0 and self._given_up < GIVEN_UP_MAX:
            return True
        return self._taken_bytes + self._given_up_bytes + size_bytes <= self._limit_bytes
