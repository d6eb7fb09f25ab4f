"""Asking a materializer to stop: one flag that every long step looks at.

Stopping needs no care (I9: local is cache; an unpublished upload is garbage that the collector finds), only promptness.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

ABANDONED_EXIT_CODE: Final = 3
"""The step that ran at the signal did not stop in time and was abandoned, which harms nothing."""

SLEEP_MAX_MS: Final = (1 << 31) - 1
"""About 25 days: poll() takes no longer time."""
PARENT_POLL_S: Final = 0.5
"""Time between two looks at the parent's id where its end cannot be waited for."""


class Stopped(Exception):  # noqa: N818  not an error: it carries control back to the loop, which is about to end
    """Raised by a step that found the stop flag set; it never leaves the service."""


class StopSignal:
    """Set once, by a signal, by the parent's death or by a caller; waited for and looked at by everybody else.

    A pipe and not a `threading.Event`: a signal handler that sets an event can meet the event's own lock, held by the
    very thread that it interrupted.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._read_end, self._write_end = os.pipe()
        weakref.finalize(self, _close, self._read_end, self._write_end)

    @property
    def is_set(self) -> bool:
        """Whether to stop."""
        return self._is_set

    def set(self) -> None:
        """Ask to stop."""
        if not self._is_set:
            self._is_set = True
            os.write(self._write_end, b"!")

    def wait(self, seconds: float | None) -> bool:
        """Sleep for that long (at most `SLEEP_MAX_MS`; None: no limit) or until asked to stop; whether asked."""
        waiting = select.poll()  # not select(): that takes no descriptor above 1023
        waiting.register(self._read_end, select.POLLIN)
        waiting.poll(None if seconds is None else min(math.ceil(seconds * 1000), SLEEP_MAX_MS))
        return self._is_set

    def check(self) -> None:
        """Raise `Stopped` if asked to stop."""
        if self._is_set:
            raise Stopped


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def stop_on_signals(stop: StopSignal) -> None:
    """SIGTERM and SIGINT ask to stop; a second one ends the process at once. Main thread only."""

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_set:
            os._exit(128 + number)
        stop.set()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


def stop_with_parent(stop: StopSignal, parent_pid: int) -> None:
    """Ask to stop when this process's parent, which must have that id, ends (or has ended already)."""
    threading.Thread(target=_watch_parent, args=(stop, parent_pid), name="varvite-parent", daemon=True).start()


def end_late(stop: StopSignal, grace_s: float) -> None:
    """End the process hard, with `ABANDONED_EXIT_CODE`, if it still runs `grace_s` after it was asked to stop."""

    def watch() -> None:
        stop.wait(None)
        _pause(grace_s)
        os._exit(ABANDONED_EXIT_CODE)

    threading.Thread(target=watch, name="varvite-stop-deadline", daemon=True).start()


def _pause(seconds: float) -> None:
    select.select([], [], [], seconds)


def _watch_parent(stop: StopSignal, parent_pid: int) -> None:
    if sys.platform == "linux":
        _wait_for_end(parent_pid)
    while os.getppid() == parent_pid:  # elsewhere, and where pidfd_open is not allowed
        _pause(PARENT_POLL_S)
    stop.set()


def _wait_for_end(parent_pid: int) -> None:
    """Return when the process ends, or at once if it cannot be watched."""
    try:
        descriptor = os.pidfd_open(parent_pid)
    except OSError:
        return
    try:
        if os.getppid() == parent_pid:  # the id may have been given to another process before it was opened
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll()
    finally:
        os.close(descriptor)
