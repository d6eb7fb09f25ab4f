"""Windows and namespaced state over every backend: what they keep, what they log, what survives a crash."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.keyed_job import KeyedJob
from tests.jobs.mean import MEAN_TYPE, Mean
from tests.jobs.window_job import Element, WindowJob, window_operator
from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.keyed.namespaced_handles import NamespacedStateStore
from varvite.changelog.keyed.namespaces import NamespacedLists, aggregating
from varvite.changelog.types.factory import Types
from varvite.spark_integration.functions.output_tag import OutputTag
from varvite.spark_integration.functions.window import ProcessWindowFunction
from varvite.spark_integration.operators.windows.assigners import (
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from varvite.spark_integration.operators.windows.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    EventTimeTrigger,
    PurgingTrigger,
)
from varvite.spark_integration.operators.windows.contents import ListedContents, ReducedContents
from varvite.spark_integration.operators.windows.trigger import Trigger, TriggerResult
from varvite.storage.errors import IncompatibleError, InvalidRequestError

SUM = ReducedContents(lambda a, b: a + b, Types.LONG())
ALL = ListedContents(Types.LONG())


@pytest.fixture
def job(keyed_job: KeyedJob) -> KeyedJob:
    return keyed_job


def test_merging_namespaces_merges_accumulators(job: KeyedJob) -> None:
    def means() -> Any:
        return aggregating(job.backend, "means", MEAN_TYPE, Mean())

    job.set_key("a")
    for namespace, value in ((1, 1.0), (1, 2.0), (1, 3.0), (5, 10.0), (7, 99.0)):
        means().add(namespace, value)
    job.commit()
    job.crash()
    job.set_key("a")
    means().merge_namespaces(0, [1, 5, 6])
    job.commit()
    job.crash()
    job.set_key("a")
    assert means().namespaces() == [0, 7]
    assert means().get(0) == (4, 16.0)
    assert means().merged(0, 8) == (5, 115.0)
    job.set_key("b")
    assert means().namespaces() == []


def test_lists_of_namespaces_keep_the_order_of_arrival(job: KeyedJob) -> None:
    def lists() -> NamespacedLists:
        return NamespacedLists(job.backend, "lists", Types.STRING())

    job.set_key("a")
    for namespace, value in ((2, "first"), (1, "second"), (2, "third")):
        lists().add(namespace, value)
    job.commit()
    job.crash()
    job.set_key("a")
    lists().add(1, "fourth")
    assert [len(changes) for changes in job.backend.changes()] == [1, 1], "an element, and the counter"
    job.set_key("a")
    assert lists().elements(0, 9) == ["first", "second", "third", "fourth"]
    lists().merge_namespaces(1, [1, 2])
    assert lists().elements(1, 2) == ["first", "second", "third", "fourth"]
    lists().remove_between(0, 9)
    job.commit()
    assert not any(job._contents(job.backend.store).values()), "the counter is gone as well"
    job.set_key("a")
    with pytest.raises(InvalidRequestError):
        lists().add(1, None)


def test_every_kind_of_state_has_namespaces(job: KeyedJob) -> None:
    value = ValueStateDescriptor("s", Types.LONG())
    items = ListStateDescriptor("s", Types.LONG())
    entries = MapStateDescriptor("s", Types.STRING(), Types.LONG())
    total = ReducingStateDescriptor("s", lambda a, b: a + b, Types.LONG())
    mean = AggregatingStateDescriptor("s", Mean(), MEAN_TYPE)
    for number in (1, 2):
        job.set_key("a")
        store = NamespacedStateStore(job.backend, "window-state")
        store.namespace = number
        store.get_state(value).update(number)
        store.get_list_state(items).add_all([number, number])
        store.get_list_state(items).update([7, number])
        store.get_map_state(entries).put_all({"x": number, "y": 0})
        store.get_map_state(entries).remove("y")
        for added in (number, 10):
            store.get_reducing_state(total).add(added)
            store.get_aggregating_state(mean).add(float(added))
        job.commit()
        job.crash()
    job.set_key("a")
    store = NamespacedStateStore(job.backend, "window-state")
    for number in (1, 2):
        store.namespace = number
        assert store.get_state(value).value() == number
        assert store.get_list_state(items).get() == [7, number]
        mapped = store.get_map_state(entries)
        assert (mapped.items(), mapped.keys(), mapped.values()) == ([("x", number)], ["x"], [number])
        assert (mapped.get("x"), mapped.contains("y"), mapped.is_empty()) == (number, False, False)
        assert store.get_reducing_state(total).get() == number + 10
        assert store.get_aggregating_state(mean).get() == (number + 10) / 2
    store.get_state(value).update(None)
    store.get_reducing_state(total).add(None)
    store.get_aggregating_state(mean).add(None)
    store.get_list_state(items).clear()
    store.get_map_state(entries).clear()
    assert (store.get_state(value).value(), store.get_reducing_state(total).get()) == (None, None)
    assert (store.get_aggregating_state(mean).get(), store.get_list_state(items).get()) == (None, [])
    assert store.get_map_state(entries).is_empty()
    store.namespace = 1
    assert store.get_state(value).value() == 1
    for wrong in (None, "text", [1, None]):
        with pytest.raises(InvalidRequestError):
            store.get_list_state(items).update(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("contents", [SUM, ALL], ids=["sum", "all"])
def test_a_batch_logs_an_element_once_however_many_windows_it_is_in(job: KeyedJob, contents: Any) -> None:
    rows: dict[int, dict[str, int]] = {}
    for count in (5, 45):
        windows = WindowJob(job, window_operator(SlidingEventTimeWindows.of(count * 10, 10), contents))
        key = f"of {count}"
        windows.batch([Element(key, 1, 5)])
        job.commit()
        windows.batch([Element(key, value, 12) for value in range(3)])
        rows[count] = windows.changes()
        job.commit()
    assert rows[5] == rows[45]
    assert rows[45]["window-contents"] == (1 if contents is SUM else 3)
    assert rows[45]["_timer_state/event_user-timers"] == 1, "of 45 windows only one is new"


class Tell(ProcessWindowFunction[Any, Any, str, Any]):
    """(key, begin of the window, its elements)."""

    def process(self, key: str, context: Any, elements: Any) -> list[Any]:
        return [(key, context.window().start, list(elements))]


def test_late_elements_go_to_a_side_output(job: KeyedJob) -> None:
    late = OutputTag("late")
    gaps = window_operator(SlidingEventTimeWindows.of(3, 10), ALL, Tell(), lateness_ms=2, late_output=late)
    windows = WindowJob(job, gaps)
    elements = [Element("a", 1, 10), Element("a", 2, 5), Element("a", 3, 9)]
    assert windows.batch(elements, watermark_ms=8) == [(late, 2)], "the last is between windows, but not late"
    windows = WindowJob(job, window_operator(ProcessingTimeSessionWindows.with_gap(10), ALL, late_output=late))
    job.drop()
    assert windows.batch([Element("a", 1)], time_ms=5, watermark_ms=100) == []
    sessions = window_operator(EventTimeSessionWindows.with_gap(10), ALL, late_output=late)
    windows = WindowJob(job, sessions)
    job.drop()
    joining = [Element("b", 1, 95), Element("b", 2, 86), Element("b", 3, 70)]
    assert windows.batch(joining, watermark_ms=100) == [(late, 3)], "what joins a session that is there is not late"


class Early(Trigger[Any, Any]):
    """At the end, at each time that an element names, and when their sum is above 100; then it is emptied."""

    total = ReducingStateDescriptor("total", lambda a, b: a + b, Types.LONG())
    times = ListStateDescriptor("times", Types.LONG())

    def on_element(
        self, element: int, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        ctx.register_event_time_timer(window.max_timestamp())
        ctx.get_partitioned_state(self.times).add(timestamp + element)
        ctx.register_event_time_timer(timestamp + element)
        total = ctx.get_partitioned_state(self.total)
        total.add(element)
        if total.get() <= 100:
            return TriggerResult.CONTINUE
        total.clear()
        return TriggerResult.FIRE_AND_PURGE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        raise AssertionError

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        assert ctx.get_current_watermark() >= time
        known = time == window.max_timestamp() or time in ctx.get_partitioned_state(self.times).get()
        return TriggerResult.FIRE if known else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        for descriptor in (self.total, self.times):
            ctx.merge_partitioned_state(descriptor)
        for time_ms in [window.max_timestamp(), *ctx.get_partitioned_state(self.times).get()]:
            if time_ms > ctx.get_current_watermark():
                ctx.register_event_time_timer(time_ms)
        with pytest.raises(InvalidRequestError, match="cannot be merged"):
            ctx.merge_partitioned_state(ValueStateDescriptor("value", Types.LONG()))

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())
        for time_ms in ctx.get_partitioned_state(self.times).get():
            ctx.delete_event_time_timer(time_ms)
        for descriptor in (self.total, self.times):
            ctx.get_partitioned_state(descriptor).clear()


def test_a_trigger_of_ones_own_has_timers_and_state_of_each_window(job: KeyedJob) -> None:
    windows = WindowJob(job, window_operator(SlidingEventTimeWindows.of(20, 10), ALL, Tell(), trigger=Early()))
    assert windows.batch([Element("a", 3, 11), Element("b", 1, 11)], watermark_ms=0) == []
    job.commit()
    job.crash()
    windows.restart()
    fired = windows.batch([Element("a", 99, 12)], watermark_ms=13)
    assert fired == [("b", 0, [1]), ("b", 10, [1]), ("a", 10, [3, 99]), ("a", 0, [3, 99])], "a's sum is above 100"
    job.commit()
    job.crash()
    windows.restart()
    assert windows.batch(watermark_ms=14) == [], "emptied, so the timer of the first element gives nothing"
    assert windows.batch([Element("a", 5, 13)], watermark_ms=15) == []
    job.commit()
    named, ends = [("a", 0, [5]), ("a", 10, [5])], [("a", 0, [5]), ("b", 0, [1]), ("a", 10, [5]), ("b", 10, [1])]
    assert windows.batch(watermark_ms=200) == [*named, *ends]
    job.commit()
    assert not any(job._contents(job.backend.store).values()), "the trigger has cleared its state and its timers"


def test_sessions_merge_what_their_trigger_keeps(job: KeyedJob) -> None:
    windows = WindowJob(job, window_operator(EventTimeSessionWindows.with_gap(10), ALL, Tell(), trigger=Early()))
    assert windows.batch([Element("a", 40, 0), Element("a", 50, 18)]) == []
    job.commit()
    job.crash()
    windows.restart()
    assert windows.batch([Element("a", 6, 5)]) == [], "the first session is longer"
    job.commit()
    assert windows.batch([Element("a", 2, 8)]) == [], "and now it is one with the second"
    job.commit()
    job.crash()
    windows.restart()
    assert windows.batch(watermark_ms=10) == [("a", 0, [40, 50, 6, 2])], "at 5 + 6 no more"
    assert windows.batch([Element("a", 9, 9)], watermark_ms=10) == [("a", 0, [40, 50, 6, 2, 9])], "107"
    job.commit()
    job.crash()
    windows.restart()
    assert windows.batch([Element("a", 1, 19)], watermark_ms=20) == [("a", 0, [1])]
    job.commit()
    assert windows.batch(watermark_ms=200) == [("a", 0, [1])]
    job.commit()
    assert not any(job._contents(job.backend.store).values())


def test_continuous_triggers_fire_meanwhile(job: KeyedJob) -> None:
    trigger = ContinuousEventTimeTrigger.of(5)
    windows = WindowJob(job, window_operator(TumblingEventTimeWindows.of(12), SUM, trigger=trigger))
    assert windows.batch([Element("a", 1, 1), Element("a", 2, 2)], watermark_ms=0) == []
    job.commit()
    assert windows.batch([Element("a", 4, 6)], watermark_ms=5) == [3]
    job.commit()
    assert windows.batch(watermark_ms=10) == [7]
    assert windows.batch([Element("a", 8, 7)], watermark_ms=10) == []
    assert windows.batch([Element("a", 0, 7)], watermark_ms=11) == [15], "the end; what comes then is late"
    job.commit()
    assert not any(job._contents(job.backend.store).values())
    trigger = ContinuousProcessingTimeTrigger.of(5)
    windows = WindowJob(job, window_operator(ProcessingTimeSessionWindows.with_gap(7), SUM, trigger=trigger))
    assert windows.batch([Element("b", 1)], time_ms=3) == []
    job.commit()
    assert windows.batch([Element("b", 2)], time_ms=5) == []
    assert windows.batch([Element("b", 4)], time_ms=6) == [3]
    job.commit()
    assert windows.batch(time_ms=11) == [7]
    assert windows.batch(time_ms=13) == [7], "the end"
    job.commit()
    assert not any(job._contents(job.backend.store).values())


class Once(Trigger[Any, Any]):
    """With the second element, and then never more: it takes its timer of the end back, as triggers on Flink do."""

    count = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())

    def on_element(self, element: Any, timestamp: Any, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        ctx.register_event_time_timer(window.max_timestamp())
        ctx.register_processing_time_timer(window.max_timestamp())
        count = ctx.get_partitioned_state(self.count)
        count.add(1)
        if count.get() < 2:
            return TriggerResult.CONTINUE
        ctx.delete_event_time_timer(window.max_timestamp())
        ctx.delete_processing_time_timer(window.max_timestamp())
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.count)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())
        ctx.delete_processing_time_timer(window.max_timestamp())
        ctx.get_partitioned_state(self.count).clear()


@pytest.mark.parametrize("assigner", [
    TumblingEventTimeWindows.of(10), SlidingEventTimeWindows.of(10, 5), EventTimeSessionWindows.with_gap(10),
    TumblingProcessingTimeWindows.of(10), ProcessingTimeSessionWindows.with_gap(10),
])  # fmt: skip
def test_a_window_is_removed_although_its_trigger_has_taken_the_timer_of_the_end_back(
    job: KeyedJob, assigner: Any
) -> None:
    """Found as windows that were never removed, with all that they held."""
    windows = WindowJob(job, window_operator(assigner, ALL, Tell(), trigger=Once()))
    windows.batch([Element("a", 1, 5)], time_ms=5)
    job.commit()
    assert windows.batch([Element("a", 2, 5)], time_ms=5)
    job.commit()
    job.crash()
    windows.restart()
    assert windows.batch(watermark_ms=100, time_ms=100) == []
    job.commit()
    assert not any(job._contents(job.backend.store).values())


def test_a_window_of_processing_time_fires_in_the_batch_that_removes_it(job: KeyedJob) -> None:
    """Found with a trigger of event time whose timer was due in the same batch: what the window held was lost."""
    assigner, trigger = TumblingProcessingTimeWindows.of(10), PurgingTrigger.of(EventTimeTrigger.create())
    windows = WindowJob(job, window_operator(assigner, ALL, Tell(), trigger=trigger))
    assert windows.batch([Element("a", 1)], time_ms=5, watermark_ms=0) == []
    job.commit()
    assert windows.batch(time_ms=50, watermark_ms=9) == [("a", 0, [1])]
    job.commit()
    assert not any(job._contents(job.backend.store).values())


@pytest.mark.parametrize("was_asked", [True, False])
def test_windows_cannot_go_on_with_a_trigger_of_the_other_kind(job: KeyedJob, was_asked: bool) -> None:
    before, after = (Early(), None) if was_asked else (None, Early())
    windows = WindowJob(job, window_operator(TumblingEventTimeWindows.of(10), SUM, trigger=before))
    windows.batch([Element("a", 1, 1)])
    job.commit()
    job.redeploy()
    with pytest.raises(IncompatibleError, match="namespace"):
        WindowJob(job, window_operator(TumblingEventTimeWindows.of(10), SUM, trigger=after))


def test_a_trigger_has_to_answer(job: KeyedJob) -> None:
    class Silent(Early):
        def on_element(self, *arguments: Any) -> Any:
            return None

    windows = WindowJob(job, window_operator(TumblingEventTimeWindows.of(10), SUM, trigger=Silent()))
    with pytest.raises(InvalidRequestError, match="on_element returned None; it must return a TriggerResult"):
        windows.batch([Element("a", 1, 1)])
