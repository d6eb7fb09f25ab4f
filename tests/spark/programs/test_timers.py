"""Timers on real Spark: over restarts, killed workers and other parallelisms, and while the source is quiet."""

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
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from tests.spark.functions.timers import FailingTimer, RemindLater, SumUntilTimer
from tests.spark.job.test_job import kill_state_workers
from tests.spark.keyed_jobs import BACKENDS, KeyedJob
from tests.tidy.pages.doc_blocks import ROOT, blocks_of
from varvite.spark_integration.api.writer import StreamWriter
from varvite.storage.errors import InvalidRequestError, UserFunctionError

pytestmark = pytest.mark.spark


def writer_of(job: KeyedJob, function: Any, output: str) -> StreamWriter:
    rows = job.stream.read().withColumn("at", F.timestamp_seconds("v"))
    stream = job.environment().from_dataframe(rows).with_watermark("at", "10 seconds")
    writer = stream.key_by("k").process(function, output, uid="timers").foreach_batch(job.collect)
    return writer.query_name("job").option("checkpointLocation", str(job.directory / "checkpoint"))


def run_available(job: KeyedJob) -> list[tuple[Any, ...]]:
    """Process what there is, a heartbeat at least, and a closing batch; the rows that came out of this run."""
    time.sleep(1.1)  # a heartbeat is due every second
    before = len(job.received)
    output = "k string, timer long, total long, domain string"
    writer_of(job, SumUntilTimer(), output).trigger(availableNow=True).start().awaitTermination()
    return [row for _, rows in job.received[before:] for row in rows]


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
def test_event_time_timers_survive_restarts_killed_workers_and_another_parallelism(
    spark: SparkSession, tmp_path: Path, backend: str
) -> None:
    job = KeyedJob(spark, tmp_path, backend=BACKENDS[backend])
    job.add(("a", 10), ("b", 30), (None, 40), ("a", 10), *[(f"k{i}", 100) for i in range(8)])
    fired = run_available(job)
    assert sorted(fired, key=str) == sorted(
        [("a", 20_000, 20, "EVENT_TIME"), ("b", 60_000, 30, "EVENT_TIME"), (None, 80_000, 40, "EVENT_TIME")], key=str
    ), "the closing batch fires what the rows have made due: the watermark is 90 s"
    kill_state_workers(spark)
    job.parallelism = 3
    assert run_available(job) == [], "a heartbeat moves no watermark, and nothing fires twice"
    kill_state_workers(spark)
    job.parallelism, job.changelog = 2, False
    job.add(("late", 1), ("new", 300))
    late = run_available(job)
    assert sorted(late) == [
        *[(f"k{i}", 200_000, 100, "EVENT_TIME") for i in range(8)], ("late", 2_000, 1, "EVENT_TIME")
    ], "late rows are processed, and the closing batch fires the others"  # fmt: skip


def test_a_processing_time_timer_fires_although_the_source_is_quiet(spark: SparkSession, tmp_path: Path) -> None:
    job = KeyedJob(spark, tmp_path)
    job.add(("a", 1), ("b", 2_000))
    query = writer_of(job, RemindLater(), "k string, domain string").trigger(processingTime="500 milliseconds").start()
    try:
        deadline_s = time.monotonic() + 120
        while len(job.rows()) < 2:
            assert time.monotonic() < deadline_s, "the timers did not fire"
            assert query.isActive
            time.sleep(0.05)
    finally:
        query.stop()
    assert job.rows() == [("a", "PROCESSING_TIME"), ("b", "PROCESSING_TIME")]
    job.conf = {"pipeline.heartbeat.enabled": "false"}
    with pytest.raises(InvalidRequestError, match=r"pipeline\.heartbeat\.enabled is false"):
        writer_of(job, RemindLater(), "k string, domain string").start()


def test_an_error_in_on_timer_names_operator_key_and_batch(spark: SparkSession, tmp_path: Path) -> None:
    job = KeyedJob(spark, tmp_path)
    job.add(("a", -5))
    query = writer_of(job, FailingTimer(), "k string, domain string").trigger(availableNow=True).start()
    with pytest.raises(UserFunctionError) as raised:
        query.awaitTermination()
    assert isinstance(raised.value.__cause__, ArithmeticError)
    assert raised.value.context["operator"] == "timers"
    assert "at key 'a'" in raised.value.message
    assert raised.value.context["batch"] == 0


def test_the_job_of_the_documentation_says_which_aircraft_stay_grounded(spark: SparkSession, tmp_path: Path) -> None:
    blocks = blocks_of("docs/guide/timers.md", (ROOT / "docs" / "guide" / "timers.md").read_text())
    text = next(block.text for block in blocks if block.tags == ("run",))
    text = text.replace("/data/", f"{tmp_path}/").replace("file:///var/lib/varvite", f"file://{tmp_path}/varvite")
    text = text.replace('processingTime="10 seconds"', "availableNow=True")
    days = [datetime(2013, 1, day, 12, tzinfo=UTC) for day in (1, 2, 4)]
    (tmp_path / "flights").mkdir()
    departures = pa.table({"tailnum": ["N1", "N2", "N2"], "departed": [days[0], days[1], days[2]]})
    pq.write_table(departures, tmp_path / "flights" / "1.parquet")
    names: dict[str, Any] = {}
    exec(compile(text, "docs/guide/timers.md", "exec"), names)
    names["query"].awaitTermination()
    output = ds.dataset(tmp_path / "grounded", format="parquet", partitioning="hive", ignore_prefixes=["_", "."])
    rows = [(row["tailnum"], row["since_ms"]) for row in output.to_table().to_pylist()]
    assert rows == [("N1", int(days[1].timestamp() * 1000))]
