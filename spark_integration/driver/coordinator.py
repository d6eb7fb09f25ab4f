"""The driver's side of a micro-batch: base, execution, commit, sink, acknowledge (design 4 and 7a).

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

from varvite.changelog.commit.base_decision import Adopt
from varvite.changelog.commit.batch_result import entry_time
from varvite.changelog.commit.import_plan import begins_after
from varvite.changelog.commit.run import JobRun, NewJob
from varvite.changelog.schema.history import words
from varvite.changelog.schema.pickled import refuse_stored
from varvite.materializer.options.start import CLONE
from varvite.materializer.restore.origin import check_start, clone_origin, copy_origin, find_start, is_location
from varvite.materializer.service.supervisor import SupervisedMaterializer
from varvite.spark_integration.connectors.heartbeat import without_heartbeat
from varvite.spark_integration.connectors.spark_progress import SparkCheckpoint
from varvite.spark_integration.driver.batch_attempt import BatchAttempt, BatchInput
from varvite.spark_integration.driver.batch_commit import BatchStamp, batch_facts, next_watermark, winners_of
from varvite.spark_integration.driver.batch_execution import ArrowBatchLimit, BatchRedoError, winner_rows
from varvite.spark_integration.driver.monitoring.gauges import JobCheckpoint
from varvite.spark_integration.driver.monitoring.monitor import JobMonitor
from varvite.spark_integration.driver.monitoring.statistics import BatchTimes, StatisticsLog, statistics_of
from varvite.spark_integration.driver.operator_requests import operator_request, with_states
from varvite.spark_integration.driver.placement.anchors import Anchors
from varvite.spark_integration.driver.placement.decision import PartitionMoves
from varvite.spark_integration.driver.placement.standbys import StandbyWatch
from varvite.spark_integration.driver.snapshot_watch import SnapshotWatch
from varvite.spark_integration.functions.pickling import ship
from varvite.spark_integration.messages.user_errors import UserErrorRaised, task_error, user_function_error
from varvite.spark_integration.operators.aggregation.map_side_combine import MapSideCombining
from varvite.spark_integration.plan.input_watermarks import InputWatermarks
from varvite.spark_integration.transport.segment_inbox import SegmentInbox
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import InvalidRequestError, VarviteError
from varvite.storage.fail_point import fail_point
from varvite.storage.format.layout import LATEST
from varvite.storage.format.records import ORIGIN
from varvite.storage.job.log_store import check_log
from varvite.storage.job.preflight import check_store
from varvite.storage.job.storage_choice import check_job_storage, new_job_storage
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.open import open_store
from varvite.storage.transfer.attempt_threads import AttemptThreads

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from varvite.changelog.commit.batch_result import BatchFacts
    from varvite.changelog.commit.import_plan import CopiedState
    from varvite.changelog.commit.run import Acknowledged
    from varvite.materializer.restore.origin import StateOrigin
    from varvite.spark_integration.connectors.sink import Sink
    from varvite.spark_integration.driver.batch_execution import OperatorResult
    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
    from varvite.spark_integration.options.job_config import JobConfig
    from varvite.spark_integration.plan.job import JobPlan
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import Commit, Fence
    from varvite.storage.object_stores.contract import ObjectStore

_log: Final = logging.getLogger(__name__)
STREAM_SETTINGS: Final = {
    # Adaptive execution would merge the state's partitions.
    "spark.sql.adaptive.enabled": "false",
    # The cached answers live for one batch: compressing them costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}
BATCH_ATTEMPTS_MAX: Final = 3
"""Executions of a batch within one call of foreachBatch, before the query fails and Spark replays it."""


class StopRequestedError(VarviteError):
    """The query is being stopped: the batch that Spark wanted was not begun."""


@dataclass(frozen=True, slots=True)
class Executed:
    """A batch that was executed and committed, before its sink was called."""

    rows: DataFrame
    summaries: tuple[OperatorSummaries, ...]
    acknowledged: Acknowledged
    attempts: int
    operators_ms: float
    ack_ms: float


class Coordinator:
    """One run of one query. `process_batch` is called by Spark's stream thread, the rest by the user's."""

    def __init__(
        self, spark: SparkSession, plan: JobPlan, sink: Sink, run: JobRun, clock: Clock, tokens: TokenSource
    ) -> None:
        """Use `create`."""
        self._spark = spark
        self._plan = plan
        self._sink = sink
        self._run = run
        self._clock = clock
        self._tokens = tokens
        self._checkpoint = SparkCheckpoint(spark, plan.checkpoint_location)
        self._functions = {o.uid: ship(spark.sparkContext, o.function) for o in plan.operators}
        self._inbox: SegmentInbox | None = None
        if plan.operators and plan.config.changelog_enabled:
            self._inbox = SegmentInbox.open(getattr(spark.sparkContext, "_temp_dir", None))  # which goes with the JVM
        inbox = "" if self._inbox is None else self._inbox.path
        self._requests = [
            operator_request(plan, o, self._functions[o.uid].function_hash, run.record, inbox) for o in plan.operators
        ]
        self._winners: dict[str, tuple[str, ...]] = {}
        """By operator: the winning tag of each partition at the base."""
        self._query_id = ""
        self._first_base = ORIGIN
        """What the run's first batch is executed on."""
        self._stop_requested = threading.Event()
        self._in_batch = threading.Lock()
        self._beside = AttemptThreads(1, "varvite-beside-the-batch")
        """Waits for a storage while Spark's thread plans or executes; a hung one holds up no exit."""
        self._watch = SnapshotWatch(run.store, run.record.job_id)
        copied = self._requests if plan.config.recover_from_local else []
        self._standbys = StandbyWatch(run.store, run.record.job_id, {r.operator: r.parallelism for r in copied}, clock)
        self._materializer: SupervisedMaterializer | None = None
        self._batch_limit: ArrowBatchLimit | None = None
        self._combining = MapSideCombining()
        self._moves = PartitionMoves()
        self._anchors: Anchors | None = None
        self._origin: StateOrigin | None = None
        self._inputs = InputWatermarks.before_the_first_batch(plan.input_delays)
        self.statistics = StatisticsLog()
        self.user_error: BaseException | None = None
        """What the user's function raised, if that ended the query."""
        self._monitor = JobMonitor(plan.job, plan.config.metrics_host or "", plan.config.metrics_ports)

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        plan: JobPlan,
        sink: Sink,
        *,
        store: ObjectStore | None = None,
        clock: Clock | None = None,
        tokens: TokenSource | None = None,
    ) -> Coordinator:
        """Open the job's storage and check it.

        Args:
            spark: The user's session.
            plan: The job.
            sink: Where output rows go.
            store: The storage root, instead of opening the plan's URL.
            clock: Time, instead of the machine's.
            tokens: Randomness, instead of the machine's.

        Raises:
            InvalidRequestError: the storage cannot be used, or the plan does not fit it.
            IncompatibleError: the job exists with other key groups.
        """
        config = plan.config
        clock, tokens = clock or SystemClock(), tokens or SystemTokens()
        root = store or open_store(config.storage_url, dict(config.storage_options))
        job_store = JobStore(
            root,
            plan.job,
            key_provider=config.encryption_key_provider,
            log_storage=config.changelog_storage,
            tokens=tokens,
        )
        check_store(job_store, tokens, clock)
        origin = _origin(spark, plan, job_store)
        run = JobRun.open(
            job_store,
            plan.job,
            config.max_parallelism,
            config.commit_policy,
            clock,
            tokens,
            new=_new_job(plan, origin, job_store),
            uploads=config.upload_policy,
        )
        _check_stored_as_wanted(run, config, tokens)
        made = cls(spark, plan, sink, run, clock, tokens)
        made._origin = origin
        return made

    def take_over(self) -> None:
        """Fence older runs off; before the query is started."""
        self._sink.prepare(self._run.record.job_id)
        fence = self._take_over_chain()
        self._monitor.started(fence.epoch)
        if self._plan.config.materializer_mode == "embedded":
            self._materializer = SupervisedMaterializer(
                self._plan.materializer_config,
                started=self._monitor.materializer_started,
                trouble=self._monitor.trouble,
            )
        _log.info("job %s: run %d took the chain over at %s", self._plan.job, fence.epoch, self._run.store.url)

    def _take_over_chain(self) -> Fence:
        origin, restore = self._origin, self._plan.config.restore
        if origin is None:
            return self._run.take_over(None if is_location(restore) else restore)
        _log.info("job %s: it starts from the state at %s", self._plan.job, origin.location)
        return self._run.start_from(
            origin.commit, self._checkpoint.known_query_id(), lambda slot: self._take_state(origin, slot)
        )

    def _take_state(self, origin: StateOrigin, slot: int) -> CopiedState:
        run, clock, tokens = self._run, self._clock, self._tokens
        source = origin.job_beside(run.store) if self._plan.config.claim_mode == CLONE else None
        if source is not None and source == run.record.cloned_from:
            return clone_origin(origin, run.record, source, clock=clock, tokens=tokens)
        return copy_origin(origin, run.record, run.store, slot, clock=clock, tokens=tokens)

    @property
    def metrics_port(self) -> int | None:
        """Where this process serves the query's metrics; None if it does not."""
        return self._monitor.port

    def attach(self, query: StreamingQuery) -> None:
        """The query that calls `process_batch` has been started."""
        _log.info("job %s: query %s started", self._plan.job, query.id)

    def request_stop(self) -> None:
        """Begin no further batch, and wait until the one that is running is over."""
        self._stop_requested.set()
        with self._in_batch:
            pass

    def stop(self) -> None:
        """The query has ended: release what the run holds. May be called twice."""
        self._stop_requested.set()
        self._watch.close()
        if self._materializer is not None:
            self._materializer.stop()
        self._monitor.close()
        self._beside.close()
        self._run.close()
        if self._inbox is not None:
            self._inbox.close()
        for function in self._functions.values():
            try:
                function.destroy()
            except Exception as error:  # noqa: BLE001  after the end of Spark, with which the broadcasts have gone
                _log.warning("the broadcast of a function was not freed: %s", error)
        self._functions.clear()

    def is_caught_up(self) -> bool:
        """See `SparkCheckpoint.is_caught_up`."""
        return self._checkpoint.is_caught_up()

    def process_batch(self, rows: DataFrame, batch: int) -> None:
        """foreachBatch: execute, commit, sink. When it returns, Spark acknowledges.

        Raises:
            VarviteError: see the module; the query ends.
        """
        with self._in_batch:
            if self._stop_requested.is_set():
                raise StopRequestedError("the query is being stopped", batch=batch)
            try:
                with self._monitor.batch():
                    self._process(rows, batch)
            except VarviteError as error:
                context = {"job": self._plan.job, "batch": batch, "epoch": self._run.fence.epoch}
                raise error.with_context(**context) from error.__cause__

    def _process(self, rows: DataFrame, batch: int) -> None:
        started_s = self._clock.monotonic_s()
        batch_limit = self._prepare_session(rows)
        if self._plan.heartbeat:
            rows = without_heartbeat(rows)
        # Needed for the commit only, and a request to where Spark's checkpoint is; Spark does not change it any more.
        source_hash = self._beside.submit(lambda: self._checkpoint.source_hash(batch))
        if not self._begin(batch):
            return
        attempt = BatchAttempt(
            rows.sparkSession,
            self._plan,
            self._requests,
            self._functions,
            self._combining,
            anchors=self._anchors,
            inbox=self._inbox,
        )
        try:
            executed = self._execute(attempt, rows, batch, source_hash)
            self._run.still_owner()
            sink_s = self._clock.monotonic_s()
            self._sink.write(executed.rows, batch, executed.acknowledged.commit.seq)
            fail_point("driver.after_sink")
            self._run.still_owner()
        finally:
            attempt.close()
        batch_limit.after(executed.summaries)
        self._combining.after(executed.summaries)
        moved = self._moves.after(executed.summaries)
        self._run.batch_done()
        ended_s = self._clock.monotonic_s()
        statistics = statistics_of(
            executed.acknowledged,
            executed.summaries,
            BatchTimes(
                ack_ms=executed.ack_ms,
                operators_ms=executed.operators_ms,
                sink_ms=(ended_s - sink_s) * 1000,
                batch_ms=(ended_s - started_s) * 1000,
            ),
            attempts=executed.attempts,
            log_commits=self._run.state.log_commits,
            moved_partitions=moved,
        )
        self.statistics.add(statistics)
        commit, view = executed.acknowledged.commit, self._run.state.view
        self._monitor.acknowledged(JobCheckpoint(statistics, executed.summaries, commit, view, self._watch.base_sizes))

    def _begin(self, batch: int) -> bool:
        """Find the base of the run's first batch; False if the batch is already committed and written (adopted)."""
        if self._run.has_base:
            return True
        progress = self._checkpoint.progress(batch)
        self._query_id = progress.query_id
        decision = self._run.choose_base(progress, self._sink.last_committed())
        base = decision.commit if isinstance(decision, Adopt) else decision.base
        self._check_operators(base)
        self._requests = [with_states(request, base) for request in self._requests]
        self._winners = winners_of(base)
        self._first_base = self._run.state.view.base
        standbys = None if self._anchors is None else self._standbys
        self._watch.start(self._run.state.view, self._run.state.floors, standbys)
        if isinstance(decision, Adopt):
            _log.info("batch %d: state and output are already durable (seq %d): adopted", batch, decision.commit.seq)
            return False
        return True

    def _execute(self, attempt: BatchAttempt, rows: DataFrame, batch: int, source_hash: Future[str]) -> Executed:
        """Execute the batch until an attempt can be committed, and commit it."""
        base = self._run.state.base
        time_ms = entry_time(base, self._clock.now_ms())
        started_s = self._clock.monotonic_s()
        results, token, attempts = self._attempt(attempt, rows, batch, time_ms)
        executed_s = self._clock.monotonic_s()
        summaries = tuple(result.summaries for result in results)
        inputs = self._inputs.after(attempt.latest_ms, time_ms)
        watermark_ms = next_watermark(base, self._plan, summaries, inputs)
        stamp = BatchStamp(batch, self._query_id, source_hash.result(), time_ms, base.watermark_ms if base else None)
        facts = batch_facts(stamp, self._requests, summaries, watermark_ms, self._dropped())
        committing = self._beside.submit(lambda: self._commit(facts, token))
        try:  # Spark takes as long to analyse a plan as a disk to write; nobody executes it before the commit
            output = winner_rows(results[-1], self._plan.output_schema) if results else attempt.prepared_rows
        finally:
            acknowledged, acked_s = committing.result()
        self._inputs = inputs
        self._winners = winners_of(acknowledged.commit)
        return Executed(
            rows=output,
            summaries=summaries,
            acknowledged=acknowledged,
            attempts=attempts,
            operators_ms=(executed_s - started_s) * 1000,
            ack_ms=(acked_s - executed_s) * 1000,
        )

    def _attempt(
        self, attempt: BatchAttempt, rows: DataFrame, batch: int, time_ms: int
    ) -> tuple[list[OperatorResult], str, int]:
        """Execute the batch until an attempt can be committed: its results, the commit's token, how many it took."""
        state = self._run.state
        for number in range(BATCH_ATTEMPTS_MAX):
            commit_token = self._tokens.token()
            asked = BatchInput(
                rows=rows,
                batch=batch,
                epoch=self._run.fence.epoch,
                run=self._run.fence.token,
                slot=state.slot,
                commit_token=commit_token,
                attempt=number,
                base=state.view.base,
                winners=self._winners,
                time_ms=time_ms,
                watermark_ms=state.base.watermark_ms if state.base else None,
                late_watermark_ms=state.base.watermark_before_ms if state.base else None,
                with_images=frozenset(image.operator for image in state.view.images),
                is_first=state.view.base == self._first_base,
            )
            try:
                return attempt.run(asked), commit_token, number + 1
            except UserErrorRaised as raised:
                self.user_error = user_function_error(raised, self._plan.job, batch)
                raise self.user_error from self.user_error.__cause__
            except BatchRedoError as error:
                if number + 1 == BATCH_ATTEMPTS_MAX:
                    raise
                _log.warning("batch %d is executed again: %s", batch, error)
            except VarviteError:
                raise
            except Exception as error:  # what Spark makes of a task that has failed for good
                known = task_error(error)
                if known is None:
                    raise
                raise known from error
        raise AssertionError

    def _commit(self, facts: BatchFacts, token: str) -> tuple[Acknowledged, float]:
        """Make the batch durable; with the time when it was."""
        return self._run.commit(facts, token, self._watch.adoption), self._clock.monotonic_s()

    def _check_operators(self, base: Commit | None) -> None:
        """Operators whose state would be lost and keys whose type changed are errors before anything is executed."""
        before = {o.uid: o for o in base.operators} if base else {}
        lost = set(before) - {o.uid for o in self._plan.operators}
        if lost and not self._plan.config.ignore_unclaimed_state:
            raise InvalidRequestError(
                f"the state of operators {sorted(lost)} would be lost: the job has no such operators any more; "
                "restore the uids, or set execution.state-recovery.ignore-unclaimed-state to drop that state"
            )
        for request in self._requests:
            old = before.get(request.operator)
            if old is not None and not request.generic_types:
                refuse_stored(old.states, request.operator)
            if old is not None and old.key_type != request.key_type:
                states = ", ".join(f"{state.name!r} ({words(state)})" for state in old.states) or "none"
                raise InvalidRequestError(
                    f"the key type changed from {old.key_type} to {request.key_type}; state cannot be keyed anew: use "
                    f"the old key, or give the operator a new uid, which starts without its states: {states}",
                    operator=request.operator,
                )

    def _dropped(self) -> frozenset[str]:
        base = self._run.state.base
        before = {o.uid for o in base.operators} if base else set[str]()
        return frozenset(before - {o.uid for o in self._plan.operators})

    def _prepare_session(self, rows: DataFrame) -> ArrowBatchLimit:
        """Settings of the stream's own session (a clone of the user's), once; what belongs to that session."""
        if self._batch_limit is None:
            for key, value in STREAM_SETTINGS.items():
                rows.sparkSession.conf.set(key, value)
            self._batch_limit = ArrowBatchLimit(rows.sparkSession)
            if self._plan.config.placement_enabled:
                self._anchors = Anchors.create(rows.sparkSession, self._plan.job, self._standbys.copies)
        return self._batch_limit


def _origin(spark: SparkSession, plan: JobPlan, store: ObjectStore) -> StateOrigin | None:
    """The state elsewhere that the query is to start from; None if it has begun, or starts in the ordinary way."""
    restore = plan.config.restore
    if restore is None or restore == LATEST:
        return None
    query_id = SparkCheckpoint(spark, plan.checkpoint_location).known_query_id()
    if not is_location(restore):
        check_start(int(restore), store, query_id)
        return None
    origin = find_start(str(restore), store, query_id, plan.config.storage_options)
    if origin is None:
        return None
    origin.check(plan.config.max_parallelism)
    return origin


def _new_job(plan: JobPlan, origin: StateOrigin | None, store: ObjectStore) -> NewJob:
    """What is written down of the job if it is new."""
    config = plan.config
    return NewJob(
        begins_after=begins_after(origin.commit) if origin else 0,
        cloned_from=origin.job_beside(store) if origin and config.claim_mode == CLONE else None,
        storage=new_job_storage(config.encryption_key_provider, config.log_location),
    )


def _check_stored_as_wanted(run: JobRun, config: JobConfig, tokens: TokenSource) -> None:
    """Raise if the job was made in another way than the configuration says, or its log storage cannot be used."""
    record = run.record
    check_job_storage(record, encrypted=config.encryption_key_provider is not None, log=config.log_location)
    if record.storage is not None and record.storage.log is not None:
        check_log(run.store, tokens.token())
