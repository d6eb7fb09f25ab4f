"""What the process layer asks of a state worker: the interface between processes and state (design 5).

All calls come from the main thread of the worker's process, one at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from varvite.spark_integration.messages.protocol import TaskRequest
    from varvite.spark_integration.transport.home import WorkerHome
    from varvite.storage.format.records import Link


class Execution(Protocol):
    """One attempt of one operator's batch on one partition."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Execute the input rows; gives answer batches (`answer_schema`), maybe none."""
        ...

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The input has ended: the rest of the output, then the batch with the summary row.

        After it the attempt is pending until a later request confirms it (I4).
        """
        ...

    def abort(self) -> None:
        """The attempt will never be confirmed: drop what it changed (I3). Called at most once."""
        ...


class StateWorker(Protocol):
    """State and functions of one partition, for all operators of a job."""

    def has_function(self, operator: str, function_hash: str) -> bool:
        """Whether `begin` will not ask for this function's bytes."""
        ...

    def begin(self, task: TaskRequest, function: Callable[[], bytes]) -> Execution:
        """Bring the state to the task's base and start an attempt.

        Args:
            task: The request, with its base.
            function: Gives the pickled user function; may be called only if `has_function` said no.

        Raises:
            VarviteError: the base cannot be reached. The pump's task fails with it.
        """
        ...

    def idle(self) -> None:
        """Nobody waits: do ahead what the next request would wait for. Not called if that is there already."""
        ...

    def confirm(self, base: Link, winners: Mapping[str, str]) -> None:
        """The batch is over: what the next request would say, told while there is none.

        Args:
            base: Its commit.
            winners: By operator, the tag of this partition that won.
        """
        ...

    def close(self) -> None:
        """The process is about to end in order."""
        ...


class StateWorkerFactory(Protocol):
    """Makes the state worker of a process, at its first request."""

    def __call__(self, partition: int, home: WorkerHome) -> StateWorker: ...
