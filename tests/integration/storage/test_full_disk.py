"""Disks that are full or read-only: the storage's, a state worker's, a materializer's; and a bucket at its quota.

Nothing that was acknowledged is lost, the error says what to do, and the job goes on when the disk can be written.
"""

from __future__ import annotations

import random
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from benchmarks.harness.servers import ceph
from tests.jobs.committing_job import CommittingJob, random_batch, restored_cells
from tests.jobs.materializer_world import World
from tests.jobs.worker_job import Operation, WorkerJob
from tests.stores.small_disk import SmallDisk, small_disk
from varvite.changelog.api.descriptors import MapStateDescriptor
from varvite.changelog.types.factory import Types
from varvite.materializer.monitoring.events import Failed
from varvite.materializer.verify.verifier import verify
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, RetryableError, VarviteError
from varvite.storage.job.preflight import check_store
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.prefixed import PrefixedStore
from varvite.storage.object_stores.remote.store import RemoteStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stores.s3_servers import S3Server
    from varvite.spark_integration.functions.keyed import RuntimeContext
    from varvite.storage.object_stores.contract import ObjectStore

NO_ROOM = "the storage is full: free space or raise the quota"
FULL, READ_ONLY = "disk is full: free space", "read-only: mount it writable"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as found:
        yield found


def preflight(store: ObjectStore) -> None:
    check_store(store, SystemTokens(), SystemClock())


def committed(job: CommittingJob, rng: random.Random, batches: int, **options: Any) -> None:
    for _ in range(batches):
        job.commit(random_batch(rng), **options)


def check(job: CommittingJob, directory: Path) -> None:
    """All that was acknowledged is there, and nothing is damaged."""
    assert job.run is not None
    base = job.run.state.base
    assert base is not None
    assert base.batch == job.batch - 1
    assert restored_cells(job.store, job.run.record.job_id, base.link, directory) == job.model.cells()
    assert verify(job.store, job.name, SystemClock(), SystemTokens()).problems == []


def test_a_full_storage_is_told_before_the_first_batch(disk: SmallDisk) -> None:
    store = LocalStore(disk.path / "state")
    disk.fill()
    with pytest.raises(DidNotHappenError, match=FULL):
        preflight(store)
    disk.free()
    preflight(store)


def test_a_read_only_storage_is_told_before_the_first_batch(disk: SmallDisk) -> None:
    store = LocalStore(disk.path / "state")
    disk.make_read_only()
    with pytest.raises(InvalidRequestError, match=READ_ONLY):
        preflight(store)
    disk.make_writable()
    preflight(store)


@pytest.mark.parametrize("upload", [False, True])
def test_a_storage_that_fills_up_loses_nothing_and_the_job_goes_on(
    disk: SmallDisk, tmp_path: Path, upload: bool
) -> None:
    job, rng = CommittingJob(PrefixedStore(LocalStore(disk.path), "job"), SystemClock()), random.Random(3)
    job.start()
    committed(job, rng, 7, upload=upload)
    disk.fill()
    with pytest.raises(RetryableError, match=FULL):
        committed(job, rng, 1, upload=upload)
    with pytest.raises(RetryableError, match=FULL):
        job.start()
    disk.free()
    job.start()
    check(job, tmp_path / "before")
    committed(job, rng, 6, upload=upload)
    check(job, tmp_path / "restored")
    job.close()


@pytest.mark.s3
def test_a_bucket_at_its_quota_loses_nothing_and_the_job_goes_on(ceph_cluster: ceph.Ceph, tmp_path: Path) -> None:
    """Ceph answers 403, and refuses so even to create what is there; what was written is read as before."""
    bucket = f"quota-{uuid.uuid4().hex}"
    ceph_cluster.make_bucket(bucket)
    store = RemoteStore(f"s3://{bucket}/root", ceph_cluster.storage_options())
    job, rng = CommittingJob(PrefixedStore(store, "job"), SystemClock()), random.Random(5)
    job.start()
    committed(job, rng, 4)
    ceph_cluster.limit_objects(bucket, len(store.list("")))
    with pytest.raises(RetryableError, match=NO_ROOM):
        committed(job, rng, 1)
    with pytest.raises(RetryableError, match=NO_ROOM):
        job.start()
    with pytest.raises(DidNotHappenError, match=NO_ROOM):
        preflight(store)
    ceph_cluster.limit_objects(bucket, None)
    job.start()
    check(job, tmp_path / "before")
    committed(job, rng, 4)
    check(job, tmp_path / "restored")
    job.close()


def test_a_storage_that_becomes_read_only_loses_nothing_and_the_job_goes_on(disk: SmallDisk, tmp_path: Path) -> None:
    job, rng = CommittingJob(PrefixedStore(LocalStore(disk.path), "job"), SystemClock()), random.Random(4)
    job.start()
    committed(job, rng, 4)
    job.close()
    disk.make_read_only()
    with pytest.raises(InvalidRequestError, match=READ_ONLY):
        job.start()
    disk.make_writable()
    job.start()
    committed(job, rng, 4)
    check(job, tmp_path / "restored")
    job.close()


def test_a_materializer_whose_working_directory_is_full_goes_on_when_it_is_not(disk: SmallDisk, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.commit(5, upload=True)
    sidecar = world.sidecar(place="disk")
    disk.fill()
    assert not sidecar.fold()
    failed = sidecar.events.of(Failed)
    assert failed
    assert all("disk is full: free space" in event.error for event in failed), failed
    world.commit(5, upload=True)  # the job does not mind
    disk.free()
    assert sidecar.fold(), sidecar.events.all
    world.commit(2)
    assert world.job.adopted
    world.check()
    world.close()


def test_a_materializer_on_a_full_storage_goes_on_when_it_is_not(disk: SmallDisk, tmp_path: Path) -> None:
    world = World(tmp_path, LocalStore(disk.path))
    world.commit(5, upload=True)
    sidecar = world.sidecar(place="work")
    disk.fill()
    assert not sidecar.fold()
    failed = sidecar.events.of(Failed)
    assert failed
    assert all(FULL in event.error for event in failed), failed
    disk.free()
    assert sidecar.fold(), sidecar.events.all
    world.commit(2)
    assert world.job.adopted
    world.check()
    world.close()


class Keeper(KeyedProcessFunction[Any, Any, Any]):
    """Keeps a large value under every number, and yields how many it has."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.kept = runtime_context.get_map_state(MapStateDescriptor("kept", Types.LONG(), Types.STRING()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        self.kept.put(value.number, random.Random(value.number).randbytes(50_000).hex())
        yield len(list(self.kept.keys()))


@pytest.mark.s3
def test_a_download_to_a_full_disk_says_whose_disk(disk: SmallDisk, moto_server: S3Server, tmp_path: Path) -> None:
    store = RemoteStore(moto_server.new_location(), moto_server.storage_options())
    (tmp_path / "source").write_bytes(bytes(1 << 20))
    store.put_file("file", tmp_path / "source")
    disk.fill()
    with pytest.raises(DidNotHappenError, match=FULL) as raised:
        store.get_file("file", disk.path / "file")
    assert str(disk.path) in str(raised.value)
    disk.free()
    store.get_file("file", disk.path / "file")
    assert (disk.path / "file").stat().st_size == 1 << 20
    assert [path.name for path in disk.path.iterdir()] == ["file"]


def kept(number: int) -> list[Operation]:
    return [Operation("add", number)]


def test_a_worker_whose_local_disk_is_full_fails_its_batch_and_goes_on_when_it_is_not(
    disk: SmallDisk, tmp_path: Path
) -> None:
    job = WorkerJob(tmp_path, home=disk.path / "home", backend="rocksdb", function=cloudpickle.dumps(Keeper()))
    job.start(1)
    for number in range(5):
        job.commit({0: kept(number)})
    job.lose_worker(0)
    shutil.rmtree(disk.path / "home" / "state")  # what it has there already would be made room of
    disk.fill()
    with pytest.raises(VarviteError, match=FULL) as raised:
        job.attempt(0, kept(5))
    assert isinstance(raised.value, RetryableError)
    disk.free()
    assert job.yielded(0, kept(5)) == [6]
    for number in range(5, 10):
        job.commit({0: kept(number)})
    # Full while the worker runs: it goes on in memory, or its batch fails.
    disk.fill()
    with suppress(RetryableError):
        while job.batch < 40:
            job.commit({0: kept(job.batch)})
    disk.free()
    job.lose_worker(0)
    job.start(1)
    assert job.yielded(0, kept(job.batch)) == [job.batch + 1]
    job.close()
