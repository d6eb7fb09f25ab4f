"""Metrics of a materializer, in Prometheus's form (docs/operate/metrics.md lists them with Flink's names).

Counters and histograms count events; gauges of ranges show the last step of each job, so that a range that is gone
leaves no series behind (I10). One value per process; every method may be called from any thread.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, ProcessCollector

from varvite.materializer.monitoring.events import Adopted, Collected, Failed, JobFailed, Materialized
from varvite.materializer.monitoring.range_metrics import RangeMetrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.materializer.monitoring.events import Event, FoldFigures, Skip
    from varvite.materializer.monitoring.range_status import JobStatus
    from varvite.materializer.ranges import RangeKey
    from varvite.storage.transfer.upload import UploadOutcome

_RANGE: Final = ("job", "operator", "key_groups")
_BYTES: Final = tuple(float(1 << power) for power in range(10, 33, 2))
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_ATTEMPTS: Final = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)


class MaterializerMetrics:
    """The metrics of one materializer; also a reporter, since most of what it counts are events."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._gauges = RangeMetrics(self.registry)
        self._lock = threading.Lock()
        self._queued_files = 0
        self._queued_bytes = 0
        self._add_materializations()
        self._add_folds()
        self._add_uploads()

    def _add_materializations(self) -> None:
        self._started = self._counter("started_materialization", "Materializations that began.", *_RANGE)
        self._completed = self._counter("completed_materialization", "Materializations that ended well.", *_RANGE)
        self._failed = self._counter("failed_materialization", "Materializations that failed.", *_RANGE)
        self._skipped = self._counter(
            "skipped_materialization", "Times that a range was due and there was no need.", *_RANGE, "reason"
        )
        self._adopted = self._counter("adopted_snapshots", "Snapshots that the job took as its base.", *_RANGE)
        self._damaged = self._counter(
            "damaged_snapshots", "Times that a published snapshot could not be read and was skipped.", *_RANGE
        )
        self._job_failures = self._counter("job_failures", "Failed steps of a whole job.", "job", "step")
        self._collected = self._counter("collected_objects", "Objects that were deleted as garbage.", "job", "kind")

    def _add_folds(self) -> None:
        self._replayed = self._counter("replayed_mutations", "Mutations folded.", *_RANGE)
        self._replayed_bytes = self._counter("replayed_bytes", "Log bytes folded.", *_RANGE)
        self._hits = self._counter("local_copy_hits", "Folds that went on from the local copy.", *_RANGE)
        self._misses = self._counter("local_copy_misses", "Folds that fetched the base first.", *_RANGE)
        self._compacted = self._counter("compactions", "Local copies rewritten to save space.", *_RANGE)
        self._reused = self._counter("reused_bytes", "Snapshot bytes that were stored already.", *_RANGE)
        self._uploaded = self._counter("uploaded_bytes", "Snapshot bytes uploaded.", *_RANGE)

    def _add_uploads(self) -> None:
        self._requests = self._counter("number_of_upload_requests", "Snapshot files submitted for upload.")
        self._upload_failures = self._counter("number_of_upload_failures", "Uploads that failed after all attempts.")
        self._attempts = self._histogram("attempts_per_upload", "Number of the attempt that succeeded.", _ATTEMPTS)
        self._all_attempts = self._histogram(
            "total_attempts_per_upload", "Attempts of an upload, late ones too.", _ATTEMPTS
        )
        self._latencies = self._histogram("upload_latencies_seconds", "Time of an upload.", _SECONDS)
        self._sizes = self._histogram("upload_sizes_bytes", "Bytes of an upload.", _BYTES)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"varvite_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"varvite_{name}", text, buckets=buckets, registry=self.registry)

    def report(self, event: Event) -> None:
        """Count an event."""
        match event:
            case Materialized():
                labels = (event.job, event.operator, _span(event.low, event.high))
                self._completed.labels(*labels).inc()
                self._uploaded.labels(*labels).inc(event.uploaded_bytes)
                self._reused.labels(*labels).inc(event.reused_bytes)
                sizes = event.uploaded_bytes + event.reused_bytes, event.uploaded_bytes
                self._gauges.materialized(labels, event.duration_ms, *sizes)
            case Adopted():
                self._adopted.labels(event.job, event.operator, _span(event.low, event.high)).inc()
            case Failed():
                self._failed.labels(event.job, event.operator, _span(event.low, event.high)).inc()
            case JobFailed():
                self._job_failures.labels(event.job, event.step).inc()
            case Collected():
                self._collected.labels(event.job, "entries").inc(event.entries)
                self._collected.labels(event.job, "segments").inc(event.segments)
                self._collected.labels(event.job, "snapshot_files").inc(event.snapshot_files)
            case _:
                pass

    def started(self, job: str, key: RangeKey) -> None:
        """Count a materialization that begins."""
        self._started.labels(*_labels(job, key)).inc()

    def skipped(self, job: str, key: RangeKey, reason: Skip) -> None:
        """Count a range that was due without need."""
        self._skipped.labels(*_labels(job, key), reason.name.lower()).inc()

    def completed(self, job: str, key: RangeKey) -> None:
        """Count a materialization that ended without a snapshot of its own; as in Flink that is completed."""
        self._completed.labels(*_labels(job, key)).inc()

    def passed_over(self, job: str, key: RangeKey, count: int) -> None:
        """Count published snapshots of a range that could not be read."""
        self._damaged.labels(*_labels(job, key)).inc(count)

    def replaying(self, job: str, key: RangeKey, part: float | None) -> None:
        """Show the part of its log that a running fold has replayed, from 0 to 1; None: it has ended."""
        self._gauges.replaying(_labels(job, key), part)

    def folded(self, job: str, key: RangeKey, figures: FoldFigures) -> None:
        """Count a fold that has reached its commit."""
        labels = _labels(job, key)
        (self._misses if figures.restored else self._hits).labels(*labels).inc()
        self._replayed.labels(*labels).inc(figures.mutations)
        self._replayed_bytes.labels(*labels).inc(figures.log_bytes)

    def compacted(self, job: str, key: RangeKey) -> None:
        """Count a local copy that was rewritten, because too much of it was overwritten or deleted data."""
        self._compacted.labels(*_labels(job, key)).inc()

    def queued(self, size_bytes: int) -> None:
        """Count an upload that was submitted (`UploadObserver`)."""
        self._requests.inc()
        self._queue(1, size_bytes)

    def ended(self, end: UploadOutcome) -> None:
        """Count an upload that has ended (`UploadObserver`)."""
        self._queue(-1, -end.size_bytes)
        self._latencies.observe(end.latency_s)
        self._all_attempts.observe(end.started)
        if end.succeeded:
            self._attempts.observe(end.attempt)
            self._sizes.observe(end.size_bytes)
        else:
            self._upload_failures.inc()

    def show(self, status: JobStatus) -> None:
        """Show a job's newest status."""
        self._gauges.show(status)

    def forget(self, job: str) -> None:
        """Drop the gauges of a job that is gone; its counters stay."""
        self._gauges.forget(job)

    def _queue(self, files: int, size_bytes: int) -> None:
        with self._lock:
            self._queued_files += files
            self._queued_bytes += size_bytes
            self._gauges.queued(self._queued_files, self._queued_bytes)


def _labels(job: str, key: RangeKey) -> tuple[str, str, str]:
    return job, key.operator, _span(key.low, key.high)


def _span(low: int, high: int) -> str:
    """Key groups `[low, high)` as a label."""
    return f"{low}-{high - 1}"
