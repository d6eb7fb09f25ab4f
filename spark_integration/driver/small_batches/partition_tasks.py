"""Brings requests to the state workers from the driver, a thread for each partition, and takes the answers.

A request that fails is tried again as often as Spark would try its task: the state worker restores if it has to.

Invariants: I2 (each execution has a new tag), I3 (an attempt that fails is given up as a whole), I10 (answers are
limited).
"""

from __future__ import annotations

import itertools
import logging
import re
from concurrent.futures import FIRST_EXCEPTION, wait
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from varvite.spark_integration.driver.operator_executor import AnswerTooLargeError
from varvite.spark_integration.messages.protocol import SUMMARY_COLUMN, has_summary
from varvite.spark_integration.transport.pump import stream, task_request
from varvite.spark_integration.transport.wire import Opening
from varvite.storage.attempt_threads import AttemptThreads
from varvite.storage.clock import SystemTokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark import SparkContext

    from varvite.spark_integration.driver.small_batches.task_place import TaskPlaces
    from varvite.spark_integration.functions.pickling import ShippedFunction
    from varvite.spark_integration.messages.protocol import BatchRequest

_log: Final = logging.getLogger(__name__)
FIRST_TASK_ATTEMPT: Final = 1 << 40
"""Larger than the numbers that Spark gives to its tasks."""
_LOCAL_FAILURES: Final = re.compile(r"local\[[^,\]]+,\s*(\d+)\s*\]")


class PartitionAnswer(NamedTuple):
    """The answer of one partition."""

    rows: list[pa.RecordBatch]
    """Output rows, with their tags."""
    summary: Any
    """The encoded summary; None: there was none."""


def failures_max(master: str) -> int:
    """The number of failures of a task after which Spark gives up in local mode, by the URL of the master."""
    match = _LOCAL_FAILURES.fullmatch(master)
    return max(1, int(match[1])) if match else 1


class AnswerRoom:
    """Counts the bytes of the answers of all partitions. Raises `AnswerTooLargeError` above the limit."""

    def __init__(self, max_bytes: int, operator: str, batch: int) -> None:
        self._left_bytes = max_bytes
        self._context: dict[str, Any] = {"operator": operator, "batch": batch}
        self._max_bytes = max_bytes
        self._lock = Lock()

    def take(self, size_bytes: int) -> None:
        """Count so many bytes more."""
        with self._lock:
            self._left_bytes -= size_bytes
            if self._left_bytes >= 0:
                return
        raise AnswerTooLargeError(
            f"the answer has more than {self._max_bytes} bytes, which is too much for a small batch; the batch is "
            "executed again by Spark's tasks",
            **self._context,
        )


class PartitionTasks:
    """Executes requests in the state workers. Used by one thread at a time; `cancel` by any."""

    def __init__(self, context: SparkContext, places: TaskPlaces) -> None:
        self._places = places
        self._failures_max = failures_max(context.master or "")
        self._threads = AttemptThreads(max(1, context.defaultParallelism), "varvite-small-batch")
        self._task_attempts = itertools.count(FIRST_TASK_ATTEMPT)
        self._cancelled = Event()

    def run(
        self,
        request: BatchRequest,
        function: ShippedFunction,
        inputs: Sequence[Sequence[pa.RecordBatch]],
        answer_max_bytes: int,
    ) -> list[PartitionAnswer]:
        """Execute a request in all partitions, and wait for the answers.

        Args:
            request: To every partition.
            function: The user's function.
            inputs: By partition: the rows.
            answer_max_bytes: Largest answer of all partitions together.

        Raises:
            AnswerTooLargeError: There are more bytes.
            Exception: A partition has failed too often; see `stream`.
        """
        room = AnswerRoom(answer_max_bytes, request.operator.operator, request.batch)
        self._places.find()  # here, and not in several threads: the properties of Spark's jobs belong to this one

        def execute(partition: int, rows: Sequence[pa.RecordBatch]) -> PartitionAnswer:
            return self._execute(request, function, partition, rows, room)

        futures = [
            self._threads.submit(lambda partition=partition, rows=rows: execute(partition, rows))
            for partition, rows in enumerate(inputs)
        ]
        # As in Spark, one failure is enough. What still runs is superseded by the next attempt, and ends then.
        done, others = wait(futures, return_when=FIRST_EXCEPTION)
        failed = next((error for future in done if (error := future.exception()) is not None), None)
        if failed is not None:
            for future in others:
                self._threads.give_up(future)
            raise failed
        return [future.result() for future in futures]

    def cancel(self) -> None:
        """Try nothing again."""
        self._cancelled.set()

    def close(self) -> None:
        """End the threads. May be called twice."""
        self._cancelled.set()
        self._threads.close()

    def _execute(
        self,
        request: BatchRequest,
        function: ShippedFunction,
        partition: int,
        rows: Sequence[pa.RecordBatch],
        room: AnswerRoom,
    ) -> PartitionAnswer:
        for number in range(self._failures_max):
            try:
                return self._once(request, function, partition, rows, room, number)
            except AnswerTooLargeError:
                raise
            except Exception as error:
                if number + 1 == self._failures_max or self._cancelled.is_set():
                    raise
                _log.warning("partition %d of batch %d is executed again: %s", partition, request.batch, error)
        raise AssertionError

    def _once(
        self,
        request: BatchRequest,
        function: ShippedFunction,
        partition: int,
        rows: Sequence[pa.RecordBatch],
        room: AnswerRoom,
        number: int,
    ) -> PartitionAnswer:
        task_attempt = next(self._task_attempts)
        opening = Opening(
            task=task_request(request, partition, task_attempt, SystemTokens()),
            environment=self._places.environment(request, partition, number, task_attempt),
        )
        answered: list[pa.RecordBatch] = []
        summary: Any = None
        for batch in stream(self._places.connector(), opening, function, rows):
            if has_summary(batch):
                summary = batch.column(SUMMARY_COLUMN)[0].as_buffer()
            else:
                room.take(batch.nbytes)
                answered.append(batch)
        return PartitionAnswer(answered, summary)
