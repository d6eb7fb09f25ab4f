"""What one job's ranges look like from here: kept for the watchdog, shown to metrics and health after every step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from varvite.materializer.fold.policy import RangeLoad
from varvite.materializer.fold.recovery_estimate import RecoveryRates
from varvite.materializer.monitoring.events import Overdue
from varvite.materializer.monitoring.range_status import JobStatus, RangeStatus, overdue

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from varvite.materializer.fold.chain_view import ChainView
    from varvite.materializer.fold.plan import RangeWork
    from varvite.materializer.fold.policy import RangeKey, RangeSchedule
    from varvite.materializer.fold.publication import Skip
    from varvite.materializer.fold.range_fold import Outcome
    from varvite.materializer.service.context import Surroundings
    from varvite.storage.format.records import Link


class StatusKeeper:
    """See the module; for one thread."""

    def __init__(self, job: str, given: Surroundings) -> None:
        self._given = given
        self._policy = given.config.policy
        self._rates = RecoveryRates()
        self._shown = JobStatus(job=job)
        self._log_began: dict[RangeKey, tuple[Link, int]] = {}
        self._skips: dict[RangeKey, tuple[Link, Skip]] = {}

    def load_of(self, work: RangeWork) -> RangeLoad:
        """What a range weighs, as the triggers see it."""
        return RangeLoad(work.view.tile_log, work.base_bytes, self._rates.replay_ms(work.log.size_bytes), work.share)

    def skipped(self, work: RangeWork, skip: Skip) -> None:
        """A range was due without need; counted once per commit that it could be brought to."""
        if self._skips.get(work.key) != (work.view.target, skip):
            self._skips[work.key] = work.view.target, skip
            self._given.metrics.skipped(self._shown.job, work.key, skip)

    def ended(self, work: RangeWork, outcome: Outcome) -> None:
        """A materialization that had begun ended without an error."""
        metrics, figures = self._given.metrics, outcome.figures
        if outcome.skip is not None:
            self.skipped(work, outcome.skip)
        if outcome.event is None:
            metrics.completed(self._shown.job, work.key)
        if figures is not None:
            self._rates = self._rates.replayed(figures.log_bytes, figures.fold_s)
            self._rates = self._rates.fetched(figures.base_bytes, figures.fetch_s)
            metrics.folded(self._shown.job, work.key, figures)

    def lost(self, trouble: str) -> None:
        """The job could not be followed, or does not exist; its ranges are shown as they were."""
        self._show(replace(self._shown, trouble=trouble))

    def forget(self) -> None:
        """The job is gone; another one may have its name."""
        self._log_began, self._skips = {}, {}
        self._show(JobStatus(job=self._shown.job))

    def end(self) -> None:
        """Nobody looks at the job any more."""
        self._given.metrics.forget(self._shown.job)
        self._given.health.forget(self._shown.job)

    def show_failing_steps(self, failing_steps: tuple[str, ...]) -> None:
        """Steps beside following and materializing, such as the collection of garbage, that keep failing."""
        if failing_steps != self._shown.failing_steps:
            self._show(replace(self._shown, failing_steps=failing_steps))

    def followed(
        self,
        chain: ChainView,
        works: Sequence[RangeWork],
        schedules: Mapping[RangeKey, RangeSchedule],
        awaited: Collection[RangeKey],
    ) -> None:
        """After a step.

        Args:
            chain: What it saw.
            works: Every range.
            schedules: Of every range.
            awaited: Ranges with a published snapshot that the job may still adopt: nothing more can be done for them.
        """
        keys = {work.key for work in works}
        self._skips = {key: skip for key, skip in self._skips.items() if key in keys}
        self._log_began = {
            work.key: (work.view.tile.at, self._log_began_ms(work)) for work in works if work.log.segments
        }
        before = {one.key for one in self._shown.ranges if one.overdue}
        ranges = tuple(self._range(work, schedules[work.key], is_awaited=work.key in awaited) for work in works)
        self._show(
            JobStatus(
                job=self._shown.job,
                seq=chain.newest.commit.seq,
                batch=chain.newest.commit.batch,
                retained_from=chain.head.retained_from or chain.head.keep_from,
                ranges=ranges,
                failing_steps=self._shown.failing_steps,
            )
        )
        for one in ranges:
            if one.overdue and one.key not in before:
                self._report(one)

    def _range(self, work: RangeWork, schedule: RangeSchedule, *, is_awaited: bool) -> RangeStatus:
        began = self._log_began.get(work.key)
        age_ms = 0 if began is None else self._given.now_ms() - began[1]
        return RangeStatus(
            key=work.key,
            base_seq=work.view.tile.at.seq,
            base_bytes=work.base_bytes,
            log=work.newest_log,
            newest_bytes=work.newest_bytes,
            log_age_ms=age_ms,
            recovery_ms=self._rates.recovery_ms(work.base_bytes or 0, work.newest_log.size_bytes),
            failures=schedule.failures,
            failing=schedule.is_failing(self._policy),
            overdue="" if is_awaited else overdue(self.load_of(work), age_ms, self._policy),
        )

    def _log_began_ms(self, work: RangeWork) -> int:
        known = self._log_began.get(work.key)
        return known[1] if known is not None and known[0] == work.view.tile.at else self._given.now_ms()

    def _show(self, status: JobStatus) -> None:
        self._shown = status
        self._given.metrics.show(status)
        self._given.health.show(status)

    def _report(self, status: RangeStatus) -> None:
        event = Overdue(
            job=self._shown.job,
            time_ms=self._given.clock.now_ms(),
            operator=status.key.operator,
            low=status.key.low,
            high=status.key.high,
            reason=status.overdue,
            failures=status.failures,
        )
        self._given.reporter.report(event)
        self._given.metrics.report(event)
