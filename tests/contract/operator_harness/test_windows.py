"""Windows of a stream under the harness, on every backend: when they fire, what is late, what survives a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import Row as SparkRow

from tests.jobs.counting_harness import BACKENDS
from tests.storage_switches import StorageSwitches
from varvite.changelog.api.descriptors import (
    ValueStateDescriptor,
)
from varvite.changelog.api.functions import AggregateFunction
from varvite.changelog.api.time_spans import Time
from varvite.changelog.types.factory import Types
from varvite.datastream import DataStream, KeyedStream
from varvite.spark_integration.api.windowed import WindowedStream
from varvite.spark_integration.functions.window import ProcessWindowFunction
from varvite.spark_integration.operators.windows.assigners import (
    CountWindow,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from varvite.spark_integration.operators.windows.builtin_triggers import CountTrigger
from varvite.storage.errors import InvalidRequestError, UserFunctionError
from varvite.testing import OperatorHarness

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


@pytest.fixture(params=[(kind, on) for kind in BACKENDS for on in (True, False)], ids=lambda p: f"{p[0]}-{p[1]}")
def windowed(
    request: pytest.FixtureRequest, storage_switches: StorageSwitches
) -> Iterator[Callable[..., OperatorHarness]]:
    """Makes a harness of the windows of a stream of (key, value), which is given as a program."""
    backend, changelog = request.param
    options = {**storage_switches.options(), "backend": BACKENDS[backend], "changelog": changelog}
    with ExitStack() as harnesses:

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


def flinks_sliding_count(values: list[Any], size: int, slide: int) -> list[tuple[int, list[Any]]]:
    """PyFlink's `CountSlidingWindowAssigner` with its `CountTrigger`: ids and contents of the windows, as they fire."""
    contents: dict[int, list[Any]] = {}
    fired = []
    for number, value in enumerate(values):
        window = number // slide
        while window >= 0 and window * slide <= number <= window * slide + size - 1:
            contents.setdefault(window, []).append(value)
            if len(contents[window]) == size:
                fired.append((window, contents[window][:]))
            window -= 1
    return fired


class TellCount(ProcessWindowFunction[Any, Any, str, Any]):
    """Key, window, contents, and the firings that the window's own state has counted."""

    def process(self, key: str, context: Any, elements: Any) -> list[Any]:
        state = context.window_state().get_state(ValueStateDescriptor("firings", Types.LONG()))
        state.update((state.value() or 0) + 1)
        return [(key, context.window(), [value for _, value in elements], state.value())]


@pytest.mark.parametrize(("size", "slide"), [(3, 0), (3, 2), (4, 1), (2, 2), (2, 5), (5, 3)])
def test_windows_of_a_number_of_elements_are_those_of_pyflink(
    windowed: Callable[..., OperatorHarness], size: int, slide: int
) -> None:
    harness = windowed(lambda keyed: keyed.count_window(size, slide).process(TellCount()))
    output = []
    for begin in range(0, 17, 4):
        output += harness.process_batch([("a", value) for value in range(begin, begin + 4)])
        harness.crash()
    expected = flinks_sliding_count(list(range(20)), size, slide or size)
    assert output == [("a", CountWindow(window), values, 1) for window, values in expected]


def test_windows_of_a_number_of_elements_keep_no_more_than_they_need(windowed: Callable[..., OperatorHarness]) -> None:
    harness = windowed(lambda keyed: keyed.count_window(4, 2).reduce(lambda a, b: (a[0], a[1] + b[1])))
    sizes = []
    for begin in range(0, 40, 4):
        harness.process_batch([("a", value) for value in range(begin, begin + 4)])
        sizes.append(harness.num_keyed_state_entries())
    assert len(set(sizes[1:])) == 1, sizes


def test_another_trigger_of_windows_of_a_number_of_elements_is_refused(
    windowed: Callable[..., OperatorHarness],
) -> None:
    with pytest.raises(InvalidRequestError, match="GlobalWindows"):
        windowed(lambda keyed: keyed.count_window(4).trigger(CountTrigger.of(2)).process(Tell()))
    windowed(lambda keyed: keyed.count_window(4).trigger(CountTrigger.of(4)).process(Tell()))
    with pytest.raises(InvalidRequestError, match="1 or more"):
        windowed(lambda keyed: keyed.count_window(0).process(Tell()))


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


SLIDING = SlidingProcessingTimeWindows.of(Time.milliseconds(15), Time.milliseconds(5))
SESSIONS = ProcessingTimeSessionWindows.with_gap(Time.milliseconds(6))


@pytest.mark.parametrize("windows", [SLIDING, SESSIONS], ids=["sliding", "sessions"])
@pytest.mark.parametrize("made", [
    lambda a, b: {"k": a.k, "n": a.n + b.n, "s": a.s},
    lambda a, b: (a.k, a.n + b.n, {"at": b.s.at}),
    lambda a, b: SparkRow(n=a.n + b.n, s=b.s, k=a.k),
], ids=["dict", "tuple", "row"])  # fmt: skip
@pytest.mark.parametrize("at", ["timestamp", "bigint"])
def test_a_reduce_function_gets_rows_whatever_it_returns(
    life: dict[str, Any], windows: Any, made: Any, at: str
) -> None:
    """Found with three panes: the function got what it had returned for two. A timestamp in a struct was an error."""
    noon: Any = datetime(2024, 7, 1, 12, tzinfo=UTC).replace(tzinfo=None) if at == "timestamp" else 12

    def program(stream: DataStream) -> DataStream:
        return stream.key_by("k").window(windows).reduce(made, uid="sums")

    with OperatorHarness(program, f"k string, n bigint, s struct<at:{at}>", **life) as harness:
        for i in range(3):
            harness.process_batch([("a", 1, {"at": noon})], processing_time=1 + 5 * i)
        harness.process_batch(processing_time=100)
        assert max(harness.output) == SparkRow(k="a", n=3, s=SparkRow(at=noon))


def test_an_aggregate_function_gets_accumulators_of_their_type(life: dict[str, Any]) -> None:
    class Mean(AggregateFunction[Any, Any, Any]):
        def create_accumulator(self) -> Any:
            return 0, 0

        def add(self, value: Any, accumulator: Any) -> Any:
            return [accumulator[0] + 1, accumulator[1] + value.n]

        def get_result(self, accumulator: Any) -> Any:
            return (type(accumulator).__name__, *accumulator)

        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            return [type(acc_a) is tuple and acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]

    def program(stream: DataStream) -> DataStream:
        kind = Types.TUPLE([Types.LONG(), Types.LONG()])
        return stream.key_by("k").window(SLIDING).aggregate(Mean(), accumulator_type=kind, uid="means")

    with OperatorHarness(program, "k string, n bigint", **life) as harness:
        for i in range(3):
            harness.process_batch([("a", 1)], processing_time=1 + 5 * i)
        harness.process_batch(processing_time=100)
        assert max(harness.output) == ("tuple", 3, 3)
