"""Spark's treatment of single tasks while a batch runs: lost shuffle files, killed attempts, cancelled jobs.

The function is never twice the same, see `tests.spark.functions.tokens`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.functions.tokens import (
    LOSE_SHUFFLE,
    TOKEN_OUTPUT,
    UNTIL_RELEASED,
    Tokens,
    check_chains,
    check_state,
    note,
    wait_for,
)
from tests.spark.keyed_jobs import BACKENDS, UID, KeyedJob

pytestmark = [pytest.mark.spark, pytest.mark.spark_tasks]
KEYS = "abcdef"
BATCHES = [[(k, number * 10 + i) for i, k in enumerate(KEYS)] for number in range(4)]
PAUSED = 12
"""A row of the second batch."""


class TokenJob(KeyedJob):
    """A job of `Tokens` over `BATCHES`."""

    @staticmethod
    def of(spark: SparkSession, tmp_path: Path, pause: str, backend: str = "hashmap") -> TokenJob:
        notes = tmp_path / "notes"
        notes.mkdir()
        function = Tokens(notes, {PAUSED: pause})
        job = TokenJob(spark, tmp_path, backend=BACKENDS[backend], function=function, output=TOKEN_OUTPUT)
        for rows in BATCHES:
            job.add(*rows)
        return job

    def check(self) -> None:
        assert note(self.directory / "notes", "second", PAUSED).exists(), "the row was processed once only"
        newest = check_chains(self.rows(), BATCHES)
        check_state(self.directory / "state", newest, UID)


def stage_attempts(spark: SparkSession, group: str) -> int:
    """The largest number of attempts of a stage of this job group."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return max(stage.currentAttemptId for stage in stages if stage is not None) + 1


def test_a_stage_that_is_tried_again_after_its_shuffle_was_lost_leaves_state_and_output_of_one_attempt(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = TokenJob.of(spark, tmp_path, LOSE_SHUFFLE, "rocksdb")
    query = job.run()
    assert stage_attempts(spark, str(query.runId)) > 1, "Spark has made the lost shuffle files again"
    job.check()


@contextmanager
def in_the_pause(job: TokenJob, act: Any) -> Iterator[None]:
    """Call `act` while the row is being processed for the first time, then let it go on."""
    notes = job.directory / "notes"
    failures: list[BaseException] = []

    def wait_and_act() -> None:
        try:
            assert wait_for(note(notes, "first", PAUSED)), "the row did not come"
            act()
        except BaseException as error:  # noqa: BLE001  told by the test's thread
            failures.append(error)
        finally:
            note(notes, "released", PAUSED).touch()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert failures == []


def running_tasks(spark: SparkSession) -> list[int]:
    """The ids of the task attempts that run."""
    store = spark.sparkContext._jsc.sc().statusStore()
    found: list[int] = []
    for stage in spark.sparkContext.statusTracker().getActiveStageIds():
        attempt = store.lastStageAttempt(stage)
        tasks = store.taskList(stage, attempt.attemptId(), 1000)
        found += [task.taskId() for task in map(tasks.apply, range(tasks.size())) if task.status() == "RUNNING"]
    return found


def test_a_task_attempt_that_is_killed_is_tried_again_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill() -> None:
        context: Any = spark.sparkContext._jsc.sc()
        killed.extend(t for t in running_tasks(spark) if context.killTaskAttempt(t, True, "the test"))
        assert killed

    job = TokenJob.of(spark, tmp_path, UNTIL_RELEASED)
    with in_the_pause(job, kill):
        job.run()
    job.check()


def test_a_cancelled_job_fails_the_query_and_the_restart_redoes_the_batch_as_a_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    def cancel() -> None:
        for stage in spark.sparkContext.statusTracker().getActiveStageIds():
            spark.sparkContext._jsc.sc().cancelStage(stage)

    job = TokenJob.of(spark, tmp_path, UNTIL_RELEASED)
    with in_the_pause(job, cancel), pytest.raises(Exception, match="cancelled"):
        job.run()
    assert [batch for batch, _ in job.received] == [0]
    job.run()
    job.check()
