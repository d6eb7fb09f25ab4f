"""`Preparation`: stateless functions in front of the first keyed operator, fused into one `mapInArrow` step.

A user's exception does not fail the task, which Spark would retry: the task ends without further rows and adds the
error to an accumulator. The driver reads it before anything is committed (I3), and raises it. Without an operator after
it the rows go to the sink from Spark's cache. Spark may lose cached rows and compute them again after the driver has
read the accumulator. So in that case the error is also a row, and reading that row fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from varvite.spark_integration.elements.arrow_task import map_in_arrow, promptly
from varvite.spark_integration.elements.input_errors import UnreadableInputError, reading
from varvite.spark_integration.elements.row_values import event_times_ms
from varvite.spark_integration.messages.protocol import EVENT_TIME_COLUMN, FAILURE_COLUMN, KEY_COLUMN, UserError
from varvite.spark_integration.messages.user_errors import READING, UserErrorRaised, user_error
from varvite.spark_integration.plan.function_chain import ChainPlace, FunctionChain, KeyStep, Stamps, Step, StepError
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame

    from varvite.spark_integration.elements.types import ElementType

StepFailure = tuple[int, UserError]
"""A partition and the error raised there."""
CHANGING: Final = frozenset({"map", "flat_map", "process", "async_wait"})
"""Steps that make new elements."""


class StepFailures(AccumulatorParam[list[StepFailure]]):
    """Accumulates the errors of user functions in front of the first operator."""

    def zero(self, value: list[StepFailure]) -> list[StepFailure]:
        """No error, for any value."""
        del value
        return []

    def addInPlace(self, value1: list[StepFailure], value2: list[StepFailure]) -> list[StepFailure]:  # noqa: N802
        """All errors, in a new list, as that of `zero` may be shared."""
        return [*value1, *value2]


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """The step on the input's rows before the first operator; picklable."""

    input: ElementType
    output: ElementType
    steps: tuple[Step, ...]
    key: KeyStep | None
    event_time_from: str | None
    """Column of the input with its event time."""
    event_time_out: bool
    """Add a column with the event time."""
    broadcasts: dict[int, Any] = field(default_factory=dict, repr=False)
    """Broadcast variables that the functions refer to: pickled with this, Spark sends them along."""

    @property
    def output_schema(self) -> StructType:
        """Columns of the prepared rows."""
        fields = list(self.output.schema.fields)
        if self.event_time_out:
            fields.append(StructField(EVENT_TIME_COLUMN, LongType()))
        if self.key is not None:
            fields.append(StructField(KEY_COLUMN, from_arrow_type(self.key.key_type.arrow_type)))
        return StructType(fields)

    @property
    def changes_elements(self) -> bool:
        """True if the output is not just the input's own columns."""
        return changes_elements(self.steps)

    def apply(
        self, rows: DataFrame, place: ChainPlace, failures: Accumulator[list[StepFailure]], *, is_whole: bool
    ) -> DataFrame:
        """The prepared rows; errors of functions are added to `failures`. `is_whole`: no operator follows."""
        return applied(rows, PreparationTask(self, place, failures, is_whole=is_whole), self.output_schema)

    def at(self, place: ChainPlace) -> PreparationRun:
        """The chain for one task."""
        return PreparationRun(self, place)


class PreparationRun:
    """A preparation in one task."""

    def __init__(self, plan: Preparation, place: ChainPlace) -> None:
        self._plan = plan
        self._chain = FunctionChain(plan.steps, plan.key, place)
        self.latest: dict[int, int] = {}
        """Empty: the operator reads the event times itself."""

    def open(self) -> None:
        self._chain.open()

    def close(self) -> None:
        self._chain.close()

    def prepared(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The prepared rows of a batch. Raises `StepError`, `InvalidRequestError`."""
        yield prepared(self._plan, self._chain, batch)


class TaskPlan(Protocol):
    """The plan that a task runs: a `Preparation`, or a `BranchedPreparation`."""

    @property
    def output_schema(self) -> StructType:
        """Columns of the prepared rows."""
        ...

    def at(self, place: ChainPlace) -> TaskRun:
        """The functions for one task."""
        ...


class TaskRun(Protocol):
    """A plan's functions in one task."""

    @property
    def latest(self) -> dict[int, int]:
        """The largest event time so far of each branch, milliseconds."""
        ...

    def open(self) -> None:
        """Load and open the functions. Raises `StepError`."""
        ...

    def prepared(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The prepared rows of a batch. Raises `StepError`, `InvalidRequestError`."""
        ...

    def close(self) -> None:
        """Close the functions. Raises `StepError`."""
        ...


class PreparationTask:
    """The function for `mapInArrow`; picklable. It runs in Spark's Python worker."""

    def __init__(
        self,
        plan: TaskPlan,
        place: ChainPlace,
        failures: Accumulator[list[StepFailure]],
        latest: Accumulator[dict[int, int]] | None = None,
        *,
        is_whole: bool = False,
    ) -> None:
        self.is_whole = is_whole
        """A failure is also a row."""
        self._plan = plan
        self._place = place
        self._failures = failures
        self._latest = latest

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows in, prepared rows out; none after a user's exception."""
        context = TaskContext.get()
        if context is None:
            raise InvalidRequestError("the chain runs outside of a Spark task; give it to DataFrame.mapInArrow")
        partition, at = context.partitionId(), self._place
        place = ChainPlace(partition, at.parallelism, at.max_parallelism, at.job_parameters)
        run = self._plan.at(place)
        schema: pa.Schema | None = None
        try:
            try:
                run.open()
                for batch in promptly(batches):
                    for rows in run.prepared(batch):
                        schema = rows.schema
                        yield self._answer(rows)
            finally:
                run.close()
            if self._latest is not None:
                self._latest.add(run.latest)
        except StepError as failed:
            yield from self._failed(partition, user_error(failed.cause, None, failed.where), schema)
        except UnreadableInputError as error:
            yield from self._failed(partition, user_error(error.cause, None, READING), schema)
        except InvalidRequestError as error:
            yield from self._failed(partition, user_error(error, None), schema)
        for _ in batches:  # a task that stops reading early would break the pipe
            pass

    def _answer(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self.is_whole:
            return rows
        return rows.append_column(FAILURE_COLUMN, pa.nulls(rows.num_rows, pa.string()))

    def _failed(self, partition: int, error: UserError, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        """Add an error to the accumulator and, if a failure is also a row, yield that row."""
        self._failures.add([(partition, error)])
        if self.is_whole:
            schema = schema or to_arrow_schema(self._plan.output_schema, timezone="UTC")
            columns = [pa.nulls(1, field.type) for field in schema]
            text = f"{error.exception_type}: {error.message} {error.where}".rstrip()
            yield pa.RecordBatch.from_arrays([*columns, pa.array([text])], names=[*schema.names, FAILURE_COLUMN])


def applied(rows: DataFrame, task: PreparationTask, output_schema: StructType) -> DataFrame:
    """Apply a task to rows."""
    if task.is_whole:  # all columns of a failure's row are null
        output_schema = StructType([*output_schema.toNullable().fields, StructField(FAILURE_COLUMN, StringType())])
    return map_in_arrow(rows, task, output_schema)


def without_failures(rows: DataFrame) -> DataFrame:
    """The rows for the sink of a job without operators; reading the row of a failure fails."""
    if FAILURE_COLUMN not in rows.columns:
        return rows
    lost = "varvite: cached rows were lost, and when they were computed again a function raised "
    text = f"concat('{lost}', {FAILURE_COLUMN}, '; restart the query to redo the batch')"
    condition = f"CASE WHEN {FAILURE_COLUMN} IS NULL THEN true ELSE CAST(raise_error({text}) AS BOOLEAN) END"
    return rows.where(condition).drop(FAILURE_COLUMN)


def prepared(plan: Preparation, chain: FunctionChain, batch: pa.RecordBatch) -> pa.RecordBatch:
    """One batch of rows, prepared.

    Raises:
        StepError: A user's function raised.
        InvalidRequestError: An element does not fit the declared type.
    """
    elements = read_elements(plan.input, batch)
    elements, stamps = chain.run(elements, event_times(batch, plan.event_time_from))
    if plan.changes_elements:
        columns = plan.output.writer("").columns(elements)
    else:
        columns = [batch.column(name) for name in plan.output.schema.names]
    names = list(plan.output.schema.names)
    if plan.event_time_out:
        names.append(EVENT_TIME_COLUMN)
        columns.append(pa.array(stamps or [None] * len(elements), pa.int64()))
    if plan.key is not None:
        names.append(KEY_COLUMN)
        columns.append(chain.keys(elements))
    return pa.RecordBatch.from_arrays(columns, names=names)


def read_elements(kind: ElementType, batch: pa.RecordBatch) -> list[Any]:
    """The elements of a batch of the input. Raises `UnreadableInputError`."""
    reader = kind.reader(batch.schema)
    with reading(batch, kind.schema.names, reader.rows):
        return reader.rows(batch)


def changes_elements(steps: Sequence[Step]) -> bool:
    """True if the output of these steps is not just their input."""
    return any(step.kind in CHANGING or step.kind == "filter" for step in steps)


def event_times(batch: pa.RecordBatch, column: str | None) -> Stamps:
    """Event times of a batch, milliseconds; None without such a column."""
    if column is None:
        return None
    return event_times_ms(batch.column(column)).to_pylist()


def raise_failures(failures: list[StepFailure]) -> None:
    """Raise the error of the lowest partition, if there is one, as `UserErrorRaised`."""
    if failures:
        partition, error = min(failures, key=lambda failure: failure[0])
        raise UserErrorRaised(error, None, partition)
