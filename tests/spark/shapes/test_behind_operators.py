"""Streams that stateful operators have made, united and connected: one query, one checkpoint, times as in Flink."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.spark.functions.shapes import PAIR, Seconds, Timed, collected
from varvite.common import Time, Types, WatermarkStrategy
from varvite.datastream import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from varvite.datastream.state import MapStateDescriptor, ValueStateDescriptor
from varvite.datastream.window import TumblingEventTimeWindows
from varvite.spark_integration.api.query import VarviteStreamingQuery
from varvite.spark_integration.connectors.sink import ForeachBatchSink
from varvite.storage.errors import InvalidRequestError, UserFunctionError

pytestmark = pytest.mark.spark
ODD = OutputTag("odd", PAIR)


def sums(stream: DataStream) -> DataStream:
    return stream.key_by(lambda pair: pair[0], Types.STRING()).sum(1)


def pairs(env: StreamExecutionEnvironment, *elements: Any) -> DataStream:
    return env.from_collection(list(elements), PAIR)


def timed(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Seconds())
    return stream.assign_timestamps_and_watermarks(strategy)


class Parity(KeyedProcessFunction[Any, Any, Any]):
    """Even numbers, and odd ones in a side output."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value if value[1] % 2 == 0 else (ODD, value)


class Both(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Elements with the number of their stream, their time, and how many their key has had."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        return self._counted("first", value, ctx)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        return self._counted("second", value, ctx)

    def _counted(self, stream: str, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield stream, value, ctx.timestamp(), self.count.value()


class Shifted(CoFlatMapFunction[Any, Any, Any]):
    def flat_map1(self, value: int) -> Any:
        yield value + 1

    def flat_map2(self, value: int) -> Any:
        yield value - 1


class Signed(CoMapFunction[Any, Any, Any]):
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: int) -> int:
        return -value


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.long), 2])
def test_what_an_operator_yields_is_united_with_a_source_and_with_another(
    env: StreamExecutionEnvironment, parallelism: int
) -> None:
    env.set_parallelism(parallelism)
    first = sums(pairs(env, ("a", 1), ("a", 2), ("b", 5)))  # a: 1, 3; b: 5
    other = pairs(env, ("a", 10))
    second = sums(pairs(env, ("b", 7), ("b", 1)))  # b: 7, 8
    with_source = first.union(other).map(lambda pair: (pair[0], -pair[1]), PAIR)
    assert min(collected(sums(with_source), "with a source")) == ("a", -14)
    assert max(collected(sums(first.union(second, other)), "all")) == ("b", 20)
    assert sorted(collected(first.union(second), "written")) == [("a", 1), ("a", 3), ("b", 5), ("b", 7), ("b", 8)]
    steps = first.union(other).filter(lambda pair: pair[0] == "a").map(lambda pair: pair[1], Types.LONG())
    assert sorted(collected(steps, "steps")) == [1, 3, 10]
    twice = first.union(first.map(lambda pair: (pair[0] * 2, pair[1]), PAIR))
    assert Counter(pair[0] for pair in collected(twice, "twice")) == {"a": 2, "aa": 2, "b": 1, "bb": 1}


@pytest.mark.long
def test_what_operators_yield_is_connected(env: StreamExecutionEnvironment) -> None:
    first = sums(timed(pairs(env, ("a", 1), ("a", 2))))
    second = timed(pairs(env, ("a", 9), ("c", 8)))
    both = first.connect(second).key_by("f0", "f0").process(Both())
    assert sorted(collected(both, "first"))[:2] == [("first", ("a", 1), 1000, 1), ("first", ("a", 3), 2000, 2)]
    other = second.key_by("f0").connect(first.key_by("f0")).process(Both())
    seen = collected(other, "second")
    assert sorted(row[:3] for row in seen) == [
        ("first", ("a", 9), 9000), ("first", ("c", 8), 8000), ("second", ("a", 1), 1000), ("second", ("a", 3), 2000),
    ]  # fmt: skip
    assert max(row[3] for row in seen) == 3
    same = first.connect(first).key_by(lambda pair: pair[0], lambda pair: "a", Types.STRING()).process(Both())
    assert sorted(row[3] for row in collected(same, "same")) == [1, 2, 3, 4]
    behind = sums(first.connect(second).key_by("f0", "f0").process(Both()).map(lambda row: row[1], PAIR))
    assert max(collected(behind, "behind")) == ("c", 8)


def test_streams_without_keys_are_connected_one_after_the_other(env: StreamExecutionEnvironment) -> None:
    """As PyFlink's own test of connected streams."""
    env.set_parallelism(2)
    first = env.from_collection([1, 2, 3], Types.LONG())
    doubled = first.map(lambda value: value * 2, Types.LONG())
    shifted = first.connect(doubled).flat_map(Shifted(), Types.LONG())
    signed = shifted.connect(doubled).map(Signed(), Types.LONG())
    assert sorted(collected(signed, "signed")) == [-6, -4, -2, 1, 2, 3, 3, 4, 5]


@pytest.mark.long
def test_side_outputs_and_ways_that_part_meet_again(env: StreamExecutionEnvironment) -> None:
    parity = pairs(env, ("a", 1), ("a", 2), ("b", 3), ("b", 4)).key_by("f0").process(Parity(), PAIR)
    odd = parity.get_side_output(ODD)
    together = parity.map(lambda pair: (pair[0], pair[1] * 10), PAIR).union(odd)
    assert sorted(collected(together, "together")) == [("a", 1), ("a", 20), ("b", 3), ("b", 40)]
    assert max(collected(sums(together), "sums")) == ("b", 43)
    connected = parity.connect(odd).key_by("f0", "f0").process(Both()).map(lambda row: (row[0], row[1][1]))
    assert sorted(collected(connected, "connected")) == [("first", 2), ("first", 4), ("second", 1), ("second", 3)]
    source = pairs(env, ("a", 1), ("b", 2))
    parted = sums(source).union(source.key_by(lambda _: "x", Types.STRING()).sum(1))
    assert sorted(collected(parted, "parted")) == [("a", 1), ("a", 1), ("a", 3), ("b", 2)]


def test_elements_keep_their_times_and_windows_take_them(env: StreamExecutionEnvironment) -> None:
    first = sums(timed(pairs(env, ("a", 1), ("a", 6))))
    second = timed(pairs(env, ("a", 2)))
    plain = pairs(env, ("a", 100))
    assert sorted(collected(first.union(second).key_by("f0").process(Timed()), "times")) == [
        (("a", 1), 1000), (("a", 2), 2000), (("a", 7), 6000),
    ]  # fmt: skip
    mixed = sums(plain).union(first).key_by("f0").process(Timed())
    assert collected(mixed, "one without times")[0] == (("a", 100), None) or len(collected(mixed, "again")) == 3
    five = TumblingEventTimeWindows.of(Time.seconds(5))
    windows = first.union(second).key_by("f0").window(five).reduce(lambda one, other: (one[0], one[1] + other[1]))
    assert sorted(collected(windows, "windows")) == [("a", 3), ("a", 7)]
    chained = windows.union(timed(pairs(env, ("a", 4)))).key_by("f0").process(Timed())
    assert sorted(collected(chained, "chained")) == [(("a", 3), 4999), (("a", 4), 4000), (("a", 7), 9999)]


NAMES = MapStateDescriptor("names", Types.STRING(), Types.LONG())


class Known(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.get_broadcast_state(NAMES).get(value[0])

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(NAMES).put(*value)


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.long), 2])
def test_what_an_operator_yields_is_broadcast_and_meets_a_broadcast_stream(
    env: StreamExecutionEnvironment, parallelism: int
) -> None:
    env.set_parallelism(parallelism)
    totals = sums(pairs(env, ("a", 1), ("a", 2)))
    read = pairs(env, ("a", 5), ("b", 6)).connect(totals.broadcast(NAMES)).process(Known())
    assert sorted(collected(read, "broadcast")) == [(("a", 5), 3), (("b", 6), None)]
    known = totals.connect(pairs(env, ("a", 8)).broadcast(NAMES)).process(Known())
    assert sorted(collected(known, "meets")) == [(("a", 1), 8), (("a", 3), 8)]


def test_batch_mode_gives_the_last_results_of_streams_that_meet(env: StreamExecutionEnvironment) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    first, second = sums(pairs(env, ("a", 1), ("a", 2))), sums(pairs(env, ("a", 4), ("b", 1)))
    assert sorted(collected(sums(first.union(second)), "batch")) == [("a", 7), ("b", 1)]


def test_a_union_behind_operators_is_a_query_of_its_own(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    env.set_checkpoint_storage(str(tmp_path))
    first, second = sums(pairs(env, ("a", 1))), pairs(env, ("a", 4))
    first.union(second).sink_to(ForeachBatchSink(lambda rows, batch: None))
    client = env.execute_async("union")
    assert isinstance(client, VarviteStreamingQuery)
    client.awaitTermination()
    with first.union(second).execute_and_collect("union") as elements:
        assert sorted(elements) == [("a", 2), ("a", 4)], "its state is kept as any"


def test_an_error_behind_an_operator_names_its_step(env: StreamExecutionEnvironment) -> None:
    broken = sums(pairs(env, ("a", 1))).map(lambda pair: pair[1] / 0, Types.DOUBLE()).name("divide")
    stream = broken.union(env.from_collection([1.0], Types.DOUBLE())).key_by(lambda _: 0, Types.LONG()).sum()
    with pytest.raises(UserFunctionError, match=r"division by zero.*in step divide"):
        collected(stream, "broken")


def test_what_cannot_meet_is_an_error_that_says_what_to_do(env: StreamExecutionEnvironment) -> None:
    first = sums(pairs(env, ("a", 1)))
    late = timed(first).union(pairs(env, ("a", 2))).key_by("f0").process(Timed())
    with pytest.raises(InvalidRequestError, match="before the first stateful operator only"):
        collected(late, "late")
    with pytest.raises(InvalidRequestError, match="type"):
        first.union(env.from_collection([1], Types.LONG()))


def files(directory: Path, name: str, batches: list[list[tuple[str, float]]]) -> str:
    """A directory with a file for each batch: keys and seconds."""
    (directory / name).mkdir()
    for number, rows in enumerate(batches):
        path = directory / name / f"{number}.parquet"
        times = [datetime.fromtimestamp(second, UTC) for _, second in rows]
        pq.write_table(pa.table({"k": [key for key, _ in rows], "at": times}), path)
        os.utime(path, (1_700_000_000 + number,) * 2)
    return str(directory / name)


class Named(KeyedProcessFunction[Any, Any, Any]):
    """Each row with the number of rows that its key has had."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value.k, self.count.value()


def test_batches_and_restarts_lose_and_double_nothing_and_the_least_watermark_counts(
    env: StreamExecutionEnvironment, spark: SparkSession, tmp_path: Path
) -> None:
    env.set_checkpoint_storage(str(tmp_path / "state")).configure("materializer.mode", "off")
    env.configure("pipeline.heartbeat.enabled", "false").set_parallelism(2)
    left = files(tmp_path, "left", [[("a", 1), ("b", 2)], [("a", 12)], [("a", 22)], [("a", 42)], [("a", 62)]])
    right = files(tmp_path, "right", [[("a", 3)], [("b", 4), ("a", 13)], [("a", 15)], [("a", 44)], [("a", 64)]])

    def query(batches: int) -> list[Any]:
        seen: list[Any] = []

        def read(path: str) -> Any:
            stream = spark.readStream.schema("k string, at timestamp").option("maxFilesPerTrigger", 1).parquet(path)
            return env.from_dataframe(stream).with_watermark("at", "1 second")

        counted = read(left).key_by("k").process(Named(), PAIR, uid="counted")
        times = read(right).map(lambda row: (row.k, 0), PAIR)
        ten = TumblingEventTimeWindows.of(Time.seconds(10))
        windows = counted.union(times).key_by("f0").window(ten)
        joined = windows.reduce(lambda one, other: (one[0], one[1] + other[1] + 100)).uid("windows")
        writer = joined.foreach_batch(lambda df, batch: seen.extend(map(tuple, df.collect()))).query_name("restarts")
        writer = writer.option("checkpointLocation", str(tmp_path / "spark"))
        running = writer.trigger(availableNow=True).start()
        running.awaitTermination()
        assert len(running.recentProgress) >= batches
        return seen

    later = [path for side in (left, right) for path in sorted(Path(side).iterdir())[2:]]
    hidden = [path.rename(tmp_path / f"{path.parent.name}-{path.name}") for path in later]
    first = query(2)
    for path, place in zip(hidden, later, strict=True):
        path.rename(place)
    second = query(3)
    # The last batch comes at 41 s, the least of both: [40, 50) waits, as does [60, 70).
    assert sorted([*first, *second]) == [("a", 3), ("a", 101), ("a", 202), ("b", 101)]
