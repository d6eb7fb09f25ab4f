"""`varvite restore` where Spark's checkpoint location is lost, behind the state or ahead of it, on real Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.drivers.varvite_command import command
from tests.spark.keyed_jobs import KeyedJob, forget_batches, in_order, kill_state_workers
from varvite.storage.errors import GapError, LineageError, RewindError

pytestmark = pytest.mark.spark
INPUT = ((("a", 0), ("b", 0)), (("key-1", 10), (None, 10)), (("key-2", 20),), (("key-3", 30),))
"""By batch. After a restore, Spark reads files of several batches as one, in any order: no key is in two of them."""


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> KeyedJob:
    """A job after four batches, one file each, all of which it can go back to, and new input; nothing is in memory."""
    job = KeyedJob(spark, tmp_path, conf={"execution.checkpointing.num-retained": "8"})
    for rows in INPUT:
        job.add(*rows)
    job.run()
    assert job.rows() == in_order(job.expected)
    kill_state_workers(spark)
    job.add(("a", 7), ("new", 8))
    return job


def restore(job: KeyedJob) -> Any:
    """Output of the command, which must end well."""
    place = ["--storage", str(job.directory / "state"), "--spark-checkpoint", str(job.directory / job.checkpoint)]
    return command("restore", job.name, *place)[-1]


def go_on(job: KeyedJob, batch: int) -> None:
    """The job goes on behind this batch: everything after it is executed again, and what is new; then once more."""
    job.received = [(number, rows) for number, rows in job.received if number <= batch]
    job.run()
    assert job.rows() == in_order(job.expected)
    job.add(("a", 9), ("b", 10), ("new", 11))
    job.run()
    assert job.rows() == in_order(job.expected)


def test_a_location_that_is_ahead_of_the_state(job: KeyedJob) -> None:
    job.lose_commits(2)
    with pytest.raises(GapError, match="varvite restore"):
        job.run()
    restored = restore(job)
    assert restored["batch"] == 1
    assert {"commits/2", "commits/3", "offsets/2", "offsets/3"} <= set(restored["forgotten"])
    go_on(job, 1)


def test_a_location_that_is_behind_the_state(job: KeyedJob) -> None:
    forget_batches(job.directory / "checkpoint", 2)
    with pytest.raises(RewindError, match="varvite restore"):
        job.run()
    assert restore(job)["batch"] == 1
    go_on(job, 1)


def test_a_location_that_is_lost(job: KeyedJob) -> None:
    """The state goes on; the new query's source begins where its user says, here with what is new."""
    shutil.rmtree(job.directory / "checkpoint")
    fresh = KeyedJob(job.spark, job.directory, source="later", conf=job.conf)
    for key in ("a", "new"):  # the file that was never read
        job.model.values[key].pop()
    fresh.model, fresh.expected = job.model, []
    fresh.add(("a", 5), ("key-1", 6))
    with pytest.raises(LineageError, match="varvite restore"):
        fresh.run()
    restored = restore(fresh)
    assert (restored["batch"], restored["forgotten"]) == (len(INPUT) - 1, [])
    go_on(fresh, -1)
    assert [batch for batch, _ in fresh.received] == [0, 1]


@pytest.mark.parametrize("runs", [1, 3], ids=["same epoch", "lower epoch"])
@pytest.mark.parametrize("place", ["in place", "elsewhere"])
def test_an_older_copy_of_storage_and_location_goes_on_while_the_state_workers_live(
    spark: SparkSession, tmp_path: Path, place: str, runs: int
) -> None:
    """Epochs begin again where the copy ends; the workers took the run for an older one, and refused it."""
    job = KeyedJob(spark, tmp_path)
    job.add(("a", 1), ("b", 2))
    job.run()
    kept = [(tmp_path / name, tmp_path / f"{name}-copy") for name in ("state", "checkpoint")]
    for original, copy in kept:
        shutil.copytree(original, copy)
    for number in range(runs):
        job.add(("a", number), ("b", number))
        job.add(("a", number), ("c", number))
        job.run()
    assert job.rows() == in_order(job.expected)
    if place == "in place":
        for original, copy in kept:
            shutil.rmtree(original)
            copy.rename(original)
    else:
        job.conf["execution.checkpointing.dir"], job.checkpoint = str(tmp_path / "state-copy"), "checkpoint-copy"
    job.received = job.received[:1]
    job.add(("a", 5), ("b", 6), ("d", 7))
    job.run()
    assert job.rows() == in_order(job.expected)
