"""One job: follow its chain, materialize the ranges that are due, collect its garbage. One `step` per poll.

What goes wrong with one range is counted, reported and tried again after a pause; it stops neither the other ranges nor
the job (Flink fails the task instead; here the log only gets longer).

Invariants: I9 (only schedules are kept in memory, and they may be lost), I10 (a failing range is not tried hotly).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from varve.materializer.chain_follower import ChainFollower
from varve.materializer.events import Adopted, Collected, Event, Failed, JobFailed, Waiting
from varve.materializer.interruptible_store import InterruptibleStore
from varve.materializer.materialize_policy import RangeKey, RangeSchedule, due, is_pausing, pause_ms
from varve.materializer.publish_decision import is_adoptable, skip_without_listing
from varve.materializer.range_materializer import RangeMaterializer, log_size
from varve.materializer.range_plan import plan_ranges
from varve.materializer.sharing import Membership, beat, leave
from varve.materializer.stop_signal import Stopped
from varve.storage.chain_reader import ChainReader
from varve.storage.collector import Collector
from varve.storage.errors import MissingObjectError, RetryableError, VarveError
from varve.storage.job import read_job
from varve.storage.job_store import JobStore
from varve.storage.savepoints import release_clone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varve.materializer.chain_follower import ChainView
    from varve.materializer.materialize_policy import Trigger
    from varve.materializer.range_plan import RangeWork
    from varve.materializer.surroundings import Surroundings
    from varve.storage.object_store import ObjectStore
    from varve.storage.records import JobRecord, SnapshotDescriptor

_Answer = TypeVar("_Answer")


class _Followed(NamedTuple):
    """What there is once the job exists."""

    record: JobRecord
    chain: ChainFollower
    ranges: RangeMaterializer
    collector: Collector


class JobMaterializer:
    """Materializes one job; for one thread."""

    def __init__(self, name: str, store: ObjectStore, surroundings: Surroundings, root: ObjectStore) -> None:
        """`store` is rooted at `<root>/<job>`; the job need not exist yet."""
        self._name = name
        self._uninterruptible = store
        self._store = InterruptibleStore(store, surroundings.stop)
        self._given = surroundings
        self._policy = surroundings.config.policy
        self._followed: _Followed | None = None
        self._schedules: dict[RangeKey, RangeSchedule] = {}
        self._published: dict[RangeKey, SnapshotDescriptor] = {}
        self._troubles: dict[str, RangeSchedule] = {}
        self._message = ""
        self._collected_ms: int | None = None
        self._root = root
        self._released = False
        self._membership = Membership(surroundings.tokens.token()) if surroundings.config.share else None

    @property
    def exists(self) -> bool:
        """Whether the job was there at the last step."""
        return self._followed is not None

    def step(self, *, on_demand: bool = False) -> bool:
        """Do what is due; True if nothing that was tried failed.

        Args:
            on_demand: Materialize every range and collect, whatever the intervals and pauses say.

        Raises `Stopped` if asked to stop.
        """
        ok, chain = self._try("following the chain", self._follow, on_demand=on_demand)
        if not ok or self._followed is None:
            return ok
        if self._membership is not None:
            ok &= self._try("heartbeat", self._beat, on_demand=on_demand)[0]
        if chain is not None:
            works = plan_ranges(self._followed.record.job_id, chain)
            self._forget_others(self._followed.record.job_id, works)
            for work in works:
                self._given.stop.check()
                ok &= self._handle(work, chain, on_demand=on_demand)
        if self._is_collection_due(on_demand=on_demand):
            ok &= self._try("collecting garbage", self._collect, on_demand=on_demand)[0]
        return ok

    def close(self) -> None:
        """Leave the sharing, if there is one."""
        membership = self._membership
        if membership is not None and membership.counter:
            self._try("leaving", lambda: leave(self._uninterruptible, membership), on_demand=True)

    def _follow(self) -> ChainView | None:
        if self._followed is None:
            try:
                record = read_job(self._store)
            except MissingObjectError:
                self._wait(f"job {self._name} does not exist yet in {self._store.url}; waiting for it")
                return None
            self._followed = self._begin(record)
        try:
            chain = self._followed.chain.read()
        except RetryableError:
            raise
        except VarveError:
            self._followed = None  # start anew: what was remembered may be of a job of that name that is gone
            raise
        self._wait(f"job {self._name} has no checkpoint yet; waiting for it" if chain is None else "")
        return chain

    def _begin(self, record: JobRecord) -> _Followed:
        given, reader = self._given, ChainReader(self._store, record.job_id)
        return _Followed(
            record,
            ChainFollower(reader, record.max_parallelism),
            RangeMaterializer(self._name, record.job_id, self._store, given),
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

    def _forget_others(self, job_id: str, works: Sequence[RangeWork]) -> None:
        """Forget ranges that the job no longer has, and their local copies."""
        keys = {work.key for work in works}
        if keys != self._schedules.keys():
            now_ms = self._given.now_ms()
            self._schedules = {key: self._schedules.get(key, RangeSchedule(seen_ms=now_ms)) for key in keys}
            self._published = {key: d for key, d in self._published.items() if key in keys}
            self._given.workspace.discard_others(job_id, keys)

    def _handle(self, work: RangeWork, chain: ChainView, *, on_demand: bool) -> bool:
        """Materialize a range if it is due; False if that failed."""
        key, now_ms = work.key, self._given.now_ms()
        self._note_adoption(work)
        schedule = self._schedules[key]
        trigger = due(key, schedule, work.view.tile_log, self._policy, now_ms, on_demand=on_demand)
        if trigger is None or not self._is_mine(key):
            return True
        pending = self._published.get(key)
        awaited = pending is not None and is_adoptable(pending, work.view)
        if awaited or skip_without_listing(work.view, self._policy.log_batches) is not None:
            self._schedules[key] = schedule.succeeded(now_ms)
            return True
        return self._materialize(work, chain, trigger)

    def _materialize(self, work: RangeWork, chain: ChainView, trigger: Trigger) -> bool:
        if self._followed is None or chain.final is None:
            return True
        key = work.key
        try:
            published = self._followed.ranges.materialize(work, chain.final, trigger)
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, it must not stop the other ranges
            self._range_failed(key, error)
            return False
        self._schedules[key] = self._schedules[key].succeeded(self._given.now_ms())
        if published.awaited is not None:
            self._published[key] = published.awaited
        if published.event is not None:
            self._report(published.event)
        return True

    def _is_mine(self, key: RangeKey) -> bool:
        return self._membership is None or self._membership.owns(key, self._given.now_ms())

    def _note_adoption(self, work: RangeWork) -> None:
        """Report a snapshot that the job took, and forget one that it cannot take any more."""
        pending = self._published.get(work.key)
        if pending is None or is_adoptable(pending, work.view):
            return
        del self._published[work.key]
        tile = work.view.tile
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
        if not on_demand and self._collected_ms is not None and now_ms < self._collected_ms + interval_ms:
            return False
        return self._is_mine(RangeKey(self._followed.record.job_id, "", 0, 0))

    def _collect(self) -> None:
        if self._followed is None:
            return
        started_ms = self._given.now_ms()
        self._collected_ms = started_ms
        report = self._followed.collector.collect()
        source = self._followed.record.cloned_from
        if source is not None and not report.shares and not self._released:
            release_clone(JobStore(self._root, source), self._followed.record.job_id)
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
            self._troubles[what] = trouble = (trouble or RangeSchedule(seen_ms=now_ms)).failed(self._given.now_ms())
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
            return False, None
        self._troubles.pop(what, None)
        return True, answer

    def _report(self, event: Event) -> None:
        self._given.reporter.report(event)

    def _wall_ms(self) -> int:
        return self._given.clock.now_ms()


def object_name_of(error: Exception) -> str | None:
    """The object that an error is about, if it says so."""
    return error.context.get("object_name") if isinstance(error, VarveError) else None
