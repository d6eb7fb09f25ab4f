"""Window operators that call the methods of their `Trigger`, as Flink's does; and the choice of the operator.

Each window has contents of its own, so an element is kept once for each of its windows. The namespace of a timer is its
window. One more timer is set for the window's removal; the trigger is called for it, too, as in Flink.

A session's namespace is its begin. While sessions merge, an old one with the same begin as the new one still has that
namespace; the new one then gets the begin with its first bit flipped.

Invariants: I5 (the calls of a trigger and their order depend on state, elements, time and watermark only).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from varvite.changelog.api.descriptors import MapStateDescriptor
from varvite.changelog.keyed.namespaces import NAMESPACE_TYPE
from varvite.changelog.keyed.timers import TimeDomain
from varvite.changelog.types.factory import Types
from varvite.changelog.working_stores.timer_form import TIME_MAX_MS
from varvite.spark_integration.operators.windows.assigners import (
    CountWindows,
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    SessionWindows,
    TimeWindow,
    WindowAssigner,
)
from varvite.spark_integration.operators.windows.builtin_triggers import firing_of
from varvite.spark_integration.operators.windows.count_windows import count_operator
from varvite.spark_integration.operators.windows.operator import (
    FixedWindowOperator,
    GlobalWindowOperator,
    SessionWindowOperator,
    WindowOperator,
    joined,
)
from varvite.spark_integration.operators.windows.trigger import TriggerResult, WindowTriggerContext, fires_at
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from varvite.changelog.api.state import MapState
    from varvite.spark_integration.functions.keyed import KeyedProcessFunction, RuntimeContext
    from varvite.spark_integration.operators.windows.trigger import Trigger

SESSIONS_STATE: Final = "window-trigger/sessions"
"""Begin of each session → its end and its namespace."""
_FIRST_BIT: Final = 1 << 63


class _Window(NamedTuple):
    """A window of the current key."""

    namespace: int
    """Namespace of its timers and of its trigger's state."""
    window: Any
    """The window as functions see it."""
    low: int
    """Its contents are in the panes `low <= pane < high`."""
    high: int
    pane: int
    """The pane of the new element."""
    is_new: bool
    """It has no state yet."""


class TriggeredWindowOperator(WindowOperator):
    """Base of the operators.

    Args:
        assigner: The windows.
        trigger: Decides when they fire.
        arguments: Arguments of `WindowOperator`.
    """

    timer_namespaces = NAMESPACE_TYPE
    """Timers belong to windows."""

    def __init__(self, assigner: WindowAssigner, trigger: Trigger[Any, Any], *arguments: Any) -> None:
        super().__init__(assigner, *arguments)
        self._trigger = trigger

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._trigger_context = WindowTriggerContext(runtime_context)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> list[Any] | None:
        time_ms = self._time_of(ctx)
        windows = self._windows(value, time_ms, ctx)
        if not windows:
            return self._late(value, time_ms, ctx)
        out: list[Any] = []
        stamp: Any = ctx.timestamp()
        for window in windows:
            is_first = self._contents.add(window.pane, value)
            context = self._context_of(window, ctx)
            result = self._trigger.on_element(value, stamp, window.window, context)
            self._act(result, self._trigger.on_element, window, ctx, out)
            if window.is_new or is_first:
                self._register_removal(window, ctx)
        return out

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        timer: Any = ctx
        window = self._window_of(timer.namespace)
        if window is None or self._is_gone(window, timestamp, ctx):
            return None
        out: list[Any] = []
        context = self._context_of(window, ctx)
        if ctx.time_domain() is TimeDomain.EVENT_TIME:
            call, time_ms = self._trigger.on_event_time, timestamp
        else:
            call, time_ms = self._trigger.on_processing_time, timestamp - 1
        self._act(call(time_ms, window.window, context), call, window, ctx, out)
        if ctx.time_domain() is self._domain and timestamp == self._removal_ms(window.window):
            self._contents.remove(window.low, window.high)
            self._remove(window, ctx)
            self._emission.clear(window.namespace, window.window, ctx)
        return out

    @abstractmethod
    def _windows(self, value: Any, time_ms: int, ctx: KeyedProcessFunction.Context) -> list[_Window]:
        """The windows of an element, except those that are removed already."""

    @abstractmethod
    def _window_of(self, namespace: int) -> _Window | None:
        """The current key's window with this namespace; None if there surely is none."""

    def _act(
        self,
        result: Any,
        method: Callable[..., Any],
        window: _Window,
        ctx: KeyedProcessFunction.Context,
        out: list[Any],
    ) -> None:
        """Emit or purge the window, as the trigger's method has decided."""
        if not isinstance(result, TriggerResult):
            raise InvalidRequestError(f"{method.__qualname__} returned {result!r}; it must return a TriggerResult")
        if result.is_fire():
            contents = self._contents.read(window.low, window.high)
            if contents:
                self._emission.emit(window.namespace, window.window, contents, ctx, out)
        if result.is_purge():
            self._contents.remove(window.low, window.high)

    def _remove(self, window: _Window, ctx: KeyedProcessFunction.Context) -> None:
        """Clear the trigger's state of the window."""
        self._trigger.clear(window.window, self._context_of(window, ctx))

    def _context_of(
        self, window: _Window, ctx: KeyedProcessFunction.Context, merged: Sequence[int] = ()
    ) -> WindowTriggerContext:
        """The trigger's context for this window; `merged` are the namespaces of the windows that become it."""
        removal = self._domain, self._removal_ms(window.window)
        return self._trigger_context.about(window.namespace, ctx, removal, merged)

    def _removal_ms(self, window: Any) -> int | None:
        """Time of the timer of the window's removal, by the windows' clock; None: never."""
        last_ms = window.max_timestamp()
        removal_ms = last_ms + self._lateness_ms if self._is_event else fires_at(last_ms)
        return removal_ms if removal_ms < TIME_MAX_MS else None

    def _register_removal(self, window: _Window, ctx: KeyedProcessFunction.Context) -> None:
        removal_ms = self._removal_ms(window.window)
        timers: Any = ctx.timer_service()
        if removal_ms is not None:
            timers.register(self._domain, removal_ms, window.namespace)

    def _is_gone(self, window: _Window, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> bool:
        """True if the window was removed before this timer."""
        removal_ms = self._removal_ms(window.window)
        if removal_ms is None:
            return False
        if ctx.time_domain() is self._domain:
            return removal_ms < timestamp
        if self._is_event:
            return removal_ms <= ctx.current_watermark()
        # Timers of event time come first, so a window that processing time removes in this batch may still be there.
        return removal_ms <= ctx.current_processing_time() and not self._contents.read(window.low, window.high)


class TriggeredFixedWindowOperator(TriggeredWindowOperator):
    """Tumbling and sliding windows."""

    def __init__(self, assigner: FixedWindows, *arguments: Any) -> None:
        super().__init__(assigner, *arguments)
        self._assigner = assigner

    def _windows(self, value: Any, time_ms: int, ctx: KeyedProcessFunction.Context) -> list[_Window]:
        del value
        size_ms = self._assigner.size_ms
        starts = reversed(self._assigner.starts(time_ms))  # the last one first, as in Flink
        return [self._at(start) for start in starts if not self._is_late(start + size_ms, ctx)]

    def _window_of(self, namespace: int) -> _Window | None:
        return self._at(namespace)

    def _at(self, start: int) -> _Window:
        return _Window(start, TimeWindow(start, start + self._assigner.size_ms), start, start + 1, start, is_new=False)


class TriggeredGlobalWindowOperator(TriggeredWindowOperator):
    """One window for each key, which never ends."""

    def _windows(self, value: Any, time_ms: int, ctx: KeyedProcessFunction.Context) -> list[_Window]:
        del value, time_ms, ctx
        return [_GLOBAL]

    def _window_of(self, namespace: int) -> _Window | None:
        del namespace
        return _GLOBAL


class TriggeredSessionOperator(TriggeredWindowOperator):
    """Windows of elements that follow one another within a gap."""

    def __init__(self, assigner: SessionWindows, *arguments: Any) -> None:
        super().__init__(assigner, *arguments)
        self._assigner = assigner

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._gap: Callable[[Any], int] = self._assigner.gap_of()
        self._sessions: MapState[Any, Any] = runtime_context.get_map_state(
            MapStateDescriptor(SESSIONS_STATE, NAMESPACE_TYPE, Types.TUPLE([Types.LONG(), Types.LONG()]))
        )

    def _windows(self, value: Any, time_ms: int, ctx: KeyedProcessFunction.Context) -> list[_Window]:
        namespaces = {(start, end): namespace for start, (end, namespace) in self._sessions.items()}
        merged, start, end = joined(namespaces, time_ms, time_ms + self._gap(value))
        if self._is_late(end, ctx):
            return []
        if merged == [(start, end)]:
            session = _session(start, end, namespaces[start, end])
        else:
            session = self._merge([_session(*window, namespaces[window]) for window in merged], start, end, ctx)
        return [session._replace(pane=self._contents.session_pane(start, time_ms), is_new=not merged)]

    def _merge(self, old: list[_Window], start: int, end: int, ctx: KeyedProcessFunction.Context) -> _Window:
        """Replace old sessions, if there are any, by a new one."""
        taken = {window.namespace for window in old}
        session = _session(start, end, start if start not in taken else _flipped(start))
        for window in old:
            self._sessions.remove(window.low)
        self._sessions.put(start, (end, session.namespace))
        if not old:
            return session
        starts = [window.low for window in old]
        if starts != [start]:
            self._contents.merge_sessions(start, starts)
        self._trigger.on_merge(session.window, self._context_of(session, ctx, [window.namespace for window in old]))
        timers: Any = ctx.timer_service()
        for window in old:
            super()._remove(window, ctx)
            removal_ms = self._removal_ms(window.window)
            if removal_ms is not None:
                timers.delete(self._domain, removal_ms, window.namespace)
        self._register_removal(session, ctx)
        return session

    def _remove(self, window: _Window, ctx: KeyedProcessFunction.Context) -> None:
        super()._remove(window, ctx)
        self._sessions.remove(window.low)

    def _window_of(self, namespace: int) -> _Window | None:
        for start in (namespace, _flipped(namespace)):
            session = self._sessions.get(start)
            if session is not None and session[1] == namespace:
                return _session(start, session[0], namespace)
        return None


_GLOBAL: Final = _Window(0, GlobalWindow(), 0, 1, 0, is_new=False)


def _session(start: int, end: int, namespace: int) -> _Window:
    return _Window(namespace, TimeWindow(start, end), start, end, start, is_new=False)


def _flipped(namespace: int) -> int:
    """The namespace with its first bit flipped."""
    return namespace - _FIRST_BIT if namespace >= 0 else namespace + _FIRST_BIT


_OPERATORS: tuple[tuple[type[WindowAssigner], Any, Any], ...] = (
    (FixedWindows, FixedWindowOperator, TriggeredFixedWindowOperator),
    (SessionWindows, SessionWindowOperator, TriggeredSessionOperator),
    (GlobalWindows, GlobalWindowOperator, TriggeredGlobalWindowOperator),
    (CountWindows, count_operator, None),
)
"""Kind of windows, its operator for a trigger with a known `Firing`, and its operator for any trigger."""


def check_assigner(assigner: Any) -> None:
    """Raises `InvalidRequestError` if these are no windows."""
    if not any(isinstance(assigner, kind) for kind, _, _ in _OPERATORS):
        raise InvalidRequestError(
            f"window takes windows such as TumblingEventTimeWindows.of(Time.minutes(5)), not {assigner!r}; what an "
            "assigner of your own does, a KeyedProcessFunction with state and timers can do"
        )


def operator_of(assigner: WindowAssigner, trigger: Trigger[Any, Any] | None, *arguments: Any) -> WindowOperator:
    """The operator of these windows with this trigger.

    Args:
        assigner: The windows.
        trigger: None: the windows' own.
        arguments: The other arguments of `WindowOperator`.

    Raises:
        InvalidRequestError: These are no windows, or they cannot have this trigger.
    """
    check_assigner(assigner)
    firing = firing_of(trigger, assigner)
    _, of_firing, of_trigger = next(kinds for kinds in _OPERATORS if isinstance(assigner, kinds[0]))
    return of_trigger(assigner, trigger, *arguments) if firing is None else of_firing(assigner, firing, *arguments)
