"""The watermark of a job is Spark's own where Spark computes one: each shape of plan on both engines.

A processor yields the watermark that it sees, the rows that were not dropped as late, and the timers that fire.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses

from tests.spark.conftest import FileStream
from tests.spark.functions.processors import WatermarkTimes
from varvite import KeyedProcessFunction, StreamExecutionEnvironment
from varvite.storage.errors import InvalidRequestError

pytestmark = pytest.mark.spark
SCHEMA = "k string, v int, at timestamp"
OUTPUT = "k string, what string, at bigint"
SPARK_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.statefulOperator.allowMultiple": "true",
}
Streams = dict[str, FileStream]
Rows = list[tuple[Any, ...]]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, with what Spark's stateful operations need."""
    names = [*SPARK_SETTINGS, "spark.sql.streaming.multipleWatermarkPolicy"]
    before = {name: spark.conf.get(name) for name in names}
    for name, value in SPARK_SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value or "")


def streams_of(spark: SparkSession, work: Path, files: dict[str, list[list[tuple[int, str]]]]) -> Streams:
    """Input: by name the files of a stream, each with (v, time of day or full time) of its rows."""
    made = {name: FileStream(spark, work / name, SCHEMA) for name in files}
    for name, of_stream in files.items():
        for rows in of_stream:
            full = [(v, at if "T" in at else f"2024-01-01T{at}Z") for v, at in rows]
            made[name].add(*[json.dumps({"k": name, "v": v, "at": at}) for v, at in full])
    return made


TWO: dict[str, list[list[tuple[int, str]]]] = {
    "fast": [[(1, "10:00:00")], [(2, "10:10:00")], [(3, "10:20:00")], [(4, "10:30:00")]],
    "slow": [[(1, "09:00:00")], [(2, "09:10:00"), (9, "08:00:00")], [(3, "09:05:00")], [(4, "09:30:00")]],
}
ONE: dict[str, list[list[tuple[int, str]]]] = {
    "one": [
        [(1, "10:00:00"), (2, "10:00:30"), (70, "10:02:00")],
        [(3, "10:10:00"), (71, "11:00:00")],
        [(4, "10:05:00"), (5, "10:20:00")],
        [(6, "10:30:00"), (7, "10:15:00")],
        [(8, "12:30:00"), (9, "10:00:00")],
    ]
}
BEFORE_1970: dict[str, list[list[tuple[int, str]]]] = {
    "one": [
        [(1, "1969-12-31T23:00:00Z"), (2, "1970-01-01T00:00:00Z")],
        [(3, "1970-01-01T00:00:01Z")],
        [(4, "10:00:00")],
    ]
}


def united(streams: Streams) -> DataFrame:
    fast, slow = (streams[name].read().withWatermark("at", "1 minute") for name in ("fast", "slow"))
    return fast.union(slow)


def joined_with_table(streams: Streams) -> DataFrame:
    rows = streams["one"].read().withWatermark("at", "1 minute")
    table = rows.sparkSession.createDataFrame([(v,) for v in range(70)], "v int")
    return rows.join(table, "v")


def filtered(streams: Streams) -> DataFrame:
    return streams["one"].read().withWatermark("at", "1 minute").where("v < 70")


def without_the_column(streams: Streams) -> DataFrame:
    return streams["one"].read().withWatermark("at", "1 minute").select("k", "v")


def windows(streams: Streams) -> DataFrame:
    rows = streams["one"].read().withWatermark("at", "10 seconds")
    return rows.groupBy(F.window("at", "1 minute").alias("w"), "k").agg(F.max("v").alias("v"))


def joined_streams(streams: Streams) -> DataFrame:
    fast = streams["fast"].read().withWatermark("at", "1 minute").withColumnRenamed("k", "other")
    fast = fast.select(F.col("v").alias("v2"), F.col("at").alias("at2"))
    slow = streams["slow"].read().withWatermark("at", "1 minute")
    return slow.join(fast, F.expr("v = v2 AND at BETWEEN at2 - INTERVAL 2 HOURS AND at2")).drop("at2", "v2")


def deduplicated(streams: Streams) -> DataFrame:
    return united(streams).dropDuplicatesWithinWatermark(["k", "v"])


def plain(streams: Streams) -> DataFrame:
    return streams["one"].read().withWatermark("at", "1 minute")


SHAPES = [
    pytest.param(united, TWO, "min", id="united"),
    pytest.param(windows, ONE, "min", id="windows"),
    pytest.param(joined_streams, TWO, "min", id="joined-streams", marks=pytest.mark.long),
    pytest.param(without_the_column, ONE, "min", id="without-the-column", marks=pytest.mark.long),
    pytest.param(united, TWO, "max", id="united-by-the-largest", marks=pytest.mark.long),
    pytest.param(deduplicated, TWO, "min", id="deduplicated", marks=pytest.mark.long),
    pytest.param(joined_with_table, ONE, "min", id="joined-with-a-table", marks=pytest.mark.long),
    pytest.param(filtered, ONE, "min", id="filtered", marks=pytest.mark.long),
    pytest.param(plain, BEFORE_1970, "min", id="before-1970", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("shape", "files", "policy"), SHAPES)
def test_rows_timers_and_watermarks_are_those_of_spark(
    session: SparkSession,
    tmp_path: Path,
    shape: Callable[[Streams], DataFrame],
    files: dict[str, list[list[tuple[int, str]]]],
    policy: str,
) -> None:
    session.conf.set("spark.sql.streaming.multipleWatermarkPolicy", policy)
    streams = streams_of(session, tmp_path, files)
    expected: Rows = []
    own = shape(streams).groupBy("k").transformWithState(WatermarkTimes(), OUTPUT, "Append", "EventTime")
    writer = own.writeStream.foreachBatch(lambda rows, batch: expected.extend((batch, *r) for r in rows.collect()))
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()

    received: Rows = []
    env = StreamExecutionEnvironment.get_execution_environment(session)
    env.configure("execution.checkpointing.dir", str(tmp_path / "state")).set_parallelism(2)
    env.configure("materializer.mode", "off").configure("pipeline.heartbeat.enabled", "false")
    made = env.from_dataframe(shape(streams)).key_by("k")
    made = made.transform_with_state(WatermarkTimes(), OUTPUT, "Append", "EventTime", uid="times")
    ours = made.foreach_batch(lambda rows, batch: received.extend((batch, *r) for r in rows.collect()))
    ours = ours.query_name("job").option("checkpointLocation", str(tmp_path / "d")).trigger(availableNow=True)
    ours.start().awaitTermination()
    assert sorted(received) == sorted(expected)
    assert received, "something was compared"


def test_a_watermark_that_cannot_be_told_is_refused(session: SparkSession, tmp_path: Path) -> None:
    streams = streams_of(session, tmp_path, {"fast": [[(1, "10:00:00")]], "slow": [[(1, "09:00:00")]]})
    env = StreamExecutionEnvironment.get_execution_environment(session)
    env.configure("execution.checkpointing.dir", str(tmp_path / "state"))
    other = env.from_dataframe(streams["fast"].read())
    hidden = env.from_dataframe(streams["fast"].read().withWatermark("at", "1 minute").selectExpr("k", "v"))
    for stream, cause in ((env.from_dataframe(united(streams)), "2 watermarks"), (hidden, "not its column")):
        rows = (other if cause == "2 watermarks" else other.map(lambda r: (r.k, r.v), "k string, v int")).union(stream)
        made = rows.key_by("k").transform_with_state(WatermarkTimes(), OUTPUT, "Append", "None", uid="times")
        writer = made.foreach_batch(lambda rows, batch: None).query_name("job")
        with pytest.raises(InvalidRequestError, match=f"{cause}.*assign_timestamps_and_watermarks"):
            writer.option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(InvalidRequestError, match="Spark's watermark already; call with_watermark once"):
        hidden.with_watermark("at", "1 minute")


class CurrentWatermark(KeyedProcessFunction[Any, Any, Any]):
    """Yields the watermark of the batch."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, str]]:
        watermark_ms = max(0, ctx.timer_service().current_watermark())
        yield value.v, f"{datetime.fromtimestamp(watermark_ms / 1000, UTC):%H:%M:%S}"


@pytest.mark.long
def test_rows_that_spark_drops_do_not_move_the_watermark_of_streams_united_here(
    session: SparkSession, tmp_path: Path
) -> None:
    """Spark counts them where it computes the watermark; here it is lower, so that no row more is late."""
    files = [[(1, "10:00:00"), (2, "12:00:00")], [(3, "10:10:00")]]
    streams = streams_of(session, tmp_path, {"first": files, "second": files})
    read = [stream.read().withWatermark("at", "1 minute").where("hour(at) < 12") for stream in streams.values()]
    env = StreamExecutionEnvironment.get_execution_environment(session)
    env.configure("execution.checkpointing.dir", str(tmp_path / "state")).set_parallelism(2)
    env.configure("materializer.mode", "off").configure("pipeline.heartbeat.enabled", "false")
    first, second = map(env.from_dataframe, read)
    for rows, reached in ((env.from_dataframe(read[0].union(read[1])), "11:59:00"), (first.union(second), "09:59:00")):
        received: Rows = []
        made = rows.key_by("k").process(CurrentWatermark(), "v int, at string", uid="watermark")
        writer = made.foreach_batch(lambda rows, _, to=received: to.extend(map(tuple, rows.collect())))
        writer = writer.query_name(f"until-{reached[:2]}").option("checkpointLocation", str(tmp_path / reached[:2]))
        writer.trigger(availableNow=True).start().awaitTermination()
        assert sorted(set(received)) == [(1, "00:00:00"), (3, reached)]
