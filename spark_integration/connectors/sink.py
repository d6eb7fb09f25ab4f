"""The contract of a `Sink` for the output rows of a batch, and the sink that calls a user's function.

A sink gets the rows of one batch after the batch's checkpoint is durable (I1), and only rows of the committed attempts
(I2). It is called again for the same batch, with a higher seq, if the driver died before Spark acknowledged the batch
and `last_committed` does not name it.

A driver that was replaced may be inside of `write`, or begin one last call, while its successor writes (I6). So a sink
that is exactly once compares and writes in one step: one transaction, or one conditional write. `decide_write` is that
comparison.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from varvite.changelog.commit.base_decision import RepeatedBatch
from varvite.spark_integration.connectors.output.table import dataframe_of
from varvite.spark_integration.functions.stateless import ProcessFunction
from varvite.spark_integration.messages.protocol import LOST_BLOCK
from varvite.spark_integration.messages.user_errors import message_of, task_error
from varvite.spark_integration.plan.stateless import step
from varvite.storage.errors import UserFunctionError, VarviteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from varvite.changelog.commit.base_decision import SinkCommit
    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.plan.job import JobPlan
    from varvite.spark_integration.plan.transformations import Transformation

_log: Final = logging.getLogger(__name__)


class Sink(ABC):
    """Takes the output of a query, batch by batch; used by one thread at a time."""

    brings_rows_to_driver: bool = False
    """Does `write` bring all rows to the driver? Then a large batch, too, comes by `write_table` if the driver has room
    for it, which saves a Spark job and a cache."""

    @property
    def repeated_batch(self) -> RepeatedBatch:
        """The fate of a batch that is written again. By default what `last_committed` implies."""
        is_known = type(self).last_committed is not Sink.last_committed
        return RepeatedBatch.REPLACED if is_known else RepeatedBatch.DOUBLED

    def check_columns(self, schema: StructType) -> None:  # noqa: B027  most sinks take all
        """Check the columns of the output, before anything else. Raises `InvalidRequestError`, and nothing starts."""

    def share_transaction(self, other: Sink) -> bool:
        """Write in one transaction with another sink of the job from now on, if both can; True if they do."""
        del other
        return False

    def prepare(self, job_id: str) -> None:  # noqa: B027  most sinks have nothing to prepare
        """Called once, before the query starts and before anything else. An exception prevents the start.

        Args:
            job_id: Id of the job; constant for the life of its storage.
        """

    def take_over(self) -> None:  # noqa: B027  most sinks read what they hold in `prepare`
        """Called once after `prepare`, when older drivers are fenced off in the job's chain.

        A sink that refuses repeated batches has to fence their writes off now, and then to read what it holds. If it
        did so earlier, an older driver could still commit to the chain and write what no later driver expects.
        """

    @abstractmethod
    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        """Write the output of a batch, completely when it returns, or when `complete` does.

        Rows of this batch and of later ones that are there already are of an execution that does not count any more,
        or of batches before `varvite restore`: replace them.

        Args:
            df: The rows.
            commit: The batch, and the checkpoint that its rows belong to.

        Raises:
            FencedError: A newer driver has written. Any other exception ends the query, too.
        """

    def write_table(self, table: pa.Table, commit: SinkCommit) -> None:
        """Write the output of a batch that is in the driver already; otherwise as `write`.

        By default the rows become a DataFrame for `write`. A sink that writes without Spark takes the table itself.

        Args:
            table: The rows, timestamps in UTC.
            commit: The batch, and the checkpoint that its rows belong to.
        """
        self.write(dataframe_of(table), commit)

    def complete(self, commit: SinkCommit) -> None:  # noqa: B027  most sinks have nothing left to do
        """Commit what was written. Called after all outputs of the batch were written, so they may share a transaction.

        Args:
            commit: As for `write`. Another call for the same commit has no effect.

        Raises:
            FencedError: A newer driver has written. Any other exception ends the query, too.
        """

    def last_committed(self) -> SinkCommit | None:
        """The last commit whose output is complete; None if there is none or the sink does not know.

        A batch that the sink names is not written again: its checkpoint is adopted instead.
        """
        return None

    def close(self) -> None:  # noqa: B027  most sinks hold nothing
        """Release connections, and drop what is not complete: the query has ended. May be called twice."""


class ElementSink(Sink):
    """A sink of elements in a form of its own, which a step before it makes in the workers."""

    title: ClassVar[str]
    """Name of the step, for errors."""

    @abstractmethod
    def form(self, elements: ElementType) -> tuple[Any, ElementType]:
        """A function from an element to one of the sink's form, or a `ProcessFunction`, and the type of those.

        Raises:
            InvalidRequestError: The sink does not take such elements.
        """

    def before(self, end: Transformation) -> Transformation:
        """The stream that the sink takes, made of one of elements. Raises `InvalidRequestError`."""
        function, formed = self.form(end.elements)
        return step(end, "process" if isinstance(function, ProcessFunction) else "map", function, formed)


class JobSink(Sink):
    """A sink that depends on the job."""

    @abstractmethod
    def bind(self, spark: SparkSession, plan: JobPlan) -> None:
        """Called once before all others, when the job is planned. Raises `InvalidRequestError`."""


def bind(sink: Sink, spark: SparkSession, plan: JobPlan) -> None:
    """Bind a sink to its job, if it depends on it."""
    if isinstance(sink, JobSink):
        sink.bind(spark, plan)


class ForeachBatchSink(Sink):
    """Calls the user's function, as Spark's `foreachBatch`: at least once for each batch.

    Exactly once, if the function replaces what an earlier call for the same batch id wrote.
    """

    def __init__(self, function: Callable[[DataFrame, int], None]) -> None:
        self._function = function

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        self._function(df, commit.batch)


def write_to(sink: Sink, rows: DataFrame | pa.Table, commit: SinkCommit) -> None:
    """Write to a sink, not completely yet. Raises as `of_the_user`."""
    with of_the_user(sink, commit.batch):
        if isinstance(rows, pa.Table):
            sink.write_table(rows, commit)
        else:
            sink.write(rows, commit)


def complete_in(sink: Sink, commit: SinkCommit) -> None:
    """`Sink.complete`. Raises as `of_the_user`."""
    with of_the_user(sink, commit.batch):
        sink.complete(commit)


def close(sink: Sink) -> None:
    """`Sink.close`; an error is logged, for the query has ended."""
    try:
        sink.close()
    except Exception:  # noqa: BLE001  whatever code of the user raises
        _log.warning("the sink %s could not be closed", type(sink).__qualname__, exc_info=True)


def last_committed_of(sink: Sink) -> SinkCommit | None:
    """`Sink.last_committed`. Raises as `of_the_user`."""
    with of_the_user(sink):
        return sink.last_committed()


@contextmanager
def of_the_user(sink: Sink, batch: int | None = None) -> Iterator[None]:
    """Call a sink within it: what code of the user raises becomes an error that says so.

    Raises:
        UserFunctionError: A function of `foreach_batch`, or a sink of the user's own, has raised.
        Exception: What a sink of varvite raises, and the loss of rows that Spark has kept, as they are.
    """
    is_function = isinstance(sink, ForeachBatchSink)
    try:
        yield
    except VarviteError:
        raise
    except Exception as error:
        is_of_user = is_function or type(sink).__module__.partition(".")[0] != "varvite"
        if not is_of_user or LOST_BLOCK in str(error) or task_error(error) is not None:
            raise
        name = "the function of foreach_batch" if is_function else f"the sink {type(sink).__qualname__}"
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        message = message_of(error).partition("\n\tat ")[0]  # behind it is the stack of the JVM
        raise UserFunctionError(f"{name} raised {kind}: {message}", batch=batch) from error
