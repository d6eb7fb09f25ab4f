"""`KeyedTimers`: the timers of one timer service and time domain, set and removed for the current key."""

from __future__ import annotations

import operator
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.keyed.context import NO_KEY
from varvite.changelog.segments.columns import TIME_TYPE, TIMERS
from varvite.changelog.working_stores.timer_form import TIME_MAX_MS, TIME_MIN_MS, Timer
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.records import StateSchema

if TYPE_CHECKING:
    from varvite.changelog.keyed.context import KeyContext
    from varvite.changelog.keyed.overlays.timers import DueTimer, TimerOverlay
    from varvite.changelog.types.contract import TypeInformation


class TimeDomain(Enum):
    """The clock that a timer follows."""

    EVENT_TIME = 0
    """The watermark."""
    PROCESSING_TIME = 1
    """The time of the batch."""


_PREFIXES: Final = {TimeDomain.EVENT_TIME: "event", TimeDomain.PROCESSING_TIME: "processing"}


def timer_schema(name: str, domain: TimeDomain, namespace_type: TypeInformation | None = None) -> StateSchema:
    """The schema of a timer state; its name is the one that Flink gives the queue of a timer service of this name."""
    return StateSchema(
        name=f"_timer_state/{_PREFIXES[domain]}_{name}",
        kind=TIMERS,
        value_type=TIME_TYPE.type_string(),
        namespace_type=None if namespace_type is None else namespace_type.type_string(),
    )


def time_domain_of(schema: StateSchema) -> TimeDomain:
    """The domain of a timer state."""
    events = schema.name.startswith(f"_timer_state/{_PREFIXES[TimeDomain.EVENT_TIME]}_")
    return TimeDomain.EVENT_TIME if events else TimeDomain.PROCESSING_TIME


class KeyedTimers:
    """The timers of one state, set and removed for the current key."""

    __slots__ = ("_context", "_freeze", "_overlay")

    def __init__(self, overlay: TimerOverlay, context: KeyContext, namespace_type: TypeInformation | None) -> None:
        self._overlay = overlay
        self._context = context
        self._freeze = None if namespace_type is None else namespace_type.freeze

    def register(self, time_ms: int, namespace: Any = None) -> None:
        """Set a timer of the current key.

        Args:
            time_ms: Its time; a whole number of 64 bits.
            namespace: The user's form, of the state's namespace type.

        Raises:
            InvalidRequestError: No key is current, or the time is no time, or the namespace is not of its type.
        """
        self._overlay.put(self._context.key_group, self._timer(time_ms, namespace))

    def delete(self, time_ms: int, namespace: Any = None) -> None:
        """Remove a timer of the current key; a missing one is no error. Raises as `register`."""
        self._overlay.remove(self._context.key_group, self._timer(time_ms, namespace))

    def pop_due(self, until_ms: int) -> DueTimer | None:
        """Remove and return the first timer of any key with `time_ms <= until_ms`; None if there is none (now)."""
        return self._overlay.pop_due(until_ms)

    def _timer(self, time_ms: int, namespace: Any) -> Timer:
        context, name = self._context, self._overlay.schema.name
        if context.key is NO_KEY:
            raise context.no_key(name)
        try:
            checked_ms = time_ms if type(time_ms) is int else operator.index(time_ms)
            if self._freeze is not None and namespace is not None:
                namespace = self._freeze(namespace)
        except TypeError:
            problem = InvalidRequestError(f"{time_ms!r} is no time; give whole milliseconds since 1970, an int")
            raise context.refused(name, problem) from None
        except InvalidRequestError as error:
            raise context.refused(name, error) from error
        if not TIME_MIN_MS <= checked_ms <= TIME_MAX_MS:
            problem = InvalidRequestError(f"{time_ms} is no time: milliseconds since 1970 have 64 bits")
            raise context.refused(name, problem)
        return Timer(checked_ms, context.key, namespace)
