"""The gauges of a driver: how its jobs stood after their last checkpoints, as one Prometheus collector.

Figures that take long, such as the length of the log by operator, are computed when they are collected, not in the
batch.
Series exist only for the jobs that run now and for the operators that they have (I10).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from varvite.storage.format.layout import SnapshotName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from varvite.changelog.chain.view import LineView
    from varvite.spark_integration.driver.monitoring.statistics import CheckpointStatistics
    from varvite.spark_integration.driver.snapshot_watch import BaseSize
    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
    from varvite.storage.clock import Clock
    from varvite.storage.format.records import Commit

OPERATOR: Final = ("job", "operator")


@dataclass(frozen=True, slots=True)
class JobCheckpoint:
    """A checkpoint that was acknowledged, with its state and figures."""

    statistics: CheckpointStatistics
    summaries: tuple[OperatorSummaries, ...]
    commit: Commit
    view: LineView
    base_sizes: Mapping[SnapshotName, BaseSize]
    """Of the view's tiles, as far as they are known."""


class OperatorGauges(NamedTuple):
    """Sizes of an operator's log, base and state; None: unknown."""

    log_bytes: int
    log_segments: int
    log_batches: int
    newest_log_bytes: int
    base_seq: int
    base_bytes: int | None
    base_inc_bytes: int | None
    rows: int | None
    state_bytes: int | None
    queue_size: int
    in_flight_bytes: int


def operator_gauges(checkpoint: JobCheckpoint) -> dict[str, OperatorGauges]:
    """By operator: its log, base and working state after a checkpoint; pure."""
    view, seq = checkpoint.view, checkpoint.commit.seq
    segments, tiles = defaultdict[str, list[tuple[int, int]]](list), defaultdict[str, list[int]](list)
    sizes = defaultdict[str, list[tuple[int, int] | None]](list)
    for ref in view.segments:
        segments[ref.operator].append((ref.seq_last, ref.data.length))
    for tile in view.tiles:
        tiles[tile.operator].append(tile.at.seq)
        if tile.snapshot is None:
            whole = sum(file.size_bytes for file in tile.files)
            sizes[tile.operator].append((whole, 0))
        else:
            name = SnapshotName(tile.operator, tile.low, tile.high, tile.snapshot)
            sizes[tile.operator].append(checkpoint.base_sizes.get(name))
    by_operator = {summaries.operator: summaries for summaries in checkpoint.summaries}
    gauges: dict[str, OperatorGauges] = {}
    for operator in (layout.uid for layout in checkpoint.commit.operators):
        log, summaries = segments[operator], by_operator.get(operator)
        known_sizes = [size for size in sizes[operator] if size is not None]
        is_known = len(known_sizes) == len(sizes[operator])
        uploads = [s.uploads for s in (summaries.summaries if summaries else ()) if s.uploads is not None]
        gauges[operator] = OperatorGauges(
            log_bytes=sum(size for _, size in log),
            log_segments=len(log),
            log_batches=len({last for last, _ in log}),
            newest_log_bytes=sum(size for last, size in log if last == seq),
            base_seq=min(tiles[operator], default=0),
            base_bytes=sum(full for full, _ in known_sizes) if is_known else None,
            base_inc_bytes=sum(inc for _, inc in known_sizes) if is_known else None,
            rows=None if summaries is None else summaries.total_if_known("state_rows"),
            state_bytes=None if summaries is None else summaries.total_if_known("state_bytes"),
            queue_size=max((upload.queue_max for upload in uploads), default=0),
            in_flight_bytes=max((upload.in_flight_max_bytes for upload in uploads), default=0),
        )
    return gauges


_OF_OPERATORS: Final[Mapping[str, tuple[str, Callable[[OperatorGauges], int | None]]]] = {
    "last_full_size_of_non_materialization_bytes": (
        "Log that a restore of the newest checkpoint replays.",
        lambda gauges: gauges.log_bytes,
    ),
    "last_inc_size_of_non_materialization_bytes": (
        "Log that the newest checkpoint added.",
        lambda gauges: gauges.newest_log_bytes,
    ),
    "last_full_size_of_materialization_bytes": ("Size of the bases.", lambda gauges: gauges.base_bytes),
    "last_inc_size_of_materialization_bytes": (
        "What was uploaded for the bases, without what was there already.",
        lambda gauges: gauges.base_inc_bytes,
    ),
    "log_batches": ("Batches after the bases that changed something.", lambda gauges: gauges.log_batches),
    "log_segments": ("Segments of the log after the bases.", lambda gauges: gauges.log_segments),
    "base_seq": ("The checkpoint that the oldest base is of.", lambda gauges: gauges.base_seq),
    "state_rows": ("About the rows of all working stores.", lambda gauges: gauges.rows),
    "state_bytes": ("About the bytes of all working stores.", lambda gauges: gauges.state_bytes),
    "upload_queue_size": (
        "Most uploads that a state worker had open at the same time for the newest checkpoint.",
        lambda gauges: gauges.queue_size,
    ),
    "upload_in_flight_bytes": (
        "Most bytes that a state worker had in flight for the newest checkpoint.",
        lambda gauges: gauges.in_flight_bytes,
    ),
}
"""Name without prefix → help and value; no value, no sample."""


@dataclass
class _Job:
    """A job that runs."""

    epoch: int
    checkpoint: JobCheckpoint | None = None
    acknowledged_s: float | None = None
    batch_began_s: float | None = None
    operators: dict[str, OperatorGauges] | None = None
    """Figures of `checkpoint`, computed lazily."""
    slowest_s: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """(operator, phase) → the slowest partition's time."""


class JobGauges(Collector):
    """Gauges of the jobs of a process; every method may be called from any thread."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._jobs: dict[str, _Job] = {}
        registry.register(self)

    def started(self, job: str, epoch: int) -> None:
        """A run of the job has begun."""
        with self._lock:
            self._jobs[job] = _Job(epoch)

    def ended(self, job: str, epoch: int) -> None:
        """That run has ended; a newer one of the same job is left alone."""
        with self._lock:
            if job in self._jobs and self._jobs[job].epoch == epoch:
                del self._jobs[job]

    def batch_began(self, job: str) -> None:
        """A batch begins."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            if job in self._jobs:
                self._jobs[job].batch_began_s = now_s

    def batch_ended(self, job: str) -> None:
        """It has ended, well or not."""
        with self._lock:
            if job in self._jobs:
                self._jobs[job].batch_began_s = None

    def acknowledged(self, job: str, checkpoint: JobCheckpoint, slowest_s: dict[tuple[str, str], float]) -> None:
        """A checkpoint was acknowledged."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            run = self._jobs.get(job)
            if run is not None:
                run.checkpoint, run.acknowledged_s, run.operators = checkpoint, now_s, None
                run.slowest_s = slowest_s

    def running_s(self) -> dict[str, float]:
        """Job → for how long its current batch has been executed; 0 between batches."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            return {
                name: 0.0 if job.batch_began_s is None else now_s - job.batch_began_s
                for name, job in self._jobs.items()
            }

    def describe(self) -> Iterator[Metric]:
        """Nothing: the registry need not collect at the registration."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        now_s = self._clock.monotonic_s()
        with self._lock:
            families = [*self._of_runs(now_s), *self._of_checkpoints(now_s), *self._of_operators(), self._of_phases()]
        return iter(families)

    def _of_runs(self, now_s: float) -> Iterator[Metric]:
        epoch = GaugeMetricFamily("varvite_epoch", "The seq of the run's fence.", labels=("job",))
        running = GaugeMetricFamily(
            "varvite_batch_running_seconds",
            "For how long the batch has been executed; 0 between batches.",
            labels=("job",),
        )
        for name, job in self._jobs.items():
            epoch.add_metric((name,), job.epoch)
            running.add_metric((name,), 0 if job.batch_began_s is None else now_s - job.batch_began_s)
        yield epoch
        yield running

    def _of_checkpoints(self, now_s: float) -> Iterator[Metric]:
        seq = GaugeMetricFamily("varvite_checkpoint_seq", "The newest checkpoint.", labels=("job",))
        batch = GaugeMetricFamily("varvite_checkpoint_batch", "Its batch.", labels=("job",))
        kept = GaugeMetricFamily(
            "varvite_retained_from_seq", "The oldest checkpoint that the job retains.", labels=("job",)
        )
        age = GaugeMetricFamily("varvite_checkpoint_age_seconds", "Since it was acknowledged.", labels=("job",))
        in_chain = GaugeMetricFamily(
            "varvite_progress_in_chain",
            "1: the position of the input is in the checkpoints alone. 0: Spark writes its logs in each batch.",
            labels=("job",),
        )
        watermark = GaugeMetricFamily("varvite_watermark_ms", "The watermark of the next batch.", labels=("job",))
        for name, job in self._jobs.items():
            if job.checkpoint is None or job.acknowledged_s is None:
                continue
            commit = job.checkpoint.commit
            seq.add_metric((name,), commit.seq)
            batch.add_metric((name,), commit.batch)
            kept.add_metric((name,), commit.retained_from or commit.keep_from)
            age.add_metric((name,), now_s - job.acknowledged_s)
            in_chain.add_metric((name,), commit.position is not None and not commit.position.is_in_spark_log)
            if commit.watermark_ms is not None:
                watermark.add_metric((name,), commit.watermark_ms)
        return iter((seq, batch, kept, age, in_chain, watermark))

    def _of_operators(self) -> Iterator[Metric]:
        for name, (text, value) in _OF_OPERATORS.items():
            family = GaugeMetricFamily(f"varvite_{name}", text, labels=OPERATOR)
            for job_name, job in self._jobs.items():
                if job.checkpoint is None:
                    continue
                if job.operators is None:
                    job.operators = operator_gauges(job.checkpoint)
                for operator, gauges in job.operators.items():
                    number = value(gauges)
                    if number is not None:
                        family.add_metric((job_name, operator), number)
            yield family

    def _of_phases(self) -> Metric:
        family = GaugeMetricFamily(
            "varvite_slowest_worker_seconds",
            "Time of a phase of the newest batch in the slowest state worker.",
            labels=(*OPERATOR, "phase"),
        )
        for name, job in self._jobs.items():
            for (operator, phase), spent_s in job.slowest_s.items():
                family.add_metric((name, operator, phase), spent_s)
        return family
