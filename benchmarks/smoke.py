"""`make bench-smoke`: keyed workloads on varvite and on Spark's own engines, in one run.

Prints tables, writes `benchmarks/results/smoke.json` and a chart beside it. Asserts nothing. Every (workload, system,
size) runs in a process of its own on `local[2]` with 2 shuffle partitions; batch times are Spark's own
`triggerExecution`. `docs/reference/benchmarks.md` explains the figures.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.harness.report import Cases, bar_chart, ratio, read_cases, results_option, wide_console, write_cases
from benchmarks.harness.session import run_alone, session
from benchmarks.workloads.input import Case, source, write_input
from benchmarks.workloads.jobs import (
    COUNT_AND_SUM,
    JVM,
    LIST_APPEND,
    MAP_UPDATE,
    PANDAS_FORM,
    ROW_FORM,
    WORKLOADS,
    Place,
    Workload,
    start_floor,
    start_spark,
    start_varvite,
)
from varvite.spark_integration.driver.monitoring.statistics import percentile

SMALL, LARGE = Case(20_000, 20_000), Case(200_000, 200_000)
FEW_KEYS, MANY_KEYS = Case(10_000, 10_000, state_keys=10_000), Case(10_000, 10_000, state_keys=1_000_000)
ROWS_PER_KEY = Case(1_000_000, 100_000)
FULL_MAPS = Case(20_000, 1_000)
"""Every batch has each category of each key once."""
TINY_PART = 200
VARVITE = ("varvite-hashmap", "varvite-rocksdb")
AGGREGATE = ("varvite-hashmap-aggregate", "varvite-rocksdb-aggregate")
FLOOR = "floor"
SLOW = (ROW_FORM, PANDAS_FORM)
SYSTEMS = (*AGGREGATE, *VARVITE, JVM, FLOOR, *SLOW)
COLUMNS = ("rows_per_s", "batch_ms_p50", "batch_ms_p99", "ack_ms_p50", "ack_ms_p99", "objects_per_checkpoint")


class Run(NamedTuple):
    """One case of the benchmark."""

    workload: str
    system: str
    case: Case
    warm_up: int
    """Batches that are not measured."""
    measured: int

    def as_arguments(self) -> list[str]:
        """Arguments that `from_arguments` reads."""
        case = self.case
        numbers = (case.rows, case.keys, case.state_keys, self.warm_up, self.measured)
        return [self.workload, self.system, *map(str, numbers)]

    @classmethod
    def from_arguments(cls, arguments: tuple[str, ...]) -> Run:
        """The case of these arguments, made by `as_arguments`."""
        workload, system, *numbers = arguments
        rows, keys, state_keys, warm_up, measured = map(int, numbers)
        return cls(workload, system, Case(rows, keys, state_keys), warm_up, measured)

    def is_in(self, cases: Cases) -> bool:
        """True if an earlier run has measured it."""
        rows, keys, state_keys = self.case.rows, self.case.keys, max(self.case.state_keys, self.case.keys)
        own = (self.workload, self.system, rows, keys, state_keys)
        return any(own == tuple(c[k] for k in IDENTITY) for c in cases)


IDENTITY = ("workload", "system", "rows_per_batch", "keys", "state_keys")


def batches_of(system: str, case: Case) -> tuple[int, int]:
    """(warm-up batches, measured batches): slow systems get few, so that the whole run stays within minutes."""
    if system not in SLOW:
        return (20 if case.rows <= SMALL.rows else 6), 20  # as long until the JVM has compiled what a batch runs
    if case.rows > SMALL.rows:
        return 1, 1
    return (1, 2) if system == PANDAS_FORM else (1, 4)


def every_run(*, all_sizes: bool, is_tiny: bool) -> list[Run]:
    """Cases that are measured, the slow systems last."""
    vectorised = [(COUNT_AND_SUM, s, ROWS_PER_KEY) for s in (*AGGREGATE, JVM, FLOOR)]
    fast = [(COUNT_AND_SUM, s, c) for c in (LARGE, SMALL) for s in SYSTEMS if s not in SLOW]
    acknowledge = [(COUNT_AND_SUM, s, c) for c in (FEW_KEYS, MANY_KEYS) for s in VARVITE]
    sizes = [SMALL, *([] if is_tiny else [LARGE]), *([FULL_MAPS] if all_sizes else [])]
    others = [(w, s, c) for w in (MAP_UPDATE, LIST_APPEND) for c in sizes for s in (*VARVITE, FLOOR, ROW_FORM)]
    slow = [(COUNT_AND_SUM, s, c) for c in (SMALL, LARGE) for s in SLOW]
    left_out = () if all_sizes else ((COUNT_AND_SUM, PANDAS_FORM, LARGE),)
    wanted = [run for run in (*vectorised, *fast, *acknowledge, *others, *slow) if run not in left_out]
    if is_tiny:
        return [Run(w.name, s, c.part(TINY_PART), 1, 2) for w, s, c in wanted]
    return [Run(w.name, s, c, *batches_of(s, c)) for w, s, c in wanted]


def run_case(run: Run) -> dict[str, Any]:
    """Run one system on one size of one workload in this process."""
    case = run.case
    with tempfile.TemporaryDirectory(prefix="varvite-bench-") as name:
        work = Path(name)
        write_input(work / "input", case, run.warm_up + run.measured)
        spark = session()
        place = Place(source(spark, work / "input"), work)
        query = start(spark, place, WORKLOADS[run.workload], run.system)
        query.awaitTermination()
        progress = [p for p in query.recentProgress if p["numInputRows"] == case.rows][-run.measured :]
        result = summarize(run, [float(p["durationMs"]["triggerExecution"]) for p in progress])
        if run.system in VARVITE + AGGREGATE:
            result.update(acknowledgements(query.checkpoint_statistics.history()[-run.measured :]))
        spark.stop()
    return result


def start(spark: Any, place: Place, workload: Workload, system: str) -> Any:
    """The query of a system."""
    from varvite import EmbeddedRocksDBStateBackend, HashMapStateBackend

    if system in VARVITE + AGGREGATE:
        backend = HashMapStateBackend() if "hashmap" in system else EmbeddedRocksDBStateBackend()
        return start_varvite(spark, place, workload, backend, aggregate=system in AGGREGATE)
    return start_floor(place) if system == FLOOR else start_spark(place, workload, system)


def summarize(run: Run, batch_ms: list[float]) -> dict[str, Any]:
    """The figures of one run."""
    p50 = percentile(batch_ms, 0.5)
    return {
        "workload": run.workload,
        "system": run.system,
        "rows_per_batch": run.case.rows,
        "keys": run.case.keys,
        "state_keys": max(run.case.state_keys, run.case.keys),
        "batches": len(batch_ms),
        "rows_per_s": round(run.case.rows / p50 * 1000),
        "batch_ms_p50": round(p50, 1),
        "batch_ms_p99": round(percentile(batch_ms, 0.99), 1),
    }


def acknowledgements(history: list[Any]) -> dict[str, Any]:
    """Varvite's own statistics of the measured checkpoints."""
    acks = [s.ack_ms for s in history]
    phases = sorted({phase for s in history for phase in s.worker_ms})
    return {
        "ack_ms_p50": round(percentile(acks, 0.5), 2),
        "ack_ms_p99": round(percentile(acks, 0.99), 2),
        "objects_per_checkpoint": percentile([float(s.objects_written) for s in history], 0.5),
        "objects_per_checkpoint_mean": round(sum(s.objects_written for s in history) / len(history), 2),
        "checkpoint_bytes_p50": percentile([float(s.entry_bytes + s.uploaded_bytes) for s in history], 0.5),
        "operators_ms_p50": round(percentile([s.operators_ms for s in history], 0.5), 1),
        "sink_ms_p50": round(percentile([s.sink_ms for s in history], 0.5), 1),
        "worker_ms_p50": {p: round(percentile([s.worker_ms.get(p, 0.0) for s in history], 0.5), 1) for p in phases},
    }


def tables(cases: Cases) -> list[Table]:
    """One for each workload and size, with every system beside Spark's Row form, its JVM aggregation and the floor."""
    made: list[Table] = []
    for workload, rows, keys, state in dict.fromkeys(_size(c) for c in cases):
        of_size = [c for c in cases if _size(c) == (workload, rows, keys, state)]
        table = Table(title=f"{workload}: {rows:,} rows per batch, {keys:,} keys in them, {state:,} keys of state")
        table.add_column("system")
        for column in (*COLUMNS, "vs Row form", "vs JVM", "time vs floor"):
            table.add_column(column, justify="right")
        rate = {c["system"]: c["rows_per_s"] for c in of_size}
        for c in of_size:
            cells = [f"{c[k]:,}" if k in c else "" for k in COLUMNS]
            own = c["rows_per_s"]
            peers = ratio(own, rate.get(ROW_FORM)), ratio(own, rate.get(JVM)), ratio(rate.get(FLOOR), own)
            table.add_row(c["system"], *cells, *peers)
        made.append(table)
    return made


def chart_groups(cases: Cases) -> dict[str, list[tuple[str, float]]]:
    """Rows per second of each workload and size, fastest first."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for c in sorted(cases, key=lambda c: -c["rows_per_s"]):
        workload, rows, keys, state = _size(c)
        more = f", {state:,} in state" if state > keys else ""
        groups.setdefault(f"{workload}, {rows:,} rows, {keys:,} keys{more}", []).append((c["system"], c["rows_per_s"]))
    return groups


def _size(case: dict[str, Any]) -> tuple[str, int, int, int]:
    return case["workload"], case["rows_per_batch"], case["keys"], case["state_keys"]


def measure(console: Console, runs: list[Run], cases: Cases, path: Path) -> None:
    """Measure what is wanted, and write after every case: a run that is cut off has something to show."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("")
        for i, run in enumerate(runs, 1):
            case = run.case
            what = f"{run.workload}, {run.system}, {case.rows:,} rows, {case.keys:,} keys"
            progress.update(task, description=f"{i}/{len(runs)} {what}")
            result = run_alone("benchmarks.smoke", *run.as_arguments())
            if result is None:
                progress.console.print(f"{what}: failed")
                continue
            cases.append(result)
            write_cases(path, cases)
            progress.console.print(f"{what}: {result['batch_ms_p50']:,.0f} ms per batch")


@click.command()
@click.option("--one", nargs=7, hidden=True, help="Run one case in this process, print its JSON.")
@click.option("--workload", multiple=True, type=click.Choice(tuple(WORKLOADS)), help="Only these workloads.")
@click.option("--system", multiple=True, type=click.Choice(SYSTEMS), help="Only these systems.")
@click.option("--resume", is_flag=True, help="Keep the cases of the results file and measure only the others.")
@click.option("--all-sizes", is_flag=True, help="Also maps with all categories, and the pandas form with 200,000 rows.")
@click.option("--tiny", is_flag=True, help="Sizes that say nothing, to see whether it runs.")
@results_option("smoke")
def main(
    *,
    one: tuple[str, ...] | None,
    workload: tuple[str, ...],
    system: tuple[str, ...],
    resume: bool,
    all_sizes: bool,
    tiny: bool,
    results: Path,
) -> None:
    """Measure varvite against Spark's own engines on this machine."""
    if one:
        sys.stdout.write(json.dumps(run_case(Run.from_arguments(one))) + "\n")
        return
    console = wide_console()
    started = time.monotonic()
    cases = read_cases(results) if resume else []
    runs = every_run(all_sizes=all_sizes, is_tiny=tiny)
    runs = [r for r in runs if (not workload or r.workload in workload) and (not system or r.system in system)]
    runs = [r for r in runs if not r.is_in(cases)]
    measure(console, runs, cases, results)
    for table in tables(cases):
        console.print(table)
    if cases:
        bar_chart(
            results.with_suffix(".png"), "Keyed state in Structured Streaming", "rows per second", chart_groups(cases)
        )
    console.print(f"{len(runs)} cases in {time.monotonic() - started:.0f} s, written to {results}")


if __name__ == "__main__":
    main()
