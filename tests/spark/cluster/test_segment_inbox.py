"""Jobs whose segments go to the driver directly, because it is on the same machine."""

from __future__ import annotations

import base64
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.keyed_jobs import BACKENDS, IN_MEMORY, KeyedJob, in_order, kill_state_workers
from varvite.spark_integration.driver import batch_executor
from varvite.spark_integration.messages.summary import Summary
from varvite.spark_integration.transport.segment_inbox import SegmentInbox

pytestmark = [pytest.mark.spark, pytest.mark.fixed_storage]
KEYS = [base64.b64encode(random.Random(i).randbytes(500)).decode() for i in range(400)]


@pytest.fixture
def inboxes(monkeypatch: pytest.MonkeyPatch) -> list[SegmentInbox]:
    """Those that drivers open."""
    opened: list[SegmentInbox] = []

    class Noted(SegmentInbox):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            opened.append(self)

    monkeypatch.setattr(batch_executor, "SegmentInbox", Noted)
    return opened


def job_of(spark: SparkSession, tmp_path: Path, backend: str) -> KeyedJob:
    return KeyedJob(spark, tmp_path, backend=BACKENDS[backend], changelog=True)


def handed_over(query: Any) -> list[bool]:
    """By batch, whether a segment was."""
    return ["hand_over" in s.worker_ms for s in query.checkpoint_statistics.history()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_large_segments_are_handed_over_and_restore_the_state(
    spark: SparkSession, tmp_path: Path, backend: str, inboxes: list[SegmentInbox]
) -> None:
    job = job_of(spark, tmp_path, backend)
    job.add(*[(key, i) for i, key in enumerate(KEYS)])
    job.add(("a", 1), ("b", 2))
    assert handed_over(job.run()) == [True, False]
    assert [Path(inbox.path).exists() for inbox in inboxes] == [False]
    kill_state_workers(spark)
    job.add(*[(key, i) for i, key in enumerate(KEYS)], ("a", 3))
    query = job.run()
    assert not IN_MEMORY & job.restored(query).keys()
    assert handed_over(query) == [True]
    assert job.rows() == in_order(job.expected)


def test_workers_that_find_no_inbox_send_segments_with_their_summaries(
    spark: SparkSession, tmp_path: Path, inboxes: list[SegmentInbox]
) -> None:
    job = job_of(spark, tmp_path, "hashmap")
    for _ in range(2):
        job.add(*[(key, i) for i, key in enumerate(KEYS)])

    def sink(rows: DataFrame, batch: int) -> None:
        job.collect(rows, batch)
        shutil.rmtree(inboxes[0].path, ignore_errors=True)

    assert handed_over(job.run(sink)) == [True, False]
    assert job.rows() == in_order(job.expected)


def test_a_segment_that_was_handed_over_and_is_lost_makes_the_batch_be_executed_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(spark, tmp_path, "rocksdb")
    for _ in range(2):
        job.add(*[(key, i) for i, key in enumerate(KEYS)])
    completed, asked = SegmentInbox.complete, [0]

    def losing(inbox: SegmentInbox, summary: Summary) -> Summary | None:
        asked[0] += 1
        return None if asked[0] == 4 else completed(inbox, summary)

    monkeypatch.setattr(SegmentInbox, "complete", losing)
    query = job.run()
    assert [s.attempts for s in query.checkpoint_statistics.history()] == [1, 2]
    assert job.rows() == in_order(job.expected)
