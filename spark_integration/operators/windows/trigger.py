"""`Trigger`: says when a window gives out what it holds; PyFlink's interface, for triggers of one's own.

A trigger keeps nothing in its fields: it is pickled and serves all keys. What it has to remember is state of the key
and the window (`get_partitioned_state`), and it removes it, and its timers, in `clear`.
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

T = TypeVar("T")
"""The elements."""
W = TypeVar("W")
"""The windows."""


class TriggerResult(Enum):
    """What becomes of a window: (is given out, is emptied)."""

    CONTINUE = (False, False)
    """Nothing."""
    FIRE_AND_PURGE = (True, True)
    """What it holds is given out and removed."""
    FIRE = (True, False)
    """What it holds is given out."""
    PURGE = (False, True)
    """What it holds is removed."""

    def is_fire(self) -> bool:
        """Whether what the window holds is given out."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Whether what the window holds is removed."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """When windows fire. A window that holds nothing gives nothing out."""

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
            """Let `on_processing_time` be called. Raises `InvalidRequestError` for no time, as the next three."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Let `on_event_time` be called."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Remove a timer; nothing happens if there is none."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Remove a timer; nothing happens if there is none."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """State of this key and window: a handle of the descriptor's kind."""

    class OnMergeContext(TriggerContext):
        """About a window that others have become."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Let the window have what the others held in this state: a list, reducing or aggregating state.

            Raises:
                InvalidRequestError: A state of another kind, which cannot be merged.
            """

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """An element has come into the window.

        Args:
            element: The element.
            timestamp: Its event time; None if the stream has none.
            window: The window, which holds it already.
            ctx: About the window.
        """

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """A timer of processing time fires."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """A timer of event time fires; so it does once when a window of event time is removed."""

    def can_merge(self) -> bool:
        """Whether the trigger can be that of sessions, which merge."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Windows have become this one: several, or one that is longer now; `clear` is called for the old ones then."""

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """The window is removed: remove what the trigger keeps of it, timers included."""


TRIGGER_STATE: Final = "window-trigger"
"""Prefix of the names of states that triggers keep."""


class WindowTriggerContext(Trigger.OnMergeContext):
    """The context that is reused for all windows."""

    def __init__(self, runtime_context: RuntimeContext) -> None:
        self._states = NamespacedStateStore(runtime_context, TRIGGER_STATE)
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
        """The context itself, now about this window.

        Args:
            namespace: Of the window.
            ctx: Of the call.
            removal: The timer of the window's removal, which is not the trigger's to delete; None: there is none.
            merged: While windows merge: namespaces of those that it is made of.
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
            named = state_descriptor.kind, state_descriptor.name
        except AttributeError:
            raise InvalidRequestError(f"{state_descriptor!r} describes no state") from None
        handle = self._handles.get(named)
        if handle is None:
            handle = self._handles[named] = self._states.get_any_state(state_descriptor)
        return handle

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        self._states.merge_namespaces(state_descriptor, self._merged)


def fires_at(time_ms: Any) -> Any:
    """When a timer of processing time is due: as in Flink once that millisecond is over."""
    return time_ms + 1 if isinstance(time_ms, int) and time_ms < TIME_MAX_MS else time_ms
