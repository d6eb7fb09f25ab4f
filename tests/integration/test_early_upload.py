"""A state worker, in this process, whose attempts upload parts of their changes early and then win, fail or go away."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from tests.state_worker_setup import eventually, rows, split, task_request
from tests.summing import Summing
from varve.spark_integration.attempt import Attempt
from varve.spark_integration.protocol import Summary, TaskRequest
from varve.spark_integration.state_worker import StateWorker
from varve.spark_integration.worker_home import WorkerHome
from varve.storage.open_store import open_store
from varve.storage.prefixed_store import PrefixedStore
from varve.storage.records import ORIGIN, Link

FUNCTION = cloudpickle.dumps(Summing())


class Worker:
    """A state worker, and the requests to it."""

    def __init__(self, directory: Path, backend: str) -> None:
        self._operator = {
            "storage_url": str(directory / "state"), "backend": backend, "changelog": True, "key_type": "1:int",
            "key_columns": ("__varve_key_group",), "preemptive_persist_threshold_bytes": 1,
            "inline_bytes_max": 1 << 20,
        }  # fmt: skip
        self.store = PrefixedStore(open_store(str(directory / "state")), "job")
        home = WorkerHome(directory / "home")
        home.create()
        self.worker = StateWorker(0, home)

    def begin(self, slot: int, base: Link = ORIGIN, confirmed: str = "") -> Attempt:
        """A new attempt."""
        task: TaskRequest = task_request(slot=slot, **self._operator)
        batch = msgspec.structs.replace(task.batch, base=base, confirmed=(confirmed,) if confirmed else ())
        return self.worker.begin(msgspec.structs.replace(task, batch=batch), lambda: FUNCTION)

    def uploaded(self, attempt: Attempt) -> list[str]:
        """What an attempt has uploaded."""
        return [meta.name for meta in self.store.list("seg/") if attempt.task.tag in meta.name]


@pytest.fixture(params=["hashmap", "rocksdb"])
def worker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Worker]:
    thresholds = gc.get_threshold()
    made = Worker(tmp_path, request.param)
    yield made
    made.worker.close()
    gc.set_threshold(*thresholds)


def run(attempt: Attempt, *firsts: int) -> tuple[list[int], Summary]:
    """Feed an input batch of two rows from each of these numbers, and end; gives the output values and the summary."""
    answers: list[pa.RecordBatch] = []
    for first in firsts:
        answers += attempt.process(rows(2, first))
    return split([*answers, *attempt.finish()])


def no_upload_thread() -> bool:
    return not any(thread.name.startswith("varve-upload") for thread in threading.enumerate())


def test_an_attempt_that_wins_has_all_its_parts_in_the_next_batch(worker: Worker) -> None:
    first = worker.begin(2)
    values, summary = run(first, 1, 3, 5)
    assert values == [1, 3, 6, 10, 15, 21]
    assert [one.name for one in summary.uploaded] == worker.uploaded(first)
    assert (len(summary.uploaded), summary.inline, summary.mutations) == (3, b"", 6)
    assert summary.uploads is not None
    assert (summary.uploads.requests, summary.uploads.failures) == (3, 0)
    assert sorted(end.size_bytes for end in summary.uploads.ended) == sorted(s.length for s in summary.uploaded)
    assert eventually(no_upload_thread, 20)
    worker.worker.idle()
    second = worker.begin(3, base=Link(2, "t"), confirmed=first.task.tag)
    values, summary = run(second, 7)
    assert (values, summary.restored) == ([28, 36], "confirmed")
    assert summary.uploads is not None
    assert summary.uploads.requests == 1, "only what was uploaded since the last summary"
    assert summary.state_size is not None


def test_an_attempt_whose_pump_goes_away_leaves_neither_state_nor_threads(worker: Worker) -> None:
    for _ in range(2):
        gone = worker.begin(2)
        for first in (1, 3, 5):
            list(gone.process(rows(2, first)))
        gone.abort()
        assert eventually(no_upload_thread, 20)
    values, _ = run(worker.begin(2), 1, 3)
    assert values == [1, 3, 6, 10]


def test_a_user_error_after_parts_were_uploaded_leaves_neither_state_nor_threads(worker: Worker) -> None:
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
