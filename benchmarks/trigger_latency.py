"""`make bench-latency`: the time of a trigger with few rows, in the driver and in Spark's tasks, beside Spark's own.

All systems run in one Spark application, in turn: in each round every system goes on with its query for some triggers,
back to back. So a drift of the machine meets all of them alike. Rows come from Spark's `rate-micro-batch` source. The
systems:

* *driver*, *tasks*: count and sum in a Python function per key, by the two ways of a batch; the sink discards the rows;
  on S3 they name no checkpoint location, as the README's job;
* *groupBy*: the same by Spark's aggregation in the JVM, on its RocksDB store with changelog checkpoints;
* *noop*: no state at all.

The case of 0 rows is that of heartbeats: a job with timers whose input is quiet. There the figure is the time inside of
`foreachBatch`, because Spark has a heartbeat every second.

The cases with a rate have a trigger every T milliseconds, and the rows of T milliseconds in each. The smallest T is
looked for at which 95 % of the triggers end within T. Its latency is that of rows that arrive evenly: those that arrive
between the starts of two triggers are processed in the second, and are in the sink when that ends.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses
from rich.table import Table

from benchmarks.harness.case_runs import Benchmark, Figures, Parameters, verdict
from benchmarks.harness.report import Cases, bar_chart, ratio
from benchmarks.harness.storages import LOCAL, S3, STORAGES, StateLocation, spark_location, storage_session
from benchmarks.workloads.jobs import COUNT_AND_SUM, JVM, spark_rows, varvite_environment, varvite_rows
from varvite import EmbeddedRocksDBStateBackend, HashMapStateBackend, KeyedProcessFunction, Sink
from varvite.spark_integration.driver.monitoring.statistics import percentile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from varvite.changelog.commit.base_decision import SinkCommit

DRIVER, TASKS = "driver", "tasks"
HASHMAP, ROCKSDB = "hashmap", "rocksdb"
VARVITE = tuple(f"{way}-{backend}" for way in (DRIVER, TASKS) for backend in (HASHMAP, ROCKSDB))
GROUP_BY, NOOP = "groupBy", "noop"
SYSTEMS = (*VARVITE, GROUP_BY, NOOP)
RATE_SYSTEMS = (f"{DRIVER}-{HASHMAP}", f"{DRIVER}-{ROCKSDB}", GROUP_BY)
Batch = tuple[float, float]
"""Start and end of a trigger, in milliseconds."""
ROWS = {LOCAL: (100, 2_000, 20_000, 0), S3: (100, 2_000)}
RATE = 2_000
"""Rows per second of the cases with a rate."""
INTERVALS_MS = (75, 100, 125, 150, 200, 300, 400, 600, 1_000)
IN_TIME = 0.95
"""Part of the triggers that end within their interval."""
KEYS = 100_000
TARGETS_MS = {(LOCAL, 100): 80, (LOCAL, 2_000): 100, (S3, 2_000): 150}
"""Time of a trigger."""
INTERVAL_TARGETS_MS = {LOCAL: 100, S3: 150}
P50_TARGET_MS, P99_TARGET_MS = 120, 250
"""Latency of rows on the local disk."""
RATIO_MAX = 0.25
"""Of the time of Spark's groupBy."""
LARGER_RATIO_MAX = 0.5
"""Of the time in Spark's tasks, for the largest number of rows."""
EMPTY_TARGET_MS = 25
TIMEOUT_S = 300
WORKER_ROWS_MAX = 50_000
"""Limit of small batches in this benchmark: 20,000 rows are to take the driver's way, too."""
PUBLISHED = (
    (
        "published: Spark 4.2, its own benchmark from Kafka to Kafka, 1,000 rows/s on 15 cores, state durable every 5 s"
        " at the earliest, at least once: transformWithState in the JVM p50 104, p99 141, max 454 ms in real-time mode,"
        " p50 319, p99 463 ms in micro-batches"
    ),
    (
        "published: Flink's changelog backend, a checkpoint every 10 ms on S3, 50 tasks, 50,000 events/s: duration of a"
        " checkpoint p50 311 ms, p99 1 s (flink.apache.org, 30 May 2022)"
    ),
)


@dataclass(frozen=True)
class Size:
    """Triggers of a system."""

    rounds: int
    warm_up: int
    """First triggers of each round, which do not count: the query has just been started."""
    measured: int
    """Triggers of each round that count."""


WHOLE, TINY = Size(4, 10, 25), Size(1, 2, 3)
SUSTAINED, EMPTY = Size(1, 10, 60), Size(2, 3, 10)
"""Of the cases with a rate, and of heartbeats, which come once a second."""


def cases(is_tiny: bool) -> list[Parameters]:
    """Each number of rows, and none; and the rate."""
    if is_tiny:
        sizes = [(LOCAL, 100, 0), (LOCAL, 0, 0), (LOCAL, 0, RATE)]
    else:
        sizes = [
            (storage, rows, rate)
            for storage in STORAGES
            for rows, rate in (*((r, 0) for r in ROWS[storage]), (0, RATE))
        ]
    return [{"storage": storage, "rows": rows, "rate": rate, "is_tiny": is_tiny} for storage, rows, rate in sizes]


class Remind(KeyedProcessFunction):
    """Has timers, so that the job has heartbeats."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(1 << 50)
        yield value.key, 1, 1.0

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        """Never called: the timers are in the far future."""


class DiscardSink(Sink):
    """Computes the rows."""

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        del commit
        df.write.format("noop").mode("overwrite").save()

    def write_table(self, table: pa.Table, commit: SinkCommit) -> None:
        """Nothing: the rows are there."""


@dataclass
class Triggers:
    """The triggers of one system."""

    spark: Any
    system: str
    rows: int
    home: Path
    state: StateLocation
    checkpoint: str | None
    """None: the query names no place."""
    found_ms: list[float] = field(default_factory=list)
    ways: set[str] = field(default_factory=set)

    def round(self, size: Size) -> None:
        """Go on with the query for a round."""
        self.found_ms += [end_ms - start_ms for start_ms, end_ms in self.run(size)]

    def run(self, size: Size, interval_ms: int = 0) -> list[Batch]:
        """Go on with the query, and measure the triggers that count; 0: one after another."""
        query = self._start(interval_ms)
        try:
            return self._batches(query, size)[size.warm_up :][: size.measured]
        finally:
            query.stop()

    def _batches(self, query: Any, size: Size) -> list[Batch]:
        needed, deadline_s = size.warm_up + size.measured, time.monotonic() + TIMEOUT_S
        while True:
            if query.awaitTermination(1) or time.monotonic() > deadline_s:
                sys.exit(f"{self.system}: the query ended, or took too long")
            if self.rows:
                found = {p["batchId"]: batch_of(p) for p in query.recentProgress if p["numInputRows"]}
                batches = [found[batch] for batch in sorted(found)]
            else:
                batches = [(0.0, batch.batch_ms) for batch in query.checkpoint_statistics.history()]
            if len(batches) >= needed:
                if self.system in VARVITE:
                    self.ways |= {batch.way for batch in query.checkpoint_statistics.history()[size.warm_up :]}
                return batches

    def _start(self, interval_ms: int) -> Any:
        if self.rows:
            stream = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", self.rows)
            frame = stream.option("numPartitions", 2).load()
        else:
            (self.home / "quiet").mkdir(parents=True, exist_ok=True)
            frame = self.spark.readStream.schema("timestamp timestamp, value bigint").json(str(self.home / "quiet"))
        number = F.pmod(F.col("value") * 7919, F.lit(KEYS))
        frame = frame.select(
            F.format_string("key-%09d", number).alias("key"), (F.col("value") % 1000 / 100).alias("price")
        )
        if self.system in VARVITE:
            writer: Any = self._varvite(frame)
        elif self.system == GROUP_BY:
            writer = spark_rows(frame, COUNT_AND_SUM, JVM).writeStream.format("noop").outputMode("update")
        else:
            writer = frame.writeStream.format("noop")
        if interval_ms:
            writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
        return (writer.option("checkpointLocation", self.checkpoint) if self.checkpoint else writer).start()

    def _varvite(self, frame: Any) -> Any:
        way, _, backend = self.system.partition("-")
        chosen = HashMapStateBackend() if backend == HASHMAP else EmbeddedRocksDBStateBackend()
        env = varvite_environment(self.spark, chosen, self.state.url)
        self.state.configure(env)
        env.configure("materializer.mode", "off")
        env.configure("execution.small-batch.max-rows", str(WORKER_ROWS_MAX) if way == DRIVER else "0")
        stream = env.from_dataframe(frame)
        if self.rows:
            rows = varvite_rows(stream, COUNT_AND_SUM, aggregate=False)
        else:
            rows = stream.key_by("key").process(Remind(), COUNT_AND_SUM.output, uid="workload")
        return rows.foreach_batch(DiscardSink()).query_name(self.system.replace("-", "_"))


def batch_of(progress: Any) -> Batch:
    """Start and end of a trigger, by Spark's report."""
    start_ms = datetime.fromisoformat(progress["timestamp"]).timestamp() * 1000
    return start_ms, start_ms + progress["durationMs"]["triggerExecution"]


def latencies_ms(batches: Sequence[Batch]) -> list[float]:
    """Time from arrival to sink, of rows that arrive every millisecond."""
    return [
        end_ms - arrival_ms
        for (before_ms, _), (start_ms, end_ms) in pairwise(batches)
        for arrival_ms in range(round(before_ms), round(start_ms))
    ]


def run_case(parameters: Parameters) -> Figures:
    """Measure all systems in turn."""
    rate, storage = parameters["rate"], parameters["storage"]
    rows = rate // 10 or parameters["rows"]
    size = TINY if parameters["is_tiny"] else SUSTAINED if rate else WHOLE if rows else EMPTY
    systems = RATE_SYSTEMS if rate else SYSTEMS if rows else VARVITE
    with tempfile.TemporaryDirectory(prefix="varvite-bench-") as name:
        conf = {"spark.sql.streaming.pollingDelay": "1ms", "spark.ui.showConsoleProgress": "false"}
        spark = storage_session(storage, Path(name), conf)
        triggers = [triggers_of(spark, system, rows, storage, Path(name) / system) for system in systems]
        if not parameters["is_tiny"] and rows:
            for system in triggers:  # the JVM compiles what all of them use
                system.round(Size(1, 15, 1))
                system.found_ms.clear()
        figures = sustained(triggers, rate, size) if rate else back_to_back(triggers, size)
        spark.stop()
        return {"systems": figures}


def triggers_of(spark: Any, system: str, rows: int, storage: str, home: Path) -> Triggers:
    """The triggers of a system with places of its own."""
    home.mkdir()
    checkpoint = None if storage == S3 and system in VARVITE else spark_location(storage, home / "checkpoint")
    return Triggers(spark, system, rows, home, StateLocation.new(storage, home), checkpoint)


def back_to_back(triggers: Sequence[Triggers], size: Size) -> Figures:
    """The times of triggers one after another."""
    for _ in range(size.rounds):
        for system in triggers:
            system.round(size)
    return {
        system.system: {
            "p50_ms": percentile(system.found_ms, 0.5),
            "p99_ms": percentile(system.found_ms, 0.99),
            "triggers": len(system.found_ms),
            "ways": sorted(system.ways),
        }
        for system in triggers
    }


def sustained(triggers: Sequence[Triggers], rate: int, size: Size) -> Figures:
    """The shortest interval of each system, and the latency of its rows there."""
    figures: Figures = {}
    for interval_ms in INTERVALS_MS:
        for system in triggers:
            if system.system in figures:
                continue
            system.rows = rate * interval_ms // 1000
            batches = system.run(size, interval_ms)
            in_time = sum(end_ms - start_ms <= interval_ms for start_ms, end_ms in batches)
            if in_time >= IN_TIME * len(batches) or interval_ms == INTERVALS_MS[-1]:
                waits_ms = latencies_ms(batches)
                figures[system.system] = {
                    "interval_ms": interval_ms,
                    "in_time": in_time / len(batches),
                    "p50_ms": percentile(waits_ms, 0.5),
                    "p99_ms": percentile(waits_ms, 0.99),
                    "triggers": len(batches),
                    "ways": sorted(system.ways),
                }
    return figures


def tables(cases: Cases) -> list[Table]:
    """Times of the systems, a table for each case."""
    return [_rate_table(case) if case["rate"] else _rows_table(case) for case in cases]


def _rows_table(case: Figures) -> Table:
    title = f"A trigger of {case['rows']:,} rows" if case["rows"] else "A batch without rows"
    table = Table(title=f"{title}, {case['storage']}")
    for column in ("system", "p50 ms", "p99 ms", "triggers", "ways", "of groupBy", "of noop"):
        table.add_column(column, justify="left" if column in ("system", "ways") else "right")
    systems = case["systems"]
    for name, figures in systems.items():
        p50 = figures["p50_ms"]
        peers = [systems.get(peer, {}).get("p50_ms") for peer in (GROUP_BY, NOOP)]
        table.add_row(
            name, f"{p50:.0f}", f"{figures['p99_ms']:.0f}", str(figures["triggers"]), ", ".join(figures["ways"]),
            *(ratio(p50, peer) for peer in peers),
        )  # fmt: skip
    return table


def _rate_table(case: Figures) -> Table:
    table = Table(title=f"{case['rate']:,} rows/s, from arrival to sink, {case['storage']}")
    for column in ("system", "interval ms", "in time", "p50 ms", "p99 ms", "triggers", "ways"):
        table.add_column(column, justify="left" if column in ("system", "ways") else "right")
    for name, figures in case["systems"].items():
        table.add_row(
            name, str(figures["interval_ms"]), f"{figures['in_time']:.0%}", f"{figures['p50_ms']:.0f}",
            f"{figures['p99_ms']:.0f}", str(figures["triggers"]), ", ".join(figures["ways"]),
        )  # fmt: skip
    return table


def findings(cases: Cases) -> list[str]:
    """The targets of small triggers, and what others have published."""
    found: list[str] = []
    for case in cases:
        for backend in (HASHMAP, ROCKSDB):
            found += _rate_findings(case, backend) if case["rate"] else _rows_findings(case, backend)
    return [*found, *PUBLISHED]


def _rows_findings(case: Figures, backend: str) -> list[str]:
    systems, rows, storage = case["systems"], case["rows"], case["storage"]
    p50 = systems[f"{DRIVER}-{backend}"]["p50_ms"]
    of = f"{rows:,} rows on {backend}, {storage}"
    found: list[str] = []
    target_ms = TARGETS_MS.get((storage, rows))
    if target_ms is not None:
        found.append(verdict(f"{of}, in {target_ms} ms", met=p50 <= target_ms, found=f"{p50:.0f} ms"))
        peer = systems[GROUP_BY]["p50_ms"]
        text = f"{ratio(p50, peer)} of {peer:.0f} ms"
        found.append(verdict(f"{of}, in {RATIO_MAX} of groupBy's time", met=p50 <= RATIO_MAX * peer, found=text))
    elif not rows:
        target = f"a batch without rows on {backend} in {EMPTY_TARGET_MS} ms"
        found.append(verdict(target, met=p50 <= EMPTY_TARGET_MS, found=f"{p50:.0f} ms"))
    elif storage == LOCAL:
        peer = systems[f"{TASKS}-{backend}"]["p50_ms"]
        target = f"{of}, in {LARGER_RATIO_MAX} of the time in Spark's tasks"
        found.append(verdict(target, met=p50 <= LARGER_RATIO_MAX * peer, found=ratio(p50, peer)))
    return found


def _rate_findings(case: Figures, backend: str) -> list[str]:
    figures, storage = case["systems"][f"{DRIVER}-{backend}"], case["storage"]
    of, interval_ms = f"{case['rate']:,} rows/s on {backend}, {storage}", figures["interval_ms"]
    target_ms = INTERVAL_TARGETS_MS[storage]
    found = [verdict(f"{of}: a trigger every {target_ms} ms", met=interval_ms <= target_ms, found=f"{interval_ms} ms")]
    if storage == LOCAL:
        p50, p99 = figures["p50_ms"], figures["p99_ms"]
        target = f"{of}: from arrival to sink p50 {P50_TARGET_MS}, p99 {P99_TARGET_MS} ms"
        is_met = p50 <= P50_TARGET_MS and p99 <= P99_TARGET_MS
        found.append(verdict(target, met=is_met, found=f"{p50:.0f}, {p99:.0f} ms"))
    return found


def charts(cases: Cases, directory: Path) -> list[Path]:
    """Median times as bars."""
    counted = [case for case in cases if not case["rate"]]
    if not counted:
        return []
    groups = {
        f"{case['rows']:,} rows, {case['storage']}": [(name, each["p50_ms"]) for name, each in case["systems"].items()]
        for case in counted
    }
    path = directory / "trigger_latency.png"
    bar_chart(path, "Time of a trigger", "ms, median", groups)
    return [path]


BENCHMARK = Benchmark("trigger_latency", __doc__ or "", cases, run_case, tables, findings, charts)
main = BENCHMARK.command()

if __name__ == "__main__":
    main()
