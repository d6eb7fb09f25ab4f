"""Figures of each checkpoint, kept for the last batches and summed up for reports."""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from varvite.storage.format import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from varvite.changelog.commit.run import Acknowledged
    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
    from varvite.spark_integration.messages.summary import Summary

HISTORY_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorStatistics:
    """One operator in a batch."""

    operator: str
    """Its uid."""
    partitions: int
    rows_in: int
    rows_out: int
    mutations: int
    late_rows: int
    state_rows: int | None
    """About the rows of its working stores; None: one cannot say cheaply."""
    state_bytes: int | None
    total_ms: dict[str, float]
    """Time of all partitions together by phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStatistics:
    """One acknowledged checkpoint."""

    batch: int
    seq: int
    rows_in: int
    """Of the first operator; what later operators read of sources is in `operators`."""
    rows_out: int
    """Of the last operator."""
    mutations: int
    ack_ms: float
    """Time between "all summaries collected" and "commit entry durable"."""
    operators_ms: float
    """Executing all operators: shuffle, functions, collecting summaries."""
    sink_ms: float
    batch_ms: float
    """The whole of foreachBatch."""
    entry_bytes: int
    """Size of the chain entry, inline segments included."""
    uploaded_bytes: int
    """Segments, gathered ones too, images, packs and snapshot files that this commit names beside its entry."""
    objects_written: int
    """Objects that this commit names and that did not exist before, the entry included."""
    attempts: int
    log_commits: int
    """Commits whose segments a restore would replay."""
    way: str = "spark"
    """driver: a small batch, which the driver executed itself; spark: Spark's tasks did."""
    restored: dict[str, int] = field(default_factory=dict[str, int])
    """Number of partitions by the worker's way to the base: confirmed, current, caught-up, restored."""
    moved_partitions: int = 0
    """Partitions of all operators that ran on another executor than in the batch before; they had to fetch state."""
    partitions_of_executors: tuple[int, ...] = ()
    """Partitions of all operators that each executor ran, the most first; executors without any are missing."""
    late_rows: int = 0
    """Rows that all operators dropped, because they came behind the watermark."""
    operators: tuple[OperatorStatistics, ...] = ()
    """Each operator, in order."""
    worker_ms: dict[str, float] = field(default_factory=dict[str, float])
    """Slowest partition's time by phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimes:
    """Times of the parts of a batch; see `CheckpointStatistics`."""

    ack_ms: float
    operators_ms: float
    sink_ms: float
    batch_ms: float


def percentile(values: Sequence[float], fraction: float) -> float:
    """Nearest-rank percentile, `0 < fraction <= 1`: the value at rank `ceil(fraction * n)`, from 1; 0.0 of nothing."""
    if not values:
        return 0.0
    rank = math.ceil(round(fraction * len(values), 9))  # rounded, because 0.07 * 100 is a little more than 7
    return sorted(values)[min(max(rank, 1), len(values)) - 1]


class StatisticsLog:
    """The last checkpoints of a run; safe to read from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._history: deque[CheckpointStatistics] = deque(maxlen=HISTORY_MAX)

    def add(self, statistics: CheckpointStatistics) -> None:
        """Keep one more."""
        with self._lock:
            self._history.append(statistics)

    def history(self) -> list[CheckpointStatistics]:
        """Oldest first."""
        with self._lock:
            return list(self._history)

    def summary(self) -> dict[str, Any]:
        """Counts, totals and percentiles of what is kept."""
        history = self.history()
        acks = [s.ack_ms for s in history]
        objects = [float(s.objects_written) for s in history]
        return {
            "checkpoints": len(history),
            "rows": sum(s.rows_in for s in history),
            "mutations": sum(s.mutations for s in history),
            "ack_ms_p50": percentile(acks, 0.5),
            "ack_ms_p99": percentile(acks, 0.99),
            "batch_ms_p50": percentile([s.batch_ms for s in history], 0.5),
            "batch_ms_p99": percentile([s.batch_ms for s in history], 0.99),
            "bytes_per_checkpoint_p50": percentile([float(s.entry_bytes + s.uploaded_bytes) for s in history], 0.5),
            "objects_per_checkpoint": sum(objects) / len(objects) if objects else 0.0,
            "objects_per_checkpoint_p50": percentile(objects, 0.5),
        }

    def as_rows(self) -> list[dict[str, Any]]:
        """The history as plain dicts."""
        return [asdict(s) for s in self.history()]


def statistics_of(
    acknowledged: Acknowledged,
    summaries: Sequence[OperatorSummaries],
    times: BatchTimes,
    *,
    attempts: int,
    log_commits: int,
    moved_partitions: int,
    way: str = "spark",
) -> CheckpointStatistics:
    """The figures of one batch from what it left behind; see the fields."""
    commit = acknowledged.commit
    of_driver = acknowledged.pack_bytes, acknowledged.gathered_bytes
    prefix = f"{layout.SEGMENTS}{commit.seq:0{layout.DIGITS}d}/"
    sizes: dict[str, int] = {}
    worker_ms: dict[str, float] = {}
    restored: Counter[str] = Counter()
    executors: Counter[str] = Counter()
    for of_operator in summaries:
        restored += of_operator.restored()
        executors += of_operator.executors()
        for phase, spent_ms in of_operator.slowest_ms().items():
            worker_ms[phase] = max(worker_ms.get(phase, 0.0), spent_ms)
        sizes |= _written(of_operator.summaries, prefix)
    return CheckpointStatistics(
        batch=commit.batch,
        seq=commit.seq,
        rows_in=summaries[0].total("rows_in") if summaries else 0,
        rows_out=summaries[-1].total("rows_out") if summaries else 0,
        mutations=sum(of_operator.mutations() for of_operator in summaries),
        ack_ms=times.ack_ms,
        operators_ms=times.operators_ms,
        sink_ms=times.sink_ms,
        batch_ms=times.batch_ms,
        entry_bytes=acknowledged.entry_bytes,
        uploaded_bytes=sum(sizes.values()) + sum(of_driver),
        objects_written=1 + len(sizes) + sum(size_bytes > 0 for size_bytes in of_driver),
        attempts=attempts,
        way=way,
        log_commits=log_commits,
        restored=dict(restored),
        moved_partitions=moved_partitions,
        partitions_of_executors=tuple(sorted(executors.values(), reverse=True)),
        late_rows=sum(of_operator.total("late_rows") for of_operator in summaries),
        operators=tuple(map(_of_operator, summaries)),
        worker_ms=worker_ms,
    )


def _of_operator(summaries: OperatorSummaries) -> OperatorStatistics:
    return OperatorStatistics(
        operator=summaries.operator,
        partitions=len(summaries.summaries),
        rows_in=summaries.total("rows_in"),
        rows_out=summaries.total("rows_out"),
        mutations=summaries.mutations(),
        late_rows=summaries.total("late_rows"),
        state_rows=summaries.total_if_known("state_rows"),
        state_bytes=summaries.total_if_known("state_bytes"),
        total_ms=summaries.total_ms(),
    )


def _written(summaries: Iterable[Summary], prefix: str) -> dict[str, int]:
    """Name → size of the objects below `prefix` that workers uploaded for this commit."""
    sizes: dict[str, int] = {}
    for summary in summaries:
        if summary.uploaded or summary.image_uploaded is not None:
            sizes |= {s.name: s.length for s in (*summary.uploaded, summary.image_uploaded) if s is not None}
        if summary.files:
            sizes |= {f.name: f.size_bytes for f in summary.files if f.name.startswith(prefix)}
    return sizes
