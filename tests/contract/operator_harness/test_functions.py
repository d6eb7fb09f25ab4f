"""Every kind of function under an `OperatorHarness`, over every backend, the changelog on and off."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tests.jobs.counting_harness import INPUT, OUTPUT, Count
from tests.storage_switches import StorageSwitches
from varvite import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListStateDescriptor,
    Types,
    ValueStateDescriptor,
    VectorizedProcessFunction,
)
from varvite import Row as PyFlinkRow
from varvite.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from varvite.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
    RuntimeContext,
)
from varvite.datastream.window import TumblingEventTimeWindows
from varvite.storage.errors import InvalidRequestError, UserFunctionError
from varvite.testing import OperatorHarness


class Join(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """The last element of the first stream, for each of the second."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.left = runtime_context.get_state(ValueStateDescriptor("left", Types.STRING()))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        self.left.update(value[1])
        ctx.timer_service().register_event_time_timer((ctx.timestamp() or 0) + 10)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        yield self.left.value(), value.price

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield f"{self.left.value()} is old", timestamp
        self.left.clear()


def test_two_inputs_share_state_and_timers(life: dict[str, Any]) -> None:
    key_by, types = (lambda pair: pair[0], "item"), (None, "item string, price bigint")
    with pytest.raises(InvalidRequestError, match="different types"):
        OperatorHarness.of_co_function(Join(), key_by, types)
    key_by = (lambda pair: pair[0], lambda row: row.item)
    with OperatorHarness.of_co_function(Join(), key_by, types, parallelism=2, **life) as harness:
        harness.process_element1(("pen", "red"), 100)
        harness.process_element2(("pen", 3))
        harness.process_element2(("ink", 4))
        assert harness.output == [("red", 3), (None, 4)]
        harness.process_watermark(110)
        assert harness.output[2:] == [("red is old", 110)]
        assert harness.process_batch([{"item": "pen", "price": 5}], input=1) == [(None, 5)]
        with pytest.raises(InvalidRequestError, match="no input 2"):
            harness.process_element(1, input=2)


class Both(CoMapFunction[Any, Any, Any], CoFlatMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return "one", value

    def map2(self, value: Any) -> Any:
        return "two", value

    def flat_map1(self, value: Any) -> Any:
        raise NotImplementedError

    def flat_map2(self, value: Any) -> Any:
        raise NotImplementedError


class Twice(CoFlatMapFunction[Any, Any, Any]):
    def flat_map1(self, value: Any) -> Any:
        return [value, value]

    def flat_map2(self, value: Any) -> Any:
        return None


def test_co_map_and_co_flat_map() -> None:
    by_value = (lambda value: value, lambda value: value)
    with OperatorHarness.of_co_function(Both(), by_value) as harness:
        harness.process_element1(1)
        harness.process_element2("x")
        assert harness.output == [("one", 1), ("two", "x")]
    with OperatorHarness.of_co_function(Twice(), by_value, (Types.LONG(), Types.LONG()), Types.LONG()) as harness:
        harness.process_element1(1)
        harness.process_element2(2)
        assert harness.output == [1, 1]


class Mapped(MapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        return value, self.count.value()


class Spread(FlatMapFunction[Any, Any]):
    def flat_map(self, value: Any) -> Any:
        yield from [value] * value


class First(FilterFunction[Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

    def filter(self, value: Any) -> bool:
        is_first = self.seen.value() is None
        self.seen.update(True)
        return is_first


class Longest(ReduceFunction[Any]):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return max(value1, value2, key=len)


def test_map_flat_map_filter_and_reduce(storage_switches: StorageSwitches) -> None:
    def run(function: Any, elements: list[Any], *types: Any) -> list[Any]:
        key_by = [lambda value: len(value) if isinstance(value, str) else 0]
        with OperatorHarness.of_function(function, key_by, *types, **storage_switches.options()) as harness:
            made = [out for element in elements for out in harness.process_batch([element])]
            assert made == harness.output
            return made

    assert run(Mapped(), ["a", "bb", "a"]) == [("a", 1), ("bb", 1), ("a", 2)]
    assert run(Spread(), [1, 0, 2], Types.LONG(), Types.LONG()) == [1, 2, 2]
    assert run(First(), ["a", "bb", "b"], Types.STRING()) == ["a", "bb"]
    assert run(Longest(), [["a"], ["a", "b"], ["c"]]) == [["a"], ["a", "b"], ["a", "b"]]


class Clock(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]


def test_windows_between_other_functions(life: dict[str, Any]) -> None:
    def program(stream: DataStream) -> DataStream:
        timed = stream.assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Clock())
        )
        keyed = timed.map(lambda pair: (pair[0].upper(), 1)).key_by(lambda pair: pair[0])
        summed = keyed.window(TumblingEventTimeWindows.of(10)).reduce(lambda a, b: (a[0], a[1] + b[1]))
        return summed.map(lambda pair: f"{pair[0]}={pair[1]}", Types.STRING())

    with OperatorHarness(program, **life) as harness:
        assert harness.process_batch([("a", 1), ("A", 2), ("b", 3)]) == []
        assert harness.current_watermark == 2
        assert harness.state("window-contents", "A") == {0: ("A", 2)}
        assert harness.num_event_time_timers() == 2
        assert harness.process_batch([("c", 10)]) == []
        harness.crash()
        assert harness.process_batch() == ["A=2", "B=1"], "the watermark of the batch before has passed them"
        harness.process_watermark(2**63 - 1)
        assert harness.output[2:] == ["C=1"]
        assert harness.num_keyed_state_entries() == 0
        with pytest.raises(InvalidRequestError, match="the program says"):
            harness.process_element(("a", 1), 5)


def test_event_times_come_with_the_elements_through_functions_and_unions() -> None:
    class Stamp(KeyedProcessFunction[Any, Any, Any]):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
            yield value, ctx.timestamp()

    def program(first: DataStream, second: DataStream) -> DataStream:
        united = first.flat_map(lambda value: [value, -value], Types.LONG()).union(second)
        return united.key_by(lambda value: value).process(Stamp())

    with OperatorHarness(program, Types.LONG(), Types.LONG(), parallelism=2) as harness:
        harness.process_element(1, 10)
        harness.process_element(3, 30, input=1)
        assert sorted(harness.output) == [(-1, 10), (1, 10), (3, 30)]
        with pytest.raises(InvalidRequestError, match="2 event times for 1 elements"):
            harness.process_batch([1], [1, 2])


class Running(StatefulProcessor):
    """Counts the rows of a key; says so again after 100 ms."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        before = self.count.get()[0] if self.count.exists() else 0
        count = before + len(list(rows))
        self.count.update((count,))
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 100)
        yield Row(k=key[0], n=count)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        yield Row(k=key[0], n=-self.count.get()[0])

    def close(self) -> None:
        pass


def test_a_processor_of_sparks(life: dict[str, Any]) -> None:
    with OperatorHarness.of_function(Running(), "k", INPUT, "k string, n bigint", **life) as harness:
        assert harness.process_batch([("a", 1), ("b", 2), ("a", 3)]) == [("a", 2), ("b", 1)]
        assert tuple(harness.state("count", "a")) == (2,)
        harness.crash()
        harness.set_processing_time(100)
        assert harness.output[2:] == [("a", -2), ("b", -1)]


class Fields(StatefulProcessor):
    """Tells the columns of its rows."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        yield from (Row(columns=",".join(row.__fields__)) for row in rows)

    def close(self) -> None:
        pass


def test_a_processor_behind_assigned_time_stamps_sees_the_streams_columns_only() -> None:
    """It saw varvite's column of event times, too."""
    timed = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Clock())

    def program(stream: DataStream) -> DataStream:
        keyed = stream.assign_timestamps_and_watermarks(timed).key_by("k")
        return keyed.transform_with_state(Fields(), "columns string", time_mode="EventTime", uid="fields")

    with OperatorHarness(program, INPUT) as harness:
        assert harness.process_batch([("a", 1)]) == [("k,v",)]


def test_rows_behind_the_watermark_of_the_batch_before_are_late_for_a_processor() -> None:
    def program(stream: DataStream) -> DataStream:
        keyed = stream.assign_timestamps_and_watermarks(timed).key_by("k")
        return keyed.transform_with_state(Fields(), "columns string", time_mode="EventTime", uid="fields")

    timed = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Clock())
    with OperatorHarness(program, INPUT) as harness:
        assert len(harness.process_batch([("a", 8), ("a", 5)], watermark=6)) == 2
        assert len(harness.process_batch([("a", 7), ("a", 6)])) == 1


class Values(KeyedProcessFunction[Any, Any, Any], CheckpointedFunction):
    """Yields all values that its instance has seen, of any key."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.values = store.get_list_state(ListStateDescriptor("values", Types.LONG()))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        pass

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.values.add(value.v)
        yield value.k, sum(self.values), 0


def test_non_keyed_state_outlives_crashes_and_another_parallelism(life: dict[str, Any]) -> None:
    with OperatorHarness.of_function(Values(), "k", INPUT, OUTPUT, **life) as harness:
        assert harness.process_batch([("a", 1), ("b", 2)]) == [("a", 1, 0), ("b", 3, 0)]
        harness.crash()
        assert harness.process_batch([("a", 4)]) == [("a", 7, 0)]
        snapshot = harness.snapshot()
    with OperatorHarness.restore(snapshot, parallelism=2) as harness:
        totals = {total for _, total, _ in harness.process_batch([(k, 0) for k in map(str, range(50))])}
        assert len(totals) == 2
        assert sum(totals) == 7, "the values are shared out"


class Totals(VectorizedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_batch(self, batch: pa.RecordBatch, ctx: VectorizedProcessFunction.Context) -> pa.Table:
        keys = ctx.keys()
        assert batch.schema.names == ["k", "v"]
        sums = [0] * len(keys)
        for position, value in zip(keys.positions, batch.column("v").to_pylist(), strict=True):
            sums[position] += value
        totals = [(before or 0) + new for before, new in zip(self.total.get_many(keys).to_pylist(), sums, strict=True)]
        self.total.put_many(keys, pa.array(totals, pa.int64()))
        return pa.table({"k": keys.array, "total": totals})


def test_a_vectorised_function_gets_arrow_batches(life: dict[str, Any]) -> None:
    output = "k string, total bigint"
    with OperatorHarness.of_function(Totals(), "k", INPUT, output, parallelism=2, **life) as harness:
        batch = pa.table({"v": pa.array([1, 2, 3], pa.int32()), "k": ["a", "b", "a"], "more": [0, 0, 0]})
        assert sorted(harness.process_batch(batch)) == [("a", 4), ("b", 2)]
        assert harness.process_batch([("a", 10)]) == [("a", 14)]
        assert harness.state("total", "a") == 14
        for wrong, message in ((batch.drop(["k"]), "no columns"), (batch.set_column(0, "v", [["x"] * 3]), "not fit")):
            with pytest.raises(InvalidRequestError, match=message):
                harness.process_batch(wrong)
    with OperatorHarness(lambda stream: stream.key_by(str).map(str)) as harness, pytest.raises(InvalidRequestError):
        harness.process_batch(batch)


def test_columns_say_the_event_time(life: dict[str, Any]) -> None:
    def program(stream: DataStream) -> DataStream:
        timed = stream.with_watermark("at", "1 second")
        return timed.key_by("k").process(Count(), OUTPUT, uid="count")

    with OperatorHarness(program, "k string, v bigint, at timestamp", **life) as harness:
        at = datetime.fromtimestamp(2, UTC)
        assert harness.process_batch([("a", 1, at)]) == [("a", 1, 2000)]
        assert harness.current_watermark == 1000
        assert harness.process_batch() == [("a", -1, 500)]


VALUES = [("a", 3, "x"), ("a", 1, "y"), ("a", 5, "z"), ("a", 1, "w")]
ROLLING: dict[str, list[tuple[Any, ...]]] = {
    "sum": [("a", 3, "x"), ("a", 4, "x"), ("a", 9, "x"), ("a", 10, "x")],
    "min": [("a", 3, "x"), ("a", 1, "x"), ("a", 1, "x"), ("a", 1, "x")],
    "max": [("a", 3, "x"), ("a", 3, "x"), ("a", 5, "x"), ("a", 5, "x")],
    "min_by": [("a", 3, "x"), ("a", 1, "y"), ("a", 1, "y"), ("a", 1, "y")],
    "max_by": [("a", 3, "x"), ("a", 3, "x"), ("a", 5, "z"), ("a", 5, "z")],
}
"""The output of PyFlink 2.3 for these values at position 1."""
FIELDS = [Types.STRING(), Types.LONG(), Types.STRING()]


@pytest.mark.parametrize("kind", ROLLING)
@pytest.mark.parametrize("changelog", [True, False])
def test_rolling_sums_and_extremes_are_those_of_pyflink(kind: str, changelog: bool) -> None:
    for elements, position, made in (
        (Types.TUPLE(FIELDS), 1, lambda value: value),
        (Types.ROW_NAMED(["k", "n", "s"], FIELDS), "n", lambda value: PyFlinkRow(k=value[0], n=value[1], s=value[2])),
        (Types.ROW(FIELDS), 1, lambda value: PyFlinkRow(f0=value[0], f1=value[1], f2=value[2])),
        (None, 1, list),
        (None, 1, lambda value: PyFlinkRow(*value)),
    ):

        def program(stream: DataStream, position: Any = position) -> DataStream:
            return getattr(stream.key_by(lambda row: row[0], Types.STRING()), kind)(position)

        with OperatorHarness(program, elements, changelog=changelog) as harness:
            output = harness.process_batch([made(value) for value in VALUES[:2]])
            harness.crash()
            output += harness.process_batch([made(value) for value in VALUES[2:]])
            assert output == [made(value) for value in ROLLING[kind]]


def test_rolling_sums_of_plain_numbers_take_position_0_only() -> None:
    with OperatorHarness(lambda stream: stream.key_by(lambda n: n % 2, Types.LONG()).sum(), Types.LONG()) as harness:
        assert harness.process_batch([1, 2, 3, 4]) == [1, 2, 4, 6]
    with (
        OperatorHarness(lambda stream: stream.key_by(lambda n: 0, Types.LONG()).max(1), Types.LONG()) as harness,
        pytest.raises(UserFunctionError, match="no fields"),
    ):
        harness.process_batch([1, 2])
    with pytest.raises(InvalidRequestError, match="position or the name"):
        OperatorHarness(lambda stream: stream.key_by(lambda n: 0, Types.LONG()).max(1.5), Types.LONG())
