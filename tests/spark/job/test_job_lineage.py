"""I11: state and Spark's checkpoint location that do not fit together are an error, never a silent start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.keyed_jobs import KeyedJob, forget_batches, in_order
from varvite.storage.errors import GapError, InvalidRequestError, LineageError, RewindError, StateMissingError

pytestmark = pytest.mark.spark


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
