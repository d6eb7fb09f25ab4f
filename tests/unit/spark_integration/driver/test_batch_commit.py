"""Requests and commits of batches, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.workers.state_worker_setup import batch_request
from tests.workers.summaries import grouped, summary
from varvite.changelog.commit.base_decision import SparkProgress
from varvite.changelog.commit.plan import NOTHING_ADOPTED
from varvite.changelog.commit.run import JobRun
from varvite.changelog.commit.state import CommitPolicy
from varvite.spark_integration.driver.batch_commit import BatchCommitter
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.format.records import ORIGIN
from varvite.storage.object_stores.memory import MemoryStore


@pytest.fixture
def run() -> JobRun:
    opened = JobRun.open(MemoryStore(), "job", 8, CommitPolicy(), SystemClock(), SystemTokens())
    opened.take_over()
    opened.choose_base(SparkProgress(0, "query", "0" * 64, None), None)
    return opened


def committer_of(run: JobRun, *uids: str, **plan: Any) -> BatchCommitter:
    requests = [batch_request(operator=uid, key_type="long", backend="hashmap", changelog=True) for uid in uids]
    settings: Any = {
        "operators": [SimpleNamespace(uid=uid) for uid in uids],
        "config": SimpleNamespace(ignore_unclaimed_state=True),
        "input_delays": (),
        "input_ends": False,
        "watermark_delay_ms": None,
        "is_spark_watermark": False,
    }
    made = BatchCommitter(run, SimpleNamespace(**settings | plan), [r.operator for r in requests])  # type: ignore[arg-type]
    made.start("query")
    return made


def commit(committer: BatchCommitter, batch: int, tag: str, *uids: str) -> Any:
    spec = committer.spec(batch, attempt=0, time_ms=batch, commit_token=f"{batch:032x}")
    summaries = tuple(grouped([summary(operator=uid, tag=tag, low=0, high=8)])[0] for uid in uids)
    executed = committer.executed(spec, "0" * 64, summaries, {})
    return committer.commit(executed, lambda *_: NOTHING_ADOPTED).commit


def test_a_request_names_the_commit_before_and_its_winners(run: JobRun) -> None:
    committer = committer_of(run, "a", "b")
    first = committer.requests(committer.spec(0, attempt=0, time_ms=0, commit_token="t" * 32))
    assert [(r.operator.operator, r.base, r.confirmed, r.is_first) for r in first] == [
        ("a", ORIGIN, (), True), ("b", ORIGIN, (), True)
    ]  # fmt: skip
    made = commit(committer, 0, "1" * 32, "a", "b")
    second = committer.requests(committer.spec(1, attempt=2, time_ms=1, commit_token="t" * 32))
    assert [(r.base, r.confirmed, r.is_first, r.attempt, r.slot) for r in second] == [
        (made.link, ("1" * 32,), False, 2, made.seq + 1)
    ] * 2


def test_a_batch_is_committed_by_the_token_of_its_attempt(run: JobRun) -> None:
    assert commit(committer_of(run, "a"), 0, "1" * 32, "a").token == f"{0:032x}"


def test_the_end_of_the_input_has_no_watermark(run: JobRun) -> None:
    committer = committer_of(run, "a", input_ends=True)
    committer.watermark_ms = 5
    spec = committer.spec(0, attempt=0, time_ms=0, commit_token="t" * 32)
    assert (spec.watermark_ms, spec.late_watermark_ms, spec.input_ends) == (None, None, True)


def test_an_operator_that_the_job_has_no_more_is_dropped(run: JobRun) -> None:
    commit(committer_of(run, "a", "b"), 0, "1" * 32, "a", "b")
    assert [o.uid for o in commit(committer_of(run, "a"), 1, "2" * 32, "a").operators] == ["a"]
