"""`make bench-trigger`: the smallest trigger interval that a job keeps up with, on varve and on Spark's RocksDB store.

Two jobs count and sum by key, both in update mode and fed at a fixed rate by Spark's `rate-micro-batch` source, so that
a trigger of T seconds gets T times the rate:

* *function*: a stateful function in Python, for each row: varve's `process` and Spark's `transformWithState`;
* *aggregation*: varve's `aggregate` and `groupBy().agg()`, which Spark runs in the JVM alone.

An interval is *sustained* if the time of a batch is at most the interval,
for 95 % of the measured triggers. It is searched for in two steps:

1. batches back to back, with the rows of the interval guessed last, until their p95 agrees with the guess;
2. triggers with this interval; if it is not sustained, 10 % more, or the p95 measured.

Each system is one Spark application, each step a new query in it. On S3, Spark's checkpoint (that of varve's query too,
with its offsets and commits) is behind `object_files`, with the same latency as varve's own S3.
"""

from __future__ import annotations

import math
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses
from rich.table import Table

from benchmarks.case_runs import Benchmark, Figures, Parameters, verdict
from benchmarks.jobs import COUNT_AND_SUM, JVM, ROW_FORM, discard, spark_rows, varve_environment, varve_rows
from benchmarks.report import Cases, bar_chart
from benchmarks.storages import LATENCY_MS, S3, STORAGES, StateLocation, spark_location, storage_session
from varve.spark_integration.checkpoint_statistics import percentile

VARVE = ("varve-hashmap", "varve-rocksdb")
LOGGED, WHOLE = "spark-changelog", "spark-no-changelog"
SYSTEMS = (*VARVE, LOGGED, WHOLE)
FUNCTION, AGGREGATION = "function", "aggregation"
RATES = {FUNCTION: 2_000, AGGREGATION: 20_000}
"""Rows per second of each job. Spark's functions in Python do not keep up with many more."""
TINY_RATE = 500
KEYS = 100_000
"""That the rows are of."""
FIRST_MS = 1_000
STEP_MS = 10
AGREES = 0.1
GUESSES_MAX, TRIES_MAX = 3, 4
TARGET = 2.0
"""How many times shorter than Spark's varve's is expected to be, on S3."""
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
TIMEOUT_S = 300


@dataclass(frozen=True)
class Size:
    """Batches of a query."""

    warm_up: int
    measured: int


FIRST, BACK_TO_BACK, TRIGGERED = Size(20, 15), Size(6, 15), Size(6, 30)
TINY = Size(1, 2)


def cases(is_tiny: bool) -> list[Parameters]:
    """Both jobs on every system and both storages."""
    chosen = ("varve-rocksdb", LOGGED) if is_tiny else SYSTEMS
    return [
        {"job": job, "system": system, "storage": storage, "rows_per_s": TINY_RATE if is_tiny else rate}
        for job, rate in RATES.items()
        for storage in STORAGES
        for system in chosen
    ]


class Prober:
    """Runs queries of one system."""

    def __init__(self, parameters: Parameters, work: Path) -> None:
        self._system, self._storage = parameters["system"], parameters["storage"]
        self._job, self._rate = parameters["job"], parameters["rows_per_s"]
        self.is_tiny = self._rate == TINY_RATE
        self._work = work
        self._queries = 0
        own = {CHANGELOG: "false" if self._system == WHOLE else "true", "spark.sql.streaming.pollingDelay": "5ms"}
        self.spark = storage_session(self._storage, work, own)

    def batch_ms(self, rows_of_ms: int, size: Size, *, triggered: bool) -> list[float]:
        """Spark's `triggerExecution` of each measured batch with the rows of so many milliseconds.

        `triggered`: a batch is started every so many milliseconds; otherwise as soon as the one before has ended.
        """
        if self.is_tiny:
            size = TINY
        self._queries += 1
        home = self._work / f"query-{self._queries}"
        query = self._start(home, max(1, self._rate * rows_of_ms // 1000), rows_of_ms if triggered else 0)
        found: dict[int, float] = {}
        waited_s = 0.0
        while len(found) < size.warm_up + size.measured:
            if query.awaitTermination(1) or waited_s > TIMEOUT_S:
                sys.exit(f"{self._system}: too few batches in {waited_s:.0f} s, or the query ended")
            waited_s += 1
            found.update({p["batchId"]: float(p["durationMs"]["triggerExecution"]) for p in query.recentProgress
                          if p["numInputRows"]})  # fmt: skip
        query.stop()
        return [found[batch] for batch in sorted(found)][size.warm_up :][: size.measured]

    def _start(self, home: Path, rows: int, interval_ms: int) -> Any:
        stream = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
        number = F.pmod(F.col("value") * 7919, F.lit(KEYS))
        frame = stream.option("numPartitions", 2).load().select(
            F.format_string("key-%09d", number).alias("key"), (F.col("value") % 1000 / 100).alias("price")
        )  # fmt: skip
        location = spark_location(self._storage, home / "checkpoint")
        name = f"query_{self._queries}"
        if self._system in VARVE:
            writer: Any = self._varve(frame, home)
        else:
            system = ROW_FORM if self._job == FUNCTION else JVM
            writer = spark_rows(frame, COUNT_AND_SUM, system).writeStream.format("noop").outputMode("update")
        writer = writer.queryName(name) if hasattr(writer, "queryName") else writer.query_name(name)
        writer = writer.option("checkpointLocation", location)
        return writer.trigger(processingTime=f"{interval_ms} milliseconds").start()

    def _varve(self, frame: Any, home: Path) -> Any:
        from varve import EmbeddedRocksDBStateBackend, HashMapStateBackend

        backend = HashMapStateBackend() if self._system.endswith("hashmap") else EmbeddedRocksDBStateBackend()
        place = StateLocation.new(self._storage, home)
        env = varve_environment(self.spark, backend, place.url)
        place.configure(env)
        rows = varve_rows(env.from_dataframe(frame), COUNT_AND_SUM, aggregate=self._job == AGGREGATION)
        return rows.foreach_batch(discard)


def whole_steps(ms: float) -> int:
    """The interval, rounded up."""
    return max(STEP_MS, math.ceil(ms / STEP_MS) * STEP_MS)


def run_case(parameters: Parameters) -> Figures:
    """Search for the smallest interval of one system."""
    with tempfile.TemporaryDirectory(prefix="varve-bench-") as name:
        prober = Prober(parameters, Path(name))
        interval_ms = FIRST_MS
        for guess in range(1 if prober.is_tiny else GUESSES_MAX):
            times = prober.batch_ms(interval_ms, BACK_TO_BACK if guess else FIRST, triggered=False)
            found_ms = whole_steps(percentile(times, 0.95))
            agrees = abs(found_ms - interval_ms) <= AGREES * interval_ms
            interval_ms = found_ms
            if agrees:
                break
        back_to_back_ms = percentile(times, 0.5)
        tried: list[dict[str, float]] = []
        for _ in range(TRIES_MAX):
            times = prober.batch_ms(interval_ms, TRIGGERED, triggered=True)
            tried.append({"interval_ms": interval_ms, **{f"p{p}": percentile(times, p / 100) for p in (50, 95, 99)}})
            if tried[-1]["p95"] <= interval_ms or prober.is_tiny:
                break
            interval_ms = whole_steps(max(tried[-1]["p95"], interval_ms * (1 + AGREES)))
        prober.spark.stop()
    last = tried[-1]
    return {
        "interval_ms": last["interval_ms"],
        "is_sustained": last["p95"] <= last["interval_ms"],
        "batch_ms_p50": last["p50"],
        "batch_ms_p95": last["p95"],
        "batch_ms_p99": last["p99"],
        "back_to_back_ms_p50": back_to_back_ms,
        "tried": tried,
    }


COLUMNS = ("interval_ms", "batch_ms_p50", "batch_ms_p95", "batch_ms_p99", "back_to_back_ms_p50")


def tables(cases: Cases) -> list[Table]:
    """One for each job and storage."""
    made: list[Table] = []
    for job, storage in dict.fromkeys((c["job"], c["storage"]) for c in cases):
        shown = [c for c in cases if (c["job"], c["storage"]) == (job, storage)]
        rate = f"{shown[0]['rows_per_s']:,} rows/s"
        table = Table(title=f"smallest sustained trigger interval, {job}, {storage}, {rate}")
        table.add_column("system")
        for column in (*COLUMNS, "sustained"):
            table.add_column(column, justify="right")
        for c in shown:
            table.add_row(c["system"], *(f"{c[k]:,.0f}" for k in COLUMNS), "yes" if c["is_sustained"] else "no")
        made.append(table)
    return made


def findings(cases: Cases) -> list[str]:
    """The interval of varve against each of Spark's."""
    interval = {(c["job"], c["system"], c["storage"]): c["interval_ms"] for c in cases}
    said: list[str] = []
    for (job, system, storage), own in interval.items():
        for peer in (LOGGED, WHOLE):
            theirs = interval.get((job, peer, storage))
            if system not in VARVE or theirs is None:
                continue
            times = theirs / own
            text = f"{job}, {system} on {storage}: {own:,} ms, {times:.2f}x shorter than {peer} ({theirs:,} ms)"
            is_target = storage == S3
            target = f"at least {TARGET:.0f}x shorter than Spark's on S3"
            said.append(verdict(target, met=times >= TARGET, found=text) if is_target else text)
    return said


def charts(cases: Cases, directory: Path) -> list[Path]:
    """The intervals."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for c in cases:
        groups.setdefault(f"{c['job']}, {c['storage']}", []).append((c["system"], c["interval_ms"]))
    path = directory / "trigger_interval.png"
    bar_chart(path, "Smallest sustained trigger interval", f"ms (S3: + {LATENCY_MS} ms per request)", groups)
    return [path]


BENCHMARK = Benchmark("trigger_interval", __doc__ or "", cases, run_case, tables, findings, charts)
main = BENCHMARK.command()

if __name__ == "__main__":
    main()
