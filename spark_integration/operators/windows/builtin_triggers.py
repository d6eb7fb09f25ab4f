"""PyFlink's triggers, and the known effect (`Firing`) of the plain ones. Pure.

A trigger with a known effect is never called (`operator`), and overlapping windows can share their contents. Any other
trigger is called for each element (`any_trigger_operator`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from varvite.changelog.api.descriptors import ReducingStateDescriptor
from varvite.changelog.types.factory import Types
from varvite.spark_integration.operators.windows.assigners import (
    CountWindows,
    FixedWindows,
    GlobalWindows,
    SessionWindows,
    span_ms,
)
from varvite.spark_integration.operators.windows.trigger import Trigger, TriggerResult
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.changelog.keyed.timers import TimeDomain
    from varvite.spark_integration.operators.windows.assigners import TimeSpan, WindowAssigner

_COUNT: Final = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())
_FIRE_TIME: Final = ReducingStateDescriptor("fire-time", min, Types.LONG())


class _MergingTrigger(Trigger[Any, Any]):
    """Base of the triggers that support sessions; timers have no effect unless overridden."""

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True


@dataclass(frozen=True)
class EventTimeTrigger(_MergingTrigger):
    """Fires when the watermark passes the end of the window, and for each element that comes afterwards."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """The trigger."""
        return EventTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


@dataclass(frozen=True)
class ProcessingTimeTrigger(_MergingTrigger):
    """Fires when the time of the batch passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """The trigger."""
        return ProcessingTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


@dataclass(frozen=True)
class NeverTrigger(Trigger[Any, Any]):
    """Never fires."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """Merge nothing."""

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Remove nothing."""


@dataclass(frozen=True)
class CountTrigger(_MergingTrigger):
    """Fires after this many elements since it fired last."""

    window_size: int

    def __post_init__(self) -> None:
        """Raises `InvalidRequestError` below 1."""
        if not isinstance(self.window_size, int) or self.window_size < 1:
            raise InvalidRequestError(f"a window cannot fire after {self.window_size!r} elements; give 1 or more")

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """The trigger. Raises `InvalidRequestError` below 1."""
        return CountTrigger(window_size)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        counted = ctx.get_partitioned_state(_COUNT)
        counted.add(1)
        if counted.get() < self.window_size:
            return TriggerResult.CONTINUE
        counted.clear()
        return TriggerResult.FIRE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(_COUNT)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(_COUNT).clear()


@dataclass(frozen=True, init=False)
class _IntervalTrigger(_MergingTrigger):
    interval_ms: int

    def __init__(self, interval: TimeSpan) -> None:
        """Raises `InvalidRequestError` for no span of time."""
        object.__setattr__(self, "interval_ms", span_ms(interval, "the interval of a trigger"))

    @classmethod
    def of(cls, interval: TimeSpan) -> Self:
        """The trigger. Raises `InvalidRequestError` for no span of time."""
        return cls(interval)


class ContinuousEventTimeTrigger(_IntervalTrigger):
    """Fires whenever the watermark passes a multiple of the interval, and at the end of the window."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        fires = ctx.get_partitioned_state(_FIRE_TIME)
        if fires.get() is None:
            begin_ms = timestamp - timestamp % self.interval_ms
            _fire_next(fires, begin_ms + self.interval_ms, window, ctx.register_event_time_timer)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        fires = ctx.get_partitioned_state(_FIRE_TIME)
        if fires.get() != time:
            return TriggerResult.CONTINUE
        fires.clear()
        _fire_next(fires, time + self.interval_ms, window, ctx.register_event_time_timer)
        return TriggerResult.FIRE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(_FIRE_TIME)
        fires_ms = ctx.get_partitioned_state(_FIRE_TIME).get()
        if fires_ms is not None:
            ctx.register_event_time_timer(fires_ms)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())
        fires = ctx.get_partitioned_state(_FIRE_TIME)
        if (fires_ms := fires.get()) is not None:
            ctx.delete_event_time_timer(fires_ms)
            fires.clear()


class ContinuousProcessingTimeTrigger(_IntervalTrigger):
    """Fires whenever the time of the batch passes a multiple of the interval, and at the end of the window."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        fires = ctx.get_partitioned_state(_FIRE_TIME)
        if fires.get() is None:
            now_ms = ctx.get_current_processing_time()
            begin_ms = now_ms - now_ms % self.interval_ms
            _fire_next(fires, begin_ms + self.interval_ms, window, ctx.register_processing_time_timer)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        fires = ctx.get_partitioned_state(_FIRE_TIME)
        if fires.get() != time:
            return TriggerResult.CONTINUE
        fires.clear()
        if time < window.max_timestamp():
            _fire_next(fires, time + self.interval_ms, window, ctx.register_processing_time_timer)
        return TriggerResult.FIRE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(_FIRE_TIME)
        fires_ms = ctx.get_partitioned_state(_FIRE_TIME).get()
        if fires_ms is not None:
            ctx.register_processing_time_timer(fires_ms)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        fires = ctx.get_partitioned_state(_FIRE_TIME)
        if (fires_ms := fires.get()) is not None:
            ctx.delete_processing_time_timer(fires_ms)
            fires.clear()


@dataclass(frozen=True)
class PurgingTrigger(Trigger[Any, Any]):
    """Fires as another trigger does, and then removes the contents."""

    nested_trigger: Trigger[Any, Any]

    def __post_init__(self) -> None:
        """Raises `InvalidRequestError` for something that is no trigger."""
        if not isinstance(self.nested_trigger, Trigger):
            raise InvalidRequestError(f"a PurgingTrigger takes a trigger, not {self.nested_trigger!r}")

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger:
        """The trigger. Raises `InvalidRequestError` for something that is none."""
        return PurgingTrigger(nested_trigger)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        self.nested_trigger.clear(window, ctx)


@dataclass(frozen=True, slots=True)
class Firing:
    """The known effect of a trigger."""

    on_time: TimeDomain | None
    """The windows' clock, if windows fire when it passes their end; None: no clock fires them."""
    count: int | None = None
    """Fire after this many elements; None: elements fire nothing."""
    purges: bool = False


def firing_of(trigger: Trigger[Any, Any] | None, assigner: WindowAssigner) -> Firing | None:
    """The known effect of the trigger on these windows; None: the trigger must be called.

    Args:
        trigger: None: the assigner's own, which is the clock of its windows.
        assigner: The windows.

    Raises:
        InvalidRequestError: Not a trigger, or one that these windows cannot have.
    """
    if isinstance(assigner, CountWindows):
        return _firing_of_count(trigger, assigner)
    if trigger is None:
        if isinstance(assigner, GlobalWindows):
            raise InvalidRequestError(
                "global windows never end: say when they fire, such as trigger(CountTrigger.of(100))"
            )
        return Firing(assigner.domain)
    if not isinstance(trigger, Trigger):
        raise InvalidRequestError(f"trigger takes a Trigger, such as CountTrigger.of(100), not {trigger!r}")
    if isinstance(assigner, SessionWindows) and not trigger.can_merge():
        raise InvalidRequestError(
            f"sessions merge, and {type(trigger).__name__} cannot: give it on_merge(), and let can_merge() return True"
        )
    purges = type(trigger) is PurgingTrigger
    plain = trigger.nested_trigger if isinstance(trigger, PurgingTrigger) else trigger
    if isinstance(assigner, GlobalWindows) and type(plain) in (EventTimeTrigger, ProcessingTimeTrigger):
        raise InvalidRequestError(f"global windows never end, so {type(plain).__name__} would never fire them")
    if purges and isinstance(assigner, FixedWindows) and assigner.overlaps:
        return None  # each window needs contents of its own
    if type(plain) is CountTrigger:
        return Firing(None, plain.window_size, purges)
    if type(plain) is (EventTimeTrigger if assigner.is_event_time() else ProcessingTimeTrigger):
        return Firing(assigner.domain, None, purges)
    return None


def _firing_of_count(trigger: Any, assigner: CountWindows) -> Firing:
    """The effect of the only trigger that windows of a number of elements can have."""
    plain = trigger.nested_trigger if isinstance(trigger, PurgingTrigger) else trigger
    if plain is not None and plain != CountTrigger(assigner.size):
        raise InvalidRequestError(
            f"windows of {assigner.size} elements fire when they are full, and cannot have {trigger!r}: take "
            "window(GlobalWindows.create()).trigger(...)"
        )
    return Firing(None, assigner.size, purges=True)


def _fire_next(fires: Any, time_ms: int, window: Any, register: Callable[[int], None]) -> None:
    """Set the timer of the next firing, at the end of the window at the latest."""
    time_ms = min(time_ms, window.max_timestamp())
    fires.add(time_ms)
    register(time_ms)


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result is TriggerResult.FIRE else result
