"""The job of docs/guide/windows.md on real Spark, over restarts."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses

from tests.spark.job.test_job import kill_state_workers
from tests.tidy.pages.doc_blocks import ROOT, blocks_of
from varvite.common import Time
from varvite.datastream import OutputTag, ProcessAllWindowFunction, StreamExecutionEnvironment
from varvite.datastream.window import CountTrigger, TumblingEventTimeWindows
from varvite.storage.errors import UserFunctionError

pytestmark = pytest.mark.spark
HOUR_MS = 3_600_000


class Hours(ProcessAllWindowFunction[Any, Any, Any]):
    """Begin of the window, hours since 1970, and its numbers."""

    def process(self, context: Any, elements: Any) -> Any:
        yield context.window().start // HOUR_MS, [row.n for row in elements]


class Failing(ProcessAllWindowFunction[Any, Any, Any]):
    """Raises."""

    def process(self, context: Any, elements: Any) -> Any:
        raise ValueError("no such window")


class AtOnce(CountTrigger):
    """Fires for each element; a class that varvite does not know."""


def test_late_rows_are_written_beside_the_windows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    windows: list[Any] = []
    late: list[Any] = []
    for number, hours in enumerate([[(0, 1), (3, 2)], [(1, 3), (3, 4)]]):
        at = [datetime(1970, 1, 1, hour, 30, tzinfo=UTC) for hour, _ in hours]
        table = pa.table({"at": at, "n": pa.array([n for _, n in hours], pa.int64())})
        pq.write_table(table, tmp_path / "rows" / f"{number}.parquet")
        rows = spark.readStream.schema("at timestamp, n bigint").parquet(str(tmp_path / "rows"))
        env = StreamExecutionEnvironment.get_execution_environment(spark).set_parallelism(1)
        stream = env.from_dataframe(rows).with_watermark("at", "1 minute")
        tag = OutputTag("late")
        windowed = stream.window_all(TumblingEventTimeWindows.of(Time.hours(1))).trigger(AtOnce(1))
        hourly = windowed.side_output_late_data(tag).process(Hours(), "hour bigint, n array<bigint>", uid="hours")
        assert hourly.get_side_output(tag).schema.names == ["at", "n"], "the rows as they came"
        writer = hourly.foreach_batch(lambda df, _: windows.extend(map(tuple, df.collect())))
        writer = writer.side_output(hourly.get_side_output(tag), lambda df, _: late.extend(df.collect()))
        writer = writer.query_name("hours").option("execution.checkpointing.dir", str(tmp_path / "state"))
        writer = writer.option("materializer.mode", "off").option("checkpointLocation", str(tmp_path / "spark"))
        writer.trigger(availableNow=True).start().awaitTermination()
    assert windows == [(0, [1]), (3, [2]), (3, [2, 4])]
    assert [row.n for row in late] == [3], "of a window that was removed"


@pytest.mark.long
def test_the_job_of_the_documentation_tells_mean_delays(spark: SparkSession, tmp_path: Path) -> None:
    blocks = blocks_of("docs/guide/windows.md", (ROOT / "docs" / "guide" / "windows.md").read_text())
    text = next(block.text for block in blocks if block.tags == ("run",))
    text = text.replace("/data/", f"{tmp_path}/").replace("file:///var/lib/varvite", f"file://{tmp_path}/varvite")
    text = text.replace('processingTime="10 seconds"', "availableNow=True")
    (tmp_path / "flights").mkdir()
    days = [[(0, 5, 10), (0, 25, 20)], [(3, 0, 99)], []]
    for number, flights in enumerate(days):
        if flights:
            departed = [datetime(2013, 1, 1, hour, minute, tzinfo=UTC) for hour, minute, _ in flights]
            delays = pa.array([delay for _, _, delay in flights], pa.int32())
            table = pa.table({"origin": ["IAH"] * len(flights), "departed": departed, "delay": delays})
            pq.write_table(table, tmp_path / "flights" / f"{number}.parquet")
        time.sleep(1.1)  # a heartbeat is due every second
        names: dict[str, Any] = {}
        exec(compile(text, "docs/guide/windows.md", "exec"), names)
        names["query"].awaitTermination()
        kill_state_workers(spark)
    output = ds.dataset(tmp_path / "delays", format="parquet", partitioning="hive", ignore_prefixes=["_", "."])
    rows = sorted((row["origin"], row["end_ms"], row["mean"]) for row in output.to_table().to_pylist())
    midnight = int(datetime(2013, 1, 1, tzinfo=UTC).timestamp() * 1000)
    means = [(10, 10), (20, 10), (30, 15), (40, 15), (50, 15), (60, 15), (70, 20), (80, 20)]
    assert rows == [("IAH", midnight + minutes * 60_000, mean) for minutes, mean in means]


class Starts(ProcessAllWindowFunction[Any, Any, Any]):
    """Begin of the window, seconds since 1970, and the number of its rows."""

    def process(self, context: Any, elements: Any) -> Any:
        yield context.window().start // 1000, len(list(elements))


def test_a_run_over_what_is_available_gives_out_the_windows_that_spark_gives_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Found as a first run of a backfill that wrote no window, without a word."""
    (tmp_path / "rows").mkdir()
    for number, minutes in enumerate([(0, 1, 12), (25, 11), (47, 31)]):
        at = [datetime(1970, 1, 1, 1, minute, tzinfo=UTC) for minute in minutes]
        pq.write_table(pa.table({"at": at}), tmp_path / "rows" / f"{number}.parquet")
    rows = spark.readStream.schema("at timestamp").parquet(str(tmp_path / "rows")).withWatermark("at", "1 minute")
    expected: list[Any] = []
    counts = rows.groupBy(F.window("at", "10 minutes")).count().selectExpr("unix_timestamp(window.start)", "count")
    writer = counts.writeStream.outputMode("append").trigger(availableNow=True)
    writer = writer.foreachBatch(lambda df, _: expected.extend(map(tuple, df.collect())))
    writer.option("checkpointLocation", str(tmp_path / "own")).start().awaitTermination()

    received: list[Any] = []
    env = StreamExecutionEnvironment.get_execution_environment(spark).set_parallelism(1)
    tumbling = TumblingEventTimeWindows.of(Time.minutes(10))
    made = env.from_dataframe(rows).window_all(tumbling).process(Starts(), "start bigint, n bigint", uid="starts")
    ours = made.foreach_batch(lambda df, _: received.extend(map(tuple, df.collect()))).query_name("starts")
    ours = ours.option("execution.checkpointing.dir", str(tmp_path / "state")).option("materializer.mode", "off")
    query = ours.option("checkpointLocation", str(tmp_path / "spark")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sorted(received) == sorted(expected) == [(3600, 2), (4200, 2), (4800, 1), (5400, 1)]
    assert not query.isActive
    assert len(query.checkpoint_statistics.history()) == 2, "the rows, and the closing batch"
    assert query.lastProgress is not None
    shown = query.lastProgress.stateOperators[0]
    assert (shown.operatorName, shown.numRowsDroppedByWatermark, shown.numShufflePartitions) == ("starts", 0, 1)
    assert shown.customMetrics["rowsOut"] == 4


def test_an_error_of_the_closing_batch_arrives(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    pq.write_table(
        pa.table({"at": [datetime(1970, 1, 1, hour, tzinfo=UTC) for hour in (1, 2)]}), tmp_path / "rows/0.parquet"
    )
    rows = spark.readStream.schema("at timestamp").parquet(str(tmp_path / "rows")).withWatermark("at", "1 minute")
    env = StreamExecutionEnvironment.get_execution_environment(spark).set_parallelism(1)
    tumbling = TumblingEventTimeWindows.of(Time.minutes(10))
    made = env.from_dataframe(rows).window_all(tumbling).process(Failing(), "start bigint", uid="starts")
    writer = made.foreach_batch(lambda df, _: None).query_name("starts").trigger(availableNow=True)
    writer = writer.option("execution.checkpointing.dir", str(tmp_path / "state")).option("materializer.mode", "off")
    query = writer.option("checkpointLocation", str(tmp_path / "spark")).start()
    with pytest.raises(UserFunctionError, match="no such window"):
        query.awaitTermination()
    assert isinstance(query.exception(), UserFunctionError)
