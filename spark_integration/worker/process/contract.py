"""The interface between the processes of state workers and the state in them.

All calls come from the main thread of the worker's process, one at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from varvite.spark_integration.messages.protocol import TaskRequest
    from varvite.spark_integration.transport.home import WorkerHome


class AttemptContract(Protocol):
    """One attempt of one operator's batch on one partition."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Execute the input rows; yields answer batches (`answer_schema`), maybe none."""
        ...

    def finish(self) -> Iterator[pa.RecordBatch]:
        """End the input; yields the rest of the output, then the batch with the summary row.

        After it the attempt is pending until a later request confirms it (I4).
        """
        ...

    def abort(self) -> None:
        """Drop what the attempt changed: it will never be confirmed (I3). Called at most once."""
        ...


class WorkerContract(Protocol):
    """State and functions of one partition, for all operators of a job."""

    def has_function(self, operator: str, function_hash: str) -> bool:
        """Is the function here, so that `begin` does not need its bytes?"""
        ...

    def begin(self, task: TaskRequest, function: Callable[[], bytes]) -> AttemptContract:
        """Bring the state to the task's base and start an attempt.

        Args:
            task: The request, with its base.
            function: Returns the pickled user function; may be called only if `has_function` answered no.

        Raises:
            VarviteError: the base cannot be reached. The pump's task fails with it.
        """
        ...

    def idle(self) -> None:
        """Do work that the next request would otherwise wait for. Called between requests, if none is waiting."""
        ...

    def close(self) -> None:
        """Release everything: the process is about to end in an orderly way."""
        ...


class WorkerFactory(Protocol):
    """Makes the state worker of a process, at its first request."""

    def __call__(self, partition: int, home: WorkerHome) -> WorkerContract: ...
