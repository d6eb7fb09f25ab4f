"""State workers, in this process, that hear from the driver that a batch is over, before the next request comes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.state_worker_setup import rows, split
from tests.workers.summaries import grouped, summary
from tests.workers.summing_worker import SummingWorker, run, summing_worker
from varvite.changelog.working_stores.rocksdb.database import Database
from varvite.spark_integration.transport.confirmation import confirm
from varvite.spark_integration.transport.home import WorkerHome, listen, worker_name, worker_socket
from varvite.spark_integration.worker.attempt import Attempt
from varvite.storage.errors import MayHaveHappenedError
from varvite.storage.format.records import Link

WON = Link(2, "t")


@pytest.fixture(params=["hashmap", "rocksdb"])
def worker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SummingWorker]:
    with summing_worker(tmp_path, request.param) as made:
        yield made


@pytest.fixture(params=[True, False], ids=["worked-ahead", "heard-at-once"])
def works_ahead(request: pytest.FixtureRequest) -> bool:
    """Whether the worker idles between its answer and the word; on the driver's machine the word mostly comes first."""
    return request.param


def first_batch(worker: SummingWorker, *, works_ahead: bool = True) -> Attempt:
    """The attempt at slot 2, finished, on nothing: 1 and 2 are added."""
    attempt = worker.begin(2)
    assert run(attempt, 1)[0] == [1, 3]
    if works_ahead:
        worker.process.idle()
    return attempt


def operator_of(attempt: Attempt) -> str:
    return attempt.task.batch.operator.operator


def test_what_has_won_is_folded_before_the_next_request(worker: SummingWorker, works_ahead: bool) -> None:
    attempt = first_batch(worker, works_ahead=works_ahead)
    for _ in range(2):  # the second one says nothing new
        worker.process.confirm(WON, {operator_of(attempt): attempt.task.tag, "no such operator": "tag"})
    worker.process.idle()
    values, summary = run(worker.begin(3, base=WON, confirmed=attempt.task.tag), 3)
    assert (values, summary.worker_note().restored) == ([6, 10], "current")


@pytest.mark.parametrize(("base", "tag"), [(WON, "another tag"), (Link(3, "t"), None)])
def test_word_of_another_attempt_or_commit_changes_nothing(worker: SummingWorker, base: Link, tag: str | None) -> None:
    attempt = first_batch(worker)
    worker.process.confirm(base, {operator_of(attempt): tag or attempt.task.tag})
    values, summary = run(worker.begin(3, base=WON, confirmed=attempt.task.tag), 3)
    assert (values, summary.worker_note().restored) == ([6, 10], "confirmed")


def test_the_size_of_the_state_is_told_although_the_word_came_before_the_worker_was_idle(
    worker: SummingWorker, works_ahead: bool
) -> None:
    attempt = first_batch(worker, works_ahead=works_ahead)
    worker.process.confirm(WON, {operator_of(attempt): attempt.task.tag})
    worker.process.idle()
    _, summary = run(worker.begin(3, base=WON, confirmed=attempt.task.tag), 3)
    assert summary.attempt_figures().state_size is not None


def test_word_that_comes_while_the_next_batch_is_executed_changes_nothing(worker: SummingWorker) -> None:
    first = first_batch(worker)
    second = worker.begin(3, base=WON, confirmed=first.task.tag)
    list(second.process(rows(2, 3)))
    worker.process.confirm(WON, {operator_of(first): first.task.tag})
    worker.process.confirm(Link(3, "t"), {operator_of(first): second.task.tag})
    assert split(list(second.finish()))[1].error is None
    worker.process.idle()
    values, summary = run(worker.begin(4, base=Link(3, "t"), confirmed=second.task.tag), 5)
    assert (values, summary.worker_note().restored) == ([15, 21], "confirmed")


def test_a_batch_that_is_executed_again_after_it_was_over_begins_at_its_base(worker: SummingWorker) -> None:
    """As when the driver dies before Spark has noted the batch."""
    attempt = first_batch(worker)
    worker.process.confirm(WON, {operator_of(attempt): attempt.task.tag})
    values, summary = run(worker.begin(3), 10)
    assert (values, summary.worker_note().restored) == ([10, 21], "restored")


def test_a_fold_that_fails_between_requests_costs_the_state_and_not_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MayHaveHappenedError("the disk is full")

    with summing_worker(tmp_path, "rocksdb") as worker:
        attempt = first_batch(worker)
        with monkeypatch.context() as patched:
            patched.setattr(Database, "write", fail)
            worker.process.confirm(WON, {operator_of(attempt): attempt.task.tag})
        values, summary = run(worker.begin(3), 10)
        assert (values, summary.worker_note().restored) == ([10, 21], "restored")


def test_nobody_is_waited_for(tmp_path: Path) -> None:
    """Neither who is gone, nor who does not listen, nor who accepts nobody."""
    home = WorkerHome(tmp_path / "home")
    home.create()
    homes = [str(home.path), str(tmp_path / "gone"), "", str(home.path)]
    summaries = grouped(summary(partition=p, home=where) for p, where in enumerate(homes))
    with listen(home, worker_socket(worker_name("job", 0))) as server:
        server.listen(0)
        for _ in range(5):
            confirm(summaries, "job", WON)
        connection, _ = server.accept()
        connection.close()
    confirm(summaries, "job", WON)
