"""Metrics of a driver's jobs, in Prometheus's form (docs/operate/metrics.md lists them with Flink's names).

State workers are not polled: their counts come with their summaries, and this is the one place that adds them up. A
summary that does not win is not counted (I2). One value for all queries of a process that share a port; every method
may be called from any thread.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, ProcessCollector

from varvite.spark_integration.driver.monitoring.gauges import OPERATOR, JobGauges
from varvite.spark_integration.driver.monitoring.user_metrics import UserMetrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.spark_integration.driver.monitoring.gauges import JobCheckpoint
    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
    from varvite.storage.clock import Clock
    from varvite.storage.format.records import Tile

_JOB: Final = ("job",)
_BYTES: Final = tuple(float(1 << power) for power in range(10, 33, 2))
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_ACK_SECONDS: Final = (0.001, 0.0025, *_SECONDS)
_ATTEMPTS: Final = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
_SEGMENTS: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)
_WARM: Final = frozenset({"confirmed", "current"})
"""Ways to the base that read nothing."""


class JobMetrics:
    """The metrics of all queries of a process that share a port."""

    def __init__(self, clock: Clock) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.gauges = JobGauges(self.registry, clock)
        self._of_users = UserMetrics(self.registry)
        self._lock = threading.Lock()
        self._tiles: dict[str, tuple[Tile, ...]] = {}
        self._add_checkpoints()
        self._add_operators()
        self._add_uploads()
        self._materializer_starts = self._counter(
            "embedded_materializer_starts", "Starts of the driver's own materializer.", *_JOB
        )

    def _add_checkpoints(self) -> None:
        self._checkpoints = self._counter("checkpoints", "Checkpoints that were acknowledged.", *_JOB)
        self._failed = self._counter("failed_batches", "Batches that ended the query.", *_JOB, "error")
        self._attempts = self._counter("batch_attempts", "Executions of batches that were acknowledged.", *_JOB)
        self._ways = self._counter("batches", "Checkpoints by the way that their batch took.", *_JOB, "way")
        self._lost = self._counter("lost_offsets", "Offsets that Kafka had deleted before they were read.", *_JOB)
        self._ack = self._histogram(
            "acknowledge_seconds", "From all summaries to the durable entry.", _ACK_SECONDS, *_JOB
        )
        self._operators_s = self._histogram("operators_seconds", "Executing the operators.", _SECONDS, *_JOB)
        self._sink_s = self._histogram("sink_seconds", "The sink's part of a batch.", _SECONDS, *_JOB)
        self._batch_s = self._histogram("batch_seconds", "The whole of a batch.", _SECONDS, *_JOB)
        self._bytes = self._counter("checkpoint_bytes", "Bytes that checkpoints wrote.", *_JOB, "kind")
        self._objects = self._counter("objects_written", "Objects that checkpoints wrote.", *_JOB)
        self._batch_sizes = self._histogram(
            "upload_batch_sizes", "Segments of different partitions that one entry carries.", _SEGMENTS, *_JOB
        )

    def _add_operators(self) -> None:
        self._rows_in = self._counter("rows_in", "Rows that went in.", *OPERATOR)
        self._rows_out = self._counter("rows_out", "Rows that came out.", *OPERATOR)
        self._late_rows = self._counter("late_rows", "Rows that were dropped behind the watermark.", *OPERATOR)
        self._mutations = self._counter("mutations", "Changes of keyed state.", *OPERATOR)
        self._phases = self._counter(
            "worker_phase_seconds", "Time of all state workers together, by phase.", *OPERATOR, "phase"
        )
        self._reached = self._counter(
            "restored_partitions", "How state workers came to the base of a batch.", *OPERATOR, "how"
        )
        self._restore_s = self._histogram("restore_seconds", "Time of a restore or catch-up.", _SECONDS, *OPERATOR)
        self._restored_segments = self._counter("restored_log_segments", "Segments that restores replayed.", *OPERATOR)
        self._restored_bytes = self._counter("restored_log_bytes", "Log bytes that restores replayed.", *OPERATOR)
        self._adopted = self._counter("adopted_snapshots", "Snapshots that the job took as its base.", *OPERATOR)

    def _add_uploads(self) -> None:
        self._requests = self._counter(
            "number_of_upload_requests", "Objects that workers handed to uploads.", *OPERATOR
        )
        self._failures = self._counter(
            "number_of_upload_failures", "Uploads that failed after all attempts.", *OPERATOR
        )
        self._upload_attempts = self._histogram(
            "attempts_per_upload", "The attempt that ended an upload.", _ATTEMPTS, *OPERATOR
        )
        self._all_attempts = self._histogram(
            "total_attempts_per_upload", "Attempts of an upload, late ones too.", _ATTEMPTS, *OPERATOR
        )
        self._latencies = self._histogram("upload_latencies_seconds", "Time of an upload.", _SECONDS, *OPERATOR)
        self._sizes = self._histogram("upload_sizes_bytes", "Bytes of an upload.", _BYTES, *OPERATOR)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"varvite_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"varvite_{name}", text, labels, buckets=buckets, registry=self.registry)

    def started(self, job: str, epoch: int) -> None:
        """A run of the job has taken its chain over."""
        self.gauges.started(job, epoch)
        self._checkpoints.labels(job)

    def ended(self, job: str, epoch: int) -> None:
        """The run has ended: its gauges go, its counters stay."""
        self.gauges.ended(job, epoch)
        with self._lock:
            self._tiles.pop(job, None)

    def failed(self, job: str, error_type: str) -> None:
        """A batch has ended the query."""
        self._failed.labels(job, error_type).inc()

    def lost_input(self, job: str, offsets: int) -> None:
        """Rows of the input are gone before they were read."""
        self._lost.labels(job).inc(offsets)

    def materializer_started(self, job: str) -> None:
        """The driver's own materializer was started."""
        self._materializer_starts.labels(job).inc()

    def acknowledged(self, job: str, checkpoint: JobCheckpoint) -> None:
        """A checkpoint was acknowledged, and its sink was called."""
        statistics, commit = checkpoint.statistics, checkpoint.commit
        self._checkpoints.labels(job).inc()
        self._attempts.labels(job).inc(statistics.attempts)
        self._ways.labels(job, statistics.way).inc()
        self._ack.labels(job).observe(statistics.ack_ms / 1_000)
        self._operators_s.labels(job).observe(statistics.operators_ms / 1_000)
        self._sink_s.labels(job).observe(statistics.sink_ms / 1_000)
        self._batch_s.labels(job).observe(statistics.batch_ms / 1_000)
        self._bytes.labels(job, "entry").inc(statistics.entry_bytes)
        self._bytes.labels(job, "uploaded").inc(statistics.uploaded_bytes)
        self._objects.labels(job).inc(statistics.objects_written)
        self._batch_sizes.labels(job).observe(sum(part.inline is not None for part in commit.parts))
        slowest_s: dict[tuple[str, str], float] = {}
        for summaries in checkpoint.summaries:
            self._count(job, summaries)
            self._count_uploads(job, summaries)
            slowest_s |= {
                (summaries.operator, phase): spent_ms / 1_000 for phase, spent_ms in summaries.slowest_ms().items()
            }
        self._note_adoptions(job, checkpoint.view.tiles)
        self.gauges.acknowledged(job, checkpoint, slowest_s)

    def _count(self, job: str, summaries: OperatorSummaries) -> None:
        """Count the work of the operator's partitions."""
        labels = job, summaries.operator
        self._of_users.add(*labels, summaries.summaries)
        log_read = summaries.log_read()
        self._rows_in.labels(*labels).inc(summaries.total("rows_in"))
        self._rows_out.labels(*labels).inc(summaries.total("rows_out"))
        self._late_rows.labels(*labels).inc(summaries.total("late_rows"))
        self._mutations.labels(*labels).inc(summaries.mutations())
        self._restored_segments.labels(*labels).inc(log_read.segments)
        self._restored_bytes.labels(*labels).inc(log_read.size_bytes)
        for how, count in summaries.restored().items():
            self._reached.labels(*labels, how).inc(count)
        for position in summaries.with_note(note.restored not in _WARM for note in summaries.notes):
            spent_ms = summaries.summaries[position].attempt_figures().timings_ms.get("restore", 0.0)
            self._restore_s.labels(*labels).observe(spent_ms / 1_000)
        for phase, spent_ms in summaries.total_ms().items():
            self._phases.labels(*labels, phase).inc(spent_ms / 1_000)

    def _count_uploads(self, job: str, summaries: OperatorSummaries) -> None:
        """Count the uploads of the operator's workers."""
        labels = job, summaries.operator
        uploads = [summary.uploads for summary in summaries.summaries if summary.uploads is not None]
        self._requests.labels(*labels).inc(sum(upload.requests for upload in uploads))
        self._failures.labels(*labels).inc(sum(upload.failures for upload in uploads))
        for end in (end for upload in uploads for end in upload.ended):
            self._latencies.labels(*labels).observe(end.latency_s)
            self._all_attempts.labels(*labels).observe(end.started)
            if end.succeeded:
                self._upload_attempts.labels(*labels).observe(end.attempt)
                self._sizes.labels(*labels).observe(end.size_bytes)

    def _note_adoptions(self, job: str, tiles: tuple[Tile, ...]) -> None:
        with self._lock:
            before, self._tiles[job] = self._tiles.get(job), tiles
        if before is None or before == tiles:
            return
        for tile in set(tiles).difference(before):
            if tile.snapshot is not None:
                self._adopted.labels(job, tile.operator).inc()
