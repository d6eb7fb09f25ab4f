"""Threads for calls that may never return: a bounded number, none of which delays the end of the process.

Nothing can end a thread that hangs in a call. So its caller declares it lost when it stops waiting, and another thread
replaces it, until `LOST_MAX` are lost at the same time (I10); from then on calls wait until one returns. A lost thread
whose call does return ends.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from varvite.storage.clock import SystemClock
from varvite.storage.errors import DidNotHappenError

if TYPE_CHECKING:
    from collections.abc import Callable

_Answer = TypeVar("_Answer")

LOST_MAX: Final = 32
"""The largest number of hanging threads that are replaced."""
IDLE_S: Final = 1.0
"""A thread that is idle for this long ends."""
_JOIN_POLL_S: Final = 0.01


def no_thread(error: RuntimeError) -> DidNotHappenError:
    """The error of a call for which no thread can be started."""
    return DidNotHappenError(f"no thread can be started ({error}); see what uses them up, then try again")


class AttemptThreads:
    """Runs calls on at most `limit` threads, besides lost ones. May be used by several threads.

    Threads do not survive a fork: construct it in the process that uses it.
    """

    def __init__(self, limit: int, name: str = "varvite-upload-attempt") -> None:
        self.limit = limit
        self._name = name
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads = 0
        self._idle = 0
        self._lost = 0
        self._closed = False

    @property
    def lost(self) -> int:
        """The number of threads in calls that nobody waits for any more."""
        return self._lost

    def submit(self, call: Callable[[], _Answer]) -> Future[_Answer]:
        """Run `call` as soon as a thread is free; after `close` it is cancelled.

        Its error is `DidNotHappenError` if no thread exists and none can be started.
        """
        future: Future[_Answer] = Future()
        with self._changed:
            if self._closed:
                _drop(future)
                return future
            self._waiting.append((future, call))
            self._changed.notify()
            error = self._add_thread()
            if error is None or self._threads > self._lost:  # or a busy thread takes it later
                return future
            self._waiting.remove((future, call))
        future.set_exception(no_thread(error))
        return future

    def give_up(self, future: Future[Any]) -> None:
        """Stop waiting for a call: it is not begun, or its thread counts as lost until the call returns."""
        if future.cancel():
            with self._changed:  # a waiting call holds the bytes of an upload
                self._waiting = deque(work for work in self._waiting if work[0] is not future)
            return
        if future.done():
            return
        with self._changed:
            self._lost += 1
            self._add_thread()
        future.add_done_callback(self._count_returned)

    def join(self, timeout_s: float) -> bool:
        """Wait until no call runs or waits; False if one still does after so long."""
        give_up_s = SystemClock().monotonic_s() + timeout_s
        with self._changed:
            while self._waiting or self._threads > self._idle:
                if SystemClock().monotonic_s() >= give_up_s:
                    return False
                self._changed.wait(_JOIN_POLL_S)
        return True

    def close(self) -> None:
        """Cancel waiting calls; each thread ends with its current call."""
        with self._changed:
            self._closed = True
            dropped = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        for future, _ in dropped:
            _drop(future)

    def _count_returned(self, _: Future[Any]) -> None:
        with self._changed:
            self._lost -= 1
            self._changed.notify_all()

    def _allowed(self) -> int:
        return 0 if self._closed else self.limit + min(self._lost, LOST_MAX)

    def _add_thread(self) -> RuntimeError | None:
        """Start a thread if there is work for it, with the lock held. Returns the error if none can be started."""
        if len(self._waiting) > self._idle and self._threads < self._allowed():
            try:
                # A daemon: a hanging thread must not keep the process alive.
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            except RuntimeError as error:
                return error
            self._threads += 1  # the new thread waits for the lock
        return None

    def _work(self) -> None:
        while (work := self._next()) is not None:
            _run(*work)
            del work  # it holds the bytes of an upload

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """The next call; None if this thread must end."""
        with self._changed:
            self._idle += 1
            if not self._waiting:
                self._changed.wait_for(lambda: self._waiting or self._threads > self._allowed(), IDLE_S)
            self._idle -= 1
            if self._threads > self._allowed() or not self._waiting:
                self._threads -= 1
                self._changed.notify()  # it may have been notified of work that another thread must do now
                return None
            return self._waiting.popleft()


def _drop(future: Future[Any]) -> None:
    """Cancel a call and notify its waiters."""
    future.cancel()
    future.set_running_or_notify_cancel()


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        answer = call()
    except BaseException as error:  # noqa: BLE001  every error belongs to the waiter
        future.set_exception(error)
    else:
        future.set_result(answer)
