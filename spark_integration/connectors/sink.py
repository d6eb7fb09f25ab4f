"""The contract of a `Sink` for the output rows of a batch, and the sink that calls a user's function.

A sink gets the rows of one batch after the batch's checkpoint is durable (I1), and only rows of the committed attempts
(I2). It is called again for the same batch, with a higher seq, if the driver died before Spark acknowledged the batch
and `last_committed` does not name it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from varvite.changelog.commit.base_decision import SinkCommit


class Sink(ABC):
    """Takes the output of a query, batch by batch; used by one thread at a time."""

    def prepare(self, job_id: str) -> None:  # noqa: B027  most sinks have nothing to prepare
        """Called once, before the query starts. An exception prevents the start.

        Args:
            job_id: Id of the job; constant for the life of its storage.
        """

    @abstractmethod
    def write(self, df: DataFrame, batch_id: int, seq: int) -> None:
        """Write the output of a batch, completely when it returns.

        Args:
            df: The rows.
            batch_id: Spark's id of the batch.
            seq: Seq of the batch's checkpoint. It rises from call to call, also when a batch is executed again.
        """

    def last_committed(self) -> SinkCommit | None:
        """The last batch whose output is complete, with its seq; None if there is none or the sink does not know.

        A batch that the sink names is not written again: its checkpoint is adopted instead.
        """
        return None


class ForeachBatchSink(Sink):
    """Calls the user's function, as Spark's `foreachBatch`: at least once for each batch.

    Exactly once, if the function replaces what an earlier call for the same batch id wrote.
    """

    def __init__(self, function: Callable[[DataFrame, int], None]) -> None:
        self._function = function

    def write(self, df: DataFrame, batch_id: int, seq: int) -> None:  # noqa: ARG002  Spark's signature has no seq
        self._function(df, batch_id)
