"""Requests, rows and a stand-in executor for tests of the state worker processes."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec
import pyarrow as pa

from tests.workers.echo_state_worker import FACTORY
from tests.workers.probe import probe
from varvite.spark_integration.functions.pickling import ShippedFunction
from varvite.spark_integration.messages.protocol import (
    KEY_GROUP_COLUMN,
    SUMMARY_COLUMN,
    BatchRequest,
    OperatorRequest,
    TaskRequest,
)
from varvite.spark_integration.messages.summary import Summary, decode_summary
from varvite.spark_integration.transport.connection import WorkerConnector, WorkerLaunch
from varvite.spark_integration.transport.home import WorkerHome, worker_name
from varvite.spark_integration.transport.pump import stream
from varvite.spark_integration.transport.wire import Opening, PumpEnvironment
from varvite.storage.clock import SystemTokens
from varvite.storage.format.records import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

OUTPUT = pa.schema([pa.field("value", pa.int64())])
FUNCTION = ShippedFunction(hashlib.sha256(b"function").hexdigest(), b"function", {})


def filled(struct: Any, **known: Any) -> Any:
    """A message with these fields; the other ones, which no process layer looks at, get some value of their type."""
    missing = [f for f in msgspec.structs.fields(struct) if f.required and f.name not in known]
    return struct(**known, **{f.name: _any_value(f.type) for f in missing})


def _any_value(value_type: Any) -> Any:
    if type(None) in get_args(value_type):
        return None
    base = get_origin(value_type) or value_type
    return filled(base) if issubclass(base, msgspec.Struct) else base()


def batch_request(epoch: int = 1, slot: int = 2, attempt: int = 0, **operator: Any) -> BatchRequest:
    """A request for a batch without a base; its operator has one partition and 8 key groups."""
    fields = {
        "job": "job",
        "job_id": "0123456789abcdef0123456789abcdef",
        "operator": "count",
        "parallelism": 1,
        "max_parallelism": 8,
        "output_schema": OUTPUT.serialize().to_pybytes(),
        "function_hash": FUNCTION.function_hash,
        "idle_timeout_s": 60.0,
    }
    request = filled(OperatorRequest, **{**fields, **operator})
    return filled(BatchRequest, operator=request, epoch=epoch, slot=slot, attempt=attempt, batch=slot - 2, base=ORIGIN)


def task_request(partition: int = 0, task_attempt: int = 0, **batch: Any) -> TaskRequest:
    """A task's request, with a new tag."""
    return TaskRequest(
        batch=batch_request(**batch), partition=partition, tag=SystemTokens().token(), task_attempt=task_attempt
    )


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    """Input rows, all of partition 0."""
    values = pa.array(range(first, first + count), pa.int64())
    return pa.RecordBatch.from_arrays(
        [values, pa.repeat(pa.scalar(3, pa.int32()), count)], names=["value", KEY_GROUP_COLUMN]
    )


def opening(task: TaskRequest) -> Opening:
    """Request that a pump of this process would send."""
    path = tuple(p for p in sys.path if Path(p).is_absolute())
    return Opening(task=task, environment=PumpEnvironment(sys_path=path, files_directory=None))


class Executor:
    """A block-manager directory and a process in the place of the JVM."""

    def __init__(self, directory: Path) -> None:
        # Longer than a Unix socket's address may be, as Spark's own directories often are.
        self.block_manager = directory / ("local-directory-" * 6) / "blockmgr-1"
        self.block_manager.mkdir(parents=True)
        self.home = WorkerHome(self.block_manager / "varvite-test")
        self.jvm = subprocess.Popen(["sleep", "600"])
        self.job_id = "job"
        self.use(FACTORY)

    @property
    def worker(self) -> str:
        """Name of the job's worker of partition 0."""
        return worker_name(self.job_id, 0)

    def use(self, factory: str) -> None:
        """Make workers with this factory from now on."""
        self.connector = WorkerConnector(self.home, WorkerLaunch(factory=factory), jvm=lambda _: self.jvm.pid)

    def task(self, **changes: Any) -> TaskRequest:
        """A request of the job."""
        return task_request(**{"job_id": self.job_id, **changes})

    def run(
        self,
        task: TaskRequest | None = None,
        batches: Iterable[pa.RecordBatch] = (),
        function: ShippedFunction = FUNCTION,
        note: Callable[[Any], None] | None = None,
    ) -> tuple[list[int], Summary]:
        """Execute one request; gives the values of the output rows and the summary."""
        return split(self.stream(task or self.task(), batches, function, note))

    def stream(
        self,
        task: TaskRequest,
        batches: Iterable[pa.RecordBatch] = (),
        function: ShippedFunction = FUNCTION,
        note: Callable[[Any], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Execute one request; gives the answer as it comes."""
        return stream(self.connector, opening(task), function, batches, note)

    def pids(self) -> list[int]:
        """The parent and the job's workers, as far as they run."""
        report = probe(self.home) if self.home.path.exists() else None
        if report is None:
            return []
        return [report.pid, *(w.pid for w in report.workers if w.worker.startswith(self.job_id))]

    def end(self) -> None:
        """End whatever is left."""
        self.jvm.send_signal(signal.SIGKILL)
        self.jvm.wait()


def split(answer: Iterable[pa.RecordBatch]) -> tuple[list[int], Summary]:
    """Values of the output rows, and the one summary."""
    values: list[int] = []
    summaries: list[bytes] = []
    for batch in answer:
        for row in batch.to_pylist():
            if row[SUMMARY_COLUMN] is None:
                values.append(row["value"])
            else:
                summaries.append(row[SUMMARY_COLUMN])
    assert len(summaries) == 1
    return values, decode_summary(summaries[0])


def alive(pid: int) -> bool:
    """True if the process runs; one that only waits to be reaped does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def eventually(claim: Callable[[], bool], timeout_s: float) -> bool:
    """True if the claim becomes true in time."""
    deadline = time.monotonic() + timeout_s
    while not claim():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
