"""Windows and namespaced state over every backend: what they keep, what they log, what survives a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.counting_harness import BACKENDS
from tests.keyed_job import Changelog, KeyedJob
from tests.storage_switches import StorageSwitches
from tests.window_job import Element, WindowJob, window_operator
from tests.working_stores import KINDS, quick_directory
from varve.changelog.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from varve.changelog.functions import AggregateFunction
from varve.changelog.namespaced_handles import NamespacedStateStore
from varve.changelog.namespaced_state import NamespacedLists, aggregating
from varve.changelog.types import Types
from varve.datastream import DataStream, KeyedStream
from varve.spark_integration.window_contents import ListedContents, ReducedContents
from varve.spark_integration.window_functions import ProcessWindowFunction
from varve.spark_integration.window_triggers import CountTrigger
from varve.spark_integration.windowed_stream import WindowedStream
from varve.spark_integration.windows import (
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from varve.storage.errors import InvalidRequestError, UserFunctionError
from varve.testing import OperatorHarness

SUM = ReducedContents(lambda a, b: a + b, Types.LONG())
ALL = ListedContents(Types.LONG())
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


@pytest.fixture(params=[(kind, changelog) for kind in KINDS for changelog in ("on", "off")], ids="-".join)
def job(request: pytest.FixtureRequest, storage_switches: StorageSwitches, tmp_path: Path) -> Iterator[KeyedJob]:
    kind: str = request.param[0]
    changelog: Changelog = request.param[1]
    made = KeyedJob(kind, changelog, tmp_path)
    made.materializes = storage_switches.materializes
    yield made
    made.close()


class Mean(AggregateFunction[float, tuple[int, float], float]):
    """A mean cannot be merged of results."""

    def create_accumulator(self) -> tuple[int, float]:
        return 0, 0.0

    def add(self, value: float, accumulator: tuple[int, float]) -> tuple[int, float]:
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator: tuple[int, float]) -> float:
        return accumulator[1] / accumulator[0]

    def merge(self, acc_a: tuple[int, float], acc_b: tuple[int, float]) -> tuple[int, float]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


ACCUMULATOR = Types.TUPLE([Types.LONG(), Types.DOUBLE()])


def test_merging_namespaces_merges_accumulators(job: KeyedJob) -> None:
    def means() -> Any:
        return aggregating(job.backend, "means", ACCUMULATOR, Mean())

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
    mean = AggregatingStateDescriptor("s", Mean(), ACCUMULATOR)
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


@pytest.fixture(params=[(kind, on) for kind in BACKENDS for on in (True, False)], ids=lambda p: f"{p[0]}-{p[1]}")
def windowed(
    request: pytest.FixtureRequest, storage_switches: StorageSwitches, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., OperatorHarness]]:
    """Makes a harness of the windows of a stream of (key, value), which is given as a program."""
    backend, changelog = request.param
    options = {**storage_switches.options(), "backend": BACKENDS[backend], "changelog": changelog}
    with quick_directory() as directory, ExitStack() as harnesses:
        monkeypatch.setattr("tempfile.tempdir", str(directory))

        def make(program: Callable[[KeyedStream], DataStream]) -> OperatorHarness:
            def build(stream: DataStream) -> DataStream:
                return program(stream.key_by(lambda pair: pair[0], Types.STRING()))

            return harnesses.enter_context(OperatorHarness(build, PAIR, **options))

        yield make


def total(pairs: WindowedStream) -> DataStream:
    """The sums of windows, told."""
    return pairs.reduce(lambda a, b: (a[0], a[1] + b[1]), Tell())


class Tell(ProcessWindowFunction[Any, Any, str, Any]):
    """(key, begin of the window, its values)."""

    def process(self, key: str, context: Any, elements: Any) -> list[Any]:
        window = context.window()
        return [(key, getattr(window, "start", None), [value for _, value in elements])]


def test_late_elements_are_dropped_or_fire_again(windowed: Callable[..., OperatorHarness]) -> None:
    harness = windowed(lambda keyed: keyed.window(TumblingEventTimeWindows.of(10)).allowed_lateness(5).process(Tell()))
    assert harness.process_batch([("a", 1)], [3]) == []
    harness.crash()
    late = harness.process_batch([("a", 2), ("a", 3)], [4, 5], watermark=9)
    assert late == [("a", 0, [1]), ("a", 0, [1, 2]), ("a", 0, [1, 2, 3])]
    assert harness.process_batch([("a", 4)], [4], watermark=14) == [], "dropped"
    assert harness.num_keyed_state_entries() == 0, "the window is removed"
    harness.process_watermark(100)
    with pytest.raises(UserFunctionError, match="no time stamp"):
        harness.process_element(("a", 1))
    assert len(harness.output) == 3


def test_windows_of_processing_time_follow_the_time_of_the_batch(windowed: Callable[..., OperatorHarness]) -> None:
    harness = windowed(lambda keyed: total(keyed.window(SlidingProcessingTimeWindows.of(10, 5))))
    assert harness.process_batch([("a", 1)], processing_time=7) == []
    assert harness.process_batch([("a", 2)], processing_time=12) == [("a", 0, [1])]
    assert harness.process_batch(processing_time=30) == [("a", 5, [3]), ("a", 10, [2])]
    sessions = windowed(lambda keyed: total(keyed.window(ProcessingTimeSessionWindows.with_gap(10))))
    assert sessions.process_batch([("b", 1)], processing_time=40) == []
    assert sessions.process_batch([("b", 2)], processing_time=49) == []
    fired = sessions.process_batch([("b", 5)], processing_time=59)
    assert fired == [("b", 40, [3])], "what has ended fires before the elements"
    assert sessions.process_batch(processing_time=70) == [("b", 59, [5])]


def test_a_count_fires_and_purges(windowed: Callable[..., OperatorHarness]) -> None:
    harness = windowed(lambda keyed: keyed.count_window(2).process(Tell()))
    assert harness.process_batch([("a", 1), ("b", 2), ("a", 3)]) == [("a", None, [1, 3])]
    harness.crash()
    assert harness.process_batch([("b", 4), ("a", 5)]) == [("b", None, [2, 4])]
    fixed = windowed(
        lambda keyed: keyed.window(TumblingProcessingTimeWindows.of(10)).trigger(CountTrigger.of(2)).process(Tell())
    )
    four = [("c", value) for value in (1, 2, 3, 4)]
    assert fixed.process_batch(four, processing_time=1) == [("c", 0, [1, 2]), ("c", 0, [1, 2, 3, 4])]
    assert fixed.process_batch([("c", 1)], processing_time=2) == []
    assert fixed.process_batch([("c", 1)], processing_time=12) == [], "the window and its count are gone"


def test_sessions_merge_their_counts_and_accumulators(windowed: Callable[..., OperatorHarness]) -> None:
    harness = windowed(
        lambda keyed: total(keyed.window(EventTimeSessionWindows.with_gap(10)).trigger(CountTrigger.of(3)))
    )
    assert harness.process_batch([("a", 1), ("a", 2)], [0, 18]) == []
    harness.crash()
    assert harness.process_batch([("a", 4)], [9]) == [("a", 0, [7])], "the third element joins the two sessions"
    assert harness.process_batch(watermark=27) == []
    assert (harness.num_keyed_state_entries(), harness.timers()) == (0, [])


class Firings(ProcessWindowFunction[Any, Any, str, Any]):
    """Counts the firings of a window and of its key."""

    def process(self, key: str, context: Any, elements: Any) -> list[Any]:
        count = ValueStateDescriptor("count", Types.LONG())
        states = [context.window_state().get_state(count), context.global_state().get_state(count)]
        for state in states:
            state.update((state.value() or 0) + 1)
        times = context.current_processing_time(), context.current_watermark()
        return [(key, *[state.value() for state in states], sum(value for _, value in elements), *times)]

    def clear(self, context: Any) -> None:
        context.window_state().get_state(ValueStateDescriptor("count", Types.LONG())).clear()


def test_a_window_function_has_state_of_the_window_and_of_the_key(windowed: Callable[..., OperatorHarness]) -> None:
    harness = windowed(
        lambda keyed: keyed.window(TumblingEventTimeWindows.of(10)).allowed_lateness(10).process(Firings())
    )
    assert harness.process_batch([("a", 1), ("a", 2)], [1, 11], processing_time=5) == []
    late = harness.process_batch([("a", 4)], [2], processing_time=6, watermark=10)
    assert late == [("a", 1, 1, 1, 6, 10), ("a", 2, 2, 5, 6, 10)]
    harness.crash()
    assert harness.process_batch(processing_time=7, watermark=40) == [("a", 1, 3, 2, 7, 40)]
    assert [name for name in harness.state_names if harness.keys(name)] == ["count"], "only the key's state stays"
    sessions = windowed(lambda keyed: keyed.window(EventTimeSessionWindows.with_gap(1)).process(Firings()))
    sessions.process_batch([("z", 1)], [50])
    with pytest.raises(UserFunctionError, match=r"use global_state\(\)"):
        sessions.process_watermark(60)
