"""The start of a query's run: its storage, the state that it starts from, and the checks before the first batch.

Invariants: I6 (taking the chain over fences older runs off), I11 (state that would be lost, or does not fit, is an
error).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from varvite.changelog.chain.reader import ChainReader, newest_commit
from varvite.changelog.commit.base_decision import RestoreRequest
from varvite.changelog.commit.import_plan import begins_after
from varvite.changelog.commit.run import JobRun, NewJob
from varvite.changelog.commit.start_decision import next_restore
from varvite.changelog.schema.history import words
from varvite.changelog.schema.pickled import refuse_stored
from varvite.materializer.options.start import CLONE, START_PATH
from varvite.materializer.resources.process_name import process_name
from varvite.materializer.restore.location_content import LocationState, LocationTarget, choose_commit, content_of
from varvite.materializer.restore.origin import check_start, clone_origin, copy_origin, find_start, is_location
from varvite.spark_integration.connectors.kafka.source_check import SourceCheck
from varvite.spark_integration.connectors.running_query import RunningQuery
from varvite.spark_integration.connectors.sink_note import SinkNote
from varvite.spark_integration.connectors.spark_progress import SparkCheckpoint
from varvite.spark_integration.driver.query_progress import QueryProgress
from varvite.storage.clock import SystemTokens
from varvite.storage.errors import InvalidRequestError, MissingObjectError, VarviteError
from varvite.storage.format import layout
from varvite.storage.format.layout import LATEST
from varvite.storage.format.records import ORIGIN
from varvite.storage.job.log_store import check_log
from varvite.storage.job.preflight import check_bucket, check_store
from varvite.storage.job.record import read_job
from varvite.storage.job.storage_choice import check_job_storage, new_job_storage
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.open import open_like, open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from varvite.changelog.commit.import_plan import CopiedState
    from varvite.materializer.restore.origin import StateOrigin
    from varvite.spark_integration.messages.protocol import OperatorRequest
    from varvite.spark_integration.options.job_config import JobConfig
    from varvite.spark_integration.plan.job import JobPlan
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import Commit, Fence, JobRecord, LogLocation
    from varvite.storage.object_stores.contract import ObjectStore

_log: Final = logging.getLogger(__name__)


class JobStart:
    """An opened job whose chain is not taken over yet."""

    def __init__(
        self,
        plan: JobPlan,
        run: JobRun,
        progress: QueryProgress,
        origin: StateOrigin | None,
        clock: Clock,
        tokens: TokenSource,
    ) -> None:
        """Use `open`."""
        self.run = run
        self.progress = progress
        """Spark's progress, in step with the chain."""
        self._plan = plan
        self._origin = origin
        self._clock = clock
        self._tokens = tokens
        self.marks_run = False
        """Leave a mark while the run goes on, by which `varvite restore` sees it."""
        self._mark: str | None = None

    @classmethod
    def open(
        cls, spark: SparkSession, plan: JobPlan, clock: Clock, tokens: TokenSource, *, root: ObjectStore | None = None
    ) -> JobStart:
        """Open the job's storage and check it.

        Args:
            spark: The user's session.
            plan: The job.
            clock: Time.
            tokens: Randomness.
            root: The storage root, instead of opening the plan's URL.

        Raises:
            InvalidRequestError: the storage cannot be used, or the plan does not fit it.
            IncompatibleError: the job exists with other key groups.
        """
        config = plan.config
        root = root or open_store(config.storage_url, dict(config.storage_options))
        store = _job_store(config, plan.job, tokens, root)
        check_store(store, tokens, clock)
        try:
            _pin_checked(store, read_job(store), config)
        except MissingObjectError:  # a new job
            _check_buckets(root, plan.job, config.log_location)
        checkpoint = SparkCheckpoint(spark, plan.checkpoint_location)
        origin = find_origin(checkpoint, plan, store)
        run = JobRun.open(
            store,
            plan.job,
            config.max_parallelism,
            config.commit_policy,
            clock,
            tokens,
            new=new_job(plan, origin, store),
            uploads=config.upload_policy,
        )
        run.name_process(process_name())
        _pin_checked(store, run.record, config)
        if run.record.storage is not None and run.record.storage.log is not None:
            check_log(store, tokens.token())
        path = checkpoint.files.local_path if plan.is_private_location else None
        progress = QueryProgress(
            checkpoint,
            RunningQuery(plan.input.sparkSession, plan.job),
            SinkNote(checkpoint.files, path.parent if path is not None else None),
            is_private=plan.is_private_location,
            has_spark_state=plan.has_spark_state,
            sources=SourceCheck(plan.input, plan.job),
        )
        start = cls(plan, run, progress, origin, clock, tokens)
        start.marks_run = True
        return start

    def take_over(self) -> Fence:
        """Fence older runs off; of a job that starts from another state, copy that state first."""
        origin, restore = self._origin, self._plan.config.restore
        if origin is None:
            fence = self.run.take_over(None if is_location(restore) else restore)
        else:
            _log.info("job %s: it starts from the state at %s", self._plan.job, origin.location)
            fence = self.run.start_from(
                origin.commit,
                _known_query_id(self.progress.checkpoint, self._plan),
                lambda slot: self._copy_state(origin, slot),
            )
        _log.info("job %s: run %d took the chain over at %s", self._plan.job, fence.epoch, self.run.store.url)
        if self.marks_run:
            self._mark_running(layout.running(fence.epoch))
        return fence

    def _mark_running(self, mark: str) -> None:
        """Leave a mark for `varvite restore`, which is for stopped jobs, and delete those of runs that crashed."""
        self._mark, store = mark, self.run.store
        try:
            store.put(mark, b"")
            store.delete([meta.name for meta in store.list(layout.RUNNING) if meta.name < mark])
        except VarviteError as error:
            _log.warning("job %s: `varvite restore` will not see that this run goes on: %s", self._plan.job, error)

    def mark_stopped(self) -> None:
        """Delete the mark, if there is one: the run has ended orderly. May be called twice."""
        mark, self._mark = self._mark, None
        if mark is None:
            return
        try:
            self.run.store.delete([mark])
        except VarviteError as error:
            _log.warning(
                "job %s: `varvite restore` will take this run for one that goes on, and need --force: %s",
                self._plan.job,
                error,
            )

    def _copy_state(self, origin: StateOrigin, slot: int) -> CopiedState:
        run, clock, tokens = self.run, self._clock, self._tokens
        source = origin.job_beside(run.store) if self._plan.config.claim_mode == CLONE else None
        if source is not None and source == run.record.cloned_from:
            return clone_origin(origin, run.record, source, clock=clock, tokens=tokens)
        return copy_origin(origin, run.record, run.store, slot, clock=clock, tokens=tokens)


def find_origin(checkpoint: SparkCheckpoint, plan: JobPlan, store: ObjectStore) -> StateOrigin | None:
    """The state elsewhere that the query is to start from; None if it has begun, or starts in the ordinary way."""
    restore = plan.config.restore
    if plan.is_private_location and restore is not None and not is_location(restore):
        raise InvalidRequestError(
            f"{START_PATH.key} is {restore!r}, which is for a query that begins anew, and without a checkpointLocation "
            "nothing says at a later start that it has begun; set checkpointLocation, or leave the option out and "
            f"choose with `varvite restore {plan.job} --storage ...`"
        )
    if restore is None or restore == LATEST:
        return None
    query_id = _known_query_id(checkpoint, plan)
    if not is_location(restore):
        check_start(int(restore), store, query_id)
        return None
    origin = find_start(str(restore), store, query_id, plan.config.storage_options)
    if origin is None:
        return None
    origin.check(plan.config.max_parallelism)
    return origin


def _known_query_id(checkpoint: SparkCheckpoint, plan: JobPlan) -> str | None:
    """The id of a query that has begun; None for a new one."""
    return plan.begun_query_id or checkpoint.known_query_id()


def new_job(plan: JobPlan, origin: StateOrigin | None, store: ObjectStore) -> NewJob:
    """The record of the job if it is new."""
    config = plan.config
    storage = new_job_storage(config.encryption_key_provider, config.log_location)
    is_encrypted = storage is not None and storage.encryption is not None
    return NewJob(
        begins_after=begins_after(origin.commit) if origin else 0,
        cloned_from=origin.source_of_clone(store, is_encrypted=is_encrypted)
        if origin and config.claim_mode == CLONE
        else None,
        storage=storage,
    )


def location_in_chain(
    config: JobConfig, job: str, *, is_private: bool, root: ObjectStore | None = None
) -> dict[str, bytes]:
    """The files of an empty checkpoint location that a start would make from the chain; empty if it makes none.

    Args:
        config: The job's settings.
        job: Its name.
        is_private: The user has named no location.
        root: The storage root, instead of opening the configuration's URL.

    Raises `VarviteError` as `open`.
    """
    store = _job_store(config, job, SystemTokens(), root)
    try:
        record = read_job(store)
    except MissingObjectError:  # a new job
        return {}
    _pin_checked(store, record, config)
    reader = ChainReader(store, record.job_id)
    head = reader.head()
    seq, link = next_restore(head), newest_commit(head)
    begins_anew = config.restore is not None and not is_location(config.restore)
    if link == ORIGIN or (begins_anew and not is_private):
        return {}
    restore = None if seq is None else RestoreRequest(seq, reader.find_commit(seq), ahead=True)
    empty = LocationState(None, frozenset(), frozenset(), is_private=is_private)
    commit = choose_commit(reader.read_commit(link).commit, empty, restore)
    return {} if commit is None else content_of(LocationTarget(commit, None, is_open=False))


def _job_store(config: JobConfig, job: str, tokens: TokenSource, root: ObjectStore | None = None) -> JobStore:
    return JobStore(
        root or open_store(config.storage_url, dict(config.storage_options)),
        job,
        key_provider=config.encryption_key_provider,
        log_storage=config.changelog_storage,
        tokens=tokens,
    )


def _check_buckets(root: ObjectStore, job: str, log: LogLocation | None) -> None:
    """Check the settings of the buckets once in a job's life: a restart does not wait for it."""
    check_bucket(root, job)
    if log is not None and log.base_path is not None:
        check_bucket(open_like(root, log.base_path), "")


def _pin_checked(store: JobStore, record: JobRecord, config: JobConfig) -> None:
    """Go by this record, whoever replaces it in the storage; raise if the configuration says something else."""
    check_job_storage(record, encrypted=config.encryption_key_provider is not None, log=config.log_location)
    store.pin(record)


def check_operators(operators: Sequence[OperatorRequest], base: Commit | None, *, ignore_unclaimed_state: bool) -> None:
    """Raise if a start at this commit would lose the state of an operator, or a key's type has changed.

    Args:
        operators: Requests of the job's operators.
        base: The commit.
        ignore_unclaimed_state: State of operators that the job does not have any more may be lost.

    Raises:
        InvalidRequestError: It is so, or state is pickled and the job does not allow it.
    """
    stored = {operator.uid: operator for operator in base.operators} if base else {}
    lost = set(stored) - {request.operator for request in operators}
    if lost and not ignore_unclaimed_state:
        raise InvalidRequestError(
            f"the state of operators {sorted(lost)} would be lost: the job has no such operators any more; "
            "restore the uids, or set execution.state-recovery.ignore-unclaimed-state to drop that state"
        )
    for request in operators:
        before = stored.get(request.operator)
        if before is None:
            continue
        if not request.generic_types:
            refuse_stored(before.states, request.operator)
        if before.key_type != request.key_type:
            states = ", ".join(f"{state.name!r} ({words(state)})" for state in before.states) or "none"
            raise InvalidRequestError(
                f"the key type changed from {before.key_type} to {request.key_type}; state cannot be keyed anew: use "
                f"the old key, or give the operator a new uid, which starts without its states: {states}",
                operator=request.operator,
            )
