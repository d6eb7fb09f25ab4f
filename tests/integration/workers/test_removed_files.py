"""Files of state workers are removed or damaged while they run: the state is a cache (I9), and no value changes.

A cleaner of the host did so to Kafka Streams, whose state was below the temporary directory (KAFKA-7334).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from tests.integration.workers.test_local_recovery import Hosts, ProcessJob, flushed, hosts, job
from tests.jobs.worker_job import Operation
from tests.workers.probe import kill_worker
from varvite.changelog.api.descriptors import MapStateDescriptor
from varvite.changelog.types.factory import Types
from varvite.spark_integration.functions.keyed import KeyedProcessFunction, RuntimeContext
from varvite.spark_integration.functions.pickling import ShippedFunction
from varvite.storage.errors import DidNotHappenError

__all__ = ["hosts", "job"]


def local(job: ProcessJob) -> Path:
    return job.directory / "local"


def home(job: ProcessJob) -> Path:
    return job.executor.home.path


def all_of(place: Callable[[ProcessJob], Path], *patterns: str) -> Callable[[ProcessJob], None]:
    """Removes the files below a place that have such names."""

    def remove(job: ProcessJob) -> None:
        removed = [path for pattern in patterns for path in place(job).rglob(pattern)]
        assert removed
        for path in removed:
            path.unlink()

    return remove


CLEANED: dict[str, Callable[[ProcessJob], None]] = {
    "local-state": lambda job: shutil.rmtree(local(job)),
    "sst-files": all_of(local, "*.sst"),
    "manifests": all_of(local, "MANIFEST-*", "CURRENT"),
    "locks": all_of(local, "*.lock", "LOCK"),
    "sockets": all_of(home, "*.sock"),
    "sockets-and-locks": all_of(home, "*.sock", "*.lock"),
    "home": lambda job: shutil.rmtree(home(job)),
}
QUICK = ("sst-files", "sockets-and-locks")


@pytest.mark.parametrize(
    "cleaned", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in CLEANED]
)
def test_a_cleaner_of_files_changes_no_value(job: ProcessJob, cleaned: str) -> None:
    assert [job.count()[0] for _ in range(4)] == [1, 2, 3, 4]
    flushed(job)
    CLEANED[cleaned](job)
    assert [job.count()[0] for _ in range(2)] == [5, 6], "of the same process, or of the next one"
    assert kill_worker(job.executor.home, job.executor.worker)
    assert [job.count()[0] for _ in range(2)] == [7, 8], "of another process on the same host"
    job.start(1)
    assert job.count()[0] == 9


class Lengths(KeyedProcessFunction[Any, Any, Any]):
    """Fills a map with more than is kept in memory, or reads an entry of it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.entries = runtime_context.get_map_state(MapStateDescriptor("entries", Types.LONG(), Types.STRING()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int]]:
        del ctx
        if value.what == "fill":
            for number in range(value.number, value.number + 40_000):
                self.entries.put(number, os.urandom(30).hex())
            yield (0,)
        else:
            yield (len(self.entries.get(value.number)),)


class LengthsJob(ProcessJob):
    """A job of `Lengths`."""

    def __init__(self, directory: Path, hosts: Hosts) -> None:
        super().__init__(directory, hosts.executor())
        function = cloudpickle.dumps(Lengths())
        self.shipped = ShippedFunction(hashlib.sha256(function).hexdigest(), function, {})
        self._operator["function_hash"] = self.shipped.function_hash

    def run_batch(self, what: str, number: int) -> int:
        """Commit a batch of one element; what it yielded."""
        self.commit({0: (Operation(what, number),)})
        return int(self.last[0])


def damage(job: ProcessJob) -> None:
    for path in local(job).rglob("*.sst"):
        size_bytes = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(size_bytes // 4)
            file.write(bytes(size_bytes // 2))


def test_damaged_local_state_is_no_error_of_the_function_and_is_restored(tmp_path: Path, hosts: Hosts) -> None:
    """It was `UserFunctionError`, in each batch that this process executed."""
    job = LengthsJob(tmp_path, hosts)
    try:
        for number in range(0, 160_000, 40_000):
            job.run_batch("fill", number)
            flushed(job)
        damage(job)
        with pytest.raises(DidNotHappenError, match=r"is thrown away.*local-backup.*block checksum mismatch"):
            job.run_batch("get", 59_000)
        assert [job.run_batch("get", number) for number in (59_000, 1, 99_999)] == [60] * 3
        assert job.last[1] == "confirmed", "it was restored once"
    finally:
        job.close()
