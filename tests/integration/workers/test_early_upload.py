"""A state worker, in this process, whose attempts upload parts of their changes early and then win, fail or go away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.state_worker_setup import eventually, rows
from tests.workers.summing_worker import SummingWorker, run, summing_worker
from varvite.spark_integration.worker.attempt import Attempt
from varvite.storage.format.records import Link
from varvite.storage.object_stores.open import open_store
from varvite.storage.object_stores.prefixed import PrefixedStore


@pytest.fixture(params=["hashmap", "rocksdb"])
def worker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SummingWorker]:
    with summing_worker(tmp_path, request.param, preemptive_persist_threshold_bytes=1) as made:
        yield made


def uploaded(worker: SummingWorker, attempt: Attempt) -> list[str]:
    """Objects that an attempt has uploaded."""
    store = PrefixedStore(open_store(worker.storage_url), "job")
    return [meta.name for meta in store.list("seg/") if attempt.task.tag in meta.name]


def no_upload_thread() -> bool:
    return not any(thread.name.startswith("varvite-upload") for thread in threading.enumerate())


def test_an_attempt_that_wins_has_all_its_parts_in_the_next_batch(worker: SummingWorker) -> None:
    first = worker.begin(2)
    values, summary = run(first, 1, 3, 5)
    assert values == [1, 3, 6, 10, 15, 21]
    assert [one.name for one in summary.uploaded] == uploaded(worker, first)
    assert (len(summary.uploaded), summary.inline, summary.mutations) == (3, b"", 6)
    assert summary.uploads is not None
    assert (summary.uploads.requests, summary.uploads.failures) == (3, 0)
    assert sorted(end.size_bytes for end in summary.uploads.ended) == sorted(s.length for s in summary.uploaded)
    assert eventually(no_upload_thread, 20)
    worker.process.idle()
    second = worker.begin(3, base=Link(2, "t"), confirmed=first.task.tag)
    values, summary = run(second, 7)
    assert (values, summary.worker_note().restored) == ([28, 36], "confirmed")
    assert summary.uploads is not None
    assert summary.uploads.requests == 1, "only what was uploaded since the last summary"
    assert summary.attempt_figures().state_size is not None


def test_an_attempt_whose_pump_goes_away_leaves_neither_state_nor_threads(worker: SummingWorker) -> None:
    for _ in range(2):
        gone = worker.begin(2)
        for first in (1, 3, 5):
            list(gone.process(rows(2, first)))
        gone.abort()
        assert eventually(no_upload_thread, 20)
    values, _ = run(worker.begin(2), 1, 3)
    assert values == [1, 3, 6, 10]


def test_a_user_error_after_parts_were_uploaded_leaves_neither_state_nor_threads(worker: SummingWorker) -> None:
    first = worker.begin(2)
    run(first, 1, 3)
    failing = worker.begin(3, base=Link(2, "t"), confirmed=first.task.tag)
    values, summary = run(failing, 5, 12, 20)
    assert values == [15, 21, 33]
    assert summary.error is not None
    assert summary.error.exception_type == "builtins.ArithmeticError"
    assert (summary.uploaded, summary.inline) == ((), b"")
    assert eventually(no_upload_thread, 20)
    values, _ = run(worker.begin(3, base=Link(2, "t"), confirmed=first.task.tag), 5)
    assert values == [15, 21]
