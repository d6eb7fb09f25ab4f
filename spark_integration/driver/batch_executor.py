"""Executes the attempts of a run's batches: all operators of the job, one after another.

Invariants: I2 (each partition was executed by its winner only), I3 (an attempt that fails is given up as a whole).
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark import accumulators

from varvite.spark_integration.connectors.output.rows import estimated_bytes
from varvite.spark_integration.connectors.output.table import output_table
from varvite.spark_integration.driver.answer_size import PastAnswers
from varvite.spark_integration.driver.arrow_batch_limit import ArrowBatchLimit
from varvite.spark_integration.driver.operator_executor import (
    LOCAL_LEVEL,
    MULTI_EXECUTOR_LEVEL,
    AnswerTooLargeError,
    OperatorExecutor,
    OperatorResult,
    OperatorTask,
    chained_rows,
    check_executed,
    winner_rows,
)
from varvite.spark_integration.driver.operator_requests import operator_request
from varvite.spark_integration.driver.placement.anchors import Anchors
from varvite.spark_integration.driver.placement.decision import is_one_process
from varvite.spark_integration.driver.small_batches.executor import SmallBatches
from varvite.spark_integration.driver.small_batches.way import SPARKS, Way, is_carried
from varvite.spark_integration.elements.side_by_side import rows_of_output
from varvite.spark_integration.functions.pickling import ship
from varvite.spark_integration.operators.aggregation.map_side_combine import MapSideCombining
from varvite.spark_integration.plan.function_chain import ChainPlace
from varvite.spark_integration.plan.input_branches import BranchedPreparation
from varvite.spark_integration.plan.input_watermarks import LatestEventTimes
from varvite.spark_integration.plan.preparation import StepFailures, raise_failures, without_failures
from varvite.spark_integration.transport.pump import ExecutionNotes
from varvite.spark_integration.transport.segment_inbox import SegmentInbox
from varvite.storage.errors import InvariantError
from varvite.storage.format.records import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from varvite.spark_integration.connectors.heartbeats.heartbeat import InputRows
    from varvite.spark_integration.driver.operator_executor import TableResult
    from varvite.spark_integration.driver.placement.standbys import StandbyCopies
    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
    from varvite.spark_integration.messages.protocol import BatchRequest, OperatorRequest
    from varvite.spark_integration.plan.job import JobPlan
    from varvite.spark_integration.plan.operator import OperatorInput
    from varvite.spark_integration.plan.preparation import StepFailure
    from varvite.spark_integration.transport.pump import ExecutionNote
    from varvite.storage.format.records import JobRecord

_log: Final = logging.getLogger(__name__)
MANY_ROWS: Final = 1 << 62
"""More rows than any small batch has."""
STREAM_SETTINGS: Final = {
    # Adaptive execution would merge the state's partitions.
    "spark.sql.adaptive.enabled": "false",
    # The cached answers live for one batch: compressing them costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}


class AttemptAccumulators(NamedTuple):
    """Accumulators in which the tasks of an attempt report beside their rows."""

    executions: Accumulator[list[ExecutionNote]]
    failures: Accumulator[list[StepFailure]]
    latest_ms: Accumulator[dict[int, int]]
    """By branch of the preparation: the largest event time."""


@contextmanager
def attempt_accumulators(context: SparkContext) -> Iterator[AttemptAccumulators]:
    """New accumulators, which can be read inside of the block."""
    created = AttemptAccumulators(
        executions=context.accumulator([], ExecutionNotes()),
        failures=context.accumulator([], StepFailures()),
        latest_ms=context.accumulator({}, LatestEventTimes()),
    )
    try:
        yield created
    finally:
        # A private name of PySpark: a version without it keeps them, as it does everybody's.
        registry: dict[int, Any] = getattr(accumulators, "_accumulatorRegistry", {})
        for accumulator in created:
            registry.pop(accumulator.aid, None)


def add_accumulated(context: SparkContext, accumulated: Sequence[bytes]) -> None:
    """Add values to the user's accumulators, each an id and a value, pickled.

    They take the way of Spark's own tasks, through the JVM: so no value is lost that a task adds at the same time.
    """
    try:
        accumulator: Any = context._javaAccumulator  # noqa: SLF001  a private name of PySpark
        added = accumulator.copyAndReset()
        for value in accumulated:
            added.add(value)
        accumulator.merge(added)
    except Exception as error:  # noqa: BLE001  the batch counts; Spark goes on without them, too
        _log.warning("what the functions of a batch have added to accumulators is lost: %s", error)


class BatchExecutor:
    """Executes attempts of batches. `prepare` is called first, `release` after each batch, `close` at the end."""

    def __init__(
        self,
        spark: SparkSession,
        plan: JobPlan,
        copies: Callable[[], StandbyCopies],
        *,
        brings_rows_to_driver: bool = False,
    ) -> None:
        """Ships the functions.

        Args:
            spark: The user's session.
            plan: The job.
            copies: Returns the copies that standbys have; called whenever partitions are placed.
            brings_rows_to_driver: See `Sink.brings_rows_to_driver`.
        """
        self._spark = spark
        self._plan = plan
        self._copies = copies
        self._functions = {o.uid: ship(spark.sparkContext, o.function) for o in plan.operators}
        self._inbox: SegmentInbox | None = None
        if plan.operators and plan.config.changelog_enabled:
            self._inbox = SegmentInbox.open(getattr(spark.sparkContext, "_temp_dir", None))  # which goes with the JVM
        # Values of other types come to the sink by Spark alone.
        self._may_collect = brings_rows_to_driver and all(is_carried(f.dataType) for f in plan.output_schema.fields)
        self._past_answers = PastAnswers()
        self._combining = MapSideCombining()
        self._anchors: Anchors | None = None
        self._batch_limit: ArrowBatchLimit | None = None
        self._operator_executor: OperatorExecutor | None = None
        self._small: SmallBatches | None = None
        self._prepared_rows: DataFrame | None = None
        self._output_table: pa.Table | None = None
        self._input_rows: int | None = None
        self.way = Way.SPARK
        """The way that the last attempt took."""
        self.latest_ms: dict[int, int] = {}
        """By branch of the preparation: the largest event time of the last attempt."""

    def operator_requests(self, record: JobRecord) -> list[OperatorRequest]:
        """Requests of the operators, in order."""
        inbox = "" if self._inbox is None else self._inbox.path
        functions = self._functions
        return [
            operator_request(self._plan, o, functions[o.uid].function_hash, record, inbox) for o in self._plan.operators
        ]

    def prepare(self, session: SparkSession) -> None:
        """Set up the stream's own session, a clone of the user's; does nothing after the first time."""
        if self._operator_executor is not None:
            return
        for key, value in STREAM_SETTINGS.items():
            session.conf.set(key, value)
        self._batch_limit = ArrowBatchLimit(session)
        if self._plan.config.placement_enabled:
            self._anchors = Anchors.create(session, self._plan.job, self._copies)
        is_local = is_one_process(session.sparkContext.master or "")
        # Spark copies a task only to another host.
        has_copies = not is_local and str(session.conf.get("spark.speculation", "false")).lower() == "true"
        level = LOCAL_LEVEL if is_local else MULTI_EXECUTOR_LEVEL
        self._operator_executor = OperatorExecutor(
            level, self._combining, self._anchors, self._inbox, has_copies=has_copies
        )
        self._small = SmallBatches.create(session, self._plan, self._functions, self._inbox)

    @property
    def is_placed(self) -> bool:
        """Do partitions ask for executors?"""
        return self._anchors is not None

    def attempt(
        self, rows: InputRows, batch: int, requests: Sequence[BatchRequest]
    ) -> Sequence[OperatorResult | TableResult]:
        """Execute all operators, each on the rows of the one before; a small batch in the driver.

        Args:
            rows: The batch's input.
            batch: Its number.
            requests: Those of the operators, in order.

        Raises:
            UserErrorRaised: A user's function raised.
            BatchRedoError: See `OperatorExecutor.run`.
        """
        self.release()
        small = self._attempt_small(rows, requests)
        if small is not None:
            return small
        self.way, self._input_rows = Way.SPARK, self._rows_unless_combined()
        if self._anchors is not None:
            self._anchors.refresh()
        with attempt_accumulators(self._spark.sparkContext) as reports:
            results = self._run(rows.frame, requests, reports)
            check_executed(reports.executions.value, [result.summaries for result in results], batch)
            self.latest_ms = reports.latest_ms.value
        return results

    def output_rows(self, results: Sequence[OperatorResult | TableResult]) -> DataFrame | pa.Table:
        """The rows for the sink, of the attempt that has these results; see `winner_rows`."""
        if self._output_table is not None:
            self._past_answers = self._past_answers.after(self._output_table.nbytes)
            return self._output_table
        if not results:
            if self._prepared_rows is None:
                raise InvariantError("no attempt was made yet")
            return self._prepared_rows
        last: Any = results[-1]
        if self._may_collect:
            self._past_answers = self._past_answers.after(estimated_bytes(last.answer))
        return winner_rows(last, self._plan.output_schema)

    def learn(self, summaries: Sequence[OperatorSummaries]) -> None:
        """Adapt the next batch to a batch that has ended."""
        if self._batch_limit is not None:
            self._batch_limit.after(summaries)
        if self._small is not None:
            self._small.after(summaries, self._input_rows)
        if self.way is Way.SPARK:
            self._combining.after(summaries)

    def count(self, summaries: Sequence[OperatorSummaries]) -> None:
        """Add what the functions have added to accumulators, once the batch counts."""
        accumulated = [value for operator in summaries for s in operator.summaries for value in s.accumulated]
        if accumulated:
            add_accumulated(self._spark.sparkContext, accumulated)

    def release(self) -> None:
        """Free what the last attempt has cached."""
        self._prepared_rows = self._output_table = None
        if self._operator_executor is not None:
            self._operator_executor.release()

    def close(self) -> None:
        """Free the functions, and receive no more segments. May be called twice."""
        if self._small is not None:
            self._small.close()
        if self._inbox is not None:
            self._inbox.close()
        for function in self._functions.values():
            try:
                function.destroy()
            except Exception as error:  # noqa: BLE001  after the end of Spark, with which the broadcasts have gone
                _log.warning("the broadcast of a function was not freed: %s", error)
        self._functions.clear()

    def cancel(self) -> None:
        """Try nothing again: the batch is cut off. Called by another thread."""
        if self._small is not None:
            self._small.cancel()

    def _attempt_small(self, rows: InputRows, requests: Sequence[BatchRequest]) -> Sequence[TableResult] | None:
        """Execute a small batch in the driver; None if it is not small, and nothing was executed then."""
        small = self._small
        choice = SPARKS if small is None else small.choose(rows, requests)
        if small is None or choice.way is Way.SPARK:
            return None
        with attempt_accumulators(self._spark.sparkContext) as reports:
            try:
                read = small.read(choice, lambda: self._prepared_inputs(rows.frame, reports))
            finally:
                raise_failures(reports.failures.value)
            latest_ms = reports.latest_ms.value
        if read is None:
            return None
        self.way, self._input_rows = Way.DRIVER, sum(b.num_rows for batches in read.values() for b in batches)
        attempt = small.run(read, requests)
        self.latest_ms, self._output_table = latest_ms, attempt.output
        return attempt.results

    def _prepared_inputs(self, rows: DataFrame, reports: AttemptAccumulators) -> dict[int, DataFrame]:
        """The prepared rows of the input, by the place of the operator that reads them."""
        rows = self._read_once(rows)
        inputs = {0: self._apply_preparation(rows, self._chain_place(), reports, is_whole=False)}
        for place, operator in enumerate(self._plan.operators):
            if operator.input is not None and operator.input.preparation is not None:
                inputs[place] = self._beside(operator.input.preparation, rows, reports)
        return inputs

    def _read_once(self, rows: DataFrame) -> DataFrame:
        """The rows of the input, which are kept if several operators read them."""
        if self._operator_executor is None:
            raise InvariantError("the session of the stream is not prepared")
        if any(plan.input is not None and plan.input.preparation is not None for plan in self._plan.operators):
            return self._operator_executor.keep(rows)
        return rows

    def _rows_unless_combined(self) -> int | None:
        """More rows than any small batch has, if they are combined before they are counted; else None."""
        return MANY_ROWS if any(self._combining.way(o.uid) is not None for o in self._plan.operators) else None

    def _chain_place(self) -> ChainPlace:
        config = self._plan.config
        return ChainPlace(0, self._plan.parallelism, config.max_parallelism, dict(config.job_parameters))

    def _run(
        self, rows: DataFrame, requests: Sequence[BatchRequest], reports: AttemptAccumulators
    ) -> list[OperatorResult | TableResult]:
        if self._operator_executor is None:
            raise InvariantError("the session of the stream is not prepared")
        comes_to_driver = self._may_collect and self._past_answers.is_next_small
        rows = self._read_once(rows)
        prepared = self._apply_preparation(rows, self._chain_place(), reports, is_whole=not self._plan.operators)
        if not self._plan.operators:
            cached, self._input_rows = self._operator_executor.cache(prepared)
            self._prepared_rows = without_failures(cached)
            raise_failures(reports.failures.value)
        results: list[OperatorResult] = []
        for plan, request in zip(self._plan.operators, requests, strict=True):
            if plan.input is not None:
                read = self._met(plan.input, rows, results, reports)
            else:
                read = chained_rows(results[-1]) if results else prepared
            if plan.initial_state is not None and request.base == ORIGIN:
                read = plan.initial_state.united_with(read)
            task = OperatorTask(plan, read, request, self._functions[plan.uid], reports.executions)
            try:
                if comes_to_driver and plan is self._plan.operators[-1]:
                    collected = self._operator_executor.run_to_driver(task)
                    self._output_table = output_table(self._plan.output_schema, collected.rows)
                    return [*results, collected]
                results.append(self._operator_executor.run(task))
            except AnswerTooLargeError:
                self._past_answers = self._past_answers.after_refusal()
                raise
            finally:
                raise_failures(reports.failures.value)
        return [*results]

    def _met(
        self, read: OperatorInput, rows: DataFrame, results: Sequence[OperatorResult], reports: AttemptAccumulators
    ) -> DataFrame:
        """The rows of an operator that reads outputs of several operators, or sources beside them."""
        parts = [rows_of_output(chained_rows(results[place]), number) for place, number in read.outputs]
        if read.preparation is not None:
            parts.append(self._beside(read.preparation, rows, reports))
        return reduce(lambda united, part: united.union(part), parts)

    def _beside(self, preparation: BranchedPreparation, rows: DataFrame, reports: AttemptAccumulators) -> DataFrame:
        """The rows of sources that an operator reads beside outputs of others."""
        return preparation.apply(rows, self._chain_place(), reports.failures, reports.latest_ms, is_whole=False)

    def _apply_preparation(
        self, rows: DataFrame, place: ChainPlace, reports: AttemptAccumulators, *, is_whole: bool
    ) -> DataFrame:
        preparation = self._plan.preparation
        if isinstance(preparation, BranchedPreparation):
            return preparation.apply(rows, place, reports.failures, reports.latest_ms, is_whole=is_whole)
        return rows if preparation is None else preparation.apply(rows, place, reports.failures, is_whole=is_whole)
