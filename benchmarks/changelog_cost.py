"""`make bench-changelog`: what the changelog costs a job, against the same job that only keeps its state.

varvite has no mode that never writes: with the changelog off every checkpoint writes a snapshot. So the other variant
is made here, as near to the job as can be: the same stream, shuffle, function, state workers, overlay, net effect of
each batch, working store and fold. But its workers make no segments (`kept_state.KeptCountAndSum`), so none are
uploaded or carried to the driver, and its chain is in the driver's memory (`memory://`), so no commit is written
either. What differs is all that making a batch durable costs on the way to the acknowledgement: encode, upload, commit.

Both are queries of one Spark application on the same input. They live all the time and are fed in turn, one file each,
ABBAABBA...; a pause between two batches lets the workers do what they do while nobody waits, so that no batch pays for
another. Each pair of neighbours gives a ratio, whose median is the figure; batch times are Spark's `triggerExecution`.
CPU time of the driver, the JVM and all workers over a batch and the pause after it is compared in the same way: it also
has what the changelog does in the background, and it depends less on what else the machine does.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.cpu_time import ApplicationTime
from benchmarks.harness.paired import in_turn, paired_change
from benchmarks.harness.report import Cases, results_option, wide_console, write_cases
from benchmarks.harness.session import run_alone, session
from benchmarks.workloads.input import Case, source, write_input
from benchmarks.workloads.jobs import COUNT_AND_SUM, CountAndSum, discard, varvite_environment
from benchmarks.workloads.kept_state import KeptCountAndSum
from varvite.spark_integration.driver.monitoring.statistics import percentile

BACKENDS = ("hashmap", "rocksdb")
ROWS = (20_000, 200_000)
WARM_UP = 6
PAIRS = {20_000: 40, 200_000: 20}
PAUSE_S = 0.5
POLL_S = 0.02
BATCH_TIMEOUT_S = 300.0
CHANGELOG, KEPT = "changelog", "kept only"
WRITING_PHASES = ("early_upload", "checkpoint", "hand_over")
"""A worker's share of the changelog, in its own statistics."""


@dataclass
class Variant:
    """A live query that is fed by hand."""

    name: str
    query: Any
    inbox: Path
    """Directory that the query reads."""
    batch_ms: list[float] = field(default_factory=list[float])
    cpu_ms: list[float] = field(default_factory=list[float])

    def feed(self, file: Path, application: ApplicationTime) -> None:
        """Let the query process one file, and note what it took; then pause."""
        done = len(self.query.checkpoint_statistics.history())
        started_ms = application.cpu_ms()
        os.link(file, self.inbox / file.name)
        self.batch_ms.append(self._batch_ms(done))
        time.sleep(PAUSE_S)
        self.cpu_ms.append(application.cpu_ms() - started_ms)

    def _batch_ms(self, done: int) -> float:
        """Wait until one more batch was acknowledged and Spark has told what it took."""
        deadline = time.monotonic() + BATCH_TIMEOUT_S
        while time.monotonic() < deadline and self.query.isActive:
            history = self.query.checkpoint_statistics.history()
            progress = self.query.lastProgress if len(history) > done else None
            if progress is not None and progress["batchId"] == history[-1].batch and progress["numInputRows"]:
                return float(progress["durationMs"]["triggerExecution"])
            time.sleep(POLL_S)
        self.query.stop()
        sys.exit(f"{self.name}: no batch within {BATCH_TIMEOUT_S:.0f} s, or the query has failed")

    def figures(self, pairs: int, rows: int) -> dict[str, Any]:
        """Of the measured batches."""
        batches = self.batch_ms[-pairs:]
        history = self.query.checkpoint_statistics.history()[-pairs:]
        writing = [s.ack_ms + sum(s.worker_ms.get(phase, 0.0) for phase in WRITING_PHASES) for s in history]
        p50 = percentile(batches, 0.5)
        return {
            "variant": self.name,
            "rows_per_s": round(rows / p50 * 1000),
            "batch_ms_p50": p50,
            "batch_ms_p99": percentile(batches, 0.99),
            "writing_ms_p50": round(percentile(writing, 0.5), 1),
            "cpu_ms_p50": round(percentile(self.cpu_ms[-pairs:], 0.5)),
            "written_bytes_p50": percentile([float(s.entry_bytes + s.uploaded_bytes) for s in history], 0.5),
        }


def start_variant(spark: Any, name: str, work: Path, backend_name: str) -> Variant:
    """The query of a variant, which waits for its first file."""
    from varvite import EmbeddedRocksDBStateBackend, HashMapStateBackend

    own = work / name.replace(" ", "-")
    inbox = own / "input"
    inbox.mkdir(parents=True)
    backend = HashMapStateBackend() if backend_name == "hashmap" else EmbeddedRocksDBStateBackend()
    is_kept = name == KEPT
    env = varvite_environment(spark, backend, "memory://kept" if is_kept else str(own / "state"))
    function = KeptCountAndSum() if is_kept else CountAndSum()
    counted = env.from_dataframe(source(spark, inbox)).key_by("key")
    writer = counted.process(function, COUNT_AND_SUM.output, uid="workload").foreach_batch(discard)
    writer.query_name(own.name).option("checkpointLocation", str(own / "checkpoint"))
    return Variant(name, writer.trigger(processingTime="0 seconds").start(), inbox)


def run_case(backend: str, rows: int, pairs: int, warm_up: int) -> dict[str, Any]:
    """Measure one backend with one size in this process."""
    with tempfile.TemporaryDirectory(prefix="varvite-bench-") as name:
        work = Path(name)
        files = write_input(work / "input", Case(rows, rows), warm_up + pairs)
        spark = session({"spark.sql.streaming.pollingDelay": "100ms"})
        application = ApplicationTime.of(spark)
        variants = [start_variant(spark, variant, work, backend) for variant in (CHANGELOG, KEPT)]
        for file, order in zip(files, in_turn(warm_up + pairs), strict=True):
            for number in order:
                variants[number].feed(file, application)
        figures = [variant.figures(pairs, rows) for variant in variants]
        logged, kept = variants
        time_change = paired_change(logged.batch_ms[-pairs:], kept.batch_ms[-pairs:])
        cpu_change = paired_change(logged.cpu_ms[-pairs:], kept.cpu_ms[-pairs:])
        for variant in variants:
            variant.query.stop()
        spark.stop()
    return {
        "backend": backend,
        "rows_per_batch": rows,
        "keys": rows,
        "pairs": pairs,
        "variants": figures,
        "batch_time_change": time_change._asdict(),
        "batch_time": str(time_change),
        "cpu_time_change": cpu_change._asdict(),
        "cpu_time": str(cpu_change),
    }


COLUMNS = ("rows_per_s", "batch_ms_p50", "batch_ms_p99", "writing_ms_p50", "cpu_ms_p50", "written_bytes_p50")


def table_of(case: dict[str, Any]) -> Table:
    """Both variants of a case, and what the changelog adds."""
    added = f"{case['batch_time']} of batch time, {case['cpu_time']} of CPU time"
    table = Table(title=f"{case['backend']}, {case['rows_per_batch']:,} rows and keys: the changelog adds {added}")
    table.add_column("variant")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for figures in case["variants"]:
        table.add_row(figures["variant"], *(f"{figures[c]:,.0f}" for c in COLUMNS))
    return table


@click.command()
@click.option("--one", nargs=4, hidden=True, help="Run one case in this process, print its JSON.")
@click.option("--backend", multiple=True, type=click.Choice(BACKENDS), help="Only these backends.")
@click.option("--rows", multiple=True, type=int, help=f"Rows, and keys, of a batch; {ROWS} if left out.")
@click.option("--pairs", type=int, help="Measured batches of each variant; 40, with 200,000 rows 20, if left out.")
@click.option("--warm-up", default=WARM_UP, show_default=True, help="Batches of each variant before these.")
@results_option("changelog_cost")
def main(
    *,
    one: tuple[str, ...] | None,
    backend: tuple[str, ...],
    rows: tuple[int, ...],
    pairs: int | None,
    warm_up: int,
    results: Path,
) -> None:
    """Measure what the changelog costs a job on this machine."""
    if one:
        name, *numbers = one
        sys.stdout.write(json.dumps(run_case(name, *map(int, numbers))) + "\n")
        return
    console = wide_console()
    cases: Cases = []
    started = time.monotonic()
    for size in rows or ROWS:
        for name in backend or BACKENDS:
            count = pairs or PAIRS.get(size, PAIRS[ROWS[0]])
            case = run_alone("benchmarks.changelog_cost", name, str(size), str(count), str(warm_up))
            if case is not None:
                cases.append(case)
                write_cases(results, cases)
                console.print(table_of(case))
    console.print(f"{len(cases)} cases in {time.monotonic() - started:.0f} s, written to {results}")


if __name__ == "__main__":
    main()
