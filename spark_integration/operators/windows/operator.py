"""Window operators for triggers with a known effect (`Firing`): adding elements, firing and removing windows.

Order within a batch: windows that the batch's watermark and time complete fire first. Then the elements are processed,
and the windows that they make due fire. So a late element finds its window fired already, and one within the allowed
lateness makes it fire once more, as in Flink, where a watermark comes before the elements after it. Behind another
operator the elements are its output up to the watermark: they come first, then the watermark (`OperatorRunner.start`).

Timers: a window has one for its end, and one for its removal if it is kept longer; each is registered once, and not
moved. When the timer of a session that has grown fires too early, it is registered again at the new end.

Invariants: I5 (firing and its order depend on state, elements, time and watermark only).
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.api.descriptors import MapStateDescriptor
from varvite.changelog.keyed.namespaces import NAMESPACE_TYPE
from varvite.changelog.keyed.timers import TimeDomain
from varvite.changelog.types.factory import Types
from varvite.changelog.working_stores.timer_form import TIME_MAX_MS
from varvite.spark_integration.functions.implicit_state import HasImplicitState, ImplicitState
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.operators.windows.assigners import FixedWindows, GlobalWindow, SessionWindows, TimeWindow
from varvite.spark_integration.operators.windows.emission import WindowEmission
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from varvite.changelog.api.state import MapState
    from varvite.spark_integration.functions.keyed import RuntimeContext
    from varvite.spark_integration.functions.output_tag import OutputTag
    from varvite.spark_integration.operators.windows.assigners import WindowAssigner
    from varvite.spark_integration.operators.windows.builtin_triggers import Firing
    from varvite.spark_integration.operators.windows.contents import ContentsPlan

_log: Final = logging.getLogger(__name__)
COUNTS_STATE: Final = "window-counts"
"""Elements of each window since it fired last, for `CountTrigger`."""
SESSIONS_STATE: Final = "window-sessions"
"""Begin of each session → its end."""


class WindowOperator(KeyedProcessFunction[Any, Any, Any], HasImplicitState):
    """Base of the operators.

    Args:
        assigner: The windows.
        lateness_ms: How long event-time windows stay after their end.
        plan: The form of the contents.
        function: A `WindowFunction` or `ProcessWindowFunction`; None: contents are yielded unchanged.
        late_output: Side output of late elements; None: they are dropped.
    """

    fires_first = True
    """Due timers also fire before the elements of the batch."""
    tells_late_of = ""
    """Uid of an operator behind another one, which logs the first late row that it drops; else empty."""
    late_rows = 0
    """Elements of the batch that were dropped; whoever begins a batch sets it to 0."""
    _shares = False
    """A window may have several panes."""

    def __init__(
        self,
        assigner: WindowAssigner,
        lateness_ms: int,
        plan: ContentsPlan,
        function: Any,
        late_output: OutputTag | None = None,
    ) -> None:
        self._is_event = assigner.is_event_time()
        self._domain = assigner.domain
        self._merges = isinstance(assigner, SessionWindows)
        self._lateness_ms = lateness_ms if self._is_event else 0
        self._plan = plan
        self._emission = WindowEmission(function, merges=self._merges)
        self._late_output = late_output

    @property
    def emission(self) -> WindowEmission:
        """The output of its windows."""
        return self._emission

    def implicit_states(self) -> tuple[ImplicitState, ...]:
        return (self._plan.implicit_state(),)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._contents = self._plan.open(runtime_context, shared=self._shares, sessions=self._merges)
        self._emission.open(runtime_context)

    def close(self) -> None:
        self._plan.close()
        self._emission.close()

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> list[Any] | None:
        """Add the element to its windows; the output of those that it makes fire."""

    def _time_of(self, ctx: KeyedProcessFunction.Context) -> int:
        if not self._is_event:
            return ctx.current_processing_time()
        time_ms = ctx.timestamp()
        if time_ms is None:
            raise InvalidRequestError(
                "an element has no time stamp, but the windows are about event time: call with_watermark or "
                "assign_timestamps_and_watermarks before the first stateful operator, or take processing-time windows. "
                "Behind another stateful operator an element has the time of the element, the window or the event-time "
                "timer that it was made of, but none of a processing-time timer, of a broadcast or of Spark's functions"
            )
        return time_ms

    def _is_late(self, end_ms: int, ctx: KeyedProcessFunction.Context) -> bool:
        """True if a window with this end is removed already."""
        return self._is_event and end_ms - 1 + self._lateness_ms <= ctx.current_watermark()

    def _late(self, value: Any, time_ms: int, ctx: KeyedProcessFunction.Context) -> list[Any] | None:
        """The output for an element that no window takes: late is one that no window of its time would take."""
        if not self._is_late(time_ms + 1, ctx):
            return None
        if self._late_output is not None:
            return [(self._late_output, value)]
        self.late_rows += 1
        if self.tells_late_of:
            self._log_late(time_ms, ctx)
        return None

    def _log_late(self, time_ms: int, ctx: KeyedProcessFunction.Context) -> None:
        """Log once that rows are dropped, behind an operator that may have given them times of its own."""
        _log.warning(
            "operator %s: a row of %d ms is late, for the watermark was %d ms already, and dropped, as are all. "
            "A window operator before this one has to give its rows a time that the watermark had not passed: the "
            "last millisecond of their window, window().max_timestamp(). side_output_late_data gives out late rows",
            self.tells_late_of, time_ms, ctx.current_watermark(),
        )  # fmt: skip
        self.tells_late_of = ""


class FiringOperator(WindowOperator):
    """Base of the operators whose trigger has a known effect, so that it is never called.

    Args:
        assigner: The windows.
        firing: The effect of their trigger.
        arguments: Arguments of `WindowOperator`.
    """

    def __init__(self, assigner: WindowAssigner, firing: Firing, *arguments: Any) -> None:
        super().__init__(assigner, *arguments)
        # At the watermark of a window's last millisecond the window is complete; at that processing time it is not yet.
        self._before_ms = 1 if self._is_event else 0
        self._firing = firing
        self._removal_is_end = firing.on_time is not None and not self._lateness_ms

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        if self._firing.count is not None:
            self._counts: MapState[Any, Any] = runtime_context.get_map_state(
                MapStateDescriptor(COUNTS_STATE, NAMESPACE_TYPE, Types.LONG())
            )

    def _has_passed(self, end_ms: int, ctx: KeyedProcessFunction.Context) -> bool:
        """True if the timer of that end has fired already."""
        return end_ms - self._before_ms <= (
            ctx.current_watermark() if self._is_event else ctx.current_processing_time()
        )

    def _register_end(self, end_ms: int, ctx: KeyedProcessFunction.Context) -> None:
        if self._firing.on_time is not None:
            _register(ctx, self._firing.on_time, end_ms - self._before_ms)

    def _register_removal(self, end_ms: int, ctx: KeyedProcessFunction.Context) -> None:
        if not self._removal_is_end:
            _register(ctx, self._domain, end_ms - self._before_ms + self._lateness_ms)

    def _completes(self, window: int, end_ms: int, ctx: KeyedProcessFunction.Context) -> bool:
        """True if the element that was just added makes the window fire."""
        if self._firing.on_time is TimeDomain.EVENT_TIME:
            return end_ms - 1 <= ctx.current_watermark()
        return self._firing.count is not None and self._count(window, self._firing.count)

    def _count(self, window: int, limit: int) -> bool:
        count = (self._counts.get(window) or 0) + 1
        if count < limit:
            self._counts.put(window, count)
            return False
        self._counts.remove(window)
        return True

    def _fire(self, low: int, high: int, window: Any, ctx: KeyedProcessFunction.Context, out: list[Any]) -> None:
        """Emit the contents of the panes `low <= pane < high`."""
        contents = self._contents.read(low, high)
        if contents:
            self._emission.emit(low, window, contents, ctx, out)
            if self._firing.purges:
                self._contents.remove(low, high)

    def _clear(self, low: int, window: Any, ctx: KeyedProcessFunction.Context) -> None:
        """Remove the window's other state, besides its contents."""
        self._emission.clear(low, window, ctx)
        if self._firing.count is not None:
            self._counts.remove(low)


class FixedWindowOperator(FiringOperator):
    """Tumbling and sliding windows."""

    def __init__(self, assigner: FixedWindows, *arguments: Any) -> None:
        self._shares = assigner.overlaps
        super().__init__(assigner, *arguments)
        self._assigner = assigner

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> list[Any] | None:
        time_ms = self._time_of(ctx)
        size_ms = self._assigner.size_ms
        live = [start for start in self._assigner.starts(time_ms) if not self._is_late(start + size_ms, ctx)]
        if not live:
            return self._late(value, time_ms, ctx)
        if self._contents.add(self._assigner.pane(time_ms), value):
            self._register(self._assigner.pane(time_ms), live, ctx)
        out: list[Any] = []
        for start in reversed(live):  # as in Flink
            if self._completes(start, start + size_ms, ctx):
                self._fire(start, start + size_ms, TimeWindow(start, start + size_ms), ctx, out)
        return out

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        size_ms, domain = self._assigner.size_ms, ctx.time_domain()
        out: list[Any] = []
        start = timestamp + self._before_ms - size_ms
        if domain is self._firing.on_time and self._assigner.is_start(start):
            self._fire(start, start + size_ms, TimeWindow(start, start + size_ms), ctx, out)
        start -= self._lateness_ms
        if domain is self._domain and self._assigner.is_start(start):
            # Later windows need the panes from the next slide on.
            self._contents.remove(start, start + min(size_ms, self._assigner.slide_ms))
            self._clear(start, TimeWindow(start, start + size_ms), ctx)
        return out

    def _register(self, pane: int, live: list[int], ctx: KeyedProcessFunction.Context) -> None:
        """Register timers of the windows that get their first pane."""
        size_ms = self._assigner.size_ms
        other_panes = [other for other in self._contents.panes() if other != pane] if self._shares else []
        for start in live:
            if any(start <= other < start + size_ms for other in other_panes):
                continue
            if not self._has_passed(start + size_ms, ctx):
                self._register_end(start + size_ms, ctx)
            self._register_removal(start + size_ms, ctx)


class GlobalWindowOperator(FiringOperator):
    """One window for each key, which never ends."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> list[Any] | None:
        self._contents.add(0, value)
        if not self._completes(0, TIME_MAX_MS, ctx):
            return None
        out: list[Any] = []
        self._fire(0, 1, GlobalWindow(), ctx, out)
        return out


class SessionWindowOperator(FiringOperator):
    """Windows of elements that follow one another within a gap."""

    def __init__(self, assigner: SessionWindows, *arguments: Any) -> None:
        super().__init__(assigner, *arguments)
        self._assigner = assigner

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._gap: Callable[[Any], int] = self._assigner.gap_of()
        self._sessions: MapState[Any, Any] = runtime_context.get_map_state(
            MapStateDescriptor(SESSIONS_STATE, NAMESPACE_TYPE, Types.LONG())
        )

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> list[Any] | None:
        time_ms = self._time_of(ctx)
        merged, start, end = joined(self._sessions.items(), time_ms, time_ms + self._gap(value))
        if self._is_late(end, ctx):
            return self._late(value, time_ms, ctx)
        if merged != [(start, end)]:
            self._replace(merged, start, end)
        self._contents.add(self._contents.session_pane(start, time_ms), value)
        passed = self._has_passed(end, ctx)
        if not passed and all(self._has_passed(item[1], ctx) for item in merged):
            self._register_end(end, ctx)
        if not merged:
            self._register_removal(end, ctx)
        out: list[Any] = []
        if self._completes(start, end, ctx):
            self._fire(start, end, TimeWindow(start, end), ctx, out)
        return out

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        out: list[Any] = []
        if ctx.time_domain() is self._firing.on_time:
            for start, end in self._sessions_at(timestamp):
                if end > timestamp + self._before_ms:
                    self._register_end(end, ctx)
                else:
                    self._fire(start, end, TimeWindow(start, end), ctx, out)
        if ctx.time_domain() is self._domain:
            for start, end in self._sessions_at(timestamp - self._lateness_ms):
                if end > timestamp - self._lateness_ms + self._before_ms:
                    self._register_removal(end, ctx)
                else:
                    self._contents.remove(start, end)
                    self._sessions.remove(start)
                    self._clear(start, TimeWindow(start, end), ctx)
        return out

    def _sessions_at(self, timer_ms: int) -> list[tuple[int, int]]:
        """The session of a timer, which was set for its present or a former end."""
        last_ms = timer_ms + self._before_ms - 1
        return [(start, end) for start, end in self._sessions.items() if start <= last_ms < end]

    def _replace(self, sessions: list[tuple[int, int]], start: int, end: int) -> None:
        """Replace sessions by the one that they become."""
        for old, _ in sessions:
            if old != start:
                self._sessions.remove(old)
        self._sessions.put(start, end)
        starts = [old for old, _ in sessions]
        if starts and starts != [start]:
            self._contents.merge_sessions(start, starts)
            if self._firing.count is not None:
                self._merge_counts(start, starts)

    def _merge_counts(self, start: int, starts: list[int]) -> None:
        count = sum(self._counts.get(old) or 0 for old in starts)
        for old in starts:
            self._counts.remove(old)
        if count:
            self._counts.put(start, count)


def joined(sessions: Iterable[tuple[int, int]], start: int, end: int) -> tuple[list[tuple[int, int]], int, int]:
    """The sessions that one from `start` to `end` joins, ascending, and begin and end of the resulting session.

    As in Flink, sessions that only touch are one.
    """
    touching = sorted(item for item in sessions if item[0] <= end and item[1] >= start)
    if touching:
        start, end = min(start, touching[0][0]), max(end, *(item[1] for item in touching))
    return touching, start, end


def _register(ctx: KeyedProcessFunction.Context, domain: TimeDomain, time_ms: int) -> None:
    """Register a timer, unless it is beyond all times."""
    if time_ms >= TIME_MAX_MS:
        return
    if domain is TimeDomain.EVENT_TIME:
        ctx.timer_service().register_event_time_timer(time_ms)
    else:
        ctx.timer_service().register_processing_time_timer(time_ms)
