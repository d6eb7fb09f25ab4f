"""A small real state worker for tests of the process layer: it answers its input, and can be told to misbehave.

The request's `backend_options.factory` says what it does; the summary's image (`facts_of`) what it went through.
"""

from __future__ import annotations

import os
import pickle
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from varvite.spark_integration.messages.protocol import (
    KEY_GROUP_COLUMN,
    answer_schema,
    decode_message,
    encode_message,
    row_tag,
)
from varvite.spark_integration.messages.summary import Summary, encode_summary
from varvite.spark_integration.messages.worker_figures import AttemptFigures
from varvite.spark_integration.processes import thread_count
from varvite.storage.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varvite.spark_integration.messages.protocol import TaskRequest
    from varvite.spark_integration.transport.home import WorkerHome

FACTORY = f"{__name__}:EchoWorker"


class EchoWorker:
    """Keeps counts instead of state."""

    def __init__(self, partition: int, home: WorkerHome) -> None:
        self.partition = partition
        self.home = home
        self.functions: dict[str, tuple[str, bytes]] = {}
        self.counts = {"begun": 0.0, "finished": 0.0, "aborted": 0.0, "idle": 0.0, "fetched": 0.0}

    def has_function(self, operator: str, function_hash: str) -> bool:
        return self.functions.get(operator, ("", b""))[0] == function_hash

    def begin(self, task: TaskRequest, function: Callable[[], bytes]) -> EchoAttempt:
        operator = task.batch.operator
        if not self.has_function(operator.operator, operator.function_hash):
            self.functions[operator.operator] = (operator.function_hash, function())
            self.counts["fetched"] += 1
        self.counts["begun"] += 1
        options = operator.backend_options.factory
        (self.home.path / f"begun-{operator.job_id}-{task.batch.slot}-{self.partition}").touch()
        if options.get("ask again"):
            function()
        if options.get("fail") == "begin":
            raise CorruptDataError("the base is damaged", object_name="chain/7")
        return EchoAttempt(self, task, options)

    def idle(self) -> None:
        self.counts["idle"] += 1

    def close(self) -> None:
        (self.home.path / f"closed-{os.getpid()}").touch()


class EchoAttempt:
    """Answers `value` of each row."""

    def __init__(self, worker: EchoWorker, task: TaskRequest, options: dict[str, Any]) -> None:
        self.worker = worker
        self.task = task
        self.options = options
        self.schema = answer_schema(pa.ipc.read_schema(pa.py_buffer(task.batch.operator.output_schema)))
        self.rows = 0

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.rows += batch.num_rows
        if self.options.get("fail") == "process":
            raise OSError("no space left")
        time.sleep(self.options.get("sleep_s", 0.0))
        columns = [batch.column(n) for n in batch.schema.names if n != KEY_GROUP_COLUMN]
        tags = pa.repeat(pa.scalar(row_tag(self.task.tag), pa.int64()), batch.num_rows)
        yield pa.RecordBatch.from_arrays([*columns, tags, pa.nulls(batch.num_rows, pa.binary())], schema=self.schema)

    def finish(self) -> Iterator[pa.RecordBatch]:
        if self.options.get("fail") == "finish":
            sys_exit = SystemExit(3)
            raise sys_exit
        worker = self.worker
        worker.counts["finished"] += 1
        facts = {**worker.counts, "pid": float(os.getpid()), "threads": float(thread_count())}
        if self.options.get("compute"):
            facts["computed"] = computed()
        if self.options.get("call"):
            facts["called"] = float(pickle.loads(worker.functions[self.task.batch.operator.operator][1])())
        summary = Summary(
            operator=self.task.batch.operator.operator,
            partition=self.worker.partition,
            low=0,
            high=1,
            tag=self.task.tag,
            slot=self.task.batch.slot,
            figures=AttemptFigures(rows_in=self.rows).packed(),
            image=encode_message(facts),
        )
        columns = [pa.nulls(1, f.type) for f in self.schema][:-2]
        last = [pa.array([row_tag(self.task.tag)], pa.int64()), pa.array([encode_summary(summary)], pa.binary())]
        yield pa.RecordBatch.from_arrays([*columns, *last], schema=self.schema)

    def abort(self) -> None:
        self.worker.counts["aborted"] += 1


def facts_of(summary: Summary) -> dict[str, float]:
    """Steps of an echo worker until that summary."""
    found: dict[str, float] = decode_message(summary.image, dict[str, float])
    return found


def computed() -> float:
    """Work for Arrow's own threads: a threaded grouping, a sort and a Parquet round trip of the result."""
    rows = 200_000
    table = pa.table({"k": pa.array(range(rows)), "v": pa.array([1.0] * rows)})
    table = table.append_column("g", pc.bit_wise_and(table["k"], 1023))
    grouped = table.group_by("g", use_threads=True).aggregate([("v", "sum")]).sort_by("g")
    import io

    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(grouped, sink)
    sink.seek(0)
    return float(pc.sum(pq.read_table(sink, use_threads=True)["v_sum"]).as_py())
