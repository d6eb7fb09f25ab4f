"""`make bench-trigger`: the smallest trigger interval that a job keeps up with, beside Spark's RocksDB store.

Two jobs count and sum by key, both in update mode and fed at a fixed rate by Spark's `rate-micro-batch` source, so that
a trigger of T seconds gets T times the rate:

* *function*: a stateful function in Python, for each row: varvite's `process` and Spark's `transformWithState`;
* *aggregation*: varvite's `aggregate` and `groupBy().agg()`, which Spark runs in the JVM alone.

An interval is *sustained* if the time of a batch is at most the interval,
for 95 % of the measured triggers. It is searched for in two steps:

1. batches back to back, with the rows of the interval guessed last, until their p95 agrees with the guess; a guess lies
   where the line through the last two measurements says that a batch takes as long as its interval. If there is no
   such place up to 20 s, longer intervals are measured, because one slow batch tilts a short line; the system does not
   keep up with that rate if there is none for 2 and 4 s either, or if batches take 1.5 times as long as their interval;
2. triggers with this interval; if it is not sustained, 10 % more, or the p95 measured; if it is and batches take less
   than 90 % of it, the p95 and 5 % more.

A longer interval has more rows. So how much shorter one system's is than another's depends on the rate, and each job
has several: from one that both keep up with easily to one at which rows cost more than what is done once per batch.

Each system at each rate is one Spark application, each step a new query in it. On S3, Spark's checkpoint (that of
varvite's query too, with its offsets and commits) is behind `object_files`, with the same latency as varvite's own S3.
"""

from __future__ import annotations

import math
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses
from rich.table import Table

from benchmarks.harness.case_runs import Benchmark, Figures, Parameters, verdict
from benchmarks.harness.report import Cases, bar_chart
from benchmarks.harness.storages import LATENCY_MS, LOCAL, S3, STORAGES, StateLocation, spark_location, storage_session
from benchmarks.workloads.jobs import (
    COUNT_AND_SUM,
    JVM,
    ROW_FORM,
    discard,
    spark_rows,
    varvite_environment,
    varvite_rows,
)
from varvite.spark_integration.driver.monitoring.statistics import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

VARVITE = ("varvite-hashmap", "varvite-rocksdb")
LOGGED, WHOLE = "spark-changelog", "spark-no-changelog"
SYSTEMS = (*VARVITE, LOGGED, WHOLE)
FUNCTION, AGGREGATION = "function", "aggregation"
RATES = {FUNCTION: (2_000, 3_500, 5_000), AGGREGATION: (20_000, 100_000)}
"""Rows per second of each job."""
TINY_RATE = 500
KEYS = 100_000
"""That the rows are of."""
FIRST_MS, SECOND_MS, INTERVAL_MS_MAX = 1_000, 400, 20_000
"""Guesses: the first two, and the longest."""
PROBED_MS_MAX = 4_000
"""The longest interval that is measured of a system that seems not to keep up."""
STEP_MS = 10
AGREES = 0.1
GUESSES_MAX, TRIES_MAX = 6, 5
TARGET = 2.0
"""Expected ratio of Spark's interval to varvite's, on S3."""
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
TIMEOUT_S = 300
"""For the batches of a query that take less than `BEHIND` times their interval on average; others may take longer."""
BEHIND = 1.5
Trial = dict[str, float]
"""An interval, and p50, p95 and p99 of its batches, all in ms."""


@dataclass(frozen=True)
class Size:
    """Batches of a query."""

    warm_up: int
    measured: int


FIRST, BACK_TO_BACK, TRIGGERED = Size(20, 15), Size(6, 15), Size(6, 30)
TINY = Size(1, 2)


def cases(is_tiny: bool) -> list[Parameters]:
    """Both jobs on every system and both storages; on the local disk, which has no target, at the lowest rate."""
    chosen = ("varvite-rocksdb", LOGGED) if is_tiny else SYSTEMS
    return [
        {"job": job, "system": system, "storage": storage, "rows_per_s": TINY_RATE if is_tiny else rate}
        for job, rates in RATES.items()
        for storage in STORAGES
        for rate in rates[: 1 if is_tiny or storage == LOCAL else None]
        for system in chosen
    ]


class FellBehindError(Exception):
    """The batches take much longer than the interval that their rows are of."""


def limit_s(interval_ms: int, batches: int) -> float:
    """Time that so many batches with the rows of the interval may take before it is clear that it is not sustained."""
    return max(TIMEOUT_S, BEHIND * batches * interval_ms / 1000)


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
        Raises `FellBehindError` after `limit_s`.
        """
        if self.is_tiny:
            size = TINY
        self._queries += 1
        home = self._work / f"query-{self._queries}"
        query = self._start(home, max(1, self._rate * rows_of_ms // 1000), rows_of_ms if triggered else 0)
        found: dict[int, float] = {}
        waited_s = 0.0
        batches = size.warm_up + size.measured
        while len(found) < batches:
            if query.awaitTermination(1):
                sys.exit(f"{self._system}: the query ended after {len(found)} of {batches} batches")
            waited_s += 1
            if waited_s > limit_s(rows_of_ms, batches):
                query.stop()
                raise FellBehindError
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
        if self._system in VARVITE:
            writer: Any = self._varvite(frame, home)
        else:
            system = ROW_FORM if self._job == FUNCTION else JVM
            writer = spark_rows(frame, COUNT_AND_SUM, system).writeStream.format("noop").outputMode("update")
        writer = writer.queryName(name) if hasattr(writer, "queryName") else writer.query_name(name)
        writer = writer.option("checkpointLocation", location)
        return writer.trigger(processingTime=f"{interval_ms} milliseconds").start()

    def _varvite(self, frame: Any, home: Path) -> Any:
        from varvite import EmbeddedRocksDBStateBackend, HashMapStateBackend

        backend = HashMapStateBackend() if self._system.endswith("hashmap") else EmbeddedRocksDBStateBackend()
        place = StateLocation.new(self._storage, home)
        env = varvite_environment(self.spark, backend, place.url)
        place.configure(env)
        rows = varvite_rows(env.from_dataframe(frame), COUNT_AND_SUM, aggregate=self._job == AGGREGATION)
        return rows.foreach_batch(discard)


def whole_steps(ms: float) -> int:
    """The interval, rounded up."""
    return max(STEP_MS, math.ceil(round(ms / STEP_MS, 6)) * STEP_MS)


def next_guess(measured: Sequence[tuple[int, float]]) -> int | None:
    """The interval to be measured after these pairs of (interval, p95 of its batches), in ms.

    It is where batches take as long as the interval, on the line through the last two. If that is nowhere up to
    `INTERVAL_MS_MAX`: what the shortest interval took that was long enough; else twice the longest; None if that is
    above `PROBED_MS_MAX`, because rows come faster than they can be processed.
    """
    guess = _meeting_point(*measured[-2:])
    if guess is not None:
        return guess
    enough = [pair for pair in measured if pair[1] <= pair[0]]
    if enough:
        return whole_steps(min(enough)[1])
    longer = 2 * max(interval for interval, _ in measured)
    return longer if longer <= PROBED_MS_MAX else None


def _meeting_point(one: tuple[int, float], other: tuple[int, float]) -> int | None:
    """Interval at which the line through two pairs (interval, time) has both equal; None above `INTERVAL_MS_MAX`."""
    per_ms = (other[1] - one[1]) / (other[0] - one[0]) if other[0] != one[0] else math.inf
    if per_ms >= 1:
        return None
    guess = whole_steps((one[1] - per_ms * one[0]) / (1 - per_ms))
    return guess if guess <= INTERVAL_MS_MAX else None


def find_guess(prober: Prober) -> tuple[int | None, float]:
    """The interval that back-to-back batches agree with, None if there is none; the p50 of the last of them, in ms."""
    measured: list[tuple[int, float]] = []
    interval_ms: int | None = FIRST_MS
    while True:
        times = prober.batch_ms(interval_ms, BACK_TO_BACK if measured else FIRST, triggered=False)
        p50, found_ms = percentile(times, 0.5), percentile(times, 0.95)
        measured.append((interval_ms, found_ms))
        if abs(found_ms - interval_ms) <= AGREES * interval_ms or len(measured) == GUESSES_MAX or prober.is_tiny:
            return whole_steps(found_ms), p50
        interval_ms = SECOND_MS if len(measured) == 1 else next_guess(measured)
        if interval_ms is None:
            return None, p50


def is_sustained(trial: Trial) -> bool:
    """True if the job has kept up with the interval."""
    return trial["p95"] <= trial["interval_ms"]


def next_trial(tried: Sequence[Trial]) -> int | None:
    """The interval to be tried after these, in ms; None if the smallest one is found, or it is enough."""
    last = tried[-1]
    if not is_sustained(last):
        if any(map(is_sustained, tried)):
            return None
        following = whole_steps(max(last["p95"], last["interval_ms"] * (1 + AGREES)))
    elif last["p95"] < last["interval_ms"] * (1 - AGREES):
        following = whole_steps(last["p95"] * (1 + AGREES / 2))
    else:
        return None
    is_new = all(trial["interval_ms"] != following for trial in tried)
    return following if is_new and len(tried) < TRIES_MAX else None


def found_trial(tried: Sequence[Trial]) -> Trial:
    """The smallest interval that was sustained; without one, the last; nothing of nothing."""
    sustained = [trial for trial in tried if is_sustained(trial)]
    if sustained:
        return min(sustained, key=lambda trial: trial["interval_ms"])
    return tried[-1] if tried else {}


def run_case(parameters: Parameters) -> Figures:
    """Search for the smallest interval of one system."""
    with tempfile.TemporaryDirectory(prefix="varvite-bench-") as name:
        prober = Prober(parameters, Path(name))
        tried: list[Trial] = []
        back_to_back_ms: float | None = None
        with suppress(FellBehindError):
            interval_ms, back_to_back_ms = find_guess(prober)
            while interval_ms is not None:
                times = prober.batch_ms(interval_ms, TRIGGERED, triggered=True)
                trial = {f"p{p}": percentile(times, p / 100) for p in (50, 95, 99)}
                tried.append({"interval_ms": interval_ms, **trial})
                interval_ms = None if prober.is_tiny else next_trial(tried)
        prober.spark.stop()
    found = found_trial(tried)
    return {
        "interval_ms": found.get("interval_ms"),
        "is_sustained": bool(found) and is_sustained(found),
        "batch_ms_p50": found.get("p50"),
        "batch_ms_p95": found.get("p95"),
        "batch_ms_p99": found.get("p99"),
        "back_to_back_ms_p50": back_to_back_ms,
        "tried": tried,
    }


COLUMNS = ("interval_ms", "batch_ms_p50", "batch_ms_p95", "batch_ms_p99", "back_to_back_ms_p50")


def _shown(ms: float | None) -> str:
    return f"over {INTERVAL_MS_MAX:,}" if ms is None else f"{ms:,.0f}"


def tables(cases: Cases) -> list[Table]:
    """One for each job, storage and rate."""
    made: list[Table] = []
    for job, storage, rate in dict.fromkeys((c["job"], c["storage"], c["rows_per_s"]) for c in cases):
        shown = [c for c in cases if (c["job"], c["storage"], c["rows_per_s"]) == (job, storage, rate)]
        table = Table(title=f"smallest sustained trigger interval, {job}, {storage}, {rate:,} rows/s")
        table.add_column("system")
        for column in (*COLUMNS, "sustained"):
            table.add_column(column, justify="right")
        for c in shown:
            figures = (_shown(c[k]) if k == "interval_ms" or c[k] is not None else "-" for k in COLUMNS)
            table.add_row(c["system"], *figures, "yes" if c["is_sustained"] else "no")
        made.append(table)
    return made


def findings(cases: Cases) -> list[str]:
    """The interval of varvite against each of Spark's."""
    said: list[str] = []
    for c in cases:
        peers = [p for p in cases if p["system"] in (LOGGED, WHOLE)]
        peers = [p for p in peers if all(p[k] == c[k] for k in ("job", "storage", "rows_per_s"))]
        if c["system"] in VARVITE:
            said.extend(_finding(c, peer) for peer in peers)
    return said


def _finding(own: Figures, peer: Figures) -> str:
    """One of varvite's against one of Spark's."""
    interval_ms, theirs_ms = own["interval_ms"], peer["interval_ms"]
    at = f"{own['job']}, {own['rows_per_s']:,} rows/s, {own['system']} on {own['storage']}: {_shown(interval_ms)} ms"
    found = f"{at}, {peer['system']} {_shown(theirs_ms)} ms"
    is_shorter = interval_ms is not None and theirs_ms is None
    if interval_ms is not None and theirs_ms is not None:
        found += f": {theirs_ms / interval_ms:.2f}x shorter"
        is_shorter = theirs_ms / interval_ms >= TARGET
    if own["storage"] != S3:
        return found
    return verdict(f"at least {TARGET:.0f}x shorter than Spark's on S3", met=is_shorter, found=found)


def charts(cases: Cases, directory: Path) -> list[Path]:
    """The intervals; a system that does not keep up has the longest bar."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for c in cases:
        group = f"{c['job']}, {c['rows_per_s']:,} rows/s, {c['storage']}"
        groups.setdefault(group, []).append((c["system"], c["interval_ms"] or INTERVAL_MS_MAX))
    path = directory / "trigger_interval.png"
    bar_chart(path, "Smallest sustained trigger interval", f"ms (S3: + {LATENCY_MS} ms per request)", groups)
    return [path]


BENCHMARK = Benchmark("trigger_interval", __doc__ or "", cases, run_case, tables, findings, charts)
main = BENCHMARK.command()

if __name__ == "__main__":
    main()
