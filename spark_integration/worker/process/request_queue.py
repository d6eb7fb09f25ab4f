"""The queue of admitted requests of a state worker, whose main thread executes one at a time.

A newer request cuts off the older ones that it makes pointless, the one that is executed included.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from varvite.spark_integration.messages.protocol import Ready
from varvite.spark_integration.transport.wire import PeerLostError
from varvite.spark_integration.worker.process.admission import Seen, is_doubtful, judge, supersedes

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.spark_integration.messages.protocol import TaskRequest
    from varvite.spark_integration.transport.wire import Channel, Opening
    from varvite.storage.clock import Clock

_log: Final = logging.getLogger(__name__)


class PendingRequest:
    """A connected pump and its request."""

    def __init__(self, channel: Channel, opening: Opening) -> None:
        self.channel = channel
        self.opening = opening
        self.in_user_code = False
        """Set by the main thread. Restoring state does not count: the next attempt needs it too."""
        self.superseded_s: float | None = None
        """Time on the monotonic clock at which a newer request took its place; None: none has."""

    @property
    def task(self) -> TaskRequest:
        """The request itself."""
        return self.opening.task


class RequestQueue:
    """Hands requests to the main thread one at a time; all methods may be called from any thread."""

    def __init__(self, clock: Clock, has_run: Callable[[TaskRequest, int, str], bool] = lambda *_: True) -> None:
        """Admits requests from now on.

        Args:
            clock: Time.
            has_run: Tells if the chain of a request's storage has the run of this epoch and token.
        """
        self._clock = clock
        self._has_run = has_run
        self._changed = threading.Condition()
        self._seen = Seen()
        self._waiting: list[PendingRequest] = []
        self._executed: PendingRequest | None = None
        self._closed = False

    def put(self, request: PendingRequest) -> None:
        """Admit a request, or refuse it and close its connection; superseded ones lose theirs."""
        task = request.task
        with self._changed:
            reason, seen = self._admit(request), self._seen
        if reason is not None and self._is_unfounded(seen, task):
            with self._changed:
                self._seen = Seen() if self._seen is seen else self._seen
                reason = self._admit(request)
        if reason is not None:
            _log.warning("refused %s of partition %d: %s", task.batch.operator.operator, task.partition, reason)
            self._refuse(request, reason)

    def take(self, timeout_s: float) -> PendingRequest | None:
        """The next request; call `finish` after it. None, and the queue is closed, if none comes in time."""
        with self._changed:
            self._changed.wait_for(self._is_ready, timeout_s)
            if self._closed or not self._waiting:
                self._close()
                return None
            self._executed = self._waiting.pop(0)
            return self._executed

    def wait(self, timeout_s: float) -> bool:
        """Wait until `take` would not wait, at most so long; answers if it is so."""
        with self._changed:
            return self._changed.wait_for(self._is_ready, timeout_s)

    def finish(self, request: PendingRequest) -> None:
        """Close the connection of the request that was executed."""
        with self._changed:
            self._executed = None
        request.channel.close()

    def close(self) -> None:
        """Admit no more requests, and cut off those that are there."""
        with self._changed:
            self._close()
            if self._executed is not None:
                self._executed.channel.shutdown()

    def stuck_s(self, now_s: float) -> float:
        """Seconds that user code has gone on since its attempt was superseded; 0 if it was not."""
        request = self._executed
        if request is None or request.superseded_s is None or not request.in_user_code:
            return 0.0
        return now_s - request.superseded_s

    def _is_ready(self) -> bool:
        return bool(self._waiting or self._closed)

    def _admit(self, request: PendingRequest) -> str | None:
        """Append the request to the queue; answers the reason if it is refused."""
        if self._closed:
            request.channel.close()  # not a refusal: the pump asks the parent for the next process
            return None
        task = request.task
        self._seen, reason = judge(self._seen, task)
        if reason is not None:
            return reason
        pointless = [waiting for waiting in self._waiting if supersedes(task, waiting.task)]
        for older in pointless:
            older.channel.close()
        executed = self._executed
        if executed is not None and executed.superseded_s is None and supersedes(task, executed.task):
            executed.superseded_s = self._clock.monotonic_s()
            executed.channel.shutdown()  # not closed: the main thread may be using the descriptor
            pointless.append(executed)
        for older in pointless:
            _log.info("task attempt %d is superseded by %d", older.task.task_attempt, task.task_attempt)
        self._waiting = [waiting for waiting in self._waiting if waiting not in pointless]
        self._waiting.append(request)
        self._changed.notify_all()
        return None

    def _close(self) -> None:
        self._closed = True
        for request in self._waiting:
            request.channel.close()
        self._waiting.clear()
        self._changed.notify_all()

    def _is_unfounded(self, seen: Seen, task: TaskRequest) -> bool:
        """Was the request refused because of a run that its storage does not have?"""
        if seen.newest is None or not is_doubtful(seen, task) or self._has_run(task, seen.newest.epoch, seen.run):
            return False
        _log.warning("this storage has no run of epoch %d: the worker forgets what it has seen", seen.newest.epoch)
        return True

    @staticmethod
    def _refuse(request: PendingRequest, reason: str) -> None:
        with suppress(PeerLostError):  # a late pump need not hear it
            request.channel.send_message(Ready(needs_function=False, refused=reason))
        request.channel.close()
