"""Event times behind a stateful operator, as in Flink."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.spark.functions.shapes import PAIR, Timed, collected
from varvite.common import Time, Types
from varvite.datastream import (
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from varvite.datastream.window import TumblingEventTimeWindows

pytestmark = pytest.mark.spark


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


class TimeOf(ProcessFunction[Any, Any]):
    """Each element with its event time."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield value, ctx.timestamp()


def test_process_functions_behind_an_operator_get_event_times(timed_pairs: DataStream) -> None:
    """They got None: only another stateful operator had them."""
    keyed = timed_pairs.key_by(lambda pair: pair[0], Types.STRING())
    assert [time for _, time in collected(keyed.map(lambda pair: pair).process(TimeOf()), "map")] == [
        1000, 2000, 4000, 7000, 13000,
    ]  # fmt: skip
    windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(5))).reduce(lambda a, b: (a[0], a[1] + b[1]))
    rows = collected(windows.map(lambda pair: pair[0]).process(TimeOf()).map(lambda pair: pair), "windows")
    assert sorted(rows) == [("a", 4999), ("a", 9999), ("b", 4999), ("b", 14999)]


def test_process_functions_behind_side_outputs_get_event_times(
    timed_pairs: DataStream, env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    main = timed_pairs.key_by(lambda pair: pair[0], Types.STRING()).process(Odd(), PAIR)
    main.print("plain")
    main.process(TimeOf()).print("main")
    main.get_side_output(ODD).process(TimeOf()).print("odd")
    env.execute("outputs")
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "main> (('a', 4), 4000)", "main> (('b', 2), 2000)", "odd> (('a', 1), 1000)", "odd> (('a', 7), 7000)",
        "odd> (('b', 13), 13000)", "plain> (a,4)", "plain> (b,2)",
    ]  # fmt: skip
