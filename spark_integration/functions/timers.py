"""Timers as a user's function sees them: PyFlink's `TimerService`, over the timer states of the keyed backend.

Time is the batch's (I5): `current_processing_time()` is in the batch's checkpoint, `current_watermark()` was computed
by the checkpoint before it. Neither moves within a batch, with one exception. Behind another operator the batch's
watermark comes after the rows; until then it is that of the previous batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Protocol

from varvite.changelog.keyed.timers import TimeDomain, timer_schema
from varvite.changelog.working_stores.timer_form import TIME_MAX_MS
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.keyed.backend import KeyedStateBackend
    from varvite.changelog.keyed.overlays.timers import DueTimer
    from varvite.changelog.keyed.timers import KeyedTimers
    from varvite.changelog.types.contract import TypeInformation

__all__ = ["MIN_WATERMARK", "KeyedTimerService", "TimeDomain", "TimerService"]

MIN_WATERMARK: Final = -(1 << 63)
"""The watermark before there is one, as in Flink."""
USER_TIMERS: Final = "user-timers"
"""Name of the timer service that a user's function gets; Flink's."""


class TimerService(ABC):
    """Time, and timers of the current key. Times are milliseconds since 1970, whole numbers of 64 bits.

    A timer is named by its key, domain and time: registering it twice is registering it once. It fires once, in the
    first batch whose time (processing time) or watermark (event time) has reached it, after the batch's rows.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Time of the batch; never goes back from batch to batch."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Watermark of the batch; behind another operator, while rows come, of the previous one. -2**63: none yet."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the batch's time reaches this. Raises `InvalidRequestError` for no time."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the watermark reaches this. Raises `InvalidRequestError` for no time."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Remove a timer; nothing happens if there is none. Raises `InvalidRequestError` for no time."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Remove a timer; nothing happens if there is none. Raises `InvalidRequestError` for no time."""


class TimeSource(Protocol):
    """Tells the time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...


class UnkeyedTimerService(TimerService):
    """The service of functions without keys: the time, and no timers."""

    def __init__(self, clock: TimeSource) -> None:
        """Keep the clock: the machine's where a function may run before the batch has a time."""
        self._clock = clock

    def current_processing_time(self) -> int:
        return self._clock.now_ms()

    def current_watermark(self) -> int:
        """Not possible. Raises `InvalidRequestError` always, as do the others."""
        raise _needs_keys("current_watermark")

    def register_processing_time_timer(self, timestamp: int) -> None:
        raise _needs_keys(f"register_processing_time_timer({timestamp!r})")

    def register_event_time_timer(self, timestamp: int) -> None:
        raise _needs_keys(f"register_event_time_timer({timestamp!r})")

    def delete_processing_time_timer(self, timestamp: int) -> None:
        raise _needs_keys(f"delete_processing_time_timer({timestamp!r})")

    def delete_event_time_timer(self, timestamp: int) -> None:
        raise _needs_keys(f"delete_event_time_timer({timestamp!r})")


def _needs_keys(call: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{call}: a function on a stream without keys has no timers and no watermark; call key_by before, and give a "
        "KeyedProcessFunction"
    )


class KeyedTimerService(TimerService):
    """The service of one function instance. A job that registers no timer has no timer state."""

    def __init__(self, backend: KeyedStateBackend, *, has_watermark: bool = True) -> None:
        self.is_heard = True
        """The function has an `on_timer`."""
        self.warnings: set[str] = set()
        """Sentences for the user."""
        self._has_watermark = has_watermark
        self._backend = backend
        self._is_open = False
        self._namespace_type: TypeInformation | None = None
        self._timers: dict[TimeDomain, KeyedTimers] = {}
        self._time_ms = 0
        self._watermark_ms: int | None = None
        self._due_until_ms = 0
        """Processing time up to which timers are due."""

    def open(self, namespace_type: TypeInformation | None = None) -> None:
        """Open the timers in the state; else the first batch does it.

        Args:
            namespace_type: Of the timers; None: they have no namespaces.

        Raises:
            IncompatibleError: The timers in the state have other namespaces.
        """
        self._is_open, self._namespace_type = True, namespace_type
        stored = {schema.name for schema in self._backend.schemas}
        for domain in TimeDomain:
            if timer_schema(USER_TIMERS, domain).name in stored:
                self._of(domain)

    def begin_batch(self, time_ms: int, watermark_ms: int | None) -> None:
        """Begin a batch with its time and watermark."""
        if not self._is_open:
            self.open()
        self._time_ms = self._due_until_ms = time_ms
        self._watermark_ms = watermark_ms

    def end_time(self) -> None:
        """Let every timer be due, up to the next batch: no time comes after this one."""
        self._watermark_ms = self._due_until_ms = TIME_MAX_MS

    def current_processing_time(self) -> int:
        return self._time_ms

    def current_watermark(self) -> int:
        return MIN_WATERMARK if self._watermark_ms is None else self._watermark_ms

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._note_unheard()
        self._of(TimeDomain.PROCESSING_TIME).register(timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        self._note_unheard()
        if not self._has_watermark:
            raise InvalidRequestError(
                "an event-time timer would never fire, because the job has no watermark: call with_watermark(column, "
                "delay) right after from_dataframe, for every input, or register a processing-time timer"
            )
        self._of(TimeDomain.EVENT_TIME).register(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._of(TimeDomain.PROCESSING_TIME).delete(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._of(TimeDomain.EVENT_TIME).delete(timestamp)

    def register(self, domain: TimeDomain, time_ms: int, namespace: Any) -> None:
        """Set a timer of the current key and a namespace. Raises `InvalidRequestError` for no time."""
        self._of(domain).register(time_ms, namespace)

    def delete(self, domain: TimeDomain, time_ms: int, namespace: Any) -> None:
        """Remove such a timer; nothing happens if there is none. Raises `InvalidRequestError` for no time."""
        self._of(domain).delete(time_ms, namespace)

    def pop_due(self) -> tuple[TimeDomain, DueTimer] | None:
        """Remove and return the next due timer, event time before processing time; None if none is due."""
        for domain, until_ms in ((TimeDomain.EVENT_TIME, self._watermark_ms),
                                 (TimeDomain.PROCESSING_TIME, self._due_until_ms)):  # fmt: skip
            timers = self._timers.get(domain)
            if timers is not None and until_ms is not None:
                due = timers.pop_due(until_ms)
                if due is not None:
                    return domain, due
        return None

    def _note_unheard(self) -> None:
        if not self.is_heard:
            self.warnings.add("it registers timers, but has no on_timer: they pass without effect")

    def _of(self, domain: TimeDomain) -> KeyedTimers:
        timers = self._timers.get(domain)
        if timers is None:
            timers = self._timers[domain] = self._backend.get_timers(USER_TIMERS, domain, self._namespace_type)
        return timers
