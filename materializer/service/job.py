"""One job: follow its chain, materialize the ranges that are due, collect its garbage. One `step` per poll.

Ranges are materialized by a pool of threads that all jobs share; everything else, reports included, is done by the
thread that calls `step`. What goes wrong with one range is counted, reported and tried again after a pause; it stops
neither the other ranges nor the job (Flink fails the task instead; here the log only gets longer).

Invariants: I9 (only schedules are kept in memory, and they may be lost), I10 (a failing range is not tried hotly).
"""

from __future__ import annotations

from concurrent.futures import wait
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.chain.retention_bounds import bounds_of
from varvite.changelog.commit.adoption_rules import shared_files
from varvite.changelog.retention.collector import Collector
from varvite.changelog.retention.savepoints import release_clone
from varvite.materializer.fold.base_sizes import BaseSizes
from varvite.materializer.fold.chain_view import ChainFollower
from varvite.materializer.fold.plan import plan_ranges
from varvite.materializer.fold.policy import RangeKey, RangeSchedule, due, is_pausing, pause_ms, spread_of
from varvite.materializer.fold.publication import Skip, may_be_adopted, skip_without_listing
from varvite.materializer.fold.range_fold import RangeMaterializer, log_size
from varvite.materializer.monitoring.events import Adopted, Collected, Event, Failed, JobFailed, Waiting
from varvite.materializer.resources.bandwidth import ThrottledReads
from varvite.materializer.resources.interruptible_store import InterruptibleStore
from varvite.materializer.resources.stop_signal import Stopped
from varvite.materializer.service.collect_schedule import CollectSchedule, log_sizes
from varvite.materializer.service.demand import DemandWatch
from varvite.materializer.service.retention import Retention
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
    from varvite.materializer.service.context import Surroundings
    from varvite.storage.format.records import Commit, JobRecord, Link, SnapshotDescriptor, Tile
    from varvite.storage.object_stores.contract import ObjectStore

_Answer = TypeVar("_Answer")


class _Followed(NamedTuple):
    """What there is once the job exists."""

    record: JobRecord
    chain: ChainFollower
    bases: BaseSizes
    ranges: RangeMaterializer
    retention: Retention
    collector: Collector


class _Running(NamedTuple):
    """A range that is being materialized."""

    work: RangeWork
    needs_from: int
    """Lowest slot of what it may still read."""
    future: Future[Outcome]


class _Awaited(NamedTuple):
    """A snapshot that the job may adopt."""

    snapshot: SnapshotDescriptor
    target: Link
    """The newest final commit when it was last seen in the storage."""
    tile: Tile
    """What it would replace. One of the same commit but with other files is another: the job was set back to them."""

    def is_adoptable(self, view: RangeView) -> bool:
        """Whether the driver's next commit may take it, as far as it is known without looking at the storage.

        The tile names the files that the snapshot shares: that was seen when it was noted, and the tile is the same.
        """
        return self.tile == view.tile and may_be_adopted(view, self.snapshot, shared_files(self.snapshot))


AWAITED_COMMITS_MAX: Final = 16
"""A job that has made so many commits and not adopted a snapshot may be unable to read it: it is looked at again."""


class JobMaterializer:
    """Materializes one job; for one thread."""

    def __init__(
        self, name: str, store: ObjectStore, surroundings: Surroundings, root: ObjectStore, pool: Executor
    ) -> None:
        """`store` is rooted at `<root>/<job>`; the job need not exist yet. Ranges are materialized in `pool`."""
        self._name = name
        self._uninterruptible = store
        self._store = InterruptibleStore(store, surroundings.stop)
        self._given = surroundings
        self._pool = pool
        self._policy = surroundings.config.policy
        self._status = StatusKeeper(name, surroundings)
        self._demand = DemandWatch(self._store)
        self._running: dict[RangeKey, _Running] = {}
        self._followed: _Followed | None = None
        self._job_id: str | None = None
        """Of the job that all this is remembered of."""
        self._schedules: dict[RangeKey, RangeSchedule] = {}
        self._published: dict[RangeKey, _Awaited] = {}
        self._troubles: dict[str, RangeSchedule] = {}
        self._trouble_texts: dict[str, str] = {}
        self._is_demanded = False
        self._message = ""
        self._collection = CollectSchedule()
        self._root = root
        self._released = False
        self._membership = Membership(surroundings.tokens.token()) if surroundings.config.share else None

    @property
    def exists(self) -> bool:
        """Whether the job was there at the last step."""
        return self._followed is not None

    @property
    def is_over(self) -> bool:
        """Whether the job was not there at the last step, and nothing of it is left to be done."""
        return not (self.exists or self._running or "following the chain" in self._troubles)

    def step(self, *, on_demand: bool = False, wait_for_ranges: bool = True) -> bool:
        """Do what is due; True if nothing that was tried failed.

        Args:
            on_demand: Materialize every range and collect, whatever the intervals and pauses say.
            wait_for_ranges: Wait for the ranges that are due; otherwise a later step takes their outcome.

        Raises `Stopped` if asked to stop.
        """
        ok = self._settle(wait_for_ranges=False)
        followed, chain = self._try("following the chain", self._follow, on_demand=on_demand)
        if not followed or self._followed is None:
            self._status.lost(self._trouble_texts.get("following the chain", ""))
            return ok and followed
        if self._membership is not None:
            ok &= self._try("heartbeat", self._beat, on_demand=on_demand)[0]
        ok &= self._try("looking for requests", self._look_for_requests, on_demand=on_demand)[0]
        if chain is not None:
            ok &= self._materialize_due(self._followed, chain, on_demand=on_demand, wait_for_ranges=wait_for_ranges)
        if self._is_collection_due(on_demand=on_demand):
            collected, kept = self._try("collecting garbage", lambda: self._collect(chain), on_demand=on_demand)
            ok &= collected and bool(kept)
        self._status.show_failing_steps(self._failing_steps())
        return ok

    def _failing_steps(self) -> tuple[str, ...]:
        """What went wrong with steps of the whole job that failed more often in a row than is allowed."""
        failing = (what for what, trouble in self._troubles.items() if trouble.is_failing(self._policy))
        return tuple(self._trouble_texts[what] for what in failing)

    def _materialize_due(
        self, followed: _Followed, chain: ChainView, *, on_demand: bool, wait_for_ranges: bool
    ) -> bool:
        """Begin what is due; False if a range failed that was waited for."""
        sizes = followed.bases.of(chain.newest.view.tiles)
        newest = chain.newest.commit
        named = {**sizes, **log_sizes(chain.newest.view.segments)}
        self._collection = self._collection.seen(newest.seq, newest.full.seq, bounds_of(chain.head), named)
        works = plan_ranges(followed.record.job_id, chain, sizes)
        self._forget_others(followed.record.job_id, works)
        for work in works:
            self._given.stop.check()
            self._begin_if_due(work, chain, on_demand=on_demand)
        ok = not wait_for_ranges or self._settle(wait_for_ranges=True)
        awaited = {work.key for work in works if self._is_awaited(work)}
        self._status.followed(chain, works, self._schedules, awaited)
        return ok

    def leave(self) -> None:
        """Leave the sharing, if there is one, so that others take over at once."""
        membership = self._membership
        if membership is not None and membership.counter:
            self._try("leaving", lambda: leave(self._uninterruptible, membership), on_demand=True)

    def end(self) -> None:
        """Nobody follows this job any more, which `is_over`."""
        self.leave()
        self._status.end()

    def close(self) -> None:
        """Take the outcomes of the last ranges; the pool has ended."""
        with suppress(Stopped):
            self._settle(wait_for_ranges=False)

    def _follow(self) -> ChainView | None:
        if self._followed is None:
            record = self._look()
            if record is None:
                return None
            self._followed = self._found(record)
        try:
            chain = self._followed.chain.read()
        except RetryableError:
            raise
        except VarviteError:
            self._followed = None  # start anew: it may be of a job of that name that is gone
            raise
        if chain is None and self._look() != self._followed.record:
            self._followed = None
            return None
        self._wait(f"job {self._name} has no checkpoint yet; waiting for it" if chain is None else "")
        return chain

    def _look(self) -> JobRecord | None:
        """The job's record; None if there is no job. What is remembered of another one of that name is forgotten."""
        record = find_job(self._store)
        job_id = None if record is None else record.job_id
        if self._job_id not in (None, job_id):
            self._forget(self._job_id)
        self._job_id = job_id
        if record is None:
            self._wait(f"there is no job {self._name} in {self._store.url}; waiting for it")
        return record

    def _forget(self, job_id: str) -> None:
        """A job that is gone leaves nothing: no schedules, no series, no local copies."""
        self._schedules, self._published = {}, {}
        self._collection = CollectSchedule()
        self._released = False
        self._status.forget()
        self._given.workspace.discard_others(job_id, self._running.keys())

    def _found(self, record: JobRecord) -> _Followed:
        given, reader = self._given, ChainReader(self._store, record.job_id)
        bulk: ObjectStore = self._uninterruptible
        if given.bandwidth is not None:
            bulk = ThrottledReads(bulk, given.bandwidth)
        return _Followed(
            record,
            ChainFollower(reader, record.max_parallelism),
            BaseSizes(self._store, record.job_id),
            RangeMaterializer(self._name, record.job_id, InterruptibleStore(bulk, given.stop), given),
            Retention(reader, given.config.retention_ms, given.clock, given.tokens),
            Collector(reader, given.clock, given.tokens, given.config.grace_ms / 1_000),
        )

    def _wait(self, message: str) -> None:
        """Say once what is waited for; "" if nothing is."""
        if message and message != self._message:
            self._report(Waiting(job=self._name, time_ms=self._wall_ms(), message=message))
        self._message = message

    def _beat(self) -> None:
        now_ms = self._given.now_ms()
        if self._membership is not None and self._membership.is_due(now_ms):
            self._membership = beat(self._store, self._membership, now_ms)

    def _look_for_requests(self) -> None:
        now_ms = self._given.now_ms()
        if self._demand.is_due(now_ms) and self._demand.look(now_ms):
            self._is_demanded = True

    def _forget_others(self, job_id: str, works: Sequence[RangeWork]) -> None:
        """Forget ranges that the job no longer has, and their local copies."""
        keys = {work.key for work in works}
        if keys != self._schedules.keys():
            now_ms = self._given.now_ms()
            self._schedules = {
                key: self._schedules.get(key) or RangeSchedule(seen_ms=now_ms, spread=key.spread) for key in keys
            }
            self._published = {key: d for key, d in self._published.items() if key in keys}
            self._given.workspace.discard_others(job_id, keys | self._running.keys())
        if self._is_demanded:
            self._is_demanded = False
            self._schedules = {key: schedule.demand() for key, schedule in self._schedules.items()}

    def _begin_if_due(self, work: RangeWork, chain: ChainView, *, on_demand: bool) -> None:
        """Hand a range to the pool if it is due and there is something to do."""
        key, now_ms = work.key, self._given.now_ms()
        self._note_adoption(work)
        if key in self._running or chain.final is None:
            return
        schedule, load = self._schedules[key], self._status.load_of(work)
        trigger = due(key, schedule, load, self._policy, now_ms, on_demand=on_demand)
        if trigger is None or not self._is_mine(key):
            return
        skip = skip_without_listing(work.view, self._policy.log_batches)
        if skip is None and self._is_awaited(work):
            skip = Skip.AWAITING_ADOPTION
        if skip is not None:
            self._schedules[key] = schedule.succeeded(now_ms)
            self._status.skipped(work, skip)
            return
        self._begin(work, chain.final, trigger)

    def _begin(self, work: RangeWork, final: CommitView, trigger: Trigger) -> None:
        if self._followed is None:
            return
        self._given.metrics.started(self._name, work.key)
        future = self._pool.submit(self._followed.ranges.materialize, work, final, trigger)
        self._running[work.key] = _Running(work, final.view.needs_from, future)

    def _is_awaited(self, work: RangeWork) -> bool:
        """Whether a snapshot that this process knows of can still be adopted."""
        pending = self._published.get(work.key)
        if pending is None or not pending.is_adoptable(work.view):
            return False
        return work.view.target.seq < pending.target.seq + AWAITED_COMMITS_MAX

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
                self._given.workspace.discard(work.key)
        limit_bytes = self._given.config.disk_bytes
        if ended and limit_bytes is not None:
            self._given.workspace.trim(limit_bytes, self._running.keys())
        if stopped:
            raise Stopped
        return ok

    def _range_ended(self, work: RangeWork, outcome: Outcome) -> None:
        key = work.key
        if key in self._schedules:
            self._schedules[key] = self._schedules[key].succeeded(self._given.now_ms())
            if outcome.awaited is not None:
                self._published[key] = _Awaited(outcome.awaited, work.view.target, work.view.tile)
        self._status.ended(work, outcome)
        if outcome.event is not None:
            self._report(outcome.event)

    def _is_mine(self, key: RangeKey) -> bool:
        return self._membership is None or self._membership.owns(key, self._given.now_ms())

    def _note_adoption(self, work: RangeWork) -> None:
        """Report a snapshot that the job took, and forget one that it cannot take any more."""
        awaited = self._published.get(work.key)
        if awaited is None or awaited.is_adoptable(work.view):
            return
        del self._published[work.key]
        pending, tile = awaited.snapshot, work.view.tile
        if (tile.low, tile.high, tile.snapshot) == (pending.low, pending.high, pending.number):
            self._report(
                Adopted(
                    job=self._name,
                    time_ms=self._wall_ms(),
                    operator=work.key.operator,
                    low=work.key.low,
                    high=work.key.high,
                    snapshot=pending.number,
                    at_seq=pending.at.seq,
                    log=log_size(work.log),
                )
            )

    def _range_failed(self, key: RangeKey, error: Exception) -> None:
        if isinstance(error, Stopped) or key not in self._schedules:
            return
        schedule = self._schedules[key] = self._schedules[key].failed(self._given.now_ms())
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
                failures=schedule.failures,
                failing=schedule.is_failing(self._policy),
                retry_ms=pause_ms(schedule, self._policy),
            )
        )

    def _is_collection_due(self, *, on_demand: bool) -> bool:
        interval_ms, now_ms = self._given.config.collect_ms, self._given.now_ms()
        if interval_ms is None or self._followed is None:
            return False
        if not on_demand and not self._collection.is_due(interval_ms, now_ms):
            return False
        return self._is_mine(RangeKey(self._followed.record.job_id, "", 0, 0))

    def _collect(self, chain: ChainView | None) -> bool:
        """Delete what is not needed; False if there is no new pin of the retention although one is due."""
        if self._followed is None:
            return True
        started_ms = self._given.now_ms()
        self._collection = self._collection.collected(started_ms)
        kept = chain is None or self._keep(self._followed.retention, chain.newest.commit)
        # Nothing that a fold of this process still reads: it would fail, and begin anew with a longer log.
        report = self._followed.collector.collect(
            keep_from=min((running.needs_from for running in self._running.values()), default=None)
        )
        source = self._followed.record.cloned_from
        if source is not None and not report.shares and not self._released:
            release_clone(self._given.config.job_store(self._root, source), self._followed.record.job_id)
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
                    duration_ms=self._given.now_ms() - started_ms,
                )
            )
        return kept

    def _keep(self, retention: Retention, newest: Commit) -> bool:
        """Make and release the pins that are due; False if a faster job has let the commits go that were to be pinned.

        That stops no collection: the pins before are there, so nothing goes that they keep (I7, I10).
        """
        what = "retention by time"
        try:
            retention.keep(newest)
        except DidNotHappenError as error:
            self._failed(what, error)
            return False
        self._succeeded(what)
        return True

    def _try(self, what: str, action: Callable[[], _Answer], *, on_demand: bool) -> tuple[bool, _Answer | None]:
        """Run a step of the whole job unless it failed a short while ago; (it did not fail, its answer)."""
        now_ms = self._given.now_ms()
        trouble = self._troubles.get(what)
        if trouble is not None and not on_demand and is_pausing(trouble, self._policy, now_ms):
            return False, None
        try:
            answer = action()
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001  one job's trouble must not stop the others
            self._failed(what, error)
            return False, None
        self._succeeded(what)
        return True, answer

    def _failed(self, what: str, error: Exception) -> None:
        """Count and report that a step of the whole job failed."""
        self._trouble_texts[what] = f"{what} failed: {error}"
        trouble = self._troubles.get(what)
        if trouble is None:
            trouble = RangeSchedule(seen_ms=self._given.now_ms(), spread=spread_of(f"{self._name}/{what}"))
        self._troubles[what] = trouble = trouble.failed(self._given.now_ms())
        self._report(
            JobFailed(
                job=self._name,
                time_ms=self._wall_ms(),
                step=what,
                error=str(error),
                error_type=type(error).__name__,
                object_name=object_name_of(error),
                failures=trouble.failures,
                retry_ms=pause_ms(trouble, self._policy),
            )
        )

    def _succeeded(self, what: str) -> None:
        self._troubles.pop(what, None)
        self._trouble_texts.pop(what, None)

    def _report(self, event: Event) -> None:
        self._given.reporter.report(event)
        self._given.metrics.report(event)

    def _wall_ms(self) -> int:
        return self._given.clock.now_ms()


def object_name_of(error: Exception) -> str | None:
    """The object that an error is about, if it says so."""
    return error.context.get("object_name") if isinstance(error, VarviteError) else None
