"""Local recovery with real processes: what SIGKILL leaves on the disk is gone on with, and no snapshot is read."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from tests.jobs.materializer_world import Events
from tests.jobs.worker_job import Operation, WorkerJob, element_rows
from tests.workers.probe import kill_worker, probe
from tests.workers.state_worker_setup import Executor, alive, eventually, split
from varvite.changelog.api.descriptors import ValueStateDescriptor
from varvite.changelog.chain.view import LineView
from varvite.changelog.commit.adopt_decision import decide_adoption
from varvite.changelog.commit.plan import Adoption
from varvite.changelog.restore.local import LocalRecovery
from varvite.changelog.retention.snapshots import SnapshotReader
from varvite.changelog.types.factory import Types
from varvite.materializer.options.materializer_config import MaterializerConfig
from varvite.materializer.resources.stop_signal import StopSignal
from varvite.materializer.service.loop import run_materializer
from varvite.spark_integration.functions.keyed import KeyedProcessFunction, RuntimeContext
from varvite.spark_integration.functions.pickling import ShippedFunction
from varvite.spark_integration.messages.summary import Summary
from varvite.spark_integration.transport.connection import WorkerLaunch
from varvite.storage.format import layout
from varvite.storage.format.records import SnapshotFloor

FACTORY = WorkerLaunch().factory
ONE: Sequence[Operation] = (Operation("add", 1),)


class Counting(KeyedProcessFunction[Any, Any, Any]):
    """Yields how many elements of the key there were."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int]]:
        del value, ctx
        count = (self.state.value() or 0) + 1
        self.state.update(count)
        yield (count,)


FUNCTION = cloudpickle.dumps(Counting())


class ProcessJob(WorkerJob):
    """A job of one partition whose state worker is a process of an executor."""

    def __init__(self, directory: Path, executor: Executor) -> None:
        super().__init__(directory, function=FUNCTION)
        self.directory = directory
        self.shipped = ShippedFunction(hashlib.sha256(FUNCTION).hexdigest(), FUNCTION, {})
        self._operator |= {
            "backend": "rocksdb",
            "function_hash": self.shipped.function_hash,
        }
        self.set_directory(directory / "local")
        self.adoption = self._adopt
        self.start(1)
        self.use(executor)

    def set_directory(self, directory: Path) -> None:
        """Of the host."""
        self._operator["local_recovery"] = LocalRecovery(directories=(str(directory),), flush_interval_ms=0)

    def use(self, executor: Executor) -> None:
        """Execute there from now on."""
        self.executor = executor
        executor.job_id = self.job.record.job_id
        executor.use(FACTORY)

    def count(self) -> tuple[int, str]:
        """Commit a batch of one element; the count that it gave, and how the worker came to the base."""
        self.commit({0: ONE})
        return self.last

    def materialize(self) -> None:
        """A snapshot of all but the newest batch; the next commit adopts it."""
        url, place = str(self.directory / "state"), self.directory / "materializer"
        config = MaterializerConfig(storage_url=url, job="job", working_directory=place)
        assert run_materializer(config, Events(), StopSignal(), once=True)

    def lose_snapshots(self) -> None:
        """Delete the files of all snapshots: whoever reads one fails."""
        names = [meta.name for meta in self.store.list(layout.SNAPSHOT_FILES)]
        assert names
        self.store.delete(names)

    def _executed(self, partition: int, operations: Sequence[Operation]) -> tuple[list[int], Summary]:
        rows = element_rows(operations, partition, self.parallelism)
        values, summary = split(self.executor.stream(self.task(partition), [rows], self.shipped))
        self.last = values[0], summary.worker_note().restored
        return values, summary

    def _adopt(self, view: LineView, floors: tuple[SnapshotFloor, ...]) -> Adoption:
        job_id = self.job.record.job_id
        reader = SnapshotReader(self.store, job_id)
        return decide_adoption(view, floors, reader.candidates(floors), reader.tile_files(view), job_id)


class Hosts:
    """Executors of one host, one after the other or at the same time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._all: list[Executor] = []

    def executor(self) -> Executor:
        made = Executor(self._directory / f"executor-{len(self._all)}")
        self._all.append(made)
        return made

    def kill(self, executor: Executor) -> None:
        """SIGKILL of the executor's JVM: its processes end, and its directory with the sockets goes."""
        report = probe(executor.home)
        assert report is not None
        pids = [report.pid, *(worker.pid for worker in report.workers)]
        executor.jvm.send_signal(signal.SIGKILL)
        assert eventually(lambda: not any(alive(pid) for pid in pids), 20)
        assert eventually(lambda: not executor.home.path.exists(), 20)

    def end(self) -> None:
        for executor in self._all:
            report = probe(executor.home) if executor.home.path.exists() else None
            executor.end()
            pids = [] if report is None else [report.pid, *(worker.pid for worker in report.workers)]
            assert eventually(lambda pids=pids: not any(alive(pid) for pid in pids), 20)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    yield made
    made.end()


@pytest.fixture
def job(tmp_path: Path, hosts: Hosts) -> Iterator[ProcessJob]:
    made = ProcessJob(tmp_path, hosts.executor())
    yield made
    made.close()


def flushed(job: ProcessJob) -> None:
    """Wait until the worker has done what it does between two batches."""
    table = job.directory / "local"
    newest = max(path.stat().st_mtime_ns for path in table.rglob("*") if path.is_file())
    eventually(lambda: time.time_ns() - newest > 100_000_000, 5)


def adopted(job: ProcessJob) -> None:
    """Batches until the state has a snapshot, which the worker's own files do not need."""
    for _ in range(3):
        job.count()
    job.materialize()
    job.count()
    assert any(tile.snapshot is not None for tile in job.job.state.view.tiles)
    job.count()
    job.lose_snapshots()


def test_a_killed_worker_goes_on_with_its_directory(job: ProcessJob) -> None:
    adopted(job)
    for count in (6, 7):
        flushed(job)
        assert kill_worker(job.executor.home, job.executor.worker)
        assert job.count() == (count, "caught-up")
    assert job.count() == (8, "confirmed")


@pytest.mark.long
def test_another_executor_on_the_host_goes_on_with_the_directory_of_a_killed_one(job: ProcessJob, hosts: Hosts) -> None:
    adopted(job)
    flushed(job)
    hosts.kill(job.executor)
    job.use(hosts.executor())
    assert job.count() == (6, "caught-up")
    job.start(1)
    flushed(job)
    hosts.kill(job.executor)
    job.use(hosts.executor())
    assert job.count()[0] == 7, "a new run of the driver finds it, too"


@pytest.mark.long
def test_two_executors_never_use_one_directory(job: ProcessJob, hosts: Hosts) -> None:
    """The first one's worker is idle, as one of an executor that the driver has given up would be."""
    for _ in range(3):
        job.count()
    job.materialize()
    job.count()
    zombie = job.executor
    job.use(hosts.executor())
    assert job.count() == (5, "restored")
    ranges = [path for path in (job.directory / "local").glob("varvite-*/*/*/*/*") if path.is_dir()]
    assert sorted(path.name for path in ranges) == ["0", "1"]
    job.use(zombie)
    assert job.count() == (6, "caught-up"), "it comes back to an older state in memory"


def test_an_executor_on_another_host_takes_over_what_a_standby_has_followed(job: ProcessJob, hosts: Hosts) -> None:
    other_host = job.directory / "other host"
    command = ["standby", "job", "--storage", str(job.directory / "state"), "--directory", str(other_host)]
    program = "from varvite.materializer.commands.cli import main; main()"
    standby = subprocess.Popen(
        [sys.executable, "-c", program, *command, "--poll", "100 ms", "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert standby.stdout is not None
        for _ in range(3):
            job.count()
        assert json.loads(standby.stdout.readline())["how"] == "restored"
        job.materialize()
        job.count()
        job.count()
        assert eventually(lambda: bool(list(other_host.glob("varvite-*/*/*/*/0"))), 20)
        job.lose_snapshots()
        hosts.kill(job.executor)
        job.set_directory(other_host)
        job.use(hosts.executor())
        assert job.count() == (6, "caught-up")
        assert json.loads(standby.stdout.readline())["how"] == "held"
    finally:
        standby.terminate()
        standby.communicate(timeout=30)
    assert standby.returncode == 0
