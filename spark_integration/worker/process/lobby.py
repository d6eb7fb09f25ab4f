"""Where admitted requests wait for the worker's main thread, and are turned away when a newer one comes.

Here the driver may also leave word of what has won (`confirmation`).
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
    from varvite.spark_integration.transport.wire import Channel, Confirmation, Opening
    from varvite.storage.clock import Clock

_log: Final = logging.getLogger(__name__)


class Visit:
    """One connected pump and what it asked for."""

    def __init__(self, channel: Channel, opening: Opening) -> None:
        self.channel = channel
        self.opening = opening
        self.in_user_code = False
        """Set by the main thread; restoring state does not count, the next attempt needs it too."""
        self.superseded_s: float | None = None
        """When a newer request took its place, on the monotonic clock."""


class Lobby:
    """Hands one visit at a time to the main thread; all methods may be called from any thread."""

    def __init__(self, clock: Clock, has_run: Callable[[TaskRequest, int, str], bool] = lambda *_: True) -> None:
        """`has_run` tells whether the chain of a request's storage has the run of an epoch and a token."""
        self._clock = clock
        self._has_run = has_run
        self._changed = threading.Condition()
        self._seen = Seen()
        self._waiting: list[Visit] = []
        self._inside: Visit | None = None
        self._word: Confirmation | None = None
        self._closed = False

    def enter(self, visit: Visit) -> None:
        """Admit a visit, or refuse it and close its connection; superseded ones lose theirs."""
        task = visit.opening.task
        with self._changed:
            refused, seen = self._admit(visit), self._seen
        if refused is not None and self._is_unfounded(seen, task):
            with self._changed:
                self._seen = Seen() if self._seen is seen else self._seen
                refused = self._admit(visit)
        if refused is not None:
            _log.warning("refused %s of partition %d: %s", task.batch.operator.operator, task.partition, refused)
            self._refuse(visit, refused)

    def leave_word(self, confirmation: Confirmation) -> None:
        """Who is inside next hears it, unless a visit comes first, which says as much."""
        with self._changed:
            self._word = confirmation
            self._changed.notify_all()

    def next(self, timeout_s: float) -> Visit | Confirmation | None:
        """The next visit, which is inside until `leave`, or what was left word of.

        None if nothing comes in time, or the lobby is closed.
        """
        with self._changed:
            self._changed.wait_for(self._has_news, timeout_s)
            word, self._word = self._word, None
            if not self._closed and self._waiting:
                self._inside = self._waiting.pop(0)
                return self._inside
            if self._closed or word is None:
                self._turn_away()
                return None
            return word

    def word(self, timeout_s: float) -> Confirmation | None:
        """What was left word of; None if a visit comes first, or nothing in time, or the lobby is closed."""
        with self._changed:
            self._changed.wait_for(self._has_news, timeout_s)
            if self._waiting or self._closed:
                return None
            word, self._word = self._word, None
            return word

    @property
    def is_awaited(self) -> bool:
        """Whether `next` would answer at once."""
        with self._changed:
            return self._has_news()

    def leave(self, visit: Visit) -> None:
        """The visit is over."""
        with self._changed:
            self._inside = None
        visit.channel.close()

    def close(self) -> None:
        """Admit nobody any more, and cut off whoever is there."""
        with self._changed:
            self._turn_away()
            if self._inside is not None:
                self._inside.channel.shutdown()

    def stuck_s(self, now_s: float) -> float:
        """How long user code has gone on since its attempt was superseded; 0 if it was not."""
        inside = self._inside
        if inside is None or inside.superseded_s is None or not inside.in_user_code:
            return 0.0
        return now_s - inside.superseded_s

    def _has_news(self) -> bool:
        return bool(self._waiting or self._word or self._closed)

    def _admit(self, visit: Visit) -> str | None:
        """Put the visit among the waiting; the reason if it is refused."""
        if self._closed:
            visit.channel.close()  # not a refusal: the pump asks the parent for the next process
            return None
        task = visit.opening.task
        self._seen, refused = judge(self._seen, task)
        if refused is not None:
            return refused
        pointless = [w for w in self._waiting if supersedes(task, w.opening.task)]
        for older in pointless:
            older.channel.close()
        inside = self._inside
        if inside is not None and inside.superseded_s is None and supersedes(task, inside.opening.task):
            inside.superseded_s = self._clock.monotonic_s()
            inside.channel.shutdown()  # not closed: the main thread may be using the descriptor
            pointless.append(inside)
        for older in pointless:
            _log.info("task attempt %d is superseded by %d", older.opening.task.task_attempt, task.task_attempt)
        self._waiting = [w for w in self._waiting if w not in pointless]
        self._waiting.append(visit)
        self._changed.notify_all()
        return None

    def _turn_away(self) -> None:
        self._closed = True
        for visit in self._waiting:
            visit.channel.close()
        self._waiting.clear()
        self._changed.notify_all()

    def _is_unfounded(self, seen: Seen, task: TaskRequest) -> bool:
        """Whether a request was refused for a run that is none of its storage's."""
        if seen.newest is None or not is_doubtful(seen, task) or self._has_run(task, seen.newest.epoch, seen.run):
            return False
        _log.warning("this storage knows no run of epoch %d: what was seen of it is forgotten", seen.newest.epoch)
        return True

    @staticmethod
    def _refuse(visit: Visit, reason: str) -> None:
        with suppress(PeerLostError):  # a late pump need not hear it
            visit.channel.send_message(Ready(needs_function=False, refused=reason))
        visit.channel.close()
