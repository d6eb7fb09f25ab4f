"""One job: follow its chain, materialize the ranges that are due, collect its garbage. One `step` per poll.

Ranges are materialized by a pool of threads that all jobs share; everything else, reports included, is done by the
thread that calls `step`. A failure of one range is counted, reported and retried with backoff; it stops neither the
other ranges nor the job (Flink fails the task instead; here the log only gets longer).

Invariants: I9 (only schedules are kept in memory, and they may be lost), I10 (a failing range is retried with backoff).
"""

from __future__ import annotations

from concurrent.futures import wait
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from varvite.changelog.chain.retention_bounds import bounds_of
from varvite.changelog.commit.adoption_rules import shared_files
from varvite.changelog.retention.savepoints import release_clone
from varvite.materializer.fold.plan import plan_ranges
from varvite.materializer.fold.policy import RangeSchedule, due
from varvite.materializer.fold.publication import may_be_adopted, skip_without_listing
from varvite.materializer.fold.range_fold import log_size
from varvite.materializer.fold.retry import RetryState
from varvite.materializer.monitoring.events import Adopted, Collected, Event, Failed, JobFailed, Skip, Step, Waiting
from varvite.materializer.ranges import RangeKey, jitter_of
from varvite.materializer.resources.interruptible_store import InterruptibleStore
from varvite.materializer.resources.stop_signal import Stopped
from varvite.materializer.service.collect_schedule import CollectSchedule, log_sizes
from varvite.materializer.service.demand import DemandWatch
from varvite.materializer.service.followed_job import follow
from varvite.materializer.service.sharing import Membership, beat, leave
from varvite.materializer.service.status import StatusKeeper
from varvite.storage.errors import DidNotHappenError, RetryableError, VarviteError
from varvite.storage.job.record import find_job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor, Future

    from varvite.materializer.fold.chain_view import ChainView, CommitView
    from varvite.materializer.fold.plan import RangeWork
    from varvite.materializer.fold.policy import Trigger
    from varvite.materializer.fold.publication import RangeView
    from varvite.materializer.fold.range_fold import Outcome
    from varvite.materializer.service.context import MaterializerContext
    from varvite.materializer.service.followed_job import FollowedJob
    from varvite.materializer.service.retention import Retention
    from varvite.storage.format.records import Commit, JobRecord, Link, SnapshotDescriptor, Tile
    from varvite.storage.object_stores.contract import ObjectStore

_Answer = TypeVar("_Answer")


class _Running(NamedTuple):
    """A range that is being materialized."""

    work: RangeWork
    needs_from: int
    """Lowest slot that it may still read."""
    future: Future[Outcome]


class _Awaited(NamedTuple):
    """A snapshot that the job may adopt."""

    snapshot: SnapshotDescriptor
    target: Link
    """The newest final commit when it was last seen in the storage."""
    tile: Tile
    """The tile that it would replace. A tile of the same commit with other files is another: the job was set back."""

    def is_adoptable(self, view: RangeView) -> bool:
        """May the driver's next commit adopt it, as far as can be said without reading the storage?

        When the snapshot was noted, the tile named all files that it shares; an equal tile does as well.
        """
        return self.tile == view.tile and may_be_adopted(view, self.snapshot, shared_files(self.snapshot))


AWAITED_COMMITS_MAX: Final = 16
"""Commits after which a snapshot that was not adopted is read again: the job may be unable to read it."""


class JobMaterializer:
    """Materializes one job; for one thread."""

    def __init__(
        self, name: str, store: ObjectStore, context: MaterializerContext, root: ObjectStore, pool: Executor
    ) -> None:
        """`store` is rooted at `<root>/<job>`; the job need not exist yet. Ranges are materialized in `pool`."""
        self._name = name
        self._uninterruptible = store
        self._store = InterruptibleStore(store, context.stop)
        self._context = context
        self._pool = pool
        self._policy = context.config.policy
        self._status = StatusKeeper(name, context)
        self._demand = DemandWatch(self._store, context.clock)
        self._running: dict[RangeKey, _Running] = {}
        self._followed: FollowedJob | None = None
        self._job_id: str | None = None
        """Id of the job that the fields below belong to."""
        self._schedules: dict[RangeKey, RangeSchedule] = {}
        self._published: dict[RangeKey, _Awaited] = {}
        self._retries: dict[Step, RetryState] = {}
        """Steps of the whole job that failed at their last try."""
        self._troubles: dict[Step, str] = {}
        """Texts of those failures."""
        self._is_demanded = False
        self._message = ""
        self._collection = CollectSchedule()
        self._root = root
        self._released = False
        self._membership = Membership(context.tokens.token()) if context.config.share else None

    @property
    def exists(self) -> bool:
        """Did the job exist at the last step?"""
        return self._followed is not None

    @property
    def is_over(self) -> bool:
        """Did the job not exist at the last step, and is nothing of it left to be done?"""
        return not (self.exists or self._running or Step.FOLLOW in self._retries)

    def step(self, *, on_demand: bool = False, wait_for_ranges: bool = True) -> bool:
        """Do what is due; True if nothing that was tried failed.

        Args:
            on_demand: Materialize every range and collect, whatever the intervals and pauses say.
            wait_for_ranges: Wait for the ranges that are due; otherwise a later step takes their outcome.

        Raises `Stopped` if asked to stop.
        """
        ok = self._settle(wait_for_ranges=False)
        followed, chain = self._try(Step.FOLLOW, lambda: self._follow(anew=on_demand), on_demand=on_demand)
        if not followed or self._followed is None:
            self._status.lost(self._troubles.get(Step.FOLLOW, ""))
            return ok and followed
        if self._membership is not None:
            ok &= self._try(Step.HEARTBEAT, self._beat, on_demand=on_demand)[0]
        ok &= self._try(Step.LOOK_FOR_REQUESTS, self._look_for_requests, on_demand=on_demand)[0]
        if chain is not None:
            ok &= self._materialize_due(self._followed, chain, on_demand=on_demand, wait_for_ranges=wait_for_ranges)
        if self._is_collection_due(on_demand=on_demand):
            collected, kept = self._try(Step.COLLECT, lambda: self._collect(chain), on_demand=on_demand)
            ok &= collected and bool(kept)
        self._status.show_failing_steps(self._failing_steps())
        return ok

    def _failing_steps(self) -> tuple[str, ...]:
        """Texts of the steps that failed more often in a row than the policy allows."""
        failing = (step for step, retry in self._retries.items() if retry.is_failing(self._policy))
        return tuple(self._troubles[step] for step in failing)

    def _materialize_due(
        self, followed: FollowedJob, chain: ChainView, *, on_demand: bool, wait_for_ranges: bool
    ) -> bool:
        """Begin the ranges that are due; False if one failed that was waited for."""
        sizes = followed.bases.of(chain.newest.view.tiles)
        newest = chain.newest.commit
        object_sizes = {**sizes, **log_sizes(chain.newest.view.segments)}
        self._collection = self._collection.seen(newest.seq, newest.full.seq, bounds_of(chain.head), object_sizes)
        works = plan_ranges(followed.record.job_id, chain, sizes)
        self._forget_others(followed.record.job_id, works)
        self._context.stop.check()
        triggers = [(work, self._trigger_of(work, chain, on_demand=on_demand)) for work in works]
        due_works = [(work, trigger) for work, trigger in triggers if trigger is not None]
        if due_works and chain.final is not None:
            is_known, confirmed = self._try(Step.FOLLOW, self._confirmed, on_demand=on_demand)
            if confirmed is None:
                return is_known
            for work, trigger in due_works:
                self._begin(confirmed, work, chain.final, trigger)
        ok = not wait_for_ranges or self._settle(wait_for_ranges=True)
        awaited = {work.key for work in works if self._is_awaited(work)}
        self._status.followed(chain, works, self._schedules, awaited)
        return ok

    def leave(self) -> None:
        """Leave the sharing, if there is one, so that others take over at once."""
        membership = self._membership
        if membership is not None and membership.counter:
            self._try(Step.LEAVE, lambda: leave(self._uninterruptible, membership), on_demand=True)

    def end(self) -> None:
        """Stop following this job, which `is_over`."""
        self.leave()
        self._status.end()

    def close(self) -> None:
        """Take the outcomes of the last ranges; the pool has ended."""
        with suppress(Stopped):
            self._settle(wait_for_ranges=False)

    def _follow(self, *, anew: bool) -> ChainView | None:
        if self._followed is None:
            record = self._look()
            if record is None:
                return None
            self._followed = follow(self._name, record, self._uninterruptible, self._context)
        try:
            chain = self._followed.chain.read(anew=anew)
        except RetryableError:
            raise
        except VarviteError:
            self._followed = None  # start anew: it may belong to an earlier job of that name
            raise
        if chain is None and self._look() != self._followed.record:
            self._followed = None
            return None
        self._wait(f"job {self._name} has no checkpoint yet; waiting for it" if chain is None else "")
        return chain

    def _look(self) -> JobRecord | None:
        """Read the job's record; None if there is no job. Forgets an earlier job of that name."""
        record = find_job(self._store)
        job_id = None if record is None else record.job_id
        if self._job_id not in (None, job_id):
            self._forget(self._job_id)
        self._job_id = job_id
        if record is None:
            self._wait(f"there is no job {self._name} in {self._store.url}; waiting for it")
        return record

    def _forget(self, job_id: str) -> None:
        """Forget a job that is gone: its schedules, metric series and local copies."""
        self._schedules, self._published = {}, {}
        self._collection = CollectSchedule()
        self._released = False
        self._status.forget()
        self._context.workspace.discard_others(job_id, self._running.keys())

    def _wait(self, message: str) -> None:
        """Report once what the job waits for; "" if it does not wait."""
        if message and message != self._message:
            self._report(Waiting(job=self._name, time_ms=self._wall_ms(), message=message))
        self._message = message

    def _confirmed(self) -> FollowedJob | None:
        """The followed job, if it still exists; else none is followed any more. Before anything is written for it."""
        if self._followed is not None and not self._followed.chain.is_there():
            self._followed = None
        return self._followed

    def _beat(self) -> None:
        now_ms = self._context.now_ms()
        if self._membership is not None and self._membership.is_due(now_ms) and self._confirmed():
            self._membership = beat(self._store, self._membership, now_ms)

    def _look_for_requests(self) -> None:
        now_ms = self._context.now_ms()
        if self._demand.is_due(now_ms) and self._demand.look(now_ms):
            self._is_demanded = True

    def _forget_others(self, job_id: str, works: Sequence[RangeWork]) -> None:
        """Forget ranges that the job no longer has, and their local copies."""
        keys = {work.key for work in works}
        if keys != self._schedules.keys():
            now_ms = self._context.now_ms()
            self._schedules = {
                key: self._schedules.get(key) or RangeSchedule(now_ms, retry=RetryState(key.jitter)) for key in keys
            }
            self._published = {key: awaited for key, awaited in self._published.items() if key in keys}
            self._context.workspace.discard_others(job_id, keys | self._running.keys())
        if self._is_demanded:
            self._is_demanded = False
            self._schedules = {key: schedule.demand() for key, schedule in self._schedules.items()}

    def _trigger_of(self, work: RangeWork, chain: ChainView, *, on_demand: bool) -> Trigger | None:
        """The reason to materialize a range now; None if it is not due, is being done, or there is nothing to do."""
        key, now_ms = work.key, self._context.now_ms()
        self._note_adoption(work)
        if key in self._running or chain.final is None:
            return None
        schedule, load = self._schedules[key], self._status.load_of(work)
        trigger = due(key, schedule, load, self._policy, now_ms, on_demand=on_demand)
        if trigger is None or not self._is_mine(key):
            return None
        skip = skip_without_listing(work.view, self._policy.log_batches)
        if skip is None and self._is_awaited(work):
            skip = Skip.AWAITING_ADOPTION
        if skip is not None:
            self._schedules[key] = schedule.succeeded(now_ms)
            self._status.skipped(work, skip)
            return None
        return trigger

    def _begin(self, followed: FollowedJob, work: RangeWork, final: CommitView, trigger: Trigger) -> None:
        """Hand a range to the pool."""
        self._context.metrics.started(self._name, work.key)
        future = self._pool.submit(followed.ranges.materialize, work, final, trigger)
        self._running[work.key] = _Running(work, final.view.needs_from, future)

    def _is_awaited(self, work: RangeWork) -> bool:
        """Can a snapshot that this process has published or seen still be adopted?"""
        awaited = self._published.get(work.key)
        if awaited is None or not awaited.is_adoptable(work.view):
            return False
        return work.view.target.seq < awaited.target.seq + AWAITED_COMMITS_MAX

    def _settle(self, *, wait_for_ranges: bool) -> bool:
        """Take the outcomes of ranges that have ended; False if one failed. Raises `Stopped` if one was stopped."""
        if wait_for_ranges:
            wait([running.future for running in self._running.values()])
        ended = [running for running in self._running.values() if running.future.done()]
        ok, stopped = True, False
        for work, _, future in ended:
            del self._running[work.key]
            if future.cancelled():
                continue
            error = future.exception()
            stopped |= isinstance(error, Stopped)
            if error is None:
                self._range_ended(work, future.result())
            elif isinstance(error, Exception):
                ok &= isinstance(error, Stopped)
                self._range_failed(work.key, error)
            else:
                raise error
            if work.key not in self._schedules:
                self._context.workspace.discard(work.key)
        limit_bytes = self._context.config.disk_bytes
        if ended and limit_bytes is not None:
            self._context.workspace.trim(limit_bytes, self._running.keys())
        if stopped:
            raise Stopped
        return ok

    def _range_ended(self, work: RangeWork, outcome: Outcome) -> None:
        key = work.key
        if key in self._schedules:
            self._schedules[key] = self._schedules[key].succeeded(self._context.now_ms())
            if outcome.awaited is not None:
                self._published[key] = _Awaited(outcome.awaited, work.view.target, work.view.tile)
        self._status.ended(work, outcome)
        if outcome.event is not None:
            self._report(outcome.event)

    def _is_mine(self, key: RangeKey) -> bool:
        return self._membership is None or self._membership.owns(key, self._context.now_ms())

    def _note_adoption(self, work: RangeWork) -> None:
        """Report a snapshot that the job took, and forget one that it cannot take any more."""
        awaited = self._published.get(work.key)
        if awaited is None or awaited.is_adoptable(work.view):
            return
        del self._published[work.key]
        snapshot, tile = awaited.snapshot, work.view.tile
        if (tile.low, tile.high, tile.snapshot) == (snapshot.low, snapshot.high, snapshot.number):
            self._report(
                Adopted(
                    job=self._name,
                    time_ms=self._wall_ms(),
                    operator=work.key.operator,
                    low=work.key.low,
                    high=work.key.high,
                    snapshot=snapshot.number,
                    at_seq=snapshot.at.seq,
                    log=log_size(work.log),
                )
            )

    def _range_failed(self, key: RangeKey, error: Exception) -> None:
        if isinstance(error, Stopped) or key not in self._schedules:
            return
        schedule = self._schedules[key] = self._schedules[key].failed(self._context.now_ms())
        retry = schedule.retry
        self._report(
            Failed(
                job=self._name,
                time_ms=self._wall_ms(),
                operator=key.operator,
                low=key.low,
                high=key.high,
                error=str(error),
                error_type=type(error).__name__,
                object_name=object_name_of(error),
                failures=retry.failures,
                failing=retry.is_failing(self._policy),
                retry_ms=retry.pause_ms(self._policy),
            )
        )

    def _is_collection_due(self, *, on_demand: bool) -> bool:
        interval_ms, now_ms = self._context.config.collect_ms, self._context.now_ms()
        if interval_ms is None or self._followed is None:
            return False
        if not on_demand and not self._collection.is_due(interval_ms, now_ms, self._policy.space_min_bytes):
            return False
        return self._is_mine(RangeKey(self._followed.record.job_id, "", 0, 0))

    def _collect(self, chain: ChainView | None) -> bool:
        """Delete the garbage; False if the retention by time could not create a pin that is due."""
        followed = self._confirmed()
        if followed is None:
            return True
        started_ms = self._context.now_ms()
        self._collection = self._collection.collected(started_ms)
        kept = chain is None or self._retain(followed.retention, chain.newest.commit)
        # A fold of this process whose log is deleted would fail, and begin anew with a longer log.
        report = followed.collector.collect(
            keep_from=min((running.needs_from for running in self._running.values()), default=None)
        )
        source = followed.record.cloned_from
        if source is not None and not report.shares and not self._released:
            release_clone(self._context.config.job_store(self._root, source), followed.record.job_id)
            self._released = True
        if report.deleted:
            self._report(
                Collected(
                    job=self._name,
                    time_ms=self._wall_ms(),
                    deleted=report.deleted,
                    entries=len(report.entries),
                    segments=len(report.segments),
                    snapshot_files=len(report.files),
                    cut=report.cut,
                    duration_ms=self._context.now_ms() - started_ms,
                )
            )
        return kept

    def _retain(self, retention: Retention, newest: Commit) -> bool:
        """Create and release the pins that are due; False if a faster job has collected the commits to be pinned.

        Garbage is collected all the same: the earlier pins still exist, so nothing is deleted that they keep (I7, I10).
        """
        try:
            retention.keep(newest)
        except DidNotHappenError as error:
            self._step_failed(Step.RETAIN, error)
            return False
        self._step_succeeded(Step.RETAIN)
        return True

    def _try(self, step: Step, action: Callable[[], _Answer], *, on_demand: bool) -> tuple[bool, _Answer | None]:
        """Run a step of the whole job unless it pauses after a failure; (it did not fail, its answer)."""
        retry = self._retries.get(step)
        if retry is not None and not on_demand and retry.is_pausing(self._policy, self._context.now_ms()):
            return False, None
        try:
            answer = action()
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001  one job's trouble must not stop the others
            self._step_failed(step, error)
            return False, None
        self._step_succeeded(step)
        return True, answer

    def _step_failed(self, step: Step, error: Exception) -> None:
        """Count and report that a step of the whole job failed."""
        self._troubles[step] = f"{step.value} failed: {error}"
        retry = self._retries.get(step) or RetryState(jitter_of(f"{self._name}/{step.value}"))
        self._retries[step] = retry = retry.failed(self._context.now_ms())
        self._report(
            JobFailed(
                job=self._name,
                time_ms=self._wall_ms(),
                step=step.value,
                error=str(error),
                error_type=type(error).__name__,
                object_name=object_name_of(error),
                failures=retry.failures,
                retry_ms=retry.pause_ms(self._policy),
            )
        )

    def _step_succeeded(self, step: Step) -> None:
        self._retries.pop(step, None)
        self._troubles.pop(step, None)

    def _report(self, event: Event) -> None:
        self._context.reporter.report(event)
        self._context.metrics.report(event)

    def _wall_ms(self) -> int:
        return self._context.clock.now_ms()


def object_name_of(error: Exception) -> str | None:
    """The object that an error is about, if it says so."""
    return error.context.get("object_name") if isinstance(error, VarviteError) else None
