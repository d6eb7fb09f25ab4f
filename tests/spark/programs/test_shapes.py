"""Shapes of PyFlink's programs: outputs of several streams, side outputs and connected streams without keys."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from varvite.common import JobClient, JobStatus, Time, Types, WatermarkStrategy
from varvite.common.watermark_strategy import TimestampAssigner
from varvite.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from varvite.datastream.state import ValueStateDescriptor
from varvite.datastream.window import TumblingEventTimeWindows
from varvite.spark_integration.connectors.sink import ForeachBatchSink
from varvite.storage.errors import InvalidRequestError, UserFunctionError

pytestmark = pytest.mark.spark


@pytest.fixture
def env(spark: SparkSession) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(spark).set_parallelism(1)


def collected(stream: Any, name: str) -> list[Any]:
    with stream.execute_and_collect(name) as elements:
        return list(elements)


@pytest.mark.parametrize("kind", [None, Types.LONG(), Types.ROW_NAMED(["a"], [Types.STRING()])], ids=str)
def test_a_collection_without_elements_is_a_stream_that_ends(env: StreamExecutionEnvironment, kind: Any) -> None:
    empty = env.from_collection([], kind)
    assert collected(empty.map(str), "empty") == []
    assert collected(empty.key_by(lambda value: 0, Types.LONG()).map(str), "keyed") == []
    if kind == Types.LONG():
        assert collected(empty.union(env.from_collection([1], kind)), "united") == [1]


SMALL = OutputTag("small", Types.LONG())
NAMED = OutputTag("named")


class Divided(ProcessFunction[Any, Any]):
    """Large numbers, and small ones and names in side outputs."""

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Any:
        assert ctx.timer_service().current_processing_time() > 0
        yield NAMED, f"n{value}"
        if value < 10:
            yield SMALL, value
        else:
            yield value


class Timing(ProcessFunction[Any, Any]):
    """Sets a timer, which needs a key."""

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(value)
        yield value


def test_functions_without_keys_have_side_outputs(env: StreamExecutionEnvironment) -> None:
    divided = env.from_collection([1, 20, 3, 40], Types.LONG()).process(Divided(), Types.LONG()).name("divide")
    small = divided.get_side_output(SMALL)
    assert collected(divided, "main") == [20, 40]
    assert collected(small.map(lambda x: x + 1), "side") == [2, 4]
    assert collected(divided.get_side_output(NAMED), "names") == ["n1", "n20", "n3", "n40"]
    assert collected(small.key_by(lambda x: 0, Types.LONG()).sum(), "keyed") == [1, 4]
    assert sorted(collected(small.union(divided), "united")) == [1, 3, 20, 40]
    behind = env.from_collection([1, 20], Types.LONG()).key_by(lambda x: 0, Types.LONG()).map(lambda x: x, Types.LONG())
    assert collected(behind.process(Divided()).get_side_output(SMALL), "behind a key") == [1]


def test_timers_of_functions_without_keys_are_errors_that_say_what_to_do(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(UserFunctionError, match="KeyedProcessFunction"):
        collected(env.from_collection([1], Types.LONG()).process(Timing()), "timing")


def test_several_streams_are_written_by_one_execute(
    env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = env.from_collection([1, 2, 3], Types.LONG())
    numbers.print("in")
    sums = numbers.key_by(lambda x: 0, Types.LONG()).sum()
    sums.print("sum")
    sums.map(lambda x: -x, Types.LONG()).print("minus")
    numbers.process(Divided(), Types.LONG()).get_side_output(NAMED).print("named")
    result = env.execute("several")
    lines = capsys.readouterr().out.splitlines()
    by_stream = {name: [line for line in lines if line.startswith(name)] for name in ("in", "sum", "minus", "named")}
    assert by_stream == {
        "in": ["in> 1", "in> 2", "in> 3"], "sum": ["sum> 1", "sum> 3", "sum> 6"],
        "minus": ["minus> -1", "minus> -3", "minus> -6"], "named": ["named> n1", "named> n2", "named> n3"],
    }  # fmt: skip
    assert str(result.get_job_id())
    assert result.job_name == "several"


def test_one_of_several_streams_that_fails_ends_the_others(
    env: StreamExecutionEnvironment, spark: SparkSession
) -> None:
    rates = env.from_dataframe(spark.readStream.format("rate").load()).map(lambda row: 0, Types.LONG())
    rates.key_by(lambda x: x, Types.LONG()).sum().sink_to(ForeachBatchSink(lambda rows, batch: None))
    env.from_collection([0], Types.LONG()).map(lambda x: 1 / x).print()
    client = env.execute_async("fails")
    assert client.get_job_status().result() is JobStatus.RUNNING
    with pytest.raises(UserFunctionError, match="division by zero"):
        client.awaitTermination()
    assert not client.isActive
    assert client.get_job_status().result() is JobStatus.FAILED
    assert isinstance(client.get_job_execution_result().exception(), UserFunctionError)


def test_a_query_is_a_job_client(env: StreamExecutionEnvironment, spark: SparkSession) -> None:
    rates = env.from_dataframe(spark.readStream.format("rate").load()).map(lambda row: 0, Types.LONG())
    rates.key_by(lambda x: x, Types.LONG()).sum().sink_to(ForeachBatchSink(lambda rows, batch: None))
    client = env.execute_async("client")
    assert isinstance(client, JobClient)
    assert not client.get_job_execution_result().done()
    with pytest.raises(InvalidRequestError, match="varvite savepoint create"):
        client.trigger_savepoint()
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert client.get_job_execution_result().result().get_job_id() == client.get_job_id()


class Prices(CoFlatMapFunction[Any, Any, Any]):
    """Counts what both streams bring to one instance; the streams share its fields, as in PyFlink."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = 0

    def flat_map1(self, value: int) -> Any:
        self.seen += 1
        yield "number", value, self.seen

    def flat_map2(self, value: str) -> Any:
        self.seen += 1
        yield "text", value, self.seen


class Lengths(CoMapFunction[Any, Any, Any]):
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: str) -> int:
        return len(value)


class Both(CoProcessFunction[Any, Any, Any]):
    """Elements with their times; texts in a side output, too."""

    def process_element1(self, value: int, ctx: CoProcessFunction.Context) -> Any:
        assert ctx.timer_service().current_processing_time() > 0
        yield value, ctx.timestamp()

    def process_element2(self, value: str, ctx: CoProcessFunction.Context) -> Any:
        yield NAMED, value
        if value == "timer":
            ctx.timer_service().register_processing_time_timer(1)


class Stateful(CoMapFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def map1(self, value: Any) -> Any: ...

    def map2(self, value: Any) -> Any: ...


def test_streams_without_keys_are_connected(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(2)
    both = env.from_collection([1, 2], Types.LONG()).connect(env.from_collection(["abc", "d"], Types.STRING()))
    rows = collected(both.flat_map(Prices()), "prices")
    assert sorted(row[:2] for row in rows) == [("number", 1), ("number", 2), ("text", "abc"), ("text", "d")]
    assert sorted(row[2] for row in rows) == [1, 2, 3, 4], "one instance gets them all"
    assert sorted(collected(both.map(Lengths(), Types.LONG()), "lengths")) == [1, 1, 2, 3]
    timed = both.process(Both())
    assert sorted(collected(timed, "both")) == [(1, None), (2, None)]
    assert sorted(collected(timed.get_side_output(NAMED), "texts")) == ["abc", "d"]
    with pytest.raises(UserFunctionError, match="call key_by before"):
        collected(both.map(Stateful()), "stateful")
    late = env.from_collection([1], Types.LONG()).connect(env.from_collection(["timer"], Types.STRING()))
    with pytest.raises(UserFunctionError, match="no timers"):
        collected(late.process(Both()), "timer")


def test_connected_streams_have_keys_or_none(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1], Types.LONG())
    keyed = numbers.key_by(lambda x: x, Types.LONG())
    with pytest.raises(InvalidRequestError, match="one of the connected streams has keys"):
        keyed.connect(numbers).map(Lengths())
    with pytest.raises(InvalidRequestError, match="KeyedCoProcessFunction"):
        keyed.connect(keyed).process(Both())
    with pytest.raises(InvalidRequestError, match="without keys takes a CoProcessFunction"):
        numbers.connect(numbers).process(KeyedBoth())


class KeyedBoth(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> Any: ...

    def process_element2(self, value: Any, ctx: Any) -> Any: ...


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1] * 1000


class Timed(KeyedProcessFunction[Any, Any, Any]):
    """Elements with the times that they have here."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value, ctx.timestamp()


class Later(KeyedProcessFunction[Any, Any, Any]):
    """Each element, and one more of an event-time timer ten seconds later and of a processing-time timer."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10_000)
        ctx.timer_service().register_processing_time_timer(0)
        yield value[0]

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield ctx.time_domain().name


class TopOfAll(ProcessAllWindowFunction[Any, Any, Any]):
    def process(self, context: Any, elements: Any) -> Any:
        window = context.window()
        yield window.start // 1000, window.end // 1000, sorted(elements)


PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


@pytest.fixture
def timed_pairs(env: StreamExecutionEnvironment) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Seconds())
    pairs = [("a", 1), ("b", 2), ("a", 4), ("a", 7), ("b", 13)]
    return env.from_collection(pairs, PAIR).assign_timestamps_and_watermarks(strategy)


def test_consecutive_windows_as_in_flinks_documentation(timed_pairs: DataStream) -> None:
    """flink.apache.org, "Consecutive windowed operations": the sums of a window are in the one of its last ms."""
    of_keys = (
        timed_pairs.map(lambda pair: (pair[0], 1), PAIR)
        .key_by(lambda pair: pair[0], Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.seconds(5)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    for results in (of_keys, of_keys.map(lambda pair: pair), of_keys.filter(lambda pair: True)):
        top = results.window_all(TumblingEventTimeWindows.of(Time.seconds(5))).process(TopOfAll())
        assert collected(top, "top") == [(0, 5, [("a", 2), ("b", 1)]), (5, 10, [("a", 1)]), (10, 15, [("b", 1)])]
    apart = of_keys.window_all(TumblingEventTimeWindows.of(Time.seconds(10))).process(TopOfAll())
    assert collected(apart, "apart") == [(0, 10, [("a", 1), ("a", 2), ("b", 1)]), (10, 20, [("b", 1)])]


@pytest.mark.parametrize("kind", ["map", "flat_map", "filter", "reduce", "sum"])
def test_elements_keep_their_times_behind_every_kind_of_operator(timed_pairs: DataStream, kind: str) -> None:
    keyed = timed_pairs.key_by(lambda pair: pair[0], Types.STRING())
    arguments: dict[str, Any] = {
        "map": [lambda pair: pair], "flat_map": [lambda pair: [pair]], "filter": [lambda pair: True],
        "reduce": [lambda a, b: b], "sum": [1],
    }  # fmt: skip
    behind = getattr(keyed, kind)(*arguments[kind]).map(lambda pair: pair).key_by(lambda pair: pair[0], Types.STRING())
    rows = collected(behind.process(Timed()), kind)
    assert [time for _, time in rows] == [1000, 2000, 4000, 7000, 13000]


def test_what_timers_yield_has_the_time_of_an_event_time_timer_and_else_none(timed_pairs: DataStream) -> None:
    later = timed_pairs.filter(lambda pair: pair[1] < 3).key_by(lambda pair: 0, Types.LONG()).process(Later())
    rows = collected(later.key_by(lambda text: 0, Types.LONG()).process(Timed()), "timers")
    assert sorted(rows, key=str) == [
        ("EVENT_TIME", 11_000), ("EVENT_TIME", 12_000), ("PROCESSING_TIME", None), ("a", 1000), ("b", 2000),
    ]  # fmt: skip


def test_rows_of_a_dataframe_keep_their_times_without_a_column(
    env: StreamExecutionEnvironment, spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.createDataFrame([("a", 1), ("b", 2)], "k string, s long").selectExpr("k", "timestamp_seconds(s) AS at")
    rows.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
    env.set_checkpoint_storage(str(tmp_path / "state")).configure("materializer.mode", "off")
    keyed = env.from_dataframe(stream).with_watermark("at", "1 second").key_by("k")
    first = keyed.process(Names(), "name string", uid="first")
    found: list[Any] = []
    writer = first.key_by("name").process(Millis(), "name string, ms bigint", uid="second")
    writer = writer.foreach_batch(lambda df, batch: found.extend(map(tuple, df.collect()))).query_name("times")
    writer.option("checkpointLocation", str(tmp_path / "spark")).trigger(availableNow=True).start().awaitTermination()
    assert sorted(found) == [("a", 1000), ("b", 2000)]


class Names(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield (value.k,)


class Millis(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value.name, ctx.timestamp()


class Odd(KeyedProcessFunction[Any, Any, Any]):
    """Even numbers, and odd ones in a side output."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value if value[1] % 2 == 0 else (ODD, value)


ODD = OutputTag("odd", PAIR)


def test_a_side_output_may_be_keyed(timed_pairs: DataStream, env: StreamExecutionEnvironment) -> None:
    keyed = timed_pairs.key_by(lambda pair: pair[0], Types.STRING())
    main = keyed.process(Odd(), PAIR)
    odd = main.get_side_output(ODD)
    assert collected(main.key_by(lambda pair: 0, Types.LONG()).sum(1).map(lambda pair: pair[1]), "even") == [2, 6]
    assert collected(odd.key_by(lambda pair: 0, Types.LONG()).sum(1).map(lambda pair: pair[1]), "odd") == [1, 8, 21]
    shifted = odd.map(lambda pair: (pair[0], pair[1] + 1), PAIR).key_by("f0").process(Timed())
    assert collected(shifted, "times") == [(("a", 2), 1000), (("a", 8), 7000), (("b", 14), 13000)]
    plain = env.from_collection([("a", 1), ("a", 2)], PAIR).key_by("f0").process(Odd(), "k string, n bigint", uid="odd")
    again = plain.get_side_output(ODD).key_by("f0").process(Timed())
    assert collected(again, "without times") == [(("a", 1), None)]


def test_late_elements_may_be_keyed(env: StreamExecutionEnvironment, spark: SparkSession, tmp_path: Path) -> None:
    late = OutputTag("late")
    (tmp_path / "rows").mkdir()
    for number, second in enumerate((1, 30, 2)):
        path = tmp_path / "rows" / f"{number}.parquet"
        pq.write_table(pa.table({"k": ["a"], "at": [datetime.fromtimestamp(second, UTC)]}), path)
        os.utime(path, (1_700_000_000 + number,) * 2)
    stream = spark.readStream.schema("k string, at timestamp").option("maxFilesPerTrigger", 1)
    rows = env.from_dataframe(stream.parquet(str(tmp_path / "rows"))).with_watermark("at", "1 second")
    env.set_checkpoint_storage(str(tmp_path / "state")).configure("materializer.mode", "off")
    env.configure("pipeline.heartbeat.enabled", "false")  # it takes a file for each batch then
    windows = rows.key_by("k").window(TumblingEventTimeWindows.of(Time.seconds(5))).side_output_late_data(late)
    counts = windows.process(Counted(), "k string, n bigint", uid="windows")
    found: list[Any] = []
    behind = counts.get_side_output(late).key_by("k").process(KeyMillis(), "name string, ms bigint", uid="late")
    writer = behind.foreach_batch(lambda df, batch: found.extend(map(tuple, df.collect()))).query_name("late")
    writer.option("checkpointLocation", str(tmp_path / "spark")).trigger(availableNow=True).start().awaitTermination()
    assert found == [("a", 2000)]


class Counted(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, len(list(elements))


class KeyMillis(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value.k, ctx.timestamp()
