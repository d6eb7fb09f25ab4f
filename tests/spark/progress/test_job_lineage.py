"""I11: state and Spark's checkpoint location that do not fit together are an error, never a silent start."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.keyed_jobs import UID, KeyedJob, forget_batches, in_order
from varvite.storage.errors import GapError, InvalidRequestError, LineageError, RewindError, StateMissingError

pytestmark = [pytest.mark.spark, pytest.mark.long]


def first_of_each(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["k", "v"])


def join_of_two(rows: DataFrame) -> DataFrame:
    return rows.join(rows.withColumnRenamed("v", "other"), "k").drop("other")


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> KeyedJob:
    """A job after three batches."""
    job = KeyedJob(spark, tmp_path)
    for i in range(3):
        job.add(("a", i), ("b", 10 * i))
    job.run()
    job.add(("a", 100))
    return job


def copy(job: KeyedJob, source: str, target: str) -> None:
    """Copy a directory of the job."""
    shutil.copytree(job.directory / source, job.directory / target)


def test_a_checkpoint_location_that_was_rolled_back_is_refused(job: KeyedJob) -> None:
    forget_batches(job.directory / "checkpoint", 1)
    with pytest.raises(RewindError, match="set back"):
        job.run()


def test_a_copied_checkpoint_location_goes_on_and_the_stale_original_is_refused(job: KeyedJob) -> None:
    copy(job, "checkpoint", "copy")
    job.checkpoint = "copy"
    job.run()
    job.add(("b", 1))
    job.run()
    assert job.rows() == in_order(job.expected)
    job.checkpoint = "checkpoint"
    with pytest.raises((RewindError, LineageError)):
        job.run()


def test_a_batch_that_spark_plans_anew_from_other_files_is_not_taken_for_the_old_one(job: KeyedJob) -> None:
    """Its offsets are a counter: the same text. The sink holds the old batch, so it would be adopted, its rows lost."""
    output, kept = job.directory / "output", job.directory / "kept"
    run_to_files(job, output)
    job.add(("a", 7))
    shutil.copytree(job.directory / "checkpoint", kept)
    run_to_files(job, output)
    (job.directory / "input" / "00004.json").unlink()
    job.add(("b", 8))
    shutil.rmtree(job.directory / "checkpoint")
    shutil.copytree(kept, job.directory / "checkpoint")
    with pytest.raises(LineageError, match="other input"):
        run_to_files(job, output)


def test_a_batch_of_the_same_files_is_adopted_although_spark_plans_it_anew(job: KeyedJob) -> None:
    output, kept = job.directory / "output", job.directory / "kept"
    run_to_files(job, output)
    job.add(("a", 7))
    shutil.copytree(job.directory / "checkpoint", kept)
    run_to_files(job, output)
    shutil.rmtree(job.directory / "checkpoint")
    shutil.copytree(kept, job.directory / "checkpoint")
    job.add(("b", 8))
    run_to_files(job, output)
    written = job.spark.read.parquet(str(output)).select("k", "n", "total", "seen").collect()
    assert in_order(tuple(row) for row in written) == in_order(job.expected[6:])


@pytest.mark.parametrize("before", [first_of_each, join_of_two], ids=["deduplication", "join"])
def test_operators_of_spark_before_the_job_keep_their_state_when_a_batch_is_adopted(
    spark: SparkSession, tmp_path: Path, before: Callable[[DataFrame], DataFrame]
) -> None:
    """Spark refused each start after the driver had died between the sink and Spark's commit: nothing read its rows."""
    job, output = KeyedJob(spark, tmp_path), tmp_path / "output"
    for row in (("a", 1), ("b", 2), ("a", 1)):
        job.stream.add(json.dumps(dict(zip("kv", row, strict=True))))
        run_to_files(job, output, before)
    newest = max(int(path.name) for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdecimal())
    assert newest == 2
    (tmp_path / "checkpoint" / "commits" / str(newest)).unlink()
    for row in (("b", 2), ("a", 1), ("c", 3)):
        job.stream.add(json.dumps(dict(zip("kv", row, strict=True))))
        run_to_files(job, output, before)
    counts = {k: n for n, k in sorted((row.n, row.k) for row in spark.read.parquet(str(output)).collect())}
    assert counts == ({"a": 1, "b": 1, "c": 1} if before is first_of_each else {"a": 9, "b": 4, "c": 1})


def run_to_files(job: KeyedJob, output: Path, before: Callable[[DataFrame], DataFrame] = lambda rows: rows) -> None:
    """Run the job until its input is processed, into a directory of files; `before` is Spark's own part."""
    stream = job.environment().from_dataframe(before(job.stream.read()))
    stream = stream.key_by("k").process(job.function, job.output, uid=UID)
    writer = stream.format("parquet").option("path", str(output)).query_name(job.name).trigger(availableNow=True)
    writer.option("checkpointLocation", str(job.directory / job.checkpoint)).start().awaitTermination()


def test_a_deleted_checkpoint_location_is_refused(job: KeyedJob) -> None:
    shutil.rmtree(job.directory / "checkpoint")
    with pytest.raises(LineageError, match="made by query"):
        job.run()


def test_the_checkpoint_location_of_another_query_is_refused(job: KeyedJob, spark: SparkSession) -> None:
    other = KeyedJob(spark, job.directory, name="other", checkpoint="foreign")
    other.run()
    job.checkpoint = "foreign"
    job.add(("a", 101))
    with pytest.raises(LineageError, match="made by query"):
        job.run()


def test_storage_that_lost_its_newest_commits_is_refused(job: KeyedJob) -> None:
    job.lose_commits(2)
    with pytest.raises(GapError, match="missing"):
        job.run()


def test_storage_that_is_gone_is_refused(job: KeyedJob) -> None:
    shutil.rmtree(job.directory / "state")
    with pytest.raises(StateMissingError, match="holds no state"):
        job.run()


def test_a_new_query_can_start_from_the_state_and_its_batch_ids_begin_at_zero_again(job: KeyedJob) -> None:
    job.run()
    before = job.rows()
    job.received.clear()
    fresh = KeyedJob(job.spark, job.directory, source="later", checkpoint="new")
    fresh.model, fresh.received = job.model, job.received
    fresh.add(("a", 5), ("b", 6), ("new", 7))
    fresh.conf = {"execution.state-recovery.path": "latest"}
    fresh.run()
    fresh.conf = {}
    fresh.add(("a", 8))
    fresh.run()
    assert [batch for batch, _ in fresh.received] == [0, 1]
    assert fresh.rows() == in_order(fresh.expected), "lists go on where they were"
    assert before == in_order(job.expected)


@pytest.mark.parametrize("name", ["job", "unknown"])
def test_a_start_from_a_checkpoint_that_is_not_there_leaves_nothing(job: KeyedJob, name: str) -> None:
    """It made the job if it was new, fenced another run off if not, and failed with its first batch."""
    fresh = KeyedJob(job.spark, job.directory, name=name, source="later", checkpoint="new")
    fresh.conf = {"execution.state-recovery.path": "999"}
    fresh.add(("a", 5))
    state = job.directory / "state"
    before = sorted(path for path in state.rglob("*") if path.is_file())
    with pytest.raises(StateMissingError, match="no commit with seq 999"):
        fresh.run()
    assert sorted(path for path in state.rglob("*") if path.is_file()) == before


def test_a_query_that_has_begun_goes_on_whatever_checkpoint_it_was_to_start_from(job: KeyedJob) -> None:
    job.conf = {"execution.state-recovery.path": "999"}
    job.add(("a", 5))
    job.run()
    assert job.rows() == in_order(job.expected)


def test_an_operator_whose_state_would_be_lost_is_refused(job: KeyedJob) -> None:
    stream = job.environment().from_dataframe(job.stream.read())
    processed = stream.key_by("k").process(job.function, job.output, uid="renamed")
    writer = processed.foreach_batch(job.collect).query_name("job").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(job.directory / "checkpoint")).start()
    with pytest.raises(InvalidRequestError, match="would be lost"):
        query.awaitTermination()


def test_a_changed_key_type_is_refused(job: KeyedJob) -> None:
    stream = job.environment().from_dataframe(job.stream.read())
    processed = stream.key_by("v").process(job.function, job.output, uid="sums")
    writer = processed.foreach_batch(job.collect).query_name("job").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(job.directory / "checkpoint")).start()
    with pytest.raises(InvalidRequestError, match="key type changed"):
        query.awaitTermination()


def test_a_damaged_commit_is_an_error_that_names_the_object(job: KeyedJob) -> None:
    newest = max((job.directory / "state" / "job" / "chain").iterdir())
    data = bytearray(newest.read_bytes())
    data[-1] ^= 1
    newest.write_bytes(bytes(data))
    with pytest.raises(Exception, match=f"(?s)checksum.*{newest.name}"):
        job.run()
