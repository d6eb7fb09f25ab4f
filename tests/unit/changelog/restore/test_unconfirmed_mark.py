"""Changelog off: what an attempt left on a local disk is not taken for what another attempt has committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from tests.jobs.worker_job import Operation, WorkerJob
from varvite.changelog.api.descriptors import ValueStateDescriptor
from varvite.changelog.restore.unconfirmed_mark import UnconfirmedMark
from varvite.changelog.types.factory import Types
from varvite.spark_integration.functions.keyed import KeyedProcessFunction, RuntimeContext
from varvite.spark_integration.transport.home import WorkerHome


class Remember(KeyedProcessFunction[int, Any, int]):
    """Yields the number of the element before."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        yield self.last.value() or 0
        self.last.update(value.number)


def rocksdb_job(directory: Path) -> WorkerJob:
    cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["Remember"]))
    job = WorkerJob(directory, changelog=False, function=cloudpickle.dumps(Remember()))
    job._operator["backend"] = "rocksdb"
    job.start(1)
    return job


def test_the_local_files_of_an_attempt_that_did_not_win_are_not_used(tmp_path: Path) -> None:
    """They are at the very version of the commit: both attempts were made for it, each on an executor of its own."""
    job = rocksdb_job(tmp_path)
    here, elsewhere = job._home, WorkerHome(tmp_path / "elsewhere")
    elsewhere.create()
    job.commit({0: [Operation("add", 1)]})
    assert job.yielded(0, [Operation("add", 2)]) == [1]
    job.lose_worker(0)
    job._home = elsewhere
    job.commit({0: [Operation("add", 3)]})
    job.lose_worker(0)
    job._home = here
    assert job.yielded(0, [Operation("add", 4)]) == [3]
    job.close()


def test_the_local_files_of_a_confirmed_attempt_are_used(tmp_path: Path) -> None:
    job = rocksdb_job(tmp_path)
    job.commit({0: [Operation("add", 1)]})
    attempt = job.begin(0)
    attempt.abort()
    job.lose_worker(0)
    attempt = job.begin(0)
    list(attempt.finish())
    assert attempt._context.restored == "current"
    job.close()


def test_the_mark_is_beside_the_directory_and_may_be_cleared_twice(tmp_path: Path) -> None:
    mark = UnconfirmedMark(tmp_path / "a" / "store")
    assert not mark.is_set
    mark.set()
    mark.set()
    assert mark.is_set
    assert not (tmp_path / "a" / "store").exists()
    mark.clear()
    mark.clear()
    assert not mark.is_set
