"""`make bench-space`: what the storage holds, over the live state, during an hour of sliding windows in simulated time.

The workload on which Flink's changelog grows 45-fold: its log keeps every value since the last materialization. Here a
job with sliding event-time windows commits a batch per second for an hour, beside a materializer that folds and
collects (`simulated_job`). After each batch all objects of the storage are summed up.

*Live* is the state as a snapshot of its own: files of exactly what is in the state, as a job without a changelog would
keep them. *logical* is what the elements in open windows weigh, each once: key, time (8 bytes) and value.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.harness.case_runs import Benchmark, Figures, Parameters, verdict
from benchmarks.harness.report import Cases, line_chart
from benchmarks.workloads.simulated_job import START_MS, SimulatedJob
from varvite import HashMapStateBackend, Types
from varvite.datastream import DataStream, ProcessWindowFunction
from varvite.spark_integration.driver.monitoring.statistics import percentile
from varvite.spark_integration.operators.windows.assigners import SlidingEventTimeWindows

HOUR_S = 3_600
WINDOW_S, SLIDE_S = 300, 30
PAYLOAD = 300
"""Bytes of an element; random, so that they do not compress away."""
KEYS = {"elements": 1_000, "sums": 20_000}
"""Sums are small: with fewer keys the whole state would be less than the log that is never worth a fold."""
MATERIALIZER = {"space_min_bytes": 128 << 10, "collect_ms": 60_000}
"""Instead of the defaults: the states are small, so that an hour of them takes minutes."""
ROWS = {"elements": 200, "sums": 1_000}
"""Per second."""
SNAPSHOT_S = 60
"""Time between two looks at how large the live state is."""
TARGET, FLINK = 1.5, 45.0


class CountElements(ProcessWindowFunction[Any, Any, str, Any]):
    """Number of elements of a window."""

    def process(self, key: str, context: Any, elements: Any) -> Iterator[Any]:  # noqa: ARG002
        yield key, sum(1 for _ in elements)


def windowed(contents: str, stream: DataStream) -> DataStream:
    """The program: all elements of a window, or their sum."""
    windows = stream.key_by(lambda e: e[0], Types.STRING()).window(
        SlidingEventTimeWindows.of(WINDOW_S * 1000, SLIDE_S * 1000)
    )
    if contents == "elements":
        return windows.process(CountElements())
    return windows.reduce(lambda a, b: (a[0], a[1] + b[1]))


def cases(is_tiny: bool) -> list[Parameters]:
    """Windows that keep elements, and windows that keep sums."""
    return [
        {"contents": contents, "seconds": 40 if is_tiny else HOUR_S, "rows_per_s": 5 if is_tiny else rows}
        for contents, rows in ROWS.items()
    ]


def run_case(parameters: Parameters) -> Figures:
    """One run; figures begin when the first windows have ended."""
    rng, contents = random.Random(1), parameters["contents"]
    keeps_elements = contents == "elements"
    element = Types.TUPLE([Types.STRING(), Types.BINARY() if keeps_elements else Types.LONG()])
    started = time.monotonic()
    seconds = parameters["seconds"]
    begin = min(WINDOW_S + SLIDE_S, seconds // 2)
    stored: list[Counter[str]] = []
    live: list[tuple[int, int]] = []
    with (
        tempfile.TemporaryDirectory(prefix="varvite-bench-") as name,
        SimulatedJob(
            Path(name),
            lambda stream: windowed(contents, stream),
            element,
            parallelism=2,
            backend=HashMapStateBackend(),
            materializer=MATERIALIZER,
        ) as job,
    ):
        for second in range(seconds):
            keys = [f"key-{rng.randrange(KEYS[contents]):05d}" for _ in range(parameters["rows_per_s"])]
            rows = [(key, rng.randbytes(PAYLOAD) if keeps_elements else rng.randrange(1_000)) for key in keys]
            times = [START_MS + second * 1000 + rng.randrange(1000) for _ in rows]
            job.batch(rows, list(times), watermark_ms=START_MS + second * 1000)
            stored.append(job.stored_bytes())
            if second >= begin and (second - begin) % SNAPSHOT_S == 0:
                live.append((second, job.snapshot_bytes(Path(name) / "live" / f"{second}")))
        materializations, collections = len(job.events.materialized), len(job.events.collected)
        triggers = sorted({event.trigger for event in job.events.materialized})
    return figures_of([of_second.total() for of_second in stored], live, begin) | {
        "stored_bytes": mean_by_directory(stored[begin:]),
        "logical_bytes": logical_bytes(parameters),
        "materializations": materializations,
        "triggers": triggers,
        "collections": collections,
        "took_s": round(time.monotonic() - started, 1),
    }


def mean_by_directory(stored: list[Counter[str]]) -> dict[str, int]:
    """Average bytes of each directory; the largest first."""
    total: Counter[str] = Counter()
    for of_second in stored:
        total.update(of_second)
    return {name: size // len(stored) for name, size in total.most_common()}


def logical_bytes(parameters: Parameters) -> int:
    """Bytes of the elements of open windows, in the middle between two slides; of sums an estimate from above."""
    rows = parameters["rows_per_s"] * (WINDOW_S + SLIDE_S // 2)
    each = len("key-00000") + 8 + (PAYLOAD if parameters["contents"] == "elements" else 8)
    if parameters["contents"] == "elements":
        return rows * each
    return min(rows, KEYS[parameters["contents"]] * (WINDOW_S // SLIDE_S + 1)) * each


def figures_of(stored: list[int], live: list[tuple[int, int]], begin: int) -> Figures:
    """Ratios of every second, to the size of the live state when it was looked at last."""
    sizes = deque(live)
    ratios: list[float] = []
    now = sizes[0][1]
    for second in range(begin, len(stored)):
        while sizes and sizes[0][0] <= second:
            now = sizes.popleft()[1]
        ratios.append(stored[second] / max(now, 1))
    every = max(1, len(ratios) // 200)
    return {
        "ratio_mean": round(statistics.fmean(ratios), 3),
        "ratio_p50": round(percentile(ratios, 0.5), 3),
        "ratio_p99": round(percentile(ratios, 0.99), 3),
        "ratio_max": round(max(ratios), 3),
        "live_bytes_p50": percentile([float(size) for _, size in live], 0.5),
        "stored_bytes_p50": percentile([float(size) for size in stored[begin:]], 0.5),
        "ratios": [(begin + at, round(ratios[at], 3)) for at in range(0, len(ratios), every)],
    }


COLUMNS = ("ratio_mean", "ratio_p50", "ratio_p99", "ratio_max")


def tables(cases: Cases) -> list[Table]:
    """All contents in one."""
    table = Table(title=f"stored / live, sliding windows of {WINDOW_S} s every {SLIDE_S} s")
    for column in ("contents", "seconds"):
        table.add_column(column)
    for column in (*COLUMNS, "live bytes", "logical bytes", "stored bytes", "materializations"):
        table.add_column(column, justify="right")
    for c in cases:
        sizes = (c["live_bytes_p50"], c["logical_bytes"], c["stored_bytes_p50"], c["materializations"])
        table.add_row(
            c["contents"], str(c["seconds"]), *(f"{c[k]:.2f}x" for k in COLUMNS), *(f"{s:,.0f}" for s in sizes)
        )
    parts = Table(title="what is stored: average bytes over live")
    parts.add_column("contents")
    names = list(dict.fromkeys(name for c in cases for name in c["stored_bytes"]))
    for name in names:
        parts.add_column(name, justify="right")
    for c in cases:
        shares = [c["stored_bytes"].get(name, 0) / c["live_bytes_p50"] for name in names]
        parts.add_row(c["contents"], *(f"{share:.2f}x" for share in shares))
    return [table, parts]


def findings(cases: Cases) -> list[str]:
    """The mean over the hour against the target."""
    return [
        verdict(
            f"windows of {c['contents']}: stored <= {TARGET} x live",
            met=c["ratio_mean"] <= TARGET,
            found=f"{c['ratio_mean']:.2f}x on average, {c['ratio_p99']:.2f}x p99 (Flink: {FLINK:.0f}x)",
        )
        for c in cases
    ]


def charts(cases: Cases, directory: Path) -> list[Path]:
    """The ratio over time."""
    path = directory / "space.png"
    series = {c["contents"]: [(float(t), float(r)) for t, r in c["ratios"]] for c in cases}
    line_chart(path, "Stored bytes over live state", ("seconds", "stored / live"), series, is_log=False)
    return [path]


BENCHMARK = Benchmark("space", __doc__ or "", cases, run_case, tables, findings, charts)
main = BENCHMARK.command()

if __name__ == "__main__":
    main()
