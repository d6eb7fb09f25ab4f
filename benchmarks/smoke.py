"""`make bench-smoke`: the keyed count + sum on varve and on Spark's own engines, in one run.

Prints a table and writes `benchmarks/results/smoke.json`. Asserts nothing. Every (system, size) runs in a process of
its own on `local[2]` with 2 shuffle partitions; batch times are Spark's own `triggerExecution`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.workload import Case, source, start_floor, start_spark, start_varve, write_input

RESULTS = Path(__file__).parent / "results" / "smoke.json"
SMALL, LARGE = Case(20_000, 20_000), Case(200_000, 200_000)
FEW_KEYS, MANY_KEYS = Case(10_000, 10_000, state_keys=10_000), Case(10_000, 10_000, state_keys=1_000_000)
ROWS_PER_KEY = Case(1_000_000, 100_000)
VARVE = ("varve-hashmap", "varve-rocksdb")
AGGREGATE = ("varve-hashmap-aggregate", "varve-rocksdb-aggregate")
SLOW = {"spark-transformWithState", "spark-transformWithStateInPandas"}
SYSTEMS = (
    *AGGREGATE,
    *VARVE,
    "spark-groupBy-agg",
    "floor",
    "spark-transformWithState",
    "spark-transformWithStateInPandas",
)
COLUMNS = ("rows_per_s", "batch_ms_p50", "batch_ms_p99", "ack_ms_p50", "ack_ms_p99", "objects_per_checkpoint")


def batches_of(system: str, case: Case) -> tuple[int, int]:
    """(warm-up batches, measured batches): slow systems get few, so that the whole run stays within minutes."""
    if system not in SLOW:
        return 6, 20
    if case.rows > SMALL.rows:
        return 1, 1
    return (1, 2) if system.endswith("InPandas") else (1, 4)


def percentile(values: list[float], fraction: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def session() -> Any:
    """The same Spark for every system: changelog checkpointing on RocksDB, no AQE, cheap checkpoint files."""
    from pyspark.sql import SparkSession

    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("varve-bench")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run_case(system: str, case: Case) -> dict[str, Any]:
    """Run one system on one size in this process."""
    from varve import EmbeddedRocksDBStateBackend, HashMapStateBackend

    warm_up, measured = batches_of(system, case)
    with tempfile.TemporaryDirectory(prefix="varve-bench-") as name:
        work = Path(name)
        write_input(work / "input", case, warm_up + measured)
        spark = session()
        stream = source(spark, work / "input")
        if system in VARVE + AGGREGATE:
            backend = HashMapStateBackend() if "hashmap" in system else EmbeddedRocksDBStateBackend()
            query = start_varve(spark, stream, work, backend, aggregate=system in AGGREGATE)
        elif system == "floor":
            query = start_floor(stream, work)
        else:
            query = start_spark(stream, work, system)
        query.awaitTermination()
        progress = [p for p in query.recentProgress if p["numInputRows"] == case.rows][-measured:]
        result = summarize(system, case, [float(p["durationMs"]["triggerExecution"]) for p in progress])
        if system in VARVE + AGGREGATE:
            result.update(acknowledgements(query.checkpoint_statistics.history()[-measured:]))
        spark.stop()
    return result


def summarize(system: str, case: Case, batch_ms: list[float]) -> dict[str, Any]:
    """The figures of one run."""
    p50 = percentile(batch_ms, 0.5)
    return {
        "system": system,
        "rows_per_batch": case.rows,
        "keys": case.keys,
        "state_keys": max(case.state_keys, case.keys),
        "batches": len(batch_ms),
        "rows_per_s": round(case.rows / p50 * 1000),
        "batch_ms_p50": round(p50, 1),
        "batch_ms_p99": round(percentile(batch_ms, 0.99), 1),
    }


def acknowledgements(history: list[Any]) -> dict[str, Any]:
    """What varve's own statistics say of the measured checkpoints."""
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


def run_in_process(system: str, case: Case) -> dict[str, Any] | None:
    """Run one case in a process of its own, so that no system inherits another's warm JVM or leftovers."""
    arguments = [system, str(case.rows), str(case.keys), str(case.state_keys)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.smoke", "--one", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.stderr.write(done.stderr[-4000:])
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def show(console: Console, cases: list[dict[str, Any]]) -> None:
    """Tables, one for each size."""
    for rows, state in sorted({(c["rows_per_batch"], c["state_keys"]) for c in cases}):
        table = Table(title=f"{rows:,} rows per batch, {state:,} keys of state")
        table.add_column("system")
        for column in (*COLUMNS, "vs floor"):
            table.add_column(column, justify="right")
        of_size = [c for c in cases if (c["rows_per_batch"], c["state_keys"]) == (rows, state)]
        floor = next((c["batch_ms_p50"] for c in of_size if c["system"] == "floor"), None)
        for c in of_size:
            cells = [f"{c[k]:,}" if k in c else "" for k in COLUMNS]
            table.add_row(c["system"], *cells, f"{c['batch_ms_p50'] / floor:.2f}x" if floor else "")
        console.print(table)


def every_case(*, all_sizes: bool) -> list[tuple[str, Case]]:
    """What is measured, the slow systems last."""
    vectorised = [(s, ROWS_PER_KEY) for s in (*AGGREGATE, "spark-groupBy-agg", "floor")]
    fast = [(s, c) for c in (LARGE, SMALL) for s in SYSTEMS if s not in SLOW]
    acknowledge = [(s, c) for c in (FEW_KEYS, MANY_KEYS) for s in VARVE]
    slow = [(s, c) for c in (SMALL, LARGE) for s in SYSTEMS if s in SLOW]
    left_out = () if all_sizes else (("spark-transformWithStateInPandas", LARGE),)
    return [case for case in (*vectorised, *fast, *acknowledge, *slow) if case not in left_out]


def write_results(cases: list[dict[str, Any]]) -> None:
    """The machine and all cases so far."""
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "machine": platform.machine()}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"machine": machine, "cases": cases}, indent=2) + "\n")


@click.command()
@click.option("--one", nargs=4, metavar="SYSTEM ROWS KEYS STATE_KEYS", help="Run one case, print its JSON.")
@click.option("--system", "only", multiple=True, type=click.Choice(SYSTEMS), help="Only these systems.")
@click.option("--all-sizes", is_flag=True, help="Also 200,000 rows on transformWithStateInPandas (many minutes).")
def main(one: tuple[str, str, str, str] | None, only: tuple[str, ...], all_sizes: bool) -> None:
    """Measure varve against Spark's own engines on this machine."""
    if one:
        system, rows, keys, state_keys = one
        sys.stdout.write(json.dumps(run_case(system, Case(int(rows), int(keys), int(state_keys)))) + "\n")
        return
    console = Console()
    wanted = [case for case in every_case(all_sizes=all_sizes) if not only or case[0] in only]
    cases: list[dict[str, Any]] = []
    started = time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("")
        for i, (system, case) in enumerate(wanted, 1):
            progress.update(task, description=f"{i}/{len(wanted)} {system}, {case.rows:,} rows, {case.keys:,} keys")
            result = run_in_process(system, case)
            if result is not None:
                cases.append(result)
                write_results(cases)  # after every case: a run that is cut off has something to show
                progress.console.print(f"{system}, {case.rows:,} rows: {result['batch_ms_p50']:,.0f} ms per batch")
    show(console, cases)
    console.print(f"{len(cases)} cases in {time.monotonic() - started:.0f} s, written to {RESULTS}")


if __name__ == "__main__":
    main()
