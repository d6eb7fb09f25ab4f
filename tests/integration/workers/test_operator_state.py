"""Non-keyed state in real state workers: pending until confirmed, written when it changed, restored from images."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from tests.jobs.worker_job import FUNCTION, INSTANCES, Held, Operation, WorkerJob
from varvite.changelog.api.descriptors import ListStateDescriptor
from varvite.changelog.operator_state import image as operator_image
from varvite.spark_integration.functions.checkpointed import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.functions.vectorized import VectorizedProcessFunction
from varvite.spark_integration.messages import requested_store
from varvite.spark_integration.worker.state.stores import WorkingStores
from varvite.storage.errors import CorruptDataError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.format.records import JobStorage
from varvite.storage.transfer.download import DownloadPolicy

if TYPE_CHECKING:
    from varvite.spark_integration.messages.protocol import OperatorRequest

ADD_1, ADD_2 = Operation("add", 1), Operation("add", 2)


@pytest.fixture(params=[True, False], ids=["changelog", "no changelog"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WorkerJob]:
    thresholds = gc.get_threshold()
    made = WorkerJob(tmp_path, changelog=request.param)
    yield made
    made.close()
    gc.set_threshold(*thresholds)


def test_an_attempt_that_was_not_confirmed_leaves_nothing(job: WorkerJob) -> None:
    job.start(1)
    job.commit({0: [ADD_1, Operation("raw", 5)]})
    for _ in range(2):
        summary = job.attempt(0, [ADD_2, Operation("union", 3), Operation("rule", 4), Operation("raw", 6)])
        assert summary.image
        assert INSTANCES[0].held() != job.model[0]
    job.commit({})
    assert job.held() == job.model == [Held(items=[1], streams=[b"5"])]


def test_a_user_error_leaves_nothing(job: WorkerJob) -> None:
    job.start(1)
    job.commit({0: [ADD_1]})
    summary = job.attempt(0, [ADD_2, Operation("fail"), ADD_2])
    assert summary.error is not None
    assert (summary.error.exception_type, summary.image) == ("builtins.ArithmeticError", b"")
    job.commit({})
    assert job.held() == [Held(items=[1])]


def test_an_error_in_snapshot_state_is_a_user_error(job: WorkerJob, monkeypatch: pytest.MonkeyPatch) -> None:
    job.start(1)
    job.commit({0: [ADD_1]})
    monkeypatch.setattr(INSTANCES[0], "snapshot_state", lambda _: {}["missing"])
    summary = job.attempt(0, [ADD_2])
    assert summary.error is not None
    assert (summary.error.exception_type, summary.error.where) == ("builtins.KeyError", "in snapshot_state")
    job.commit({})
    assert job.held() == [Held(items=[1])]


def test_only_what_changed_is_written(job: WorkerJob) -> None:
    job.start(2)
    commit = job.commit({0: [ADD_1]})
    assert [part.image is not None for part in commit.parts] == [True, False]
    commit = job.commit({1: [ADD_1]})
    assert [part.image is not None for part in commit.parts] == [False, True]
    commit = job.commit({0: [Operation("clear"), ADD_1]})
    assert [part.image is not None for part in commit.parts] == [False, False], "it is what it was"
    commit = job.commit({0: [Operation("clear")]})
    assert [part.image is not None for part in commit.parts] == [True, False], "that it is empty has to be known"
    job.lose_worker(0)
    job.commit({})
    assert job.held() == job.model


def test_partitions_with_equal_state_share_an_image(job: WorkerJob) -> None:
    job.start(3)
    commit = job.commit({partition: [Operation("rule", 7)] for partition in range(3)})
    assert len({part.image for part in commit.parts}) == 1
    for partition in range(3):
        job.lose_worker(partition)
    job.commit({})
    assert job.held() == job.model


def test_a_worker_that_dies_in_the_run_gets_its_own_union_list_again(job: WorkerJob) -> None:
    job.start(2)
    job.commit({0: [Operation("union", 1)], 1: [Operation("union", 2)]})
    job.lose_worker(0)
    job.commit({})
    assert [held.offsets for held in job.held()] == [[[1, 1]], [[2, 2]]]
    job.start(2)
    job.commit({})
    assert [held.offsets for held in job.held()] == [[[1, 1], [2, 2]]] * 2


def test_a_new_run_makes_the_function_anew_in_the_same_worker(job: WorkerJob) -> None:
    job.start(1)
    first = job.commit({0: [ADD_1]})
    instance = INSTANCES[0]
    assert instance.restored_from is None
    job.commit({})
    assert INSTANCES[0] is instance
    job.start(1, keep_workers=True)
    job.commit({})
    assert INSTANCES[0] is not instance
    assert INSTANCES[0].restored_from == first.seq + 1
    assert job.held() == job.model


def test_a_batch_that_is_executed_again_begins_with_the_same_redistribution(job: WorkerJob) -> None:
    job.start(2)
    job.commit({0: [ADD_1, ADD_2, Operation("union", 1)], 1: [Operation("union", 2)]})
    job.start(3)
    job.attempt(1, [ADD_2])
    job.commit({0: [Operation("union", 3)]})
    assert job.held() == job.model
    job.start(3, redo=True)
    job.lose_worker(2)
    job.commit({})
    assert job.held() == job.model
    assert [held.offsets for held in job.held()] == [[[1, 1], [2, 2]]] * 3


def test_a_worker_that_outlives_a_rescaling_redoes_the_batch(job: WorkerJob) -> None:
    """Its partition did not exist at the base, so no tag can have won there."""
    job.start(2)
    job.commit({0: [ADD_1]})
    job.start(3)
    job.commit({2: [ADD_2]})
    job.start(3, redo=True, keep_workers=True)
    job.commit({})
    assert job.held() == job.model


OTHER_STORAGES: dict[str, dict[str, Any]] = {
    "options": {"storage_options": {"key": "rotated"}},
    "key provider": {"key_provider": "keys:another"},
    "job storage": {"job_storage": JobStorage()},
}


@pytest.mark.parametrize("other", OTHER_STORAGES.values(), ids=OTHER_STORAGES)
def test_a_new_run_reaches_the_storage_as_it_says_in_the_same_worker(
    tmp_path: Path, other: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[dict[str, Any]] = []
    make, open_store = requested_store.JobStore, requested_store.open_store

    def opens(url: str, options: dict[str, Any]) -> Any:
        opened.append({"storage_options": options})
        return open_store(url)

    def makes(root: Any, job: str, *, facts: Any, key_provider: Any) -> Any:
        opened[-1] |= {"job_storage": facts.storage, "key_provider": key_provider}
        return make(root, job, facts=facts)

    monkeypatch.setattr(requested_store, "open_store", opens)
    monkeypatch.setattr(requested_store, "JobStore", makes)
    thresholds = gc.get_threshold()
    job = WorkerJob(tmp_path)
    try:
        job.start(1)
        job.commit({0: [ADD_1]})
        job.start(1, keep_workers=True)
        assert job.attempt(0, []).worker_note().restored == "confirmed", "it goes on with what it has"
        assert opened == [{"storage_options": {}, "job_storage": None, "key_provider": None}]
        job.commit({})
        job.store_at(tmp_path / "state", **other)
        job.start(1, keep_workers=True)
        job.commit({0: [ADD_2]})
        assert opened[1:] == [{**opened[0], **other}]
        assert job.held() == job.model
    finally:
        job.close()
        gc.set_threshold(*thresholds)


def test_a_restore_keeps_to_the_limits_of_the_run_that_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that outlived its query kept to those of its first request."""
    limits: list[DownloadPolicy] = []
    restore = WorkingStores.restore

    def noted(stores: WorkingStores, request: OperatorRequest, *given: Any) -> Any:
        limits.append(request.downloads)
        return restore(stores, request, *given)

    monkeypatch.setattr(WorkingStores, "restore", noted)
    thresholds = gc.get_threshold()
    job = WorkerJob(tmp_path, changelog=False)
    try:
        for limit in (DownloadPolicy(2, 1 << 20), DownloadPolicy(7, 3 << 20)):
            job.store_at(tmp_path / "state", downloads=limit)
            job.start(1, keep_workers=True)
            job.attempt(0, [ADD_1])  # the changelog is off: it folds, and is not committed
            job.commit({0: [ADD_2]})
        assert limits[0] == DownloadPolicy(2, 1 << 20)
        assert limits[-1] == DownloadPolicy(7, 3 << 20)
        assert job.held() == job.model
    finally:
        job.close()
        gc.set_threshold(*thresholds)


class Totals(VectorizedProcessFunction, CheckpointedFunction):
    """Yields the sum of all numbers of the instance so far, which it keeps in a list."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("total", "bigint"))
        self.total = sum(self.state)

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> pa.Table:
        del ctx
        self.total += sum(batch.column("number").to_pylist())
        return pa.table({"value": [self.total]})

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        del context
        self.state.update([self.total])


def test_a_vectorised_function_may_have_non_keyed_state(tmp_path: Path) -> None:
    thresholds = gc.get_threshold()
    job = WorkerJob(tmp_path, function=cloudpickle.dumps(Totals()), vectorized=True)
    try:
        job.start(2)
        job.commit({0: [ADD_1, ADD_2], 1: [ADD_2]})
        job.start(1)
        (total,) = job.yielded(0, [ADD_2])
        assert total == 3 + 2 + 2
    finally:
        job.close()
        gc.set_threshold(*thresholds)


class Ignoring(KeyedProcessFunction[Any, Any, Any]):
    """Asks for no state."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        del value, ctx


def test_a_union_list_that_nobody_asks_for_does_not_grow(tmp_path: Path) -> None:
    thresholds = gc.get_threshold()
    job = WorkerJob(tmp_path)
    try:
        job.start(2)
        job.commit({0: [Operation("union", 1)], 1: [Operation("union", 2), Operation("union", 3)]})
        job.function = cloudpickle.dumps(Ignoring())
        for parallelism in (2, 3, 1, 2):
            job.start(parallelism)
            job.commit({})
            job.commit({})
        job.function = FUNCTION
        job.start(2)
        job.commit({})
        assert [sorted(held.offsets) for held in job.held()] == [[[1, 1], [2, 2], [3, 3]]] * 2
    finally:
        job.close()
        gc.set_threshold(*thresholds)


class TestLargeState:
    @pytest.fixture
    def job(self, tmp_path: Path) -> Iterator[WorkerJob]:
        thresholds = gc.get_threshold()
        made = WorkerJob(tmp_path, inline_bytes_max=0)
        made.start(2)
        yield made
        made.close()
        gc.set_threshold(*thresholds)

    def test_it_is_uploaded_under_the_attempts_own_name(self, job: WorkerJob) -> None:
        lost = job.attempt(0, [ADD_1])
        commit = job.commit({0: [ADD_1, ADD_2]})
        place = commit.parts[0].image_uploaded
        assert place is not None
        assert place.name == layout.image(commit.seq, "count", 0, commit.parts[0].tag)
        assert lost.image_uploaded is not None
        job.collect()
        assert [meta.name for meta in job.store.list(layout.SEGMENTS)] == [place.name]
        job.lose_worker(0)
        job.commit({})
        assert job.held() == job.model

    def test_a_new_run_on_another_storage_uploads_there_from_the_same_worker(
        self, job: WorkerJob, tmp_path: Path
    ) -> None:
        """The first storage is full, its objects were copied, and the query goes on in the same Spark application."""
        job.commit({0: [ADD_1]})
        shutil.copytree(tmp_path / "state", tmp_path / "moved")
        shutil.move(tmp_path / "state", tmp_path / "before")
        job.store_at(tmp_path / "moved")
        job.start(2, keep_workers=True)
        place = job.commit({0: [ADD_2]}).parts[0].image_uploaded
        assert place is not None
        assert job.store.get(place.name)
        assert not (tmp_path / "state").exists()
        for partition in range(2):
            job.lose_worker(partition)
        job.commit({})
        assert job.held() == job.model

    def test_what_cannot_be_read_is_named(self, job: WorkerJob) -> None:
        commit = job.commit({0: [ADD_1]})
        place = commit.parts[0].image_uploaded
        assert place is not None
        body = bytearray(job.store.get(place.name))
        body[-1] ^= 1
        job.store.put(place.name, bytes(body))
        job.lose_worker(0)
        with pytest.raises(CorruptDataError) as caught:
            job.begin(0)
        assert caught.value.context["object_name"] == place.name
        job.store.delete([place.name])
        with pytest.raises(MissingObjectError) as caught:
            job.begin(0)
        assert place.name in str(caught.value.context["object_name"])

    def test_more_than_its_limit_is_a_user_error(self, job: WorkerJob, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operator_image, "IMAGE_BYTES_MAX", 500)
        summary = job.attempt(0, [ADD_1] * 500)
        assert summary.error is not None
        assert summary.error.exception_type == "varvite.storage.errors.InvalidRequestError"
        assert "keyed state" in summary.error.message
        job.commit({0: [ADD_1]})
        assert job.held() == job.model
