"""Executes the operators of a job one after another on a batch, as often as it takes (design 4)."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import accumulators

from varvite.spark_integration.driver.batch_execution import (
    LOCAL_LEVEL,
    MULTI_EXECUTOR_LEVEL,
    BatchExecution,
    OperatorResult,
    chained_rows,
    check_executed,
)
from varvite.spark_integration.driver.placement.decision import is_one_process
from varvite.spark_integration.messages.protocol import BatchRequest
from varvite.spark_integration.plan.function_chain import ChainPlace
from varvite.spark_integration.plan.input_branches import BranchedPreparation
from varvite.spark_integration.plan.input_watermarks import LatestEventTimes
from varvite.spark_integration.plan.preparation import StepFailures, raise_failures, without_failures
from varvite.spark_integration.transport.pump import ExecutionNotes
from varvite.storage.errors import InvariantError
from varvite.storage.format.records import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from varvite.spark_integration.driver.placement.anchors import Anchors
    from varvite.spark_integration.functions.pickling import ShippedFunction
    from varvite.spark_integration.messages.protocol import OperatorRequest
    from varvite.spark_integration.operators.aggregation.map_side_combine import MapSideCombining
    from varvite.spark_integration.plan.job import JobPlan
    from varvite.spark_integration.plan.preparation import StepFailure
    from varvite.spark_integration.transport.pump import ExecutionNote
    from varvite.spark_integration.transport.segment_inbox import SegmentInbox
    from varvite.storage.format.records import Link


class AttemptAccumulators(NamedTuple):
    """What the tasks of an attempt tell the driver beside their rows."""

    executed: Accumulator[list[ExecutionNote]]
    """See `ExecutionNotes`."""
    failures: Accumulator[list[StepFailure]]
    latest: Accumulator[dict[int, int]]
    """See `LatestEventTimes`."""


@contextmanager
def attempt_accumulators(context: SparkContext) -> Iterator[AttemptAccumulators]:
    """New accumulators; to be read inside."""
    made = AttemptAccumulators(
        executed=context.accumulator([], ExecutionNotes()),
        failures=context.accumulator([], StepFailures()),
        latest=context.accumulator({}, LatestEventTimes()),
    )
    try:
        yield made
    finally:
        # A private name of PySpark: a version without it keeps them, as it does everybody's.
        registry: dict[int, Any] = getattr(accumulators, "_accumulatorRegistry", {})
        for accumulator in made:
            registry.pop(accumulator.aid, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInput:
    """What one attempt of a batch is executed on."""

    rows: DataFrame
    batch: int
    epoch: int
    run: str
    slot: int
    commit_token: str
    attempt: int
    base: Link
    winners: Mapping[str, tuple[str, ...]]
    """By operator: the tag that won at the base, by partition."""
    time_ms: int
    watermark_ms: int | None
    late_watermark_ms: int | None
    with_images: frozenset[str] = frozenset()
    """Operators that have non-keyed state at the base."""
    is_first: bool = False
    """The base is the one that the run began with."""


class BatchAttempt:
    """The attempts at one batch; `close` frees what they cached."""

    def __init__(
        self,
        spark: SparkSession,
        plan: JobPlan,
        requests: Sequence[OperatorRequest],
        functions: Mapping[str, ShippedFunction],
        combining: MapSideCombining,
        *,
        anchors: Anchors | None = None,
        inbox: SegmentInbox | None = None,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._requests = requests
        self._functions = functions
        self._anchors = anchors
        is_local = is_one_process(spark.sparkContext.master or "")
        # Spark copies a task only to another host.
        has_copies = not is_local and str(spark.conf.get("spark.speculation", "false")).lower() == "true"
        level = LOCAL_LEVEL if is_local else MULTI_EXECUTOR_LEVEL
        self._execution = BatchExecution(level, combining, anchors, inbox, has_copies=has_copies)
        self._prepared: DataFrame | None = None
        self.latest_ms: dict[int, int] = {}
        """By branch of the preparation: the largest event time of the batch."""

    @property
    def prepared_rows(self) -> DataFrame:
        """The rows that a job without operators gives its sink, executed and cached."""
        if self._prepared is None:
            raise InvariantError("no attempt was made yet")
        return self._prepared

    def run(self, asked: BatchInput) -> list[OperatorResult]:
        """Execute all operators, each on the rows of the one before.

        Raises:
            UserErrorRaised: A user's function raised.
            BatchRedoError: See `BatchExecution.run`; what was cached is freed.
        """
        self._execution.close()
        if self._anchors is not None:
            self._anchors.refresh()
        with attempt_accumulators(self._spark.sparkContext) as told:
            return self._run(asked, told)

    def _run(self, asked: BatchInput, told: AttemptAccumulators) -> list[OperatorResult]:
        results: list[OperatorResult] = []
        config = self._plan.config
        place = ChainPlace(0, self._plan.parallelism, config.max_parallelism, dict(config.job_parameters))
        rows = self._prepare(asked.rows, place, told)
        if not self._plan.operators:
            self._prepared = without_failures(self._execution.cache(rows))
            raise_failures(told.failures.value)
        for plan, request in zip(self._plan.operators, self._requests, strict=True):
            if results:
                rows = chained_rows(results[-1])
            batch_request = BatchRequest(
                operator=request,
                epoch=asked.epoch,
                run=asked.run,
                slot=asked.slot,
                commit_token=asked.commit_token,
                attempt=asked.attempt,
                batch=asked.batch,
                base=asked.base,
                confirmed=asked.winners.get(request.operator, ()),
                time_ms=asked.time_ms,
                # What an earlier run has seen of its collection says nothing about the one that begins and ends here.
                watermark_ms=None if self._plan.input_ends else asked.watermark_ms,
                late_watermark_ms=None if self._plan.input_ends else asked.late_watermark_ms,
                has_images=request.operator in asked.with_images,
                is_first=asked.is_first,
                input_ends=self._plan.input_ends,
            )
            if plan.initial_state is not None and asked.base == ORIGIN:
                rows = plan.initial_state.united_with(rows)
            try:
                result = self._execution.run(plan, rows, batch_request, self._functions[plan.uid], told.executed)
            finally:
                raise_failures(told.failures.value)
            results.append(result)
        check_executed(told.executed.value, [result.summaries for result in results], asked.batch)
        self.latest_ms = told.latest.value
        return results

    def _prepare(self, rows: DataFrame, place: ChainPlace, told: AttemptAccumulators) -> DataFrame:
        preparation, is_whole = self._plan.preparation, not self._plan.operators
        if isinstance(preparation, BranchedPreparation):
            return preparation.apply(rows, place, told.failures, told.latest, is_whole=is_whole)
        return rows if preparation is None else preparation.apply(rows, place, told.failures, is_whole=is_whole)

    def close(self) -> None:
        """Free the cached answers."""
        self._execution.close()
