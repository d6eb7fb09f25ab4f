"""Fires the due timers of a batch, after its rows.

Order: first the event-time timers that the watermark of the batch has reached, by time; then the processing-time timers
that the time of the batch has reached, by time. A timer that `on_timer` registers and that is due already fires in the
same batch; an event-time timer then comes before the next processing-time timer.

Invariants: I5 (time is the batch's), I10 (output leaves in pieces of `FIRED_ROWS` rows).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.keyed.timers import TimeDomain
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.functions.returned import returned
from varvite.spark_integration.messages.user_errors import user_code_raises
from varvite.spark_integration.operators.processors.grouped_function import FIRED_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varvite.changelog.keyed.backend import KeyedStateBackend
    from varvite.spark_integration.functions.timers import KeyedTimerService, TimerService

_log: Final = logging.getLogger(__name__)
WARN_EVERY: Final = 1_000_000
"""So many timers in one batch are worth a line in the log: a function may be registering due timers for ever."""


class KeyedOnTimerContext(KeyedProcessFunction.OnTimerContext):
    """The context that is reused for all timers."""

    __slots__ = ("_timer_service", "domain", "key", "namespace", "time_ms")

    def __init__(self, timer_service: TimerService) -> None:
        self._timer_service = timer_service
        self.key: Any = None
        self.time_ms = 0
        self.domain = TimeDomain.EVENT_TIME
        self.namespace: Any = None
        """Stored form; None of functions whose timers have no namespaces."""

    def time_domain(self) -> TimeDomain:
        return self.domain

    def get_current_key(self) -> Any:
        return self.key

    def timestamp(self) -> int:
        return self.time_ms

    def timer_service(self) -> TimerService:
        return self._timer_service

    def current_processing_time(self) -> int:
        return self._timer_service.current_processing_time()

    def current_watermark(self) -> int:
        return self._timer_service.current_watermark()


class TimerFiring:
    """Calls `on_timer` of one function instance.

    Args:
        backend: The function's state.
        service: Its timers.
        operator: The operator's uid, for the log.
        context: The function's context, if not the plain one.
    """

    def __init__(
        self,
        backend: KeyedStateBackend,
        service: KeyedTimerService,
        operator: str,
        context: KeyedOnTimerContext | None = None,
    ) -> None:
        self._backend = backend
        self._service = service
        self._operator = operator
        self.context = context or KeyedOnTimerContext(service)
        """The context that the function gets."""

    def fire(
        self, on_timer: Callable[[int, Any], Any], failed: Callable[[BaseException, Any], None]
    ) -> Iterator[list[Any]]:
        """Fire all due timers; yields the output rows in pieces.

        Args:
            on_timer: The user's function.
            failed: Called with its error and the stored key; nothing fires afterwards.
        """
        pop_due, context, key_type = self._service.pop_due, self.context, self._backend.key_type
        thaw = None if key_type.immutable else key_type.thaw
        out: list[Any] = []
        fired, key = 0, None
        try:
            while (due := pop_due()) is not None:
                context.domain, (key_group, (time_ms, key, context.namespace)) = due
                self._backend.set_current_key(key_group, key)
                context.key = key if thaw is None or key is None else thaw(key)
                context.time_ms = time_ms
                result = on_timer(time_ms, context)
                if result is not None:
                    out.extend(returned(result))
                fired += 1
                if fired % WARN_EVERY == 0:
                    self._warn(fired)
                if len(out) >= FIRED_ROWS:
                    yield out
                    out = []
        except user_code_raises() as error:
            failed(error, key)
        if out:
            yield out

    def _warn(self, fired: int) -> None:
        _log.warning(
            "operator %s: %d timers have fired in one batch, the last one at %d ms (%s) for key %.100r. Time stands "
            "still within a batch: a function that always registers a timer that is due already never ends",
            self._operator, fired, self.context.time_ms, self.context.domain.name, self.context.key,
        )  # fmt: skip
