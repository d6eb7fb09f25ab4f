"""`make bench-recovery`: seconds until a job goes on after a restart with a gigabyte of state, beside Spark.

The state is a value of 1 KB for each key, the largest payload so far. Each restart is a new Spark application on the
same storage, without anything that the one before kept in memory or, but for local recovery, on local disk:

* *log*: nothing was materialized; everything is replayed;
* *base + log*: the state was materialized, and two small batches came after;
* *local*: as before, but the state workers' directories are still there (where varvite has that option);
* Spark's RocksDB store with changelog checkpointing likewise: *log* before its maintenance has uploaded a snapshot,
  *base + log* two batches after one. It has nothing like local recovery, which is compared with the latter.

A restart's time is the first batch's `triggerExecution` less that of the batches after it; a small query of the same
kind has run before in the same application, so that the JVM has loaded and compiled what a batch needs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses
from rich.table import Table

from benchmarks.harness.case_runs import Benchmark, Figures, Parameters, verdict
from benchmarks.harness.report import Cases, bar_chart
from benchmarks.harness.session import run_alone
from benchmarks.harness.storages import LATENCY_MS, LOCAL, S3, StateLocation, spark_location, storage_session
from benchmarks.workloads.input import write_whole
from benchmarks.workloads.jobs import discard, varvite_environment
from varvite.materializer.options.table import OPTIONS
from varvite.spark_integration.driver.monitoring.statistics import percentile

SPARK = "spark-changelog"
SYSTEMS = {LOCAL: ("varvite-rocksdb", "varvite-hashmap", SPARK), S3: ("varvite-rocksdb", SPARK)}
VALUE_BYTES = 1_000
BATCH_ROWS = 100_000
SMALL_ROWS = 10
UPDATES = 2
ADOPTION_S = 120
TARGET = 0.5
"""varvite's time over Spark's."""
FROM_LOCAL, LOCAL_DIRECTORIES = "execution.state-recovery.from-local", "execution.checkpointing.local-backup.dirs"
SCHEMA = "key string, payload binary"
JOB = "recovery"
TIMEOUT_S = 300
LOG, BASE, FROM_DISK = "log", "base + log", "local"


def cases(is_tiny: bool) -> list[Parameters]:
    """Every system; on S3 without the hash map, which restores from the same bytes."""
    if is_tiny:
        return [{"system": s, "storage": LOCAL, "state_mb": 1} for s in ("varvite-rocksdb", SPARK)]
    return [
        {"system": s, "storage": storage, "state_mb": 1_000} for storage, systems in SYSTEMS.items() for s in systems
    ]


def run_case(parameters: Parameters) -> Figures:
    """All restarts of one system; a phase runs in a process of its own."""
    if "phase" in parameters:
        return run_phase(parameters, Path(parameters["work"]))
    has_local = FROM_LOCAL in OPTIONS
    is_spark = parameters["system"] == SPARK
    phases = ["fill", LOG, BASE, *([FROM_DISK] if has_local and not is_spark else [])]
    restarts: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="varvite-bench-") as name:
        place = StateLocation.new(parameters["storage"], Path(name))
        for phase in phases:
            given = parameters | {"phase": phase, "work": name, "url": place.url, "is_last": phase == phases[-1]}
            found = run_alone("benchmarks.recovery", json.dumps(given))
            if found is None:
                sys.exit(f"{phase} failed")
            if "restart" in found:
                restarts.append({"mode": phase, **found["restart"]})
    return {"restarts": restarts}


class Phase:
    """One application on the state of a case."""

    def __init__(self, parameters: Parameters, work: Path) -> None:
        self._given, self._work = parameters, work
        self._storage = parameters["storage"]
        self.is_spark = parameters["system"] == SPARK
        is_filling = parameters["phase"] == "fill"  # Spark's maintenance is to make its snapshot in the next phase
        maintenance = {"spark.sql.streaming.stateStore.maintenanceInterval": "1h" if is_filling else "3s"}
        self.spark = storage_session(self._storage, work, maintenance | {"spark.sql.streaming.pollingDelay": "20ms"})
        self._rng = np.random.default_rng(os.getpid())

    @property
    def keys(self) -> int:
        """Of the state."""
        return self._given["state_mb"] * 1_000_000 // VALUE_BYTES

    def start(self, name: str, place: StateLocation) -> FedQuery:
        """The job, on the state that there is."""
        inbox = self._work / name / "input"
        inbox.mkdir(parents=True, exist_ok=True)
        stream = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(inbox))
        writer = self._spark_writer(stream) if self.is_spark else self._varvite_writer(stream, place, name)
        writer = writer.option("checkpointLocation", spark_location(self._storage, self._work / name / "checkpoint"))
        return FedQuery(writer.trigger(processingTime="0 seconds").start(), inbox)

    def _spark_writer(self, stream: Any) -> Any:
        return stream.groupBy("key").agg(F.max("payload")).writeStream.format("noop").outputMode("update")

    def _varvite_writer(self, stream: Any, place: StateLocation, name: str) -> Any:
        from varvite import EmbeddedRocksDBStateBackend, HashMapStateBackend

        is_hashmap = self._given["system"].endswith("hashmap")
        backend = HashMapStateBackend() if is_hashmap else EmbeddedRocksDBStateBackend()
        env = varvite_environment(self.spark, backend, place.url)
        place.configure(env)
        if FROM_LOCAL in OPTIONS and self._given["phase"] in (BASE, FROM_DISK):
            # The run that has the state of base and log leaves it on disk for the next one.
            env.configure({FROM_LOCAL: True, LOCAL_DIRECTORIES: str(self._work / "local")})
        keyed = env.from_dataframe(stream).key_by("key")
        return keyed.aggregate(payload=("payload", "max"), uid="workload").foreach_batch(discard).query_name(name)

    def rows(self, numbers: np.ndarray) -> pa.Table:
        """Rows of these keys, with payloads that do not compress away."""
        data = self._rng.bytes(len(numbers) * VALUE_BYTES)
        offsets = pa.py_buffer(np.arange(len(numbers) + 1, dtype=np.int32) * VALUE_BYTES)
        payload = pa.Array.from_buffers(pa.binary(), len(numbers), [None, offsets, pa.py_buffer(data)])
        return pa.table({"key": [f"key-{n:09d}" for n in numbers], "payload": payload})

    def filling(self) -> Iterator[pa.Table]:
        """Every key once."""
        for first in range(0, self.keys, BATCH_ROWS):
            yield self.rows(np.arange(first, min(first + BATCH_ROWS, self.keys)))

    def some(self, count: int) -> pa.Table:
        """Some keys that there are."""
        return self.rows(self._rng.integers(self.keys, size=count))

    def warm_up(self) -> None:
        """A small query of the same kind, which ends."""
        other = StateLocation.new(self._storage, self._work / "warm-up")
        query = self.start(f"warm_up_{os.getpid()}", other)
        for _ in range(5):
            query.feed(self.some(SMALL_ROWS))
        query.stop()


class FedQuery:
    """A query that gets a batch at a time."""

    def __init__(self, query: Any, inbox: Path) -> None:
        self.query = query
        self._inbox = inbox
        self._seen = 0

    def feed(self, rows: pa.Table) -> float:
        """Let it process these rows; its `triggerExecution`, milliseconds."""
        path = self._inbox / f"{time.time_ns()}.parquet"
        write_whole(path, rows, compression="none")
        give_up = time.monotonic() + TIMEOUT_S
        while time.monotonic() < give_up and self.query.isActive:
            done = [p for p in self.query.recentProgress if p["numInputRows"]]
            if len(done) > self._seen:
                self._seen = len(done)
                return float(done[-1]["durationMs"]["triggerExecution"])
            time.sleep(0.02)
        error = self.query.exception()
        sys.exit(f"no batch within {TIMEOUT_S} s, or the query has failed: {error}")

    def stop(self) -> None:
        """End it."""
        self.query.stop()


def run_phase(parameters: Parameters, work: Path) -> Figures:
    """Fill, or restart and prepare what the next phase restarts from."""
    phase = Phase(parameters, work)
    # The URL is one for all phases; only S3 has options, which every process finds by itself.
    place = StateLocation(parameters["url"], StateLocation.new(parameters["storage"], work).options)
    if parameters["phase"] == "fill":
        query = phase.start(JOB, place)
        for rows in phase.filling():
            query.feed(rows)
        found: Figures = {}
    else:
        phase.warm_up()
        query = phase.start(JOB, place)
        found = {"restart": measure(phase, query)}
        if parameters["phase"] == LOG:
            if phase.is_spark:
                time.sleep(8)  # more than two rounds of maintenance, which uploads the snapshot
            else:
                materialize(place, work)
                adopt(phase, query)
            for _ in range(UPDATES):
                query.feed(phase.some(phase.keys // 50))
    query.stop()
    phase.spark.stop()
    return found


def measure(phase: Phase, query: FedQuery) -> Figures:
    """Time of the first batch beyond that of those after it; and the next one, which reads many keys."""
    first_ms = query.feed(phase.some(SMALL_ROWS))
    next_ms = query.feed(phase.some(phase.keys // 50))
    steady_ms = percentile([query.feed(phase.some(SMALL_ROWS)) for _ in range(4)], 0.5)
    restore_s = max(first_ms - steady_ms, 1.0) / 1000
    found = {"first_batch_ms": first_ms, "next_ms": next_ms, "steady_ms": steady_ms, "restore_s": round(restore_s, 2)}
    if not phase.is_spark:
        [first, *_] = query.query.checkpoint_statistics.history()
        found |= {"worker_ms": round(first.worker_ms["restore"]), "how": "/".join(first.restored)}
    return found | {"mb_per_s": round(phase.keys * VALUE_BYTES / 1e6 / restore_s, 1)}


def materialize(place: StateLocation, work: Path) -> None:
    """A materializer that runs once."""
    command = [sys.executable, "-m", "varvite.materializer", "--storage", place.url, "--job", JOB, "--once", "--json"]
    command += ["--working-directory", str(work / "materializer")]
    for name, value in place.options.items():
        command += ["--storage-option", f"{name}={value}"]
    subprocess.run(command, check=True, capture_output=True)


def adopt(phase: Phase, query: FedQuery) -> None:
    """Feed batches until the job has taken the snapshots over."""
    give_up = time.monotonic() + ADOPTION_S
    while time.monotonic() < give_up:
        before = query.query.checkpoint_statistics.history()[-1].log_commits
        time.sleep(0.5)
        query.feed(phase.some(SMALL_ROWS))
        if query.query.checkpoint_statistics.history()[-1].log_commits <= before - 1:
            return
    sys.exit("the job did not adopt the snapshots")


COLUMNS = ("restore_s", "mb_per_s", "first_batch_ms", "next_ms", "steady_ms")


def tables(cases: Cases) -> list[Table]:
    """One for each storage."""
    made: list[Table] = []
    for storage in dict.fromkeys(c["storage"] for c in cases):
        of_storage = [c for c in cases if c["storage"] == storage]
        table = Table(title=f"restart with {of_storage[0]['state_mb']:,} MB of state, {storage}")
        for column in ("system", "from"):
            table.add_column(column)
        for column in (*COLUMNS, "worker_ms"):
            table.add_column(column, justify="right")
        for c in of_storage:
            for restart in c["restarts"]:
                cells = [f"{restart[k]:,.1f}" for k in COLUMNS]
                table.add_row(c["system"], restart["mode"], *cells, f"{restart.get('worker_ms', ''):}")
        made.append(table)
    return made


def findings(cases: Cases) -> list[str]:
    """Each of varvite's restarts against Spark's on the same storage, from a log or from a base and a log likewise."""
    theirs = {(c["storage"], r["mode"]): r["restore_s"] for c in cases if c["system"] == SPARK for r in c["restarts"]}
    said: list[str] = []
    for c in cases:
        for restart in c["restarts"] if c["system"] != SPARK else ():
            mode, own = restart["mode"], restart["restore_s"]
            spark = theirs.get((c["storage"], LOG if mode == LOG else BASE))
            if spark is not None:
                target = f"{c['system']} on {c['storage']}, {mode}: at most {TARGET:.0%} of Spark's time"
                found = f"{own:.1f} s, Spark {spark:.1f} s, {own / spark:.0%}"
                said.append(verdict(target, met=own <= TARGET * spark, found=found))
    return said


def charts(cases: Cases, directory: Path) -> list[Path]:
    """Seconds."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for c in cases:
        for restart in c["restarts"]:
            groups.setdefault(c["storage"], []).append((f"{c['system']}, {restart['mode']}", restart["restore_s"]))
    path = directory / "recovery.png"
    bar_chart(path, f"Restart with {cases[0]['state_mb']:,} MB", f"seconds (S3: + {LATENCY_MS} ms per request)", groups)
    return [path]


BENCHMARK = Benchmark("recovery", __doc__ or "", cases, run_case, tables, findings, charts, durable_s3=True)
main = BENCHMARK.command()

if __name__ == "__main__":
    main()
