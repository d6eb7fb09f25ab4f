"""The driver's side of a micro-batch: base, attempts, commit, sink, acknowledge.

Invariants:

* I1: `process_batch` returns, and so Spark acknowledges, only after the commit entry is durable.
* I2: the commit names the attempts whose summaries reached the driver; the sink sees only their rows.
* I3: every attempt of a batch starts from the same base.
* I6: losing the slot, or noticing that another run took the next one, ends this run: no sink, no return, no retry.
* I11: the base must match Spark's progress, or nothing is executed.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from varvite.changelog.commit.base_decision import Adopt, SinkCommit
from varvite.changelog.commit.batch_result import entry_time
from varvite.spark_integration.connectors.heartbeats.heartbeat import InputRows
from varvite.spark_integration.connectors.kafka.source_topics import loss_in_batch
from varvite.spark_integration.connectors.output.table import session_of_batch
from varvite.spark_integration.connectors.sink import close, complete_in, last_committed_of, write_to
from varvite.spark_integration.connectors.spark_watermark import SparkWatermark
from varvite.spark_integration.driver.batch_commit import BatchCommitter
from varvite.spark_integration.driver.batch_executor import BatchExecutor
from varvite.spark_integration.driver.cancellation import cancel_batch
from varvite.spark_integration.driver.job_start import JobStart, check_operators
from varvite.spark_integration.driver.monitoring.statistics import BatchTimes, StatisticsLog
from varvite.spark_integration.driver.operator_executor import BatchRedoError
from varvite.spark_integration.driver.query_progress import with_watermark
from varvite.spark_integration.driver.services import JobServices
from varvite.spark_integration.messages.user_errors import UserErrorRaised, task_error, user_function_error
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import VarviteError
from varvite.storage.fail_point import fail_point

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from varvite.changelog.commit.run import Acknowledged
    from varvite.spark_integration.connectors.sink import Sink
    from varvite.spark_integration.driver.batch_commit import ExecutedBatch
    from varvite.spark_integration.driver.operator_executor import OperatorResult
    from varvite.spark_integration.driver.query_progress import BatchInput
    from varvite.spark_integration.driver.small_batches.executor import TableResult
    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
    from varvite.spark_integration.messages.protocol import BatchSpec
    from varvite.spark_integration.plan.job import JobPlan
    from varvite.storage.clock import Clock, TokenSource

_log: Final = logging.getLogger(__name__)
SINK_END_TIMEOUT_S: Final = 5.0
"""Time for a batch that a query's end has met, before its sink is left open."""
BATCH_ATTEMPTS_MAX: Final = 3
"""Attempts of a batch within one call of foreachBatch, before the query fails and Spark replays it."""


class StopRequestedError(VarviteError):
    """The query is being stopped: the batch that Spark wanted was not begun, or it was cut off."""


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch that was executed and committed, before its sink was called."""

    rows: DataFrame | pa.Table
    summaries: tuple[OperatorSummaries, ...]
    acknowledged: Acknowledged
    attempts: int
    operators_ms: float
    ack_ms: float


class Coordinator:
    """One run of one query. `process_batch` is called by Spark's stream thread, the rest by the user's."""

    def __init__(
        self,
        spark: SparkSession,
        plan: JobPlan,
        sink: Sink,
        start: JobStart,
        clock: Clock,
        tokens: TokenSource,
        *,
        statistics: StatisticsLog | None = None,
    ) -> None:
        """Use `create`."""
        self._plan = plan
        self._sink = sink
        self._start = start
        self._run = start.run
        self._clock = clock
        self._tokens = tokens
        self._services = JobServices(plan, self._run, clock, statistics or StatisticsLog())
        self._executor = BatchExecutor(
            spark, plan, self._services.copies, brings_rows_to_driver=sink.brings_rows_to_driver
        )
        self._committer = BatchCommitter(self._run, plan, self._executor.operator_requests(self._run.record))
        self._progress = start.progress
        self._watermark = SparkWatermark(self._progress.query) if plan.is_spark_watermark else None
        self._context = spark.sparkContext
        self._stop_requested = threading.Event()
        self._cancelled = threading.Event()
        self._in_batch = threading.Lock()
        self.statistics = self._services.statistics
        self.user_error: BaseException | None = None
        """The error of the user's function, if that ended the query."""

    @classmethod
    def create(cls, spark: SparkSession, plan: JobPlan, sink: Sink, statistics: StatisticsLog) -> Coordinator:
        """Open the job's storage and check it. Raises as `JobStart.open`.

        Args:
            spark: The user's session.
            plan: The job.
            sink: Where output rows go.
            statistics: Gets the figures of the run's checkpoints.
        """
        clock, tokens = SystemClock(), SystemTokens()
        return cls(spark, plan, sink, JobStart.open(spark, plan, clock, tokens), clock, tokens, statistics=statistics)

    def take_over(self) -> None:
        """Fence older runs off; before the query is started."""
        self._sink.prepare(self._run.record.job_id)
        self._services.start(self._start.take_over().epoch)
        self._sink.take_over()
        self._progress.settle(self._run.chain, last_committed_of(self._sink))
        self._count_lost_input()

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._run.record.job_id

    @property
    def metrics_port(self) -> int | None:
        """Port at which this process serves the query's metrics; None if it does not."""
        return self._services.monitor.port

    def is_caught_up(self) -> bool:
        """Has Spark acknowledged the last batch that it has planned?"""
        return self._progress.checkpoint.is_caught_up()

    def has_moved_watermark(self) -> bool:
        """Has the last batch moved the watermark, so that timers may be due that no batch has fired?"""
        base = self._run.state.base
        return base is not None and base.watermark_ms != base.watermark_before_ms

    def request_stop(self, timeout_s: float) -> bool:
        """Begin no further batch, and wait for the end of the one that is running; False if it takes longer."""
        self._stop_requested.set()
        has_ended = self._in_batch.acquire(timeout=timeout_s)
        if has_ended:
            self._in_batch.release()
        return has_ended

    def cancel(self, run_id: str) -> None:
        """Cut off the batch that is running: end its Spark jobs, of that run of Spark's query, and its workers."""
        self._cancelled.set()
        self._executor.cancel()
        cancel_batch(self._context, run_id, self._run.record.job_id)

    def stop(self) -> None:
        """Release everything that the run holds: the query has ended. May be called twice."""
        if self.request_stop(SINK_END_TIMEOUT_S):  # a client must not be closed while another thread uses it
            close(self._sink)
        else:
            _log.warning("job %s: the sink is not closed, because its last batch still writes to it", self._plan.job)
        self._services.close()
        self._start.mark_stopped()
        self._progress.close()
        self._run.close()
        self._executor.close()

    def process_batch(self, rows: DataFrame, batch: int) -> None:
        """Execute a batch, commit it and call the sink, as foreachBatch. When it returns, Spark acknowledges.

        Raises:
            VarviteError: the query ends, for a reason that the module's invariants name or another one.
        """
        with self._in_batch:
            if self._stop_requested.is_set():
                raise StopRequestedError("the query is being stopped", batch=batch)
            try:
                with self._services.monitor.batch():
                    self._process(rows, batch)
            except Exception as error:
                if self._cancelled.is_set():
                    raise StopRequestedError("the query was stopped inside of the batch", batch=batch) from error
                loss = loss_in_batch(error, batch)
                if loss is not None:
                    raise loss.with_context(job=self._plan.job) from error
                if not isinstance(error, VarviteError):
                    raise
                context = {"job": self._plan.job, "batch": batch, "epoch": self._run.fence.epoch}
                raise error.with_context(**context) from error.__cause__

    def _process(self, rows: DataFrame, batch: int) -> None:
        started_s = self._clock.monotonic_s()
        self._executor.prepare(rows.sparkSession)
        batch_rows = InputRows(rows, has_heartbeats=self._plan.heartbeat)
        # Needed for the commit only, and calls into the JVM; Spark does not change it any more.
        batch_input = self._services.thread.submit(lambda: self._progress.input_of(batch))
        if not self._begin(batch, batch_input):
            if self._plan.has_spark_state:
                batch_rows.frame.write.format("noop").mode("overwrite").save()
            return
        try:
            committed = self._execute_and_commit(batch_rows, batch, batch_input)
            self._run.still_owner()
            sink_s = self._clock.monotonic_s()
            commit = committed.acknowledged.commit
            noted = SinkCommit(batch, commit.seq, commit.token)
            with session_of_batch(rows.sparkSession):
                write_to(self._sink, committed.rows, noted)
                complete_in(self._sink, noted)
            fail_point("driver.after_sink")
            self._run.still_owner()
            self._progress.sink_done(commit)
            self._executor.count(committed.summaries)  # a batch whose sink has failed is executed again
        finally:
            self._executor.release()
        self._executor.learn(committed.summaries)
        self._run.batch_done()
        ended_s = self._clock.monotonic_s()
        times = BatchTimes(
            ack_ms=committed.ack_ms,
            operators_ms=committed.operators_ms,
            sink_ms=(ended_s - sink_s) * 1000,
            batch_ms=(ended_s - started_s) * 1000,
        )
        self._services.record(
            committed.acknowledged, committed.summaries, times, committed.attempts, self._executor.way.value
        )
        self._count_lost_input()

    def _count_lost_input(self) -> None:
        sources = self._progress.sources
        if sources is not None:
            self._services.monitor.lost_input(sources.take_lost())

    def _begin(self, batch: int, batch_input: Future[BatchInput]) -> bool:
        """Find the base of the run's first batch; False if the batch is already committed and written (adopted)."""
        sources = self._progress.sources
        if not self._run.has_base or (sources is not None and sources.may_lose):
            batch_input.result()
        if self._run.has_base:
            return True
        progress = self._progress.first(batch)
        decision = self._run.choose_base(progress, last_committed_of(self._sink))
        base = decision.commit if isinstance(decision, Adopt) else decision.base
        check_operators(
            self._committer.operators, base, ignore_unclaimed_state=self._plan.config.ignore_unclaimed_state
        )
        self._committer.start(progress.query_id)
        self._services.follow(is_placed=self._executor.is_placed)
        self._tell_progress()
        if isinstance(decision, Adopt):
            _log.info("batch %d: state and output are already durable (seq %d): adopted", batch, decision.commit.seq)
            return False
        return True

    def _tell_progress(self) -> None:
        """Say once where the position of the input is written."""
        if self._progress.is_in_chain:
            _log.info("job %s: the position of its input is in its checkpoints alone", self._plan.job)
        else:
            reason = self._plan.progress.reason or "this version of Spark does not leave them out"
            _log.info("job %s: Spark writes its logs in each batch: %s", self._plan.job, reason)

    def _execute_and_commit(self, rows: InputRows, batch: int, batch_input: Future[BatchInput]) -> CommittedBatch:
        """Execute the batch until an attempt can be committed, and commit it."""
        time_ms = entry_time(self._run.state.base, self._clock.now_ms())
        started_s = self._clock.monotonic_s()
        spec, results = self._attempt(rows, batch, time_ms)
        executed_s = self._clock.monotonic_s()
        summaries = tuple(result.summaries for result in results)
        watermark_ms = self._watermark.after_batch() if self._watermark else None
        latest_ms = self._executor.latest_ms
        source_hash, position = batch_input.result()
        of_query_ms = self._watermark.of_query_ms if self._watermark else 0
        executed = self._committer.executed(
            spec, source_hash, summaries, latest_ms, watermark_ms, position=with_watermark(position, of_query_ms)
        )
        committing = self._services.thread.submit(lambda: self._commit(executed))
        try:  # Spark takes as long to analyse a plan as a disk to write; nobody executes it before the commit
            output = self._executor.output_rows(results)
        finally:
            acknowledged, acked_s = committing.result()
        return CommittedBatch(
            rows=output,
            summaries=summaries,
            acknowledged=acknowledged,
            attempts=spec.attempt + 1,
            operators_ms=(executed_s - started_s) * 1000,
            ack_ms=(acked_s - executed_s) * 1000,
        )

    def _attempt(
        self, rows: InputRows, batch: int, time_ms: int
    ) -> tuple[BatchSpec, Sequence[OperatorResult | TableResult]]:
        """Execute the batch until an attempt can be committed; answers that attempt and its results."""
        for attempt in range(BATCH_ATTEMPTS_MAX):
            spec = self._committer.spec(batch, attempt=attempt, time_ms=time_ms, commit_token=self._tokens.token())
            try:
                return spec, self._executor.attempt(rows, batch, self._committer.requests(spec))
            except UserErrorRaised as raised:
                self.user_error = user_function_error(raised, self._plan.job, batch)
                raise self.user_error from self.user_error.__cause__
            except BatchRedoError as error:
                if attempt + 1 == BATCH_ATTEMPTS_MAX or self._cancelled.is_set():
                    raise
                _log.warning("batch %d is executed again: %s", batch, error)
            except VarviteError:
                raise
            except Exception as error:  # what Spark makes of a task that has failed for good
                task_failure = task_error(error)
                if task_failure is None:
                    raise
                raise task_failure from error
        raise AssertionError

    def _commit(self, executed: ExecutedBatch) -> tuple[Acknowledged, float]:
        """Make the batch durable; answers the time when it was, too."""
        return self._committer.commit(executed, self._services.adoption), self._clock.monotonic_s()
