"""The stop flag of a materializer: set by a signal or by the parent's end, checked by every long step.

A step may be abandoned anywhere: the local disk is a cache (I9), and an unpublished upload is garbage.
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
"""Exit code if the step that ran at the signal did not stop in time and was abandoned, which is harmless."""

SLEEP_MAX_MS: Final = (1 << 31) - 1
"""About 25 days: the longest time that poll() takes."""
PARENT_POLL_S: Final = 0.5
"""Time between two checks of the parent's id where its end cannot be waited for."""


class Stopped(Exception):  # noqa: N818  not an error: it carries control back to the loop, which is about to end
    """Raised by a step that finds the stop flag set; it never leaves the service."""


class StopSignal:
    """A flag that is set once, by a signal, by the parent's end or by a caller, and that any thread may wait for.

    It is a pipe and not a `threading.Event`: a signal handler that sets an event can deadlock on the event's own lock,
    held by the thread that it interrupted.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._read_end, self._write_end = os.pipe()
        weakref.finalize(self, _close, self._read_end, self._write_end)

    @property
    def is_set(self) -> bool:
        """Has a stop been requested?"""
        return self._is_set

    def set(self) -> None:
        """Request the stop."""
        if not self._is_set:
            self._is_set = True
            os.write(self._write_end, b"!")

    def wait(self, seconds: float | None) -> bool:
        """Sleep for this time (at most `SLEEP_MAX_MS`; None: no limit) or until the flag is set; True if it is set."""
        waiting = select.poll()  # not select(): that takes no descriptor above 1023
        waiting.register(self._read_end, select.POLLIN)
        waiting.poll(None if seconds is None else min(math.ceil(seconds * 1000), SLEEP_MAX_MS))
        return self._is_set

    def check(self) -> None:
        """Raise `Stopped` if the flag is set."""
        if self._is_set:
            raise Stopped


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def stop_on_signals(stop: StopSignal) -> None:
    """Set the flag at SIGTERM and SIGINT; a second one ends the process at once. Main thread only."""

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_set:
            os._exit(128 + number)
        stop.set()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


def stop_with_parent(stop: StopSignal, parent_pid: int) -> None:
    """Set the flag when this process's parent, which must have that id, ends (or has ended already)."""
    threading.Thread(target=_watch_parent, args=(stop, parent_pid), name="varvite-parent", daemon=True).start()


def end_late(stop: StopSignal, grace_s: float) -> None:
    """End the process hard, with `ABANDONED_EXIT_CODE`, if it still runs `grace_s` after the flag was set."""

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
    """Wait until the process ends; returns at once if it cannot be watched."""
    try:
        descriptor = os.pidfd_open(parent_pid)
    except OSError:
        return
    try:
        if os.getppid() == parent_pid:  # another process may have got the id before it was opened
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll()
    finally:
        os.close(descriptor)
