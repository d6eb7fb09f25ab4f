"""A bounded number of bytes in flight; further callers wait, first come first served (I10).

Bytes of an upload that was given up are still held by a hanging thread, and count until it releases them. They must not
block everything else, though: such a thread may never end. So a single amount is admitted beside them, one at a time,
until `GIVEN_UP_MAX` are given up; from then on it waits until one of those ends, or all fits. The bytes held are
thereby bounded: the limit, or one larger amount, and `GIVEN_UP_MAX` amounts that hang.
"""

from __future__ import annotations

import threading
from typing import Final

GIVEN_UP_MAX: Final = 8
"""With this number of amounts given up, nothing is admitted beyond the limit."""


class ByteBudget:
    """At most `limit_bytes` taken at a time; a larger amount is admitted alone."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._taken_bytes = 0
        self._given_up_bytes = 0
        self._given_up = 0
        self._changed = threading.Condition()
        # Held while waiting, so that small amounts cannot starve a large one.
        self._turn = threading.Lock()

    @property
    def taken_bytes(self) -> int:
        """Bytes in flight, without those given up."""
        return self._taken_bytes

    @property
    def given_up_bytes(self) -> int:
        """Bytes that were given up and are still held."""
        return self._given_up_bytes

    def resize(self, limit_bytes: int) -> None:
        """Change the limit; bytes that are taken stay taken."""
        with self._changed:
            self._limit_bytes = limit_bytes
            self._changed.notify_all()

    def take(self, size_bytes: int, timeout_s: float | None = None) -> bool:
        """Take `size_bytes` bytes; blocks until they fit.

        Returns False if it is not this caller's turn within `timeout_s`, or if they do not fit within that time after.
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
        """Mark bytes that were taken as given up: nobody waits for them, but they are still held."""
        with self._changed:
            self._taken_bytes -= size_bytes
            self._given_up_bytes += size_bytes
            self._given_up += 1
            self._changed.notify_all()

    def give_back(self, size_bytes: int, *, given_up: bool = False) -> None:
        """Release bytes that were taken; `given_up`: after `give_up`."""
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
