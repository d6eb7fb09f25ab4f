"""`Trigger`: decides when a window fires (PyFlink's interface, which users can implement); and its context.

A trigger is pickled and serves all keys, so its fields hold no state. State of a key and a window comes from
`get_partitioned_state`; the trigger removes it, and its timers, in `clear`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from varvite.changelog.keyed.namespaced_handles import NamespacedStateStore
from varvite.changelog.keyed.timers import TimeDomain
from varvite.changelog.working_stores.timer_form import TIME_MAX_MS
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.api.descriptors import StateDescriptor
    from varvite.spark_integration.functions.keyed import KeyedProcessFunction, RuntimeContext
    from varvite.spark_integration.functions.metrics import MetricGroup

T = TypeVar("T")
"""The elements."""
W = TypeVar("W")
"""The windows."""


class TriggerResult(Enum):
    """The decision about a window: (is fired, is purged)."""

    CONTINUE = (False, False)
    """Nothing."""
    FIRE_AND_PURGE = (True, True)
    """Its contents are emitted and removed."""
    FIRE = (True, False)
    """Its contents are emitted."""
    PURGE = (False, True)
    """Its contents are removed."""

    def is_fire(self) -> bool:
        """True if the window's contents are emitted."""
        return self.value[0]

    def is_purge(self) -> bool:
        """True if the window's contents are removed."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Decides when windows fire. An empty window emits nothing."""

    class TriggerContext(ABC):
        """About the key and window of the call; valid only during the call, the same object every time.

        Times are milliseconds since 1970. A timer of event time fires when the watermark has reached it, one of
        processing time when the time of the batch is after it; both also in the batch that registers them, after its
        elements. Each belongs to the window: registered twice it fires once.
        """

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Time of the batch."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Watermark of the batch; -2**63 before there is one."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Set a timer for `on_processing_time`. Raises `InvalidRequestError` for no time, as the next three."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Set a timer for `on_event_time`."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Remove a timer; nothing happens if there is none."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Remove a timer; nothing happens if there is none."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Metrics of the window operator's functions."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """State of this key and window: a handle of the descriptor's kind."""

    class OnMergeContext(TriggerContext):
        """About a window into which others merge."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge this state of the other windows into that of the window: a list, reducing or aggregating state.

            Raises:
                InvalidRequestError: A state of another kind, which cannot be merged.
            """

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Called for each element that is added to the window.

        Args:
            element: The element.
            timestamp: Its event time; None if the stream has none.
            window: The window, which holds it already.
            ctx: About the window.
        """

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Called when a timer of processing time fires."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Called when a timer of event time fires, and once when a window of event time is removed."""

    def can_merge(self) -> bool:
        """True if the trigger supports sessions, which merge."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Called when several windows, or one that has grown, become this one; `clear` follows for the old ones."""

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Called when the window is removed: remove the trigger's state of it, timers included."""


TRIGGER_STATE: Final = "window-trigger"
"""Prefix of the names of states that triggers keep."""


class WindowTriggerContext(Trigger.OnMergeContext):
    """The one context for all windows."""

    def __init__(self, runtime_context: RuntimeContext) -> None:
        self._states = NamespacedStateStore(runtime_context, TRIGGER_STATE)
        self._runtime_context = runtime_context
        self._handles: dict[tuple[str, str], Any] = {}
        self._merged: Sequence[int] = ()
        self._timers: Any = None
        self._removal: tuple[TimeDomain, int | None] = TimeDomain.EVENT_TIME, None
        self._time_ms = self._watermark_ms = 0

    def about(
        self,
        namespace: int,
        ctx: KeyedProcessFunction.Context,
        removal: tuple[TimeDomain, int | None],
        merged: Sequence[int] = (),
    ) -> WindowTriggerContext:
        """The context, set to this window.

        Args:
            namespace: The window's.
            ctx: The call's.
            removal: The timer of the window's removal, which the trigger cannot delete; None: there is none.
            merged: While windows merge: namespaces of those that become this one.
        """
        self._states.namespace = namespace
        self._removal = removal
        self._merged = merged
        self._timers = ctx.timer_service()
        self._time_ms, self._watermark_ms = ctx.current_processing_time(), ctx.current_watermark()
        return self

    def get_current_processing_time(self) -> int:
        return self._time_ms

    def get_current_watermark(self) -> int:
        return self._watermark_ms

    def get_metric_group(self) -> MetricGroup:
        return self._runtime_context.get_metrics_group()

    def register_processing_time_timer(self, time: int) -> None:
        self._timers.register(TimeDomain.PROCESSING_TIME, fires_at(time), self._states.namespace)

    def register_event_time_timer(self, time: int) -> None:
        self._timers.register(TimeDomain.EVENT_TIME, time, self._states.namespace)

    def delete_processing_time_timer(self, time: int) -> None:
        self._delete(TimeDomain.PROCESSING_TIME, fires_at(time))

    def delete_event_time_timer(self, time: int) -> None:
        self._delete(TimeDomain.EVENT_TIME, time)

    def _delete(self, domain: TimeDomain, time_ms: int) -> None:
        if (domain, time_ms) != self._removal:  # else the window would never be removed
            self._timers.delete(domain, time_ms, self._states.namespace)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        try:
            kind_and_name = state_descriptor.kind, state_descriptor.name
        except AttributeError:
            raise InvalidRequestError(f"{state_descriptor!r} describes no state") from None
        handle = self._handles.get(kind_and_name)
        if handle is None:
            handle = self._handles[kind_and_name] = self._states.get_any_state(state_descriptor)
        return handle

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        self._states.merge_namespaces(state_descriptor, self._merged)


def fires_at(time_ms: Any) -> Any:
    """The time at which a timer of processing time is due: as in Flink once that millisecond is over."""
    return time_ms + 1 if isinstance(time_ms, int) and time_ms < TIME_MAX_MS else time_ms
