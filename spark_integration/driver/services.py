"""Services of a run beside its batches: snapshots, standbys, an embedded materializer, figures, a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varvite.materializer.service.supervisor import SupervisedMaterializer
from varvite.spark_integration.driver.monitoring.gauges import JobCheckpoint
from varvite.spark_integration.driver.monitoring.monitor import JobMonitor
from varvite.spark_integration.driver.monitoring.statistics import statistics_of
from varvite.spark_integration.driver.monitoring.warnings import BatchWarnings
from varvite.spark_integration.driver.placement.decision import PartitionMoves
from varvite.spark_integration.driver.placement.standbys import StandbyWatch
from varvite.spark_integration.driver.snapshot_watch import SnapshotWatch
from varvite.storage.attempt_threads import AttemptThreads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.commit.run import Acknowledged, JobRun
    from varvite.spark_integration.driver.monitoring.statistics import BatchTimes, StatisticsLog
    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
    from varvite.spark_integration.plan.job import JobPlan
    from varvite.storage.clock import Clock


class JobServices:
    """The services of one run; `start` after the chain was taken over, `follow` once the run has a base."""

    def __init__(self, plan: JobPlan, run: JobRun, clock: Clock, statistics: StatisticsLog) -> None:
        self._plan = plan
        self._run = run
        operators = plan.operators if plan.config.recover_from_local else ()
        self._standbys = StandbyWatch(
            run.store, run.record.job_id, {o.uid: o.parallelism or plan.parallelism for o in operators}, clock
        )
        self._watch = SnapshotWatch(run.store, run.record.job_id)
        self._moves = PartitionMoves()
        self._materializer: SupervisedMaterializer | None = None
        self.monitor = JobMonitor(plan.job, plan.config.metrics_host or "", plan.config.metrics_ports)
        self.statistics = statistics
        self._warnings = BatchWarnings(plan.job)
        self.thread = AttemptThreads(1, "varvite-beside-the-batch")
        """Waits for a storage while Spark's thread plans or executes; a hung one holds up no exit."""
        self.adoption = self._watch.adoption
        """Chooses the snapshots that the next commit adopts."""
        self.copies = self._standbys.copies
        """Returns the copies that standbys have."""

    def start(self, epoch: int) -> None:
        """Begin: the run with this epoch has taken the chain over."""
        self.monitor.started(epoch)
        if self._plan.config.materializer_mode == "embedded":
            self._materializer = SupervisedMaterializer(
                self._plan.materializer_config,
                started=self.monitor.materializer_started,
                trouble=self.monitor.trouble,
            )

    def follow(self, *, is_placed: bool) -> None:
        """Look for snapshots from the run's base on, and for standbys if partitions are placed."""
        state = self._run.state
        self._watch.start(state.view, state.floors, self._standbys if is_placed else None)

    def record(
        self,
        acknowledged: Acknowledged,
        summaries: Sequence[OperatorSummaries],
        times: BatchTimes,
        attempts: int,
        way: str,
    ) -> None:
        """Publish the figures of a batch that is over; `way` is the one that it took."""
        if self._materializer is not None:
            self._materializer.announce(acknowledged.commit.seq, acknowledged.body)
        statistics = statistics_of(
            acknowledged,
            summaries,
            times,
            attempts=attempts,
            way=way,
            log_commits=self._run.state.log_commits,
            moved_partitions=self._moves.after(summaries),
        )
        self.statistics.add(statistics)
        self._warnings.after(acknowledged.commit, summaries)
        checkpoint = JobCheckpoint(
            statistics, tuple(summaries), acknowledged.commit, self._run.state.view, self._watch.base_sizes
        )
        self.monitor.acknowledged(checkpoint)

    def close(self) -> None:
        """End all of them. May be called twice."""
        self._watch.close()
        if self._materializer is not None:
            self._materializer.stop()
        self.monitor.close()
        self.thread.close()
