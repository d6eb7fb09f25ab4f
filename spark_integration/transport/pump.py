"""The function given to `mapInArrow`: streams a partition's rows through its state worker.

The calling thread reads the answer and yields it, which is Spark's back-pressure; a second thread reads Spark's input
and sends it. Each direction waits only for its own end, so the two cannot block each other. Spark's input may be read
in a thread of its own: it is the plain Arrow reader on the worker's input stream, and nobody else reads from it before
the pump has returned. Spark's own pipelined mode does the same. If the pump raises while that thread still reads,
Spark discards the Python worker.

Invariants: I2 (each execution has a new tag), I3 (a pump that ends early makes the worker drop the attempt).
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute
from pyspark import SparkFiles, TaskContext
from pyspark.accumulators import AccumulatorParam

from varvite.spark_integration.elements.arrow_task import freeze_modules, promptly
from varvite.spark_integration.messages.protocol import (
    KEY_GROUP_COLUMN,
    PARTITION_COLUMN,
    BatchRequest,
    TaskRequest,
    decode_message,
    has_summary,
)
from varvite.spark_integration.messages.user_errors import TRIED_AGAIN, WORKER_NOTE
from varvite.spark_integration.transport.connection import WorkerConnector, WorkerLaunch
from varvite.spark_integration.transport.home import executor_home, import_path
from varvite.spark_integration.transport.wire import Channel, Opening, PeerLostError, PumpEnvironment, WorkerFailedError
from varvite.storage.clock import SystemTokens
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, InvariantError, VarviteError
from varvite.storage.object_stores.local.errors import did_not_happen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.accumulators import Accumulator

    from varvite.spark_integration.functions.pickling import ShippedFunction
    from varvite.spark_integration.transport.wire import WorkerFailure
    from varvite.storage.clock import TokenSource

# Arrow makes these functions at import, so type checkers do not see them.
_compute: Any = pyarrow.compute
_FEEDER_JOIN_S: Final = 10.0

ExecutionNote = tuple[str, int, str]
"""Operator, partition and tag of one execution."""


class ExecutionNotes(AccumulatorParam[list[ExecutionNote]]):
    """Accumulates which attempts ran, so that the driver sees a silent second execution."""

    def zero(self, value: list[ExecutionNote]) -> list[ExecutionNote]:
        """Nothing ran yet, whatever the value was."""
        del value
        return []

    def addInPlace(self, value1: list[ExecutionNote], value2: list[ExecutionNote]) -> list[ExecutionNote]:  # noqa: N802
        """Both, in the first list: the driver adds those of thousands of tasks to one, and `zero` shares none."""
        value1 += value2
        return value1


class Pump:
    """The function for `mapInArrow` for one operator in one attempt of a batch; it is pickled."""

    def __init__(
        self,
        request: bytes,
        function: ShippedFunction,
        executions: Accumulator[list[ExecutionNote]] | None = None,
        launch: WorkerLaunch | None = None,
        *,
        answer_max_bytes: int | None = None,
    ) -> None:
        """Makes the function; it runs in Spark's Python worker.

        Args:
            request: The encoded `BatchRequest`.
            function: The user's function; its bytes are read only if a worker lacks them.
            executions: Gets an `ExecutionNote` for each execution, if given.
            launch: How workers are made; by default varvite's state workers.
            answer_max_bytes: Rows of an answer that is larger are dropped, the summary is not; None: no limit.
        """
        self._answer_max_bytes = answer_max_bytes
        self._request = request
        self._function = function
        self._executions = executions
        self._launch = launch or WorkerLaunch()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows in, answer out; the answer's last batch holds the summary."""
        context = TaskContext.get()
        if context is None:
            raise InvalidRequestError("the pump runs outside of a Spark task; give it to DataFrame.mapInArrow")
        freeze_modules()
        batch = decode_message(self._request, BatchRequest)
        task = task_request(batch, context.partitionId(), context.taskAttemptId(), SystemTokens())
        connector = WorkerConnector(executor_home(os.environ), self._launch)
        note = None if self._executions is None else self._executions.add
        opening = Opening(task=task, environment=task_environment(context))
        answer = stream(connector, opening, self._function, promptly(batches), note)
        yield from answer if self._answer_max_bytes is None else within(answer, self._answer_max_bytes)


def within(answer: Iterator[pa.RecordBatch], max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The answer without the rows that are more than so many bytes, but with its summary."""
    left_bytes = max_bytes
    for batch in answer:
        is_summary = has_summary(batch)
        left_bytes -= 0 if is_summary else batch.nbytes
        if is_summary or left_bytes >= 0:
            yield batch


def task_environment(context: TaskContext) -> PumpEnvironment:
    """The environment of this Python worker, in the task with that context."""
    return PumpEnvironment(
        sys_path=import_path(sys.path),
        files_directory=str(Path(SparkFiles.getRootDirectory()).absolute()),
        task_context=pickle.dumps(context),
    )


def task_request(batch: BatchRequest, partition: int, task_attempt: int, tokens: TokenSource) -> TaskRequest:
    """The request of one task, with a new tag (I2)."""
    if batch.base_view is not None:
        batch = msgspec.structs.replace(batch, base_view=batch.base_view.only(partition))
    return TaskRequest(batch=batch, partition=partition, tag=tokens.token(), task_attempt=task_attempt)


def stream(
    connector: WorkerConnector,
    opening: Opening,
    function: ShippedFunction,
    batches: Iterable[pa.RecordBatch],
    note: Callable[[list[ExecutionNote]], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Execute one request with these input rows; yields the answer.

    Raises:
        DidNotHappenError: the worker ended, or refused the request as late; the attempt has no effect.
        VarviteError: what the worker raised, with its traceback as a note.
        Exception: what the input raised.
    """
    task = opening.task
    try:
        channel, ready = connector.open(opening)
    except WorkerFailedError as error:
        raise failure_error(error.failure, task) from None
    feeder: Feeder | None = None
    try:
        if ready.refused is not None:
            raise DidNotHappenError(f"the state worker refused: {ready.refused}", **_context(task))
        if note is not None:
            note([(task.batch.operator.operator, task.partition, task.tag)])
        if ready.needs_function:
            channel.send_message(function.package())
        feeder = Feeder(channel, batches, task)
        feeder.start()
        yield from channel.receive_batches(show_output)
        feeder.join()
    except WorkerFailedError as error:
        raise failure_error(error.failure, task) from None
    except PeerLostError as error:
        if feeder is not None and feeder.error is not None:
            raise feeder.error from None
        lost = DidNotHappenError(
            f"{end_of_worker(connector.exit_code(ready.pid))} ({error}); {TRIED_AGAIN}", **_context(task)
        )
        lost.add_note(connector.log_note())
        raise lost from error
    finally:
        channel.close()


def end_of_worker(exit_code: int | None) -> str:
    """The reason of a lost connection: the end of the worker with that code, negative for a signal, or None."""
    if exit_code is None:
        return "the state worker dropped the request: a newer attempt took its place, or its executor ends"
    if exit_code == -signal.SIGKILL:
        return (
            "the state worker was killed by SIGKILL, as a system that is out of memory does; raise "
            "spark.executor.memoryOverhead if it was"
        )
    if exit_code < 0:
        return f"the state worker was ended by {signal.Signals(-exit_code).name}"
    return f"the state worker ended with exit code {exit_code}"


def show_output(lines: str) -> None:
    """Write lines of user code where Spark's Python worker writes its own, which is the executor's log."""
    sys.stderr.write(lines)
    sys.stderr.flush()


class Feeder:
    """The thread that sends a task's input to its worker."""

    def __init__(self, channel: Channel, batches: Iterable[pa.RecordBatch], task: TaskRequest) -> None:
        self._channel = channel
        self._batches = batches
        self._task = task
        self._thread = threading.Thread(target=self._run, name="varvite-feeder", daemon=True)
        self.error: BaseException | None = None
        """The error of the input; set before the worker learns that the input has ended."""

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end of the thread, once the answer was complete."""
        self._thread.join(_FEEDER_JOIN_S)
        if self._thread.is_alive():
            raise InvariantError("the state worker answered before it had read its whole input", **_context(self._task))

    def _run(self) -> None:
        try:
            for batch in self._batches:
                rows = own_rows(batch, self._task)
                if rows.num_rows:
                    self._channel.send_batch(rows)
            self._channel.send_end()
        except PeerLostError:
            pass  # the reading side learns of it too, and may find the reason there
        except BaseException as error:  # noqa: BLE001  whatever Spark's input raises belongs to the task
            self.error = error
            self._channel.shutdown(socket.SHUT_WR)  # without the end: the worker drops the attempt


def own_rows(batch: pa.RecordBatch, task: TaskRequest) -> pa.RecordBatch:
    """The rows that are input: without the null row that an anchor adds to an empty partition, and its column.

    Raises:
        InvariantError: the input has no key group column.
        DidNotHappenError: rows of another partition: Spark computes a lost output again within another plan.
    """
    index = batch.schema.get_field_index(KEY_GROUP_COLUMN)
    if index < 0:
        raise InvariantError(f"the input has no column {KEY_GROUP_COLUMN}", **_context(task))
    if batch.column(index).null_count:
        batch = batch.filter(_compute.is_valid(batch.column(index)))
    if PARTITION_COLUMN in batch.schema.names:
        batch = batch.drop_columns([PARTITION_COLUMN])
        index = batch.schema.get_field_index(KEY_GROUP_COLUMN)
    if batch.num_rows:
        operator = task.batch.operator
        ends = _compute.min_max(batch.column(index))
        partitions = {e.as_py() * operator.parallelism // operator.max_parallelism for e in ends.values()}
        if partitions != {task.partition}:
            raise DidNotHappenError(
                f"the task of partition {task.partition} got rows of {sorted(partitions)}: Spark has lost this output "
                "and computes it again within another plan; the batch has to be executed again",
                **_context(task),
            )
    return batch


def failure_error(failure: WorkerFailure, task: TaskRequest) -> VarviteError:
    """The error of the state worker, with its traceback as a note."""
    error: Any = None
    if failure.pickled is not None:
        try:
            error = pickle.loads(failure.pickled)  # noqa: S301  our own process wrote it
        except Exception:  # noqa: BLE001  a class that is not here; its text is
            error = None
    if isinstance(error, OSError) and error.errno:
        error = did_not_happen(error, "the state worker")
    if not isinstance(error, VarviteError):
        kind = InvariantError if failure.is_repeated else DidNotHappenError
        error = kind(f"the state worker failed: {failure.exception_type}: {failure.message}")
    error.add_note(f"{WORKER_NOTE}\n{failure.traceback}")
    return error.with_context(**_context(task))


def _context(task: TaskRequest) -> dict[str, Any]:
    batch = task.batch
    return {
        "job": batch.operator.job,
        "operator": batch.operator.operator,
        "partition": task.partition,
        "batch": batch.batch,
        "epoch": batch.epoch,
    }
