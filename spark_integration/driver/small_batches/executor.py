"""Executes attempts of small batches from the driver: all operators of the job, one after another.

Invariants: I2 (one summary per partition, and the rows are those of its answer), I3 (an attempt that fails is given up
as a whole), I10 (rows that are held are limited).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from varvite.spark_integration.connectors.heartbeats.heartbeat import HEARTBEAT_COLUMN
from varvite.spark_integration.connectors.output.table import output_table, plain, spark_schema, table_of_output
from varvite.spark_integration.connectors.running_query import RunningQuery
from varvite.spark_integration.driver.operator_executor import (
    RESULT_LIMIT,
    AnswerTooLargeError,
    BatchRedoError,
    TableResult,
    checked_answers,
    key_group_of,
)
from varvite.spark_integration.driver.placement.decision import is_one_process
from varvite.spark_integration.driver.small_batches.batch_size import BatchSizes
from varvite.spark_integration.driver.small_batches.partition_split import by_partition, in_order_of_time
from varvite.spark_integration.driver.small_batches.partition_tasks import PartitionTasks
from varvite.spark_integration.driver.small_batches.reading import BoundedReader
from varvite.spark_integration.driver.small_batches.task_place import TaskPlaces
from varvite.spark_integration.driver.small_batches.way import (
    Choice,
    PastBatches,
    SmallBatchLimits,
    Way,
    choose,
    obstacle,
    width_bytes,
)
from varvite.spark_integration.messages.protocol import KEY_GROUP_COLUMN
from varvite.spark_integration.messages.summary import decode_summaries
from varvite.storage.errors import DidNotHappenError
from varvite.storage.format.records import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from varvite.spark_integration.connectors.heartbeats.heartbeat import InputRows
    from varvite.spark_integration.functions.pickling import ShippedFunction
    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
    from varvite.spark_integration.messages.protocol import BatchRequest
    from varvite.spark_integration.plan.job import JobPlan
    from varvite.spark_integration.plan.operator import OperatorPlan
    from varvite.spark_integration.transport.segment_inbox import SegmentInbox

_log: Final = logging.getLogger(__name__)
InputBatches: TypeAlias = "Mapping[int, list[pa.RecordBatch]]"
"""Rows of the input by the place of the operator that reads them, with their key groups; 0 if there is none."""
# The last two: what py4j and PySpark raise when a class or a method is not there.
_NOT_AS_KNOWN: Final = (Py4JError, PySparkException, TypeError, AttributeError)


@dataclass(frozen=True, slots=True)
class SmallAttempt:
    """An attempt that took the driver's way."""

    results: tuple[TableResult, ...]
    """Of the operators, in order."""
    output: pa.Table
    """The rows for the sink."""


class SmallBatches:
    """Executes the small batches of a run. Used by one thread at a time; `cancel` by any."""

    def __init__(
        self,
        session: SparkSession,
        plan: JobPlan,
        functions: Mapping[str, ShippedFunction],
        inbox: SegmentInbox | None,
    ) -> None:
        """Use `create`. Raises `Py4JError` if Spark's internals are others than known."""
        self._plan = plan
        self._functions = functions
        self._inbox = inbox
        self._limits = limits_of(plan)
        self._reader = BoundedReader(session)
        self._sizes = BatchSizes(RunningQuery(plan.input.sparkSession, plan.job) if plan.heartbeat else None)
        self._tasks = PartitionTasks(session.sparkContext, TaskPlaces(session.sparkContext))
        self._row_bytes = width_bytes(first_schema(plan))
        self._past = PastBatches()
        self._is_off = False

    @classmethod
    def create(
        cls,
        session: SparkSession,
        plan: JobPlan,
        functions: Mapping[str, ShippedFunction],
        inbox: SegmentInbox | None,
    ) -> SmallBatches | None:
        """The executor of a job's small batches; None if none may take the driver's way, and the log says why.

        Args:
            session: The stream's own.
            plan: The job.
            functions: Those of its operators.
            inbox: The driver's inbox for segments, if it has one.
        """
        reason = obstacle(
            limits_of(plan),
            is_one_process=is_one_process(session.sparkContext.master or ""),
            has_spark_state=plan.has_spark_state,
            schemas=(first_schema(plan), *(o.output_schema for o in plan.operators)),
        )
        if reason is None:
            try:
                small = cls(session, plan, functions, inbox)
            except _NOT_AS_KNOWN as error:
                reason = f"this Spark is not as known: {error}"
            else:
                limits = small._limits
                _log.info(
                    "job %s: the driver itself executes batches of at most %d rows and %d bytes",
                    plan.job,
                    limits.rows_max,
                    limits.size_max_bytes,
                )
                return small
        _log.info("job %s: Spark's tasks execute all batches: %s", plan.job, reason)
        return None

    def choose(self, rows: InputRows, requests: Sequence[BatchRequest]) -> Choice:
        """Choose the way of an attempt.

        Args:
            rows: The input.
            requests: Those of the operators, in order.
        """
        is_first = bool(requests) and requests[0].base == ORIGIN
        if self._is_off or (is_first and any(o.initial_state is not None for o in self._plan.operators)):
            return Choice(Way.SPARK)
        try:
            size = self._sizes.of(rows)
        except (*_NOT_AS_KNOWN, DidNotHappenError) as error:
            self._switch_off(error)
            return Choice(Way.SPARK)
        return choose(self._limits, size, self._past, self._row_bytes)

    def read(self, choice: Choice, prepared: Callable[[], Mapping[int, DataFrame]]) -> InputBatches | None:
        """The rows of the input, prepared and with their key groups; None if they are too many, and were dropped.

        Args:
            choice: Of the driver's way.
            prepared: Makes the prepared rows, by the place of the operator that reads them.

        Raises:
            Exception: Reading has failed.
        """
        if choice.rows_max == 0:
            return {}
        try:
            read = {
                place: self._reader.read(rows, self._columns_read(place), choice.rows_max)
                for place, rows in prepared().items()
            }
        except _NOT_AS_KNOWN as error:
            if RESULT_LIMIT in str(error):
                return None
            if isinstance(error, (Py4JJavaError, PySparkException)):  # what the tasks raise belongs to the batch
                raise
            self._switch_off(error)
            return None
        batches = list(chain.from_iterable(read.values()))
        rows, size_bytes = sum(batch.num_rows for batch in batches), sum(batch.nbytes for batch in batches)
        if rows:
            self._past = self._past.with_row_bytes(-(-size_bytes // rows))
        if rows > choice.rows_max or size_bytes > self._limits.size_max_bytes:
            _log.debug("job %s: the batch has more than %d rows or is too large", self._plan.job, choice.rows_max)
            return None
        return read

    def run(self, read: InputBatches, requests: Sequence[BatchRequest]) -> SmallAttempt:
        """Execute all operators on the rows that `read` has returned.

        Raises:
            UserErrorRaised: A user's function raised.
            BatchRedoError: The batch must be executed again, by Spark's tasks if the answer was too large.
        """
        results: list[TableResult] = []
        for place, (operator, request) in enumerate(zip(self._plan.operators, requests, strict=True)):
            rows = [*self._from_operators(place, results), *read.get(place, [])]
            results.append(self._operate(operator, rows, request))
        partitions: Sequence[Sequence[pa.RecordBatch]] = results[-1].rows if results else [read.get(0, [])]
        return SmallAttempt(tuple(results), output_table(self._plan.output_schema, partitions))

    def after(self, summaries: Sequence[OperatorSummaries], rows: int | None) -> None:
        """Note a batch that has ended.

        Args:
            summaries: Those of the operators.
            rows: The rows of the input; None: as many as reached the first operator.
        """
        if rows is None:
            rows = summaries[0].total("rows_in") if summaries else 0
        self._past = self._past.after(rows, summaries[0].largest("row_bytes_max") if summaries else None)

    def cancel(self) -> None:
        """Try no partition again."""
        self._tasks.cancel()

    def close(self) -> None:
        """End the threads. May be called twice."""
        self._tasks.close()

    def _operate(self, operator: OperatorPlan, rows: list[pa.RecordBatch], request: BatchRequest) -> TableResult:
        spec = request.operator
        if spec.is_batch and spec.timestamp_column is not None and rows:
            rows = in_order_of_time(rows, spec.timestamp_column)
        inputs = by_partition(rows, spec.parallelism, spec.max_parallelism, self._reader.batch_rows_max)
        try:
            answers = self._tasks.run(request, self._functions[operator.uid], inputs, self._limits.answer_max_bytes)
        except AnswerTooLargeError:
            self._past = self._past.after_large_answer()
            raise
        encoded = [answer.summary for answer in answers if answer.summary is not None]
        checked = checked_answers(decode_summaries(encoded), request, self._inbox)
        return TableResult(checked, tuple(tuple(answer.rows) for answer in answers))

    def _columns_read(self, place: int) -> list[str]:
        """The columns of the input that an operator reads, with the key group, as expressions."""
        if not self._plan.operators:
            return ["*"]
        operator = self._plan.operators[place]
        read = ["*"] if operator.prepare is None else operator.prepare.columns_read()
        return [*read, self._key_group(operator)]

    def _from_operators(self, place: int, results: Sequence[TableResult]) -> list[pa.RecordBatch]:
        """The rows that an operator reads of those before it."""
        if not place:
            return []
        operators = self._plan.operators
        operator = operators[place]
        if operator.input is None:
            schema = operators[place - 1].output_schema
            batches = [batch.select(schema.names) for rows in results[-1].rows for batch in rows if batch.num_rows]
            return self._chained(pa.Table.from_batches(batches), schema, operator) if batches else []
        read: list[pa.RecordBatch] = []
        for at, number in operator.input.outputs:
            table = table_of_output(output_table(operators[at].output_schema, results[at].rows), number)
            read += self._chained(plain(table), spark_schema(table), operator) if table.num_rows else []
        return read

    def _chained(self, table: pa.Table, schema: StructType, operator: OperatorPlan) -> list[pa.RecordBatch]:
        """The output rows of an operator as input of another one."""
        try:
            rows = self._reader.as_sent(table, schema)
            columns = schema.names if operator.broadcast is not None else operator.key_columns
            rows = self._reader.with_key_groups(rows, schema, columns, self._key_group(operator))
        except (*_NOT_AS_KNOWN, pa.ArrowException) as error:
            self._switch_off(error)
            raise BatchRedoError(
                f"the rows for operator {operator.uid!r} cannot get their key groups on the driver; the batch is "
                "executed again by Spark's tasks",
                operator=operator.uid,
            ) from error
        names = rows.column_names if operator.prepare is None else [*operator.prepare.names_read(), KEY_GROUP_COLUMN]
        selected: list[pa.RecordBatch] = rows.select(names).to_batches()
        return selected

    def _key_group(self, operator: OperatorPlan) -> str:
        """The key group of an operator's rows, null for broadcast rows, as a named expression."""
        parallelism = operator.parallelism or self._plan.parallelism
        max_parallelism = self._plan.config.max_parallelism
        if operator.broadcast is not None:
            return operator.broadcast.group_of(parallelism, max_parallelism)
        return key_group_of(operator.key_columns, max_parallelism, parallelism if operator.by_partition else None)

    def _switch_off(self, error: Exception) -> None:
        self._is_off = True
        _log.warning("job %s: Spark's tasks execute all further batches: %s", self._plan.job, error)


def limits_of(plan: JobPlan) -> SmallBatchLimits:
    """The limits that a job is configured with."""
    return SmallBatchLimits(plan.config.small_batch_rows_max, plan.config.small_batch_max_bytes)


def first_schema(plan: JobPlan) -> StructType:
    """Columns of the rows that go to the first operator, or without one to the sink."""
    if plan.preparation is not None:
        return plan.preparation.output_schema
    columns: Any = plan.input.schema
    heartbeat = [field for field in columns.fields if field.name != HEARTBEAT_COLUMN]
    return type(columns)(heartbeat)
