"""Windows with every trigger, in both times, over restarts on every backend: what comes out is what Flink's rules give.

The model asks the same triggers, each element and window by itself, and keeps timers and state in plain collections.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.jobs.keyed_job import Changelog, KeyedJob
from tests.jobs.window_job import Element, WindowJob, window_operator
from tests.stores.working_stores import KINDS
from varvite.changelog.api.descriptors import ListStateDescriptor, ReducingStateDescriptor, ValueStateDescriptor
from varvite.changelog.keyed.timers import TimeDomain
from varvite.changelog.types.factory import Types
from varvite.spark_integration.functions.output_tag import OutputTag
from varvite.spark_integration.functions.window import ProcessWindowFunction
from varvite.spark_integration.operators.windows.assigners import (
    EventTimeSessionWindows,
    GlobalWindow,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SessionWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from varvite.spark_integration.operators.windows.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from varvite.spark_integration.operators.windows.contents import ListedContents, ReducedContents
from varvite.spark_integration.operators.windows.trigger import Trigger, TriggerResult
from varvite.storage.private_directories import TemporaryDirectory

EVENT, PROCESSING = TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME
TIME_MAX_MS = (1 << 63) - 1
LATE = OutputTag("late")
FIRED = ValueStateDescriptor("fired", Types.LONG())


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element: int) -> int:
        return element % 7 + 1


class Say(ProcessWindowFunction[Any, Any, str, Any]):
    """Tells what it was given, and how often its window has fired."""

    def __init__(self, *, merges: bool) -> None:
        self.merges = merges

    def process(self, key: str, context: Any, elements: Any) -> list[Any]:
        times = 0
        if not self.merges:
            fired = context.window_state().get_state(FIRED)
            times = (fired.value() or 0) + 1
            fired.update(times)
        window = context.window()
        return [(key, getattr(window, "start", 0), getattr(window, "end", 0), list(elements), times)]

    def clear(self, context: Any) -> None:
        if not self.merges:
            context.window_state().get_state(FIRED).clear()


class Erratic(Trigger[Any, Any]):
    """Does all that a trigger may: its elements set and delete timers of both times, fire and purge."""

    total = ReducingStateDescriptor("total", lambda a, b: a + b, Types.LONG())
    event_times = ListStateDescriptor("event", Types.LONG())
    times = ListStateDescriptor("processing", Types.LONG())

    def on_element(self, element: int, timestamp: Any, window: Any, ctx: Any) -> TriggerResult:
        ctx.get_partitioned_state(self.total).add(element)
        ctx.register_event_time_timer(window.max_timestamp())
        if element % 5 == 0:
            ctx.register_event_time_timer((timestamp or 0) + 3)
            ctx.get_partitioned_state(self.event_times).add((timestamp or 0) + 3)
        elif element % 5 == 1:
            ctx.register_processing_time_timer(ctx.get_current_processing_time() + 4)
            ctx.get_partitioned_state(self.times).add(ctx.get_current_processing_time() + 4)
        elif element % 5 == 2:
            ctx.delete_event_time_timer(window.max_timestamp())
            ctx.delete_processing_time_timer(window.max_timestamp())
        return list(TriggerResult)[ctx.get_partitioned_state(self.total).get() % 4]

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        ctx.get_partitioned_state(self.total).add(1)
        return TriggerResult.FIRE if time % 2 else TriggerResult.PURGE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        count = len(ctx.get_partitioned_state(self.times).get())
        return TriggerResult.FIRE if (time + count) % 2 else TriggerResult.FIRE_AND_PURGE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Any) -> None:
        for descriptor in (self.total, self.event_times, self.times):
            ctx.merge_partitioned_state(descriptor)
        for time in [window.max_timestamp(), *ctx.get_partitioned_state(self.event_times).get()]:
            ctx.register_event_time_timer(time)
        for time in ctx.get_partitioned_state(self.times).get():
            ctx.register_processing_time_timer(time)

    def clear(self, window: Any, ctx: Any) -> None:
        for time in [window.max_timestamp(), *ctx.get_partitioned_state(self.event_times).get()]:
            ctx.delete_event_time_timer(time)
        for time in ctx.get_partitioned_state(self.times).get():
            ctx.delete_processing_time_timer(time)
        for descriptor in (self.total, self.event_times, self.times):
            ctx.get_partitioned_state(descriptor).clear()


class Held:
    """State of a window in the model."""

    def __init__(self, states: dict[Any, list[int]], place: Any, descriptor: Any) -> None:
        self.states, self.place, self.descriptor = states, place, descriptor

    def get(self) -> Any:
        held = self.states.get(self.place, [])
        if isinstance(self.descriptor, ListStateDescriptor):
            return list(held)
        return held[0] if held else None

    def add(self, value: int) -> None:
        held = self.states.setdefault(self.place, [])
        if held and not isinstance(self.descriptor, ListStateDescriptor):
            held[0] = self.descriptor.get_reduce_function().reduce(held[0], value)
        else:
            held.append(value)

    def clear(self) -> None:
        self.states.pop(self.place, None)


class Asked(NamedTuple):
    """Context of a trigger in the model."""

    model: Model
    key: str
    window: Any
    merged: tuple[Any, ...] = ()

    def get_current_processing_time(self) -> int:
        return self.model.time_ms

    def get_current_watermark(self) -> int:
        return self.model.watermark_ms

    def register_event_time_timer(self, time: int) -> None:
        self.model.timers.add((EVENT, time, self.key, self.window))

    def register_processing_time_timer(self, time: int) -> None:
        self.model.timers.add((PROCESSING, time, self.key, self.window))

    def delete_event_time_timer(self, time: int) -> None:
        self.model.timers.discard((EVENT, time, self.key, self.window))

    def delete_processing_time_timer(self, time: int) -> None:
        self.model.timers.discard((PROCESSING, time, self.key, self.window))

    def get_partitioned_state(self, descriptor: Any) -> Held:
        return Held(self.model.states, (self.key, self.window, descriptor.name), descriptor)

    def merge_partitioned_state(self, descriptor: Any) -> None:
        for window in self.merged:
            old = Held(self.model.states, (self.key, window, descriptor.name), descriptor)
            held = old.get()
            old.clear()
            for value in held if isinstance(held, list) else [held] * (held is not None):
                self.get_partitioned_state(descriptor).add(value)


@dataclass
class Model:
    """Flink's window operator, in batches: what is due fires, then come the elements, then fires what they made due."""

    assigner: Any
    trigger: Any
    lateness_ms: int
    contents: dict[Any, list[tuple[int, int]]] = field(default_factory=dict)
    sessions: set[Any] = field(default_factory=set)
    removed: set[Any] = field(default_factory=set)
    timers: set[Any] = field(default_factory=set)
    states: dict[Any, list[int]] = field(default_factory=dict)
    fired: dict[Any, int] = field(default_factory=dict)
    time_ms: int = 100
    watermark_ms: int = -(2**63)
    count: int = 0

    def batch(self, elements: list[Element], time_ms: int, watermark_ms: int) -> list[Any]:
        self.time_ms, self.watermark_ms = time_ms, watermark_ms
        out: list[Any] = []
        self.fire(out)
        for element in elements:
            self.element(element, out)
        self.fire(out)
        return out

    @property
    def domain(self) -> TimeDomain:
        return self.assigner.domain

    @property
    def merges(self) -> bool:
        return isinstance(self.assigner, SessionWindows)

    def removal_ms(self, window: Any) -> int:
        return min(window.max_timestamp() + (self.lateness_ms if self.domain is EVENT else 0), TIME_MAX_MS)

    def is_late(self, window: Any) -> bool:
        return self.domain is EVENT and self.removal_ms(window) <= self.watermark_ms

    def windows_of(self, element: Element, time_ms: int) -> list[Any]:
        if isinstance(self.assigner, GlobalWindows):
            return [GlobalWindow()]
        if self.merges:
            return [self.session(element.key, TimeWindow(time_ms, time_ms + self.assigner.gap_of()(element.value)))]
        size, slide, offset = self.assigner.size_ms, self.assigner.slide_ms, self.assigner.offset_ms
        starts = [s for s in range(time_ms - size + 1, time_ms + 1) if (s - offset) % slide == 0]
        return [TimeWindow(start, start + size) for start in reversed(starts)]

    def session(self, key: str, own: TimeWindow) -> TimeWindow:
        old = tuple(window for held, window in self.sessions if held == key and window.intersects(own))
        whole = own
        for window in old:
            whole = whole.cover(window)
        if not old or old == (whole,) or self.is_late(whole):
            return whole
        self.contents[key, whole] = sorted(n for window in old for n in self.contents.pop((key, window), []))
        made = TimeWindow(whole.start, whole.end + 1_000_000)  # until the old ones are gone, one may be equal
        self.trigger.on_merge(whole, Asked(self, key, made, old))
        for window in old:
            self.trigger.clear(window, Asked(self, key, window))
            self.timers.discard((self.domain, self.removal_ms(window), key, window))
            self.sessions.discard((key, window))
        self.timers = {(d, t, k, whole if w == made else w) for d, t, k, w in self.timers}
        self.states = {(k, whole if w == made else w, n): held for (k, w, n), held in self.states.items()}
        return whole

    def element(self, element: Element, out: list[Any]) -> None:
        time_ms = self.time_ms if self.domain is PROCESSING else element.time_ms or 0
        windows = [w for w in self.windows_of(element, time_ms) if not self.is_late(w)]
        for window in windows:
            place = element.key, window
            if self.merges:
                self.sessions.add(place)
            self.contents.setdefault(place, []).append((self.count, element.value))
            asked = Asked(self, *place)
            self.act(self.trigger.on_element(element.value, element.time_ms, window, asked), place, out)
            if self.removal_ms(window) < TIME_MAX_MS:
                self.timers.add((self.domain, self.removal_ms(window), *place))
        self.count += 1
        if not windows and self.domain is EVENT and time_ms + self.lateness_ms <= self.watermark_ms:
            out.append((LATE, element.value))

    def act(self, result: TriggerResult, place: tuple[str, Any], out: list[Any]) -> None:
        key, window = place
        held = self.contents.get(place)
        if result.is_fire() and held:
            times = 0 if self.merges else self.fired.get(place, 0) + 1
            self.fired[place] = times
            out.append((key, getattr(window, "start", 0), getattr(window, "end", 0), [v for _, v in held], times))
        if result.is_purge():
            self.contents.pop(place, None)

    def fire(self, out: list[Any]) -> None:
        while True:
            due = [t for t in self.timers if t[0] is EVENT and t[1] <= self.watermark_ms]
            due = due or [t for t in self.timers if t[0] is PROCESSING and t[1] < self.time_ms]
            if not due:
                return
            timer = min(due, key=lambda timer: (timer[1], repr(timer)))
            self.timers.discard(timer)
            domain, time_ms, *place = timer
            if (self.merges and tuple(place) not in self.sessions) or tuple(place) in self.removed:
                continue
            asked = Asked(self, *place)
            call = self.trigger.on_event_time if domain is EVENT else self.trigger.on_processing_time
            self.act(call(time_ms, place[1], asked), tuple(place), out)
            if domain is self.domain and time_ms == self.removal_ms(place[1]):
                self.trigger.clear(place[1], asked)
                self.contents.pop(tuple(place), None)
                self.fired.pop(tuple(place), None)
                self.sessions.discard(tuple(place))
                if not self.merges:
                    self.removed.add(tuple(place))


ASSIGNERS = st.sampled_from([
    TumblingEventTimeWindows.of(10), TumblingEventTimeWindows.of(7, 3), SlidingEventTimeWindows.of(10, 5),
    SlidingEventTimeWindows.of(12, 4, -1), SlidingEventTimeWindows.of(3, 5), EventTimeSessionWindows.with_gap(6),
    EventTimeSessionWindows.with_dynamic_gap(Gap()), TumblingProcessingTimeWindows.of(10),
    SlidingProcessingTimeWindows.of(10, 3), ProcessingTimeSessionWindows.with_gap(6),
    ProcessingTimeSessionWindows.with_dynamic_gap(Gap()), GlobalWindows.create(),
])  # fmt: skip
TRIGGERS = st.sampled_from([
    None, EventTimeTrigger(), ProcessingTimeTrigger(), CountTrigger.of(1), CountTrigger.of(3),
    ContinuousEventTimeTrigger.of(2), ContinuousEventTimeTrigger.of(5), ContinuousProcessingTimeTrigger.of(2),
    *[Erratic()] * 8,
])  # fmt: skip
ELEMENTS = st.lists(st.builds(Element, st.sampled_from("ab"), st.integers(0, 30), st.integers(-20, 60)), max_size=7)
BATCHES = st.lists(
    st.tuples(
        ELEMENTS, st.sampled_from([0, 0, 1, 5, 12]), st.integers(-30, 70), st.sampled_from(["", "", "crash", "drop"])
    ),
    min_size=1,
    max_size=8,
)


def trigger_for(assigner: Any, wanted: Any) -> Any:
    """The trigger, or one that these windows can have; None: the windows' own."""
    is_clock = wanted is None or isinstance(wanted, EventTimeTrigger | ProcessingTimeTrigger)
    return CountTrigger.of(2) if isinstance(assigner, GlobalWindows) and is_clock else wanted


@pytest.mark.parametrize("changelog", ["on", "off"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    assigner=ASSIGNERS, wanted=TRIGGERS, purges=st.booleans(), lateness_ms=st.sampled_from([0, 0, 1, 5, 30]),
    reduces=st.booleans(), batches=BATCHES,
)  # fmt: skip
def test_windows_with_any_trigger_equal_the_model(
    kind: str,
    changelog: Changelog,
    assigner: Any,
    wanted: Any,
    purges: bool,
    lateness_ms: int,
    reduces: bool,
    batches: Any,
) -> None:
    trigger = trigger_for(assigner, wanted)
    own = EventTimeTrigger() if assigner.is_event_time() else ProcessingTimeTrigger()
    if purges and trigger is not None:
        trigger = PurgingTrigger.of(trigger)
    lateness_ms = lateness_ms if assigner.is_event_time() else 0
    contents = ReducedContents(lambda a, b: a + b, Types.LONG()) if reduces else ListedContents(Types.LONG())
    function = Say(merges=isinstance(assigner, SessionWindows))
    with TemporaryDirectory("test") as directory:
        job = KeyedJob(kind, changelog, directory)
        operator = window_operator(
            assigner, contents, function, trigger=trigger, lateness_ms=lateness_ms, late_output=LATE
        )
        windows, model = WindowJob(job, operator), Model(assigner, trigger or own, lateness_ms)
        for elements, step_ms, wanted_ms, event in [*batches, ([], 1000, 2000, "end")]:
            tried = copy.deepcopy(model)
            time_ms, watermark_ms = model.time_ms + step_ms, max(model.watermark_ms, wanted_ms)
            found = windows.batch(elements, time_ms=time_ms, watermark_ms=watermark_ms)
            expected = tried.batch(elements, time_ms, watermark_ms)
            if reduces:
                expected = [row if row[0] == LATE else (*row[:3], [sum(row[3])], row[4]) for row in expected]
            assert sorted(found, key=repr) == sorted(expected, key=repr)
            if event == "drop":
                job.drop()
                continue
            job.commit()
            model = tried
            if event == "crash":
                job.crash()
                windows.restart()
        if not isinstance(assigner, GlobalWindows):
            held = {name: rows for name, rows in job._contents(job.backend.store).items() if rows}
            assert held == {}, "nothing is left of windows that are gone"
        job.close()
