"""Progress in the chain alone: Spark's checkpoint location is a cache, which each start makes anew."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tests.spark.rate_jobs import RateJob, counted, expected_rows, rate_input, wait_for
from varvite.changelog.chain.reader import ChainReader
from varvite.materializer.commands.cli import main
from varvite.spark_integration.options import progress_mode
from varvite.storage.errors import InvalidRequestError, LineageError
from varvite.storage.format.records import Commit
from varvite.storage.job.record import read_job
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.open import open_store

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This machine's cache, with the locations that varvite makes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> RateJob:
    return RateJob(spark, tmp_path)


def names(directory: Path) -> list[str]:
    """Files below a directory but hidden ones."""
    paths = (path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if not path.name.startswith("."))


def commits(job: RateJob) -> list[Commit]:
    store = JobStore(open_store(str(job.directory / "state")), job.name)
    reader = ChainReader(store, read_job(store).job_id)
    entries = reader.read_all(reader.list_seqs())
    return [entry for entry in entries if isinstance(entry, Commit)]


def test_a_job_without_a_location_goes_on_and_calls_its_sink_once_for_each_batch(job: RateJob, cache: Path) -> None:
    for _ in range(3):
        job.run(2)
    assert job.batches == list(range(len(job.batches)))
    assert job.rows == expected_rows(len(job.batches))
    left = {name.rpartition("/")[2] for name in names(cache)}
    assert left == {"CACHEDIR.TAG", "sink"}


def test_on_another_machine_the_last_batch_alone_comes_once_more(job: RateJob, cache: Path) -> None:
    job.run(2)
    last = job.batches[-1]
    shutil.rmtree(cache)
    job.run(2)
    assert job.batches == [*range(last + 1), *range(last, job.batches[-1] + 1)]
    assert job.rows == expected_rows(job.batches[-1] + 1)


@pytest.mark.parametrize("is_stale", [False, True], ids=["lost", "of an earlier time"])
def test_a_location_that_is_lost_or_stale_is_made_from_the_chain(job: RateJob, tmp_path: Path, is_stale: bool) -> None:
    location, earlier = tmp_path / "location", tmp_path / "earlier"
    job.run(2, location)
    shutil.copytree(location, earlier)
    job.run(3, location)
    last = job.batches[-1]
    shutil.rmtree(location)
    if is_stale:
        shutil.copytree(earlier, location)
    job.run(2, location)
    assert job.batches == [*range(last + 1), *range(last, job.batches[-1] + 1)]  # the note was lost as well
    assert job.rows == expected_rows(job.batches[-1] + 1)
    assert len({commit.query_id for commit in commits(job)}) == 1


def test_a_batch_writes_one_object_and_nothing_in_the_location(job: RateJob, tmp_path: Path) -> None:
    location = tmp_path / "location"
    query = job.start(location, materializer__mode="off")
    try:
        wait_for(query, lambda: len(job.calls) >= 2, "the first batches")
        wait_for(query, lambda: "commits/0" in names(location), "Spark's logs of the first batch")
        before, objects = names(location), set(names(tmp_path / "state"))
        begun = len(job.calls)
        wait_for(query, lambda: len(job.calls) >= begun + 5, "five batches more")
    finally:
        query.stop()
    assert names(location) == before
    # The run's own mark goes when it ends; a pack is made beside the batches.
    new = {name for name in set(names(tmp_path / "state")) - objects if "/pack/" not in name}
    assert {name.split("/")[1] for name in new} == {"chain"}
    assert len(job.calls) - begun <= len(new) + 1


def test_the_location_of_another_query_is_refused(job: RateJob, tmp_path: Path) -> None:
    job.run(1, tmp_path / "location")
    other = RateJob(job.spark, tmp_path / "other")
    other.run(1, tmp_path / "other location")
    with pytest.raises(LineageError, match="an empty one, which is made from the state"):
        job.start(tmp_path / "other location")


@pytest.mark.parametrize("missing", ["_asyncProgressTrackingOverrideSinkSupportCheck", "asyncProgressTrackingEnabled"])
def test_a_spark_without_the_option_writes_its_logs(
    job: RateJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, missing: str
) -> None:
    caplog.set_level(logging.INFO, "varvite")
    location = tmp_path / "location"
    job.run(2, location)
    monkeypatch.delitem(progress_mode.SPARK_OPTIONS, missing)
    job.run(2, location)
    assert "Spark writes its logs in each batch" in caplog.text
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    job.run(2, location)
    assert job.batches == list(range(len(job.batches)))
    assert job.rows == expected_rows(len(job.batches))
    assert {commit.position.is_in_spark_log for commit in commits(job) if commit.position} == {False, True}


def test_a_job_may_go_from_spark_s_logs_to_the_chain_and_back(job: RateJob, tmp_path: Path) -> None:
    location = tmp_path / "location"
    for progress in ("spark", "chain", "spark", "auto"):
        job.run(2, location, execution__checkpointing__progress=progress)
    assert job.batches == list(range(len(job.batches)))
    assert job.rows == expected_rows(len(job.batches))


def test_files_are_written_once_without_a_location(job: RateJob, tmp_path: Path) -> None:
    out = tmp_path / "out"
    written: list[int] = []
    for batches in (2, 4):
        query = counted(job.environment(), rate_input(job.spark)).write_stream.query_name(job.name)
        running = query.format("parquet").start(str(out))
        wait_for(running, lambda: len(list(out.glob("batch_id=*"))) > batches, batches)  # noqa: B023  called here
        running.stop()
        written.append(len(list(out.glob("batch_id=*"))))
    table = ds.dataset(out, format="parquet", partitioning="hive", ignore_prefixes=["_", "."]).to_table().to_pylist()
    rows = sorted((row["k"], row["n"], row["v"]) for row in table)
    assert rows == expected_rows(len(rows) // 6)
    assert len(rows) // 6 == written[-1]


def test_a_restore_needs_no_location(job: RateJob) -> None:
    job.run(4)
    chosen = commits(job)[-3]
    storage = str(job.directory / "state")
    done = CliRunner().invoke(main, ["restore", job.name, "--storage", storage, "--checkpoint", str(chosen.seq)])
    assert done.exit_code == 0, done.output
    assert f"batch {chosen.batch + 1} of query {chosen.query_id}" in done.output
    begun = len(job.calls)
    job.run(3)
    assert job.batches[begun] == chosen.batch + 1
    assert job.rows == expected_rows(job.batches[-1] + 1)


def test_a_chosen_checkpoint_needs_a_location_or_the_command(job: RateJob) -> None:
    job.run(1)
    with pytest.raises(InvalidRequestError, match="set checkpointLocation, or leave the option out"):
        job.start(**{"execution__state-recovery__path": "latest"})


def test_other_sources_need_a_location_and_the_error_says_why(job: RateJob, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = job.spark.readStream.schema("k bigint, v bigint").json(str(tmp_path / "in"))
    writer = counted(job.environment(), rows).write_stream.query_name("files").foreach_batch(lambda _rows, _id: None)
    with pytest.raises(InvalidRequestError, match="checkpointLocation is missing, and the source FileSource"):
        writer.start()


def test_a_source_that_keeps_a_list_is_refused_although_the_user_says_that_it_keeps_nothing(
    job: RateJob, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"k": 1, "v": 1}')
    rows = job.spark.readStream.schema("k bigint, v bigint").json(str(tmp_path / "in"))
    env = job.environment(**{"execution.checkpointing.progress": "chain"})
    writer = counted(env, rows).write_stream.query_name("files").foreach_batch(lambda _rows, _id: None)
    query = writer.option("checkpointLocation", str(tmp_path / "location")).start()
    with pytest.raises(InvalidRequestError, match=r"keeps more than its offsets .*progress to auto or spark"):
        query.awaitTermination(60)
    query.stop()


def test_heartbeats_and_timers_go_on_without_a_location(job: RateJob) -> None:
    job.name = "beats"
    options = {"pipeline__heartbeat__enabled": "true"}
    job.run(2, **options)
    offsets = commits(job)[0].position
    assert offsets is not None
    assert len(offsets.offsets.splitlines()) == 4  # version, metadata, the source, heartbeats
    job.run(2)  # the chain knows that the query has them
    assert job.rows == expected_rows(job.batches[-1] + 1)
