"""When a window gives its contents out: PyFlink's triggers. Pure.

Only these are there; a `Trigger` of one's own is refused, because what it would keep has no place in the state.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.spark_integration.windows import FixedWindows, GlobalWindows
from varve.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varve.changelog.timer_state import TimeDomain
    from varve.spark_integration.windows import WindowAssigner


class Trigger(ABC):  # noqa: B024  PyFlink's base
    """When windows fire; one of the classes below."""


@dataclass(frozen=True)
class EventTimeTrigger(Trigger):
    """When the watermark passes the end of the window, and for each element that comes afterwards."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """The trigger."""
        return EventTimeTrigger()


@dataclass(frozen=True)
class ProcessingTimeTrigger(Trigger):
    """When the time of the batch passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """The trigger."""
        return ProcessingTimeTrigger()


@dataclass(frozen=True)
class CountTrigger(Trigger):
    """When the window has got so many elements since it fired last."""

    count: int

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """The trigger. Raises `InvalidRequestError` below 1."""
        if not isinstance(window_size, int) or window_size < 1:
            raise InvalidRequestError(f"a window cannot fire after {window_size!r} elements; give 1 or more")
        return CountTrigger(window_size)


@dataclass(frozen=True)
class PurgingTrigger(Trigger):
    """As another trigger, and the contents are removed when they have been given out."""

    nested: Trigger

    @staticmethod
    def of(nested_trigger: Trigger) -> PurgingTrigger:
        """The trigger. Raises `InvalidRequestError` for something that is none."""
        if not isinstance(nested_trigger, Trigger):
            raise InvalidRequestError(f"PurgingTrigger.of takes a trigger, not {nested_trigger!r}")
        return PurgingTrigger(nested_trigger)


@dataclass(frozen=True, slots=True)
class Firing:
    """What a trigger means."""

    on_time: TimeDomain | None
    """The windows' clock, if it fires a window when it passes the window's end; None: no clock does."""
    count: int | None = None
    """Fire after so many elements."""
    purges: bool = False


def firing_of(trigger: Trigger | None, assigner: WindowAssigner) -> Firing:
    """What the trigger means for these windows.

    Args:
        trigger: None: the assigner's own, which is the clock of its windows.
        assigner: The windows.

    Raises:
        InvalidRequestError: A trigger of the user's own, or one that these windows cannot have.
    """
    if trigger is None:
        if isinstance(assigner, GlobalWindows):
            raise InvalidRequestError(
                "global windows never end: say when they fire, such as trigger(CountTrigger.of(100))"
            )
        return Firing(assigner.domain)
    purges = isinstance(trigger, PurgingTrigger)
    plain = trigger.nested if isinstance(trigger, PurgingTrigger) else trigger
    if purges and isinstance(assigner, FixedWindows) and assigner.overlaps:
        raise InvalidRequestError(
            "windows that overlap share their contents, so one cannot purge them: use a tumbling window, or leave out "
            "PurgingTrigger"
        )
    if isinstance(plain, CountTrigger):
        return Firing(None, plain.count, purges)
    if not isinstance(plain, EventTimeTrigger | ProcessingTimeTrigger):
        raise InvalidRequestError(
            f"{plain!r} is none of the triggers that there are: EventTimeTrigger, ProcessingTimeTrigger, CountTrigger "
            "and PurgingTrigger"
        )
    if isinstance(assigner, GlobalWindows):
        raise InvalidRequestError("global windows never end: only a CountTrigger fires them")
    if isinstance(plain, EventTimeTrigger) != assigner.is_event_time():
        raise InvalidRequestError(
            f"{type(plain).__name__} follows another clock than {type(assigner).__name__}; take windows of that clock"
        )
    return Firing(assigner.domain, None, purges)
