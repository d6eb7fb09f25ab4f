"""Flink's BATCH mode: final results, in order of time, without state from before; the rules are Flink's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.functions.shapes import PAIR, Seconds, Timers, collected
from varvite.common import Configuration, Time, Types, WatermarkStrategy
from varvite.datastream import (
    BroadcastProcessFunction,
    CoMapFunction,
    DataStream,
    KeyedCoProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from varvite.datastream.connectors.number_seq import NumberSequenceSource
from varvite.datastream.state import MapStateDescriptor
from varvite.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows, TumblingProcessingTimeWindows
from varvite.spark_integration.connectors.sink import ForeachBatchSink
from varvite.storage.errors import InvalidRequestError

pytestmark = pytest.mark.spark
PAIRS = [("a", 3), ("b", 5), ("a", 1), ("a", 2), ("b", 1)]


@pytest.fixture
def env(spark: SparkSession) -> StreamExecutionEnvironment:
    made = StreamExecutionEnvironment.get_execution_environment(spark).set_parallelism(2)
    return made.set_runtime_mode(RuntimeExecutionMode.BATCH)


def timed(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Seconds())
    return stream.assign_timestamps_and_watermarks(strategy)


def test_a_reduction_gives_the_last_result_of_each_key(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection(PAIRS, PAIR).key_by(lambda pair: pair[0], Types.STRING())
    assert sorted(collected(keyed.sum(1), "sums")) == [("a", 6), ("b", 6)]
    assert sorted(collected(keyed.min(1), "least")) == [("a", 1), ("b", 1)]
    assert sorted(collected(keyed.max_by(1), "largest")) == [("a", 3), ("b", 5)]
    joined = keyed.reduce(lambda one, other: (f"{one[0]}{other[0]}", one[1] - other[1]))
    assert sorted(collected(joined, "reduced")) == [("aaa", 0), ("bb", 4)]
    untyped = env.from_collection([1, 2, 3]).key_by(lambda number: number % 2).sum()
    assert sorted(collected(untyped, "any objects")) == [2, 4]
    rows = env.from_collection([("a", 1), ("a", 2)], Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()]))
    assert [tuple(row) for row in collected(rows.key_by("k").sum("n"), "rows")] == [("a", 3)]


SUMS = [1, 2, 4, 6, 9, 12, 16, 20, 25, 30]


@pytest.mark.parametrize(("mode", "expected"), [("AUTOMATIC", SUMS[-2:]), ("STREAMING", SUMS)])
def test_sources_that_end_are_bounded_input(env: StreamExecutionEnvironment, mode: str, expected: list[int]) -> None:
    env.configure("execution.runtime-mode", mode)
    numbers = env.from_source(NumberSequenceSource(1, 10), WatermarkStrategy.no_watermarks(), "numbers")
    assert sorted(collected(numbers.key_by(lambda n: n % 2, Types.LONG()).sum(), "numbers")) == expected


def test_an_operator_behind_another_gets_its_last_results_only(env: StreamExecutionEnvironment) -> None:
    env.configure("execution.small-batch.max-rows", 0)
    sums = env.from_collection(PAIRS, PAIR).key_by(lambda pair: pair[0], Types.STRING()).sum(1)
    behind = sums.key_by(lambda pair: pair[1], Types.LONG()).reduce(lambda one, other: (one[0] + other[0], 0))
    assert collected(behind, "behind") in ([("ab", 0)], [("ba", 0)])


def test_the_mode_is_the_configurations_or_follows_from_the_sources(spark: SparkSession) -> None:
    def sums(env: StreamExecutionEnvironment) -> list[Any]:
        stream = env.from_collection([1, 2], Types.LONG()).key_by(lambda _: 0, Types.LONG()).sum()
        return collected(stream, "sums")

    def made(mode: str | None) -> StreamExecutionEnvironment:
        env = StreamExecutionEnvironment.get_execution_environment(spark).set_parallelism(1)
        return env if mode is None else env.configure(Configuration().set_string("execution.runtime-mode", mode))

    assert sums(made("BATCH")) == sums(made("AUTOMATIC")) == [3]
    assert sums(made("STREAMING")) == sums(made(None)) == [1, 3]
    rates = spark.readStream.format("rate").load()
    both = made("AUTOMATIC")
    both.from_dataframe(rates).map(lambda row: 0, Types.LONG()).sink_to(ForeachBatchSink(lambda rows, batch: None))
    seen: list[int] = []
    stream = both.from_collection([1, 2], Types.LONG()).key_by(lambda _: 0, Types.LONG()).sum()
    stream.sink_to(ForeachBatchSink(lambda rows, batch: seen.extend(row.value for row in rows.collect())))
    client: Any = both.execute_async("one source goes on")
    client.queries[1].awaitTermination()
    client.stop()
    assert seen == [1, 3], "one source that does not end makes the program a streaming one"


def test_a_source_that_does_not_end_is_refused(env: StreamExecutionEnvironment, spark: SparkSession) -> None:
    rates = env.from_dataframe(spark.readStream.format("rate").load())
    rates.map(lambda row: 0).print()
    with pytest.raises(InvalidRequestError, match="set STREAMING or AUTOMATIC"):
        env.execute("rates")
    writer = env.from_collection([1], Types.LONG()).foreach_batch(lambda rows, batch: None).query_name("started")
    with pytest.raises(InvalidRequestError, match=r"execute\(\)"):
        writer.option("execution.checkpointing.dir", "memory://none").start()


def test_no_state_is_kept_from_run_to_run(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    env.set_checkpoint_storage(str(tmp_path))
    sums = env.from_collection([1, 2], Types.LONG()).key_by(lambda _: 0, Types.LONG()).sum()
    assert collected(sums, "kept") == collected(sums, "kept") == [3]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("small_rows", [0, 20_000], ids=["Spark's tasks", "the driver"])
def test_elements_come_in_order_of_time_and_all_timers_fire_at_the_end(
    env: StreamExecutionEnvironment, small_rows: int
) -> None:
    env.configure("execution.small-batch.max-rows", small_rows)
    timers = timed(env.from_collection(PAIRS, PAIR)).key_by(lambda pair: pair[0], Types.STRING()).process(Timers())
    outputs = collected(timers, "timers")
    assert [output[1:] for output in outputs if output[0] == "a"] == [
        ("element", 1000, None), ("element", 2000, None), ("element", 3000, None),
        ("event", 1500, True), ("event", 2500, True), ("event", 3500, True),
        ("processing", 1 << 52, True),
    ]  # fmt: skip
    assert [output[1:3] for output in outputs if output[0] == "b"] == [
        ("element", 1000), ("element", 5000), ("event", 1500), ("event", 5500), ("processing", 1 << 52),
    ]  # fmt: skip


def test_windows_fire_once_and_nothing_is_late(env: StreamExecutionEnvironment) -> None:
    pairs = [("a", 11), ("a", 1), ("a", 12), ("a", 2), ("b", 30)]
    keyed = timed(env.from_collection(pairs, PAIR)).key_by(lambda pair: pair[0], Types.STRING())

    def add(one: Any, other: Any) -> Any:
        return one[0], one[1] + other[1]

    tumbling = keyed.window(TumblingEventTimeWindows.of(Time.seconds(10))).reduce(add)
    assert sorted(collected(tumbling, "tumbling")) == [("a", 3), ("a", 23), ("b", 30)]
    sessions = keyed.window(EventTimeSessionWindows.with_gap(Time.seconds(5))).reduce(add)
    assert sorted(collected(sessions, "sessions")) == [("a", 3), ("a", 23), ("b", 30)]
    processing = keyed.window(TumblingProcessingTimeWindows.of(Time.days(30))).reduce(add)
    assert sorted(collected(processing, "processing")) == [("a", 26), ("b", 30)], "time ends with the input"


class Both(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield "first", ctx.timestamp()

    def process_element2(self, value: Any, ctx: Any) -> Any:
        yield "second", ctx.timestamp()


class Lengths(CoMapFunction[Any, Any, Any]):
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: str) -> int:
        return len(value)


def test_connected_streams_are_merged_by_time(env: StreamExecutionEnvironment) -> None:
    first = timed(env.from_collection([("a", 4), ("a", 1)], PAIR))
    second = timed(env.from_collection([("a", 3), ("a", 2)], PAIR))
    both = first.connect(second).key_by("f0", "f0").process(Both())
    assert collected(both, "merged") == [("first", 1000), ("second", 2000), ("second", 3000), ("first", 4000)]
    plain = env.from_collection([7], Types.LONG()).connect(env.from_collection(["abc"], Types.STRING()))
    assert sorted(collected(plain.map(Lengths(), Types.LONG()), "plain")) == [3, 7]


NAMES = MapStateDescriptor("names", Types.LONG(), Types.STRING())


class Named(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield ctx.get_broadcast_state(NAMES).get(value[1]), ctx.timestamp()

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(NAMES).put(value[1], value[0])


@pytest.mark.parametrize("small_rows", [0, 20_000], ids=["Spark's tasks", "the driver"])
def test_broadcast_elements_come_first_and_others_in_order_of_time(
    env: StreamExecutionEnvironment, small_rows: int
) -> None:
    env.configure("execution.small-batch.max-rows", small_rows).set_parallelism(1)
    elements = timed(env.from_collection([("x", 2), ("x", 1)], PAIR))
    names = timed(env.from_collection([("one", 1), ("two", 9), ("two", 2)], PAIR))
    named = elements.connect(names.broadcast(NAMES)).process(Named())
    assert collected(named, "named") == [("one", 1000), ("two", 2000)]
