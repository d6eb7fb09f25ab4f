"""`make bench-latency`: the time of a trigger with few rows, in the driver and in Spark's tasks, beside Spark's own.

All systems run in one Spark application, in turn: in each round every system goes on with its query for some triggers,
back to back. So a drift of the machine meets all of them alike. Rows come from Spark's `rate-micro-batch` source, its
checkpoints and varvite's are on the local disk. The systems:

* *driver*, *tasks*: count and sum in a Python function per key, by the two ways of a batch; the sink discards the rows;
* *groupBy*: the same by Spark's aggregation in the JVM, on its RocksDB store with changelog checkpoints;
* *noop*: no state at all.

The case of 0 rows is that of heartbeats: a job with timers whose input is quiet. There the figure is the time inside of
`foreachBatch`, because Spark has a heartbeat every second.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses
from rich.table import Table

from benchmarks.harness.case_runs import Benchmark, Figures, Parameters, verdict
from benchmarks.harness.report import Cases, bar_chart, ratio
from benchmarks.harness.session import session
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
ROWS = (100, 2_000, 20_000)
KEYS = 100_000
TARGETS_MS = {100: 80, 2_000: 100}
RATIO_MAX = 0.25
"""Of the time of Spark's groupBy."""
TIMEOUT_S = 300
WORKER_ROWS_MAX = 50_000
"""Limit of small batches in this benchmark: 20,000 rows are to take the driver's way, too."""


@dataclass(frozen=True)
class Size:
    """Triggers of a system."""

    rounds: int
    warm_up: int
    """First triggers of each round, which do not count: the query has just been started."""
    measured: int
    """Triggers of each round that count."""


WHOLE, TINY = Size(4, 10, 25), Size(1, 2, 3)


def cases(is_tiny: bool) -> list[Parameters]:
    """Each number of rows, and none."""
    return [{"rows": rows, "is_tiny": is_tiny} for rows in ((100, 0) if is_tiny else (*ROWS, 0))]


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
    found_ms: list[float] = field(default_factory=list)
    ways: set[str] = field(default_factory=set)

    def round(self, size: Size) -> None:
        """Go on with the query for a round."""
        query = self._start()
        try:
            self.found_ms += self._times(query, size)[size.warm_up :][: size.measured]
        finally:
            query.stop()

    def _times(self, query: Any, size: Size) -> list[float]:
        needed, deadline_s = size.warm_up + size.measured, time.monotonic() + TIMEOUT_S
        while True:
            if query.awaitTermination(1) or time.monotonic() > deadline_s:
                sys.exit(f"{self.system}: the query ended, or took too long")
            if self.rows:
                found = {p["batchId"]: p["durationMs"]["triggerExecution"] for p in query.recentProgress
                         if p["numInputRows"]}  # fmt: skip
                times = [float(found[batch]) for batch in sorted(found)]
            else:
                times = [batch.batch_ms for batch in query.checkpoint_statistics.history()]
            if len(times) >= needed:
                if self.system in VARVITE:
                    self.ways |= {batch.way for batch in query.checkpoint_statistics.history()[size.warm_up :]}
                return times

    def _start(self) -> Any:
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
        return writer.option("checkpointLocation", str(self.home / "checkpoint")).start()

    def _varvite(self, frame: Any) -> Any:
        way, _, backend = self.system.partition("-")
        chosen = HashMapStateBackend() if backend == HASHMAP else EmbeddedRocksDBStateBackend()
        env = varvite_environment(self.spark, chosen, f"file://{self.home / 'state'}")
        env.configure("materializer.mode", "off")
        env.configure("execution.small-batch.max-rows", str(WORKER_ROWS_MAX) if way == DRIVER else "0")
        stream = env.from_dataframe(frame)
        if self.rows:
            rows = varvite_rows(stream, COUNT_AND_SUM, aggregate=False)
        else:
            rows = stream.key_by("key").process(Remind(), COUNT_AND_SUM.output, uid="workload")
        return rows.foreach_batch(DiscardSink()).query_name(self.system.replace("-", "_"))


def run_case(parameters: Parameters) -> Figures:
    """Measure all systems in turn."""
    size = TINY if parameters["is_tiny"] else WHOLE
    systems = SYSTEMS if parameters["rows"] else VARVITE
    with tempfile.TemporaryDirectory(prefix="varvite-bench-") as name:
        spark = session({"spark.sql.streaming.pollingDelay": "1ms", "spark.ui.showConsoleProgress": "false"})
        triggers = [Triggers(spark, system, parameters["rows"], Path(name) / system) for system in systems]
        if not parameters["is_tiny"] and parameters["rows"]:
            for system in triggers:  # the JVM compiles what all of them use
                system.round(Size(1, 15, 1))
                system.found_ms.clear()
        for _ in range(size.rounds):
            for system in triggers:
                system.round(size)
        spark.stop()
        return {
            "systems": {
                system.system: {
                    "p50_ms": percentile(system.found_ms, 0.5),
                    "p99_ms": percentile(system.found_ms, 0.99),
                    "triggers": len(system.found_ms),
                    "ways": sorted(system.ways),
                }
                for system in triggers
            }
        }


def tables(cases: Cases) -> list[Table]:
    """Times of the systems, a table for each number of rows."""
    made: list[Table] = []
    for case in cases:
        table = Table(title=f"A trigger of {case['rows']:,} rows" if case["rows"] else "A batch without rows")
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
        made.append(table)
    return made


def findings(cases: Cases) -> list[str]:
    """The targets of small triggers."""
    found: list[str] = []
    for case in cases:
        target_ms, systems = TARGETS_MS.get(case["rows"]), case["systems"]
        if target_ms is None:
            continue
        for backend in (HASHMAP, ROCKSDB):
            p50, peer = systems[f"{DRIVER}-{backend}"]["p50_ms"], systems[GROUP_BY]["p50_ms"]
            target = f"{case['rows']} rows on {backend} in {target_ms} ms and {RATIO_MAX} of groupBy's time"
            met = p50 <= min(target_ms, RATIO_MAX * peer)
            found.append(verdict(target, met=met, found=f"{p50:.0f} ms, {ratio(p50, peer)} of {peer:.0f} ms"))
    return found


def charts(cases: Cases, directory: Path) -> list[Path]:
    """Median times as bars."""
    groups = {
        f"{case['rows']:,} rows": [(name, figures["p50_ms"]) for name, figures in case["systems"].items()]
        for case in cases
    }
    path = directory / "trigger_latency.png"
    bar_chart(path, "Time of a trigger", "ms, median", groups)
    return [path]


BENCHMARK = Benchmark("trigger_latency", __doc__ or "", cases, run_case, tables, findings, charts)
main = BENCHMARK.command()

if __name__ == "__main__":
    main()
