"""The gauges of a materializer: the status of jobs and ranges at their last step, as one Prometheus collector.

Series exist only for the ranges that a job has now; a process that follows many jobs forgets those that are gone (I10).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from varvite.materializer.monitoring.range_status import JobStatus, RangeStatus

Labels = tuple[str, str, str]
"""Job, operator, key groups."""
_RANGE: Final = ("job", "operator", "key_groups")


@dataclass
class _Last:
    """Duration and sizes of the last materialization of a range in this process."""

    duration_ms: int = -1
    full_bytes: int | None = None
    inc_bytes: int | None = None


@dataclass
class _Shown:
    """The values that the gauges show."""

    jobs: dict[str, JobStatus] = field(default_factory=dict[str, "JobStatus"])
    last: dict[Labels, _Last] = field(default_factory=dict[Labels, _Last])
    progress: dict[Labels, float] = field(default_factory=dict[Labels, float])
    queued_files: int = 0
    queued_bytes: int = 0


_OF_RANGES: Final[Mapping[str, tuple[str, Callable[[RangeStatus], float | None]]]] = {
    "last_full_size_of_non_materialization_bytes": (
        "Log that a restore of the newest checkpoint replays.",
        lambda status: status.log.size_bytes,
    ),
    "last_inc_size_of_non_materialization_bytes": (
        "Log that the newest checkpoint added.",
        lambda status: status.newest_bytes,
    ),
    "log_batches": ("Batches after the base.", lambda status: status.log.batches),
    "log_segments": ("Segments of the log after the base.", lambda status: status.log.segments),
    "log_age_seconds": (
        "Time for which this process has seen something to fold after this base.",
        lambda status: status.log_age_ms / 1_000,
    ),
    "base_seq": ("The checkpoint of the base.", lambda status: status.base_seq),
    "base_bytes": ("Stored bytes of the base.", lambda status: status.base_bytes),
    "estimated_recovery_seconds": (
        "Estimated time to restore the newest checkpoint.",
        lambda status: status.recovery_ms / 1_000,
    ),
    "consecutive_failures": ("Failed materializations in a row.", lambda status: status.failures),
    "failing": ("1 if they are more than the policy allows.", lambda status: status.failing),
    "overdue": ("1 if the watchdog reports the log as much too long.", lambda status: bool(status.overdue)),
}
"""Name without prefix → help and value; no value, no sample."""
_OF_JOBS: Final[Mapping[str, tuple[str, Callable[[JobStatus], float]]]] = {
    "checkpoint_seq": ("The newest checkpoint.", lambda status: status.seq),
    "checkpoint_batch": ("Its batch.", lambda status: status.batch),
    "retained_from_seq": ("The oldest checkpoint that the job retains.", lambda status: status.retained_from),
    "failing_steps": (
        "Steps of the whole job, such as collecting garbage, that failed more often in a row than the policy allows.",
        lambda status: len(status.failing_steps),
    ),
    "job_followed": ("1 if the job could be followed at its last step.", lambda status: not status.trouble),
}


class RangeMetrics(Collector):
    """Collects the gauges of all jobs; every method may be called from any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lock = threading.Lock()
        self._shown = _Shown()
        registry.register(self)

    def show(self, status: JobStatus) -> None:
        """Show a job's newest status, and drop the series of ranges that it no longer has."""
        with self._lock:
            self._shown.jobs[status.job] = status
            current = {_labels(status.job, range_status) for range_status in status.ranges}
            last = self._shown.last
            self._shown.last = {key: last[key] for key in last if key[0] != status.job or key in current}

    def forget(self, job: str) -> None:
        """Drop the series of a job that is gone."""
        with self._lock:
            self._shown.jobs.pop(job, None)
            self._shown.last = {key: last for key, last in self._shown.last.items() if key[0] != job}

    def materialized(self, labels: Labels, duration_ms: int, full_bytes: int, inc_bytes: int) -> None:
        """Show the duration and sizes of a materialization that has published a snapshot."""
        with self._lock:
            self._shown.last[labels] = _Last(duration_ms, full_bytes, inc_bytes)

    def replaying(self, labels: Labels, part: float | None) -> None:
        """Show the part of its log that a running fold has replayed, from 0 to 1; None: it has ended."""
        with self._lock:
            if part is None:
                self._shown.progress.pop(labels, None)
            else:
                self._shown.progress[labels] = part

    def queued(self, files: int, size_bytes: int) -> None:
        """Show the uploads that have been submitted and have not ended."""
        with self._lock:
            self._shown.queued_files, self._shown.queued_bytes = files, size_bytes

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that the registry does not collect at the registration."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            families = [*self._of_jobs(), *self._of_ranges(), *self._of_last(), *self._of_uploads()]
        return iter(families)

    def _of_jobs(self) -> Iterator[Metric]:
        for name, (text, value) in _OF_JOBS.items():
            family = GaugeMetricFamily(f"varvite_{name}", text, labels=("job",))
            for status in self._shown.jobs.values():
                family.add_metric((status.job,), value(status))
            yield family

    def _of_ranges(self) -> Iterator[Metric]:
        for name, (text, value) in _OF_RANGES.items():
            family = GaugeMetricFamily(f"varvite_{name}", text, labels=_RANGE)
            for job, status in self._ranges():
                sample = value(status)
                if sample is not None:
                    family.add_metric(_labels(job, status), sample)
            yield family

    def _of_last(self) -> Iterator[Metric]:
        duration = GaugeMetricFamily(
            "varvite_last_duration_of_materialization_ms", "Of the last materialization; -1 before.", labels=_RANGE
        )
        full = GaugeMetricFamily(
            "varvite_last_full_size_of_materialization_bytes", "Size of the last snapshot.", labels=_RANGE
        )
        inc = GaugeMetricFamily(
            "varvite_last_inc_size_of_materialization_bytes", "Bytes that the last snapshot uploaded.", labels=_RANGE
        )
        for job, status in self._ranges():
            labels = _labels(job, status)
            last = self._shown.last.get(labels, _Last(full_bytes=status.base_bytes))
            duration.add_metric(labels, last.duration_ms)
            if last.full_bytes is not None:
                full.add_metric(labels, last.full_bytes)
            if last.inc_bytes is not None:
                inc.add_metric(labels, last.inc_bytes)
        progress = GaugeMetricFamily(
            "varvite_replay_progress_ratio", "Part of its log that a running fold has replayed.", labels=_RANGE
        )
        for labels, part in self._shown.progress.items():
            progress.add_metric(labels, part)
        return iter((duration, full, inc, progress))

    def _of_uploads(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "varvite_upload_queue_size", "Uploads that have not ended.", value=self._shown.queued_files
        )
        yield GaugeMetricFamily("varvite_upload_in_flight_bytes", "Their bytes.", value=self._shown.queued_bytes)

    def _ranges(self) -> Iterator[tuple[str, RangeStatus]]:
        return ((name, status) for name, job in self._shown.jobs.items() for status in job.ranges)


def _labels(job: str, status: RangeStatus) -> Labels:
    key = status.key
    return job, key.operator, f"{key.low}-{key.high - 1}"
