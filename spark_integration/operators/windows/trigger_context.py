"""What a trigger gets at a call: state and timers of the key and the window that the call is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from varve.changelog.keyed.namespaced_handles import NamespacedStateStore
from varve.changelog.keyed.timers import TimeDomain
from varve.changelog.working_stores.timer_form import TIME_MAX_MS
from varve.spark_integration.operators.windows.trigger import Trigger
from varve.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.changelog.api.descriptors import StateDescriptor
    from varve.spark_integration.functions.keyed import KeyedProcessFunction, RuntimeContext

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
