"""The status of one job's ranges: kept for the watchdog, shown to metrics and health after every step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from varvite.materializer.fold.recovery_estimate import RecoveryRates
from varvite.materializer.monitoring.events import Overdue
from varvite.materializer.monitoring.range_status import JobStatus, RangeStatus, overdue
from varvite.materializer.ranges import RangeLoad

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from varvite.materializer.fold.chain_view import ChainView
    from varvite.materializer.fold.plan import RangeWork
    from varvite.materializer.fold.policy import RangeSchedule
    from varvite.materializer.fold.range_fold import Outcome
    from varvite.materializer.monitoring.events import Skip
    from varvite.materializer.ranges import RangeKey
    from varvite.materializer.service.context import MaterializerContext
    from varvite.storage.format.records import Link


class StatusKeeper:
    """Keeps and shows the status of one job; for one thread."""

    def __init__(self, job: str, context: MaterializerContext) -> None:
        self._context = context
        self._policy = context.config.policy
        self._rates = RecoveryRates()
        self._shown = JobStatus(job=job)
        self._log_began: dict[RangeKey, tuple[Link, int]] = {}
        self._skips: dict[RangeKey, tuple[Link, Skip]] = {}

    def load_of(self, work: RangeWork) -> RangeLoad:
        """The size of a range's log and base, as the triggers see it."""
        return RangeLoad(work.view.tile_log, work.base_bytes, self._rates.replay_ms(work.log.size_bytes), work.share)

    def skipped(self, work: RangeWork, skip: Skip) -> None:
        """Count a range that was due without need; once per commit that it could be brought to."""
        if self._skips.get(work.key) != (work.view.target, skip):
            self._skips[work.key] = work.view.target, skip
            self._context.metrics.skipped(self._shown.job, work.key, skip)

    def ended(self, work: RangeWork, outcome: Outcome) -> None:
        """Count a materialization that ended without an error."""
        metrics, figures = self._context.metrics, outcome.figures
        if outcome.skip is not None:
            self.skipped(work, outcome.skip)
        if outcome.event is None:
            metrics.completed(self._shown.job, work.key)
        if figures is not None:
            self._rates = self._rates.replayed(figures.log_bytes, figures.fold_s)
            self._rates = self._rates.fetched(figures.base_bytes, figures.fetch_s)
            metrics.folded(self._shown.job, work.key, figures)

    def lost(self, trouble: str) -> None:
        """Show that the job could not be followed, or does not exist; its ranges are shown as they were."""
        self._show(replace(self._shown, trouble=trouble))

    def forget(self) -> None:
        """Forget a job that is gone; another one may have its name."""
        self._log_began, self._skips = {}, {}
        self._show(JobStatus(job=self._shown.job))

    def end(self) -> None:
        """Remove the job's series: it is not followed any more."""
        self._context.metrics.forget(self._shown.job)
        self._context.health.forget(self._shown.job)

    def show_failing_steps(self, failing_steps: tuple[str, ...]) -> None:
        """Show the steps that keep failing, beside following and materializing: collecting garbage, for instance."""
        if failing_steps != self._shown.failing_steps:
            self._show(replace(self._shown, failing_steps=failing_steps))

    def followed(
        self,
        chain: ChainView,
        works: Sequence[RangeWork],
        schedules: Mapping[RangeKey, RangeSchedule],
        awaited: Collection[RangeKey],
    ) -> None:
        """Show the job after a step.

        Args:
            chain: The chain that the step has read.
            works: Every range.
            schedules: The schedule of every range.
            awaited: Ranges with a published snapshot that the job may still adopt: nothing more can be done for them.
        """
        keys = {work.key for work in works}
        self._skips = {key: skip for key, skip in self._skips.items() if key in keys}
        self._log_began = {
            work.key: (work.view.tile.at, self._log_began_ms(work)) for work in works if work.log.segments
        }
        overdue_before = {status.key for status in self._shown.ranges if status.overdue}
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
        for status in ranges:
            if status.overdue and status.key not in overdue_before:
                self._report(status)

    def _range(self, work: RangeWork, schedule: RangeSchedule, *, is_awaited: bool) -> RangeStatus:
        began = self._log_began.get(work.key)
        age_ms = 0 if began is None else self._context.now_ms() - began[1]
        return RangeStatus(
            key=work.key,
            base_seq=work.view.tile.at.seq,
            base_bytes=work.base_bytes,
            log=work.newest_log,
            newest_bytes=work.newest_bytes,
            log_age_ms=age_ms,
            recovery_ms=self._rates.recovery_ms(work.base_bytes or 0, work.newest_log.size_bytes),
            failures=schedule.retry.failures,
            failing=schedule.retry.is_failing(self._policy),
            overdue="" if is_awaited else overdue(self.load_of(work), age_ms, self._policy),
        )

    def _log_began_ms(self, work: RangeWork) -> int:
        base, began_ms = self._log_began.get(work.key, (None, 0))
        return began_ms if base == work.view.tile.at else self._context.now_ms()

    def _show(self, status: JobStatus) -> None:
        self._shown = status
        self._context.metrics.show(status)
        self._context.health.show(status)

    def _report(self, status: RangeStatus) -> None:
        event = Overdue(
            job=self._shown.job,
            time_ms=self._context.clock.now_ms(),
            operator=status.key.operator,
            low=status.key.low,
            high=status.key.high,
            reason=status.overdue,
            failures=status.failures,
        )
        self._context.reporter.report(event)
        self._context.metrics.report(event)
