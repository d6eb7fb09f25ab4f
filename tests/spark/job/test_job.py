"""The whole path on real Spark: input files, keyed function, state workers, chain, sink, restart."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark import accumulators
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from tests.spark.functions.small import CountRows, EventTimes, Failing
from tests.spark.keyed_jobs import BACKENDS, IN_MEMORY, KeyedJob, in_order, kill_state_workers
from varvite.storage.errors import UserFunctionError

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("changelog", [True, False], ids=["changelog", "snapshots"])
def test_state_and_output_equal_the_model_over_restarts_and_killed_workers(
    spark: SparkSession, tmp_path: Path, backend: str, changelog: bool
) -> None:
    job = KeyedJob(spark, tmp_path, backend=BACKENDS[backend], changelog=changelog)
    job.add(("a", 1), ("b", 2), (None, 5), ("a", 1))
    job.add(("b", 3), ("c", 4))
    job.run()
    job.add(("a", 7), (None, 6))
    assert job.restored(job.run()).keys() <= IN_MEMORY, "the workers outlive the query and still have its last batch"
    assert kill_state_workers(spark) >= 2
    job.add(("a", 8), ("b", 9), ("d", 1), (None, 5))
    assert not IN_MEMORY & job.restored(job.run()).keys()
    assert job.rows() == in_order(job.expected)


def test_no_accumulator_of_a_batch_outlives_it(spark: SparkSession, tmp_path: Path) -> None:
    """PySpark keeps each for the life of the driver, and what tasks have told it, unless it is taken out."""
    before = set(accumulators._accumulatorRegistry)
    job = KeyedJob(spark, tmp_path)
    for number in range(3):
        job.add(("a", number), ("b", 2))
    job.run()
    assert len(job.received) == 3
    assert set(accumulators._accumulatorRegistry) <= before
    job.function = Failing()
    job.add(("unlucky", 13))
    with pytest.raises(UserFunctionError):
        job.run()
    assert set(accumulators._accumulatorRegistry) <= before


@pytest.mark.long
def test_backend_and_changelog_can_be_switched_at_every_restart(spark: SparkSession, tmp_path: Path) -> None:
    job = KeyedJob(spark, tmp_path)
    settings = [("hashmap", True), ("rocksdb", True), ("rocksdb", False), ("hashmap", False), ("hashmap", True)]
    for i, (backend, changelog) in enumerate(settings):
        job.backend, job.changelog = BACKENDS[backend], changelog
        job.add(("a", i), ("b", 1), (f"key-{i}", i))
        job.add(("a", 10 * i), (None, i))
        job.run()
    assert job.rows() == in_order(job.expected)


def test_the_job_adopts_snapshots_of_an_embedded_materializer_and_restores_from_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its metrics tell of it meanwhile, and are gone with the query."""
    interval = {"materializer.mode": "embedded", "state.changelog.periodic-materialize.interval": "1 s"}
    interval |= {"metrics.reporter.prom.port": "0", "metrics.reporter.prom.host": "127.0.0.1"}
    job = KeyedJob(spark, tmp_path, backend=BACKENDS["rocksdb"], changelog=True, conf=interval)
    stream = job.environment().from_dataframe(job.stream.read())
    writer = stream.key_by("k").process(job.function, job.output, uid="sums").foreach_batch(job.collect)
    query = writer.query_name("job").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        deadline_s = time.monotonic() + 180
        number = 0
        while not any(later.log_commits < earlier.log_commits for earlier, later in _pairs(query)):
            assert time.monotonic() < deadline_s, "no snapshot was adopted"
            job.add((f"key-{number % 7}", number), ("a", 1))
            query.processAllAvailable()
            number += 1
        page = f"http://127.0.0.1:{query.metrics_port}"
        metrics = _samples(f"{page}/metrics")
        assert metrics["varvite_checkpoints_total"] == len(query.checkpoint_statistics.history())
        assert metrics["varvite_rows_in_total"] == 2 * number
        assert metrics["varvite_adopted_snapshots_total"] >= 1
        assert metrics["varvite_embedded_materializer_starts_total"] == 1
        assert metrics["varvite_last_full_size_of_non_materialization_bytes"] > 0
        with urlopen(f"{page}/readyz", timeout=30) as answer:
            assert answer.status == 200
    finally:
        query.stop()
    with pytest.raises(URLError):
        urlopen(f"{page}/healthz", timeout=30)
    kill_state_workers(spark)
    job.conf = {}
    job.add(("a", 2), ("key-1", 5))
    job.run()
    assert job.rows() == in_order(job.expected)


def _samples(url: str) -> dict[str, float]:
    """Name → the sum of its samples."""
    with urlopen(url, timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    found: dict[str, float] = {}
    for sample in (sample for family in families for sample in family.samples):
        found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def _pairs(query: object) -> list[tuple[object, object]]:
    history = query.checkpoint_statistics.history()  # type: ignore[attr-defined]
    return list(itertools.pairwise(history))


def test_two_key_columns_and_two_operators_after_one_another(spark: SparkSession, tmp_path: Path) -> None:
    job = KeyedJob(spark, tmp_path)
    for i in range(3):
        job.add(("a", i), ("b", i), ("a", i))
        stream = job.environment().from_dataframe(job.stream.read())
        first = stream.key_by("k", "v").process(job.function, job.output, uid="first")
        second = first.key_by("k").process(CountRows(), "k string, rows long", uid="second")
        writer = second.foreach_batch(job.collect).query_name("chained").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    last = {}
    for k, rows in job.rows():
        last[k] = max(rows, last.get(k, 0))
    assert last == {"a": 6, "b": 3}


def test_the_watermark_follows_event_time_batch_by_batch_and_over_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = KeyedJob(spark, tmp_path)

    def run() -> None:
        rows = job.stream.read().withColumn("at", F.timestamp_seconds("v")).withWatermark("at", "10 seconds")
        stream = job.environment().from_dataframe(rows)
        processed = stream.key_by("k").process(EventTimes(), "k string, at long, watermark long", uid="times")
        writer = processed.foreach_batch(job.collect).query_name("job").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    job.add(("a", 100), ("b", 50))
    job.add(("a", 60))
    run()
    job.add(("b", 200))
    job.add(("a", 1))
    run()
    seen = [rows for _, rows in job.received]
    none = -(2**63)
    assert in_order(seen[0]) == [("a", 100_000, none), ("b", 50_000, none)]
    assert seen[1:] == [[("a", 60_000, 90_000)], [("b", 200_000, 90_000)], [("a", 1_000, 190_000)]]
