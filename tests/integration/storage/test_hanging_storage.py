"""State workers whose storage fails, answers late or never: the batch fails, and no later one does."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from tests.jobs.worker_job import Operation, WorkerJob
from tests.workers.state_worker_setup import eventually
from varvite.changelog.api.descriptors import ListStateDescriptor
from varvite.spark_integration.functions.keyed import KeyedProcessFunction, RuntimeContext
from varvite.spark_integration.messages import requested_store
from varvite.storage import attempt_threads
from varvite.storage.errors import DidNotHappenError, MayHaveHappenedError, RetryableError
from varvite.storage.format import layout
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.transfer.upload import CONCURRENT_ATTEMPTS, UploadPolicy

PATIENT = UploadPolicy(
    uploads=2, in_flight_bytes=1 << 20, hedge_after_s=60.0, deadline_s=60.0, backoff=Backoff(3, 0.001, 0.002)
)
"""For what must succeed, however slow the machine is."""
QUICK = replace(PATIENT, hedge_after_s=0.05, deadline_s=1.0)
"""For what cannot succeed."""


class Adding(KeyedProcessFunction[int, Any, tuple[int]]):
    """Yields the sum of all numbers so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.numbers = runtime_context.get_list_state(ListStateDescriptor("numbers", "bigint"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int]]:
        self.numbers.add(value.number)
        yield (sum(self.numbers.get()),)


class Unsteady(LocalStore):
    """Its puts do as they are told; those that hang go on when `gate` is opened, and are stored then."""

    mode = "good"
    gate = threading.Event()

    def put(self, name: str, data: bytes) -> None:
        if self.mode == "hangs":
            assert self.gate.wait(60)
        elif self.mode == "fails":
            raise DidNotHappenError("busy", object_name=name)
        elif self.mode == "loses replies":
            super().put(name, data)
            raise MayHaveHappenedError("lost", object_name=name)
        super().put(name, data)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unsteady]:
    """Stores that state workers open."""
    store = Unsteady(str(tmp_path / "state"))
    store.gate = threading.Event()
    monkeypatch.setattr(requested_store, "open_store", lambda *_: store)
    yield store
    store.gate.set()


@pytest.fixture
def job(tmp_path: Path, store: Unsteady) -> Iterator[WorkerJob]:
    """All its segments are uploaded."""
    thresholds = gc.get_threshold()
    job = WorkerJob(tmp_path, inline_bytes_max=0, function=cloudpickle.dumps(Adding()))
    job._operator["upload"] = PATIENT
    job.start(1)
    yield job
    job.close()
    gc.set_threshold(*thresholds)


def add(number: int) -> list[Operation]:
    return [Operation("add", number)]


def fail(job: WorkerJob, store: Unsteady, mode: str = "hangs") -> RetryableError:
    """An attempt whose uploads cannot succeed; what it raises."""
    store.mode, job._operator["upload"] = mode, QUICK
    with pytest.raises(RetryableError) as raised:
        job.attempt(0, add(10))
    store.mode, job._operator["upload"] = "good", PATIENT
    return raised.value


def hung_threads() -> int:
    return sum(thread.name == "varvite-upload-attempt" for thread in threading.enumerate())


@pytest.mark.parametrize("mode", ["hangs", "fails", "loses replies"])
def test_a_failed_upload_fails_its_batch_and_no_other(job: WorkerJob, store: Unsteady, mode: str) -> None:
    job.commit({0: add(1)})
    fail(job, store, mode)
    job.commit({0: add(100)})
    assert job.yielded(0, add(1000)) == [1101]
    job.commit({0: add(1000)})
    job.start(1, redo=True)  # the worker is new and restores
    assert job.yielded(0, add(1000)) == [1101]
    job.commit({0: add(1000)})
    store.gate.set()
    job.lose_worker(0)
    assert job.yielded(0, add(0)) == [1101]


def test_a_storage_that_never_answers_is_an_error_that_says_so(job: WorkerJob, store: Unsteady) -> None:
    job.commit({0: add(1)})
    error = fail(job, store)
    assert isinstance(error, MayHaveHappenedError)
    assert "not confirmed within 1 s (state.changelog.dstl.dfs.upload.deadline)" in str(error)


@pytest.mark.long
def test_hanging_threads_are_bounded_and_go_when_the_storage_comes_back(
    job: WorkerJob, store: Unsteady, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_threads, "LOST_MAX", 3)
    job.commit({0: add(1)})
    for _ in range(6):
        assert isinstance(fail(job, store), MayHaveHappenedError)
    assert hung_threads() <= CONCURRENT_ATTEMPTS * QUICK.uploads + 3
    store.gate.set()
    assert eventually(lambda: hung_threads() == 0, 20)
    job.commit({0: add(100)})
    assert job.yielded(0, add(0)) == [101]


def test_what_hung_uploads_hold_counts_for_later_batches_until_they_end(job: WorkerJob, store: Unsteady) -> None:
    """And stops none of them."""
    job.commit({0: add(1)})
    room = job._workers[0]._upload_resources
    assert room is not None
    held = [room.budget.given_up_bytes]
    for _ in range(3):
        fail(job, store)
        held.append(room.budget.given_up_bytes)
    assert held[0] == 0
    assert held == sorted(set(held))
    job.commit({0: add(100)})
    assert room.budget.given_up_bytes == held[-1]
    store.gate.set()
    assert eventually(lambda: room.budget.given_up_bytes == 0, 20)
    assert room.budget.taken_bytes == 0


def test_what_comes_late_is_garbage(job: WorkerJob, store: Unsteady) -> None:
    job.commit({0: add(1)})
    fail(job, store)
    job.commit({0: add(100)})
    before = {meta.name for meta in job.store.list(layout.SEGMENTS)}
    store.gate.set()
    assert eventually(lambda: hung_threads() == 0, 20)
    late = {meta.name for meta in job.store.list(layout.SEGMENTS)} - before
    assert len(late) == 1
    job.collect()
    assert late.isdisjoint(meta.name for meta in job.store.list(layout.SEGMENTS))
    job.start(1)
    assert job.yielded(0, add(0)) == [101]
