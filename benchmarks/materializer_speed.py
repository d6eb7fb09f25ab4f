"""`make bench-materializer`: how fast a materializer folds, what a gigabyte of log costs it, and what it costs the job.

* *fold*: two million changes of values of 100 bytes, of new keys or each key twenty times, are in the log; one
  materializer folds them into snapshots, in this process. CPU time is that of the whole process, RocksDB's threads
  included.
* *beside*: a job with a materializer that folds all the time, against the same job alone. It is one query and one
  sidecar, which sleeps (SIGSTOP) during every other batch, ABBA; each pair of neighbours gives a ratio.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.table import Table

from benchmarks.changelog_cost import CHANGELOG, start_variant
from benchmarks.harness.case_runs import Benchmark, Figures, Parameters
from benchmarks.harness.cpu_time import ApplicationTime
from benchmarks.harness.paired import in_turn, paired_change
from benchmarks.harness.report import Cases, bar_chart
from benchmarks.harness.session import session
from benchmarks.harness.storages import LOCAL, STORAGES, StateLocation
from benchmarks.workloads.input import Case, write_input
from benchmarks.workloads.simulated_job import SimulatedJob
from varvite import EmbeddedRocksDBStateBackend, Types, ValueStateDescriptor, VectorizedProcessFunction
from varvite.materializer.options.materializer_config import MaterializerConfig
from varvite.materializer.resources.stop_signal import StopSignal
from varvite.materializer.resources.workspace import Workspace
from varvite.materializer.service.context import MaterializerContext
from varvite.materializer.service.loop import MaterializerService
from varvite.spark_integration.driver.monitoring.statistics import percentile
from varvite.spark_integration.harness.plan import JOB
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.object_stores.open import open_store

BATCHES, BATCH_ROWS, PAYLOAD = 21, 100_000, 100
"""The newest batch is never folded."""
ROWS, PAIRS, WARM_UP = 100_000, 20, 6


class KeepLatest(VectorizedProcessFunction):
    """Remembers the last payload of a key, all keys of a batch at once."""

    def open(self, runtime_context: Any) -> None:
        self.latest = runtime_context.get_state(ValueStateDescriptor("latest", Types.BINARY()))

    def process_batch(self, batch: Any, ctx: Any) -> None:
        keys = ctx.keys()
        values: Any = np.empty(len(keys.array), dtype=np.int64)
        values[keys.positions] = np.arange(batch.num_rows)
        self.latest.put_many(keys, batch["payload"].take(pa.array(values)))


def cases(is_tiny: bool) -> list[Parameters]:
    """Folds on both storages, then the job beside a materializer."""
    rows = 200 if is_tiny else BATCH_ROWS
    folds = [
        {"kind": "fold", "keys": keys, "storage": storage, "rows": rows, "batches": 3 if is_tiny else BATCHES}
        for storage in STORAGES
        for keys in ("new", "again")
    ]
    sizes = {"rows": 200, "pairs": 2} if is_tiny else {"rows": ROWS, "pairs": PAIRS}
    return [*folds, {"kind": "beside", "storage": LOCAL, **sizes}]


def run_case(parameters: Parameters) -> Figures:
    """Measure one case."""
    with tempfile.TemporaryDirectory(prefix="varvite-bench-") as name:
        return (fold if parameters["kind"] == "fold" else beside)(parameters, Path(name))


class Reported:
    """Events of a materializer."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def report(self, event: Any) -> None:
        self.events.append(event)


def fold(parameters: Parameters, work: Path) -> Figures:
    """Write a log, fold it."""
    place = StateLocation.new(parameters["storage"], work)
    root = open_store(place.url, place.options)
    write_log(parameters, work, root)
    reported = Reported()
    config = MaterializerConfig(storage_url=place.url, storage_options=place.options, job=JOB)
    with Workspace(work / "materializer") as workspace:
        context = MaterializerContext(
            config=config,
            clock=SystemClock(),
            tokens=SystemTokens(),
            workspace=workspace,
            reporter=reported,
            stop=StopSignal(),
        )
        service = MaterializerService(root, context)
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        is_done = service.run_once()
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
        service.close()
    if not is_done:
        sys.exit(f"the materializer failed: {reported.events}")
    made = [event for event in reported.events if hasattr(event, "mutations")]
    mutations, log_bytes = sum(e.mutations for e in made), sum(e.log_before.bytes - e.log_after.bytes for e in made)
    return {
        "mutations": mutations,
        "mutations_per_s": round(mutations / wall_s),
        "log_mb": round(log_bytes / 1e6, 2),
        "log_mb_per_s": round(log_bytes / 1e6 / wall_s, 2),
        "cpu_s_per_gb": round(cpu_s / (log_bytes / 1e9), 1),
        "seconds": round(wall_s, 2),
        "uploaded_mb": round(sum(e.uploaded_bytes for e in made) / 1e6, 2),
    }


def write_log(parameters: Parameters, work: Path, root: Any) -> None:
    """A job of two partitions, in this process and without a materializer."""
    rng, rows = np.random.default_rng(1), parameters["rows"]
    with SimulatedJob(
        work / "job", lambda stream: stream.key_by("key").process(KeepLatest(), "key string", uid="workload"),
        "key string, payload binary", stores=(root, root), materializes=False, parallelism=2,
        backend=EmbeddedRocksDBStateBackend(),
    ) as job:  # fmt: skip
        for batch in range(parameters["batches"]):
            first = batch * rows if parameters["keys"] == "new" else 0
            numbers = rng.permutation(rows) + first
            payload = [rng.bytes(PAYLOAD) for _ in range(rows)]
            job.batch(pa.table({"key": [f"key-{n:09d}" for n in numbers], "payload": payload}))


def beside(parameters: Parameters, work: Path) -> Figures:
    """One query; its materializer works during every other batch."""
    rows, pairs = parameters["rows"], parameters["pairs"]
    warm_up = min(WARM_UP, pairs)
    files = write_input(work / "input", Case(rows, rows), 2 * (warm_up + pairs))
    spark = session({"spark.sql.streaming.pollingDelay": "100ms"})
    application = ApplicationTime.of(spark)
    job = start_variant(spark, CHANGELOG, work, "rocksdb")
    command = [sys.executable, "-m", "varvite.materializer", "--storage", f"file://{work / CHANGELOG / 'state'}"]
    command += ["--interval", "1s", "--poll", "100ms", "--log-batches", "1", "--working-directory", str(work / "copy")]
    measured: dict[bool, list[float]] = {True: [], False: []}
    sidecar = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for order in in_turn(warm_up + pairs):
            for number in order:
                works = number == 1
                sidecar.send_signal(signal.SIGCONT if works else signal.SIGSTOP)
                job.feed(files.pop(0), application)
                measured[works].append(job.batch_ms[-1])
        if sidecar.poll() is not None:
            sys.exit("the materializer has ended")
    finally:
        sidecar.kill()
        sidecar.wait()
    job.query.stop()
    spark.stop()
    with_it, alone = measured[True][-pairs:], measured[False][-pairs:]
    change = paired_change(with_it, alone)
    return {
        "batch_ms_with": percentile(with_it, 0.5),
        "batch_ms_with_p99": percentile(with_it, 0.99),
        "batch_ms_alone": percentile(alone, 0.5),
        "batch_ms_alone_p99": percentile(alone, 0.99),
        "rows_per_s_with": round(rows / percentile(with_it, 0.5) * 1000),
        "rows_per_s_alone": round(rows / percentile(alone, 0.5) * 1000),
        "change": change._asdict(),
        "batch_time": str(change),
    }


FOLD = ("mutations", "mutations_per_s", "log_mb", "log_mb_per_s", "cpu_s_per_gb", "seconds", "uploaded_mb")
BESIDE = ("rows_per_s_with", "rows_per_s_alone", "batch_ms_with", "batch_ms_with_p99", "batch_ms_alone",
          "batch_ms_alone_p99")  # fmt: skip


def tables(cases: Cases) -> list[Table]:
    """One for each kind."""
    folds = Table(title="a materializer folds a log")
    for column in ("keys", "storage"):
        folds.add_column(column)
    for column in FOLD:
        folds.add_column(column, justify="right")
    jobs = Table(title="a job beside a materializer that folds all the time")
    for column in (*BESIDE, "more batch time"):
        jobs.add_column(column, justify="right")
    for c in cases:
        if c["kind"] == "fold":
            folds.add_row(c["keys"], c["storage"], *(f"{c[k]:,.1f}" for k in FOLD))
        else:
            jobs.add_row(*(f"{c[k]:,.0f}" for k in BESIDE), c["batch_time"])
    return [table for table in (folds, jobs) if table.row_count]


def findings(cases: Cases) -> list[str]:
    """Without a target: the issue asks for the figures."""
    said: list[str] = []
    for c in cases:
        if c["kind"] == "fold":
            said.append(
                f"{c['keys']} keys on {c['storage']}: {c['mutations_per_s']:,} changes/s, {c['cpu_s_per_gb']:,} s of "
                "CPU per GB of log"
            )
        else:
            said.append(f"a materializer that folds all the time costs the job {c['batch_time']} of batch time")
    return said


def charts(cases: Cases, directory: Path) -> list[Path]:
    """Changes per second."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for c in cases:
        if c["kind"] == "fold":
            groups.setdefault(c["storage"], []).append((f"{c['keys']} keys", c["mutations_per_s"]))
    path = directory / "materializer_speed.png"
    if not groups:
        return []
    bar_chart(path, "A materializer folds", "changes per second", groups)
    return [path]


BENCHMARK = Benchmark("materializer_speed", __doc__ or "", cases, run_case, tables, findings, charts)
main = BENCHMARK.command()

if __name__ == "__main__":
    main()
