"""`make bench-ack`: what an acknowledgement takes while the state grows a thousandfold and the change stays the same.

One query per backend and storage. It is loaded to 10,000 keys, then changes 10,000 of them per batch; then it is loaded
to 100,000 keys, and so on. So all sizes are measured in the same processes, and the log grows as well: no materializer
runs. The job is `aggregate`, whose loads are quick.

* *ack*: from the moment at which all tasks have answered until the checkpoint is durable;
* *durable*: the same, and the slowest worker's part before it: encoding its changes, uploading them;
* *plain*: put-if-absent of as many bytes into the same storage, one after the other with nothing else going on: what of
  the tail is the storage's own.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.harness.case_runs import Benchmark, Figures, Parameters, verdict
from benchmarks.harness.report import Cases, line_chart
from benchmarks.harness.storages import LATENCY_MS, STORAGES, StateLocation, spark_location, storage_session
from benchmarks.workloads.input import source, write_keys
from benchmarks.workloads.jobs import QUERY, discard, varvite_environment
from varvite.spark_integration.driver.monitoring.statistics import CheckpointStatistics, percentile
from varvite.storage.object_stores.open import open_store

MAX_KEYS = {"hashmap": 1_000_000, "rocksdb": 10_000_000}
"""Ten million keys of Python objects do not fit into the memory of the machine."""
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
CHANGED = 10_000
"""Keys per measured batch."""
LOADED = 1_000_000
"""The most keys of a batch that loads."""
WARM_UP, MEASURED = 15, 100
PLAIN_PAUSE_S = 0.1
"""Between two plain PUTs, as between batches."""
WRITING_PHASES = ("early_upload", "checkpoint")
RATIO_MAX = 3.0
"""Target: p99 is no more than this times the median."""
FLAT_MAX = 1.5
"""The median at the largest state over that at the smallest that still counts as flat."""


def cases(is_tiny: bool) -> list[Parameters]:
    """The hash map first: it is quicker."""
    if is_tiny:
        return [{"backend": "rocksdb", "storage": s, "keys": 1_000, "changed": 100, "batches": 3} for s in STORAGES]
    return [
        {"backend": backend, "storage": storage, "keys": keys, "changed": CHANGED, "batches": MEASURED}
        for storage in STORAGES
        for backend, keys in MAX_KEYS.items()
    ]


def sizes_of(parameters: Parameters) -> list[int]:
    """States that are measured, smallest first."""
    return [size for size in SIZES if size <= parameters["keys"]] or [parameters["changed"], parameters["keys"]]


def write_input(directory: Path, parameters: Parameters) -> list[tuple[int, range]]:
    """One file per batch; gives (state size, its measured batches)."""
    directory.mkdir()
    rng = np.random.default_rng(7)
    batches, loaded = 0, 0
    found: list[tuple[int, range]] = []

    def write(numbers: np.ndarray) -> None:
        nonlocal batches
        write_keys(directory / f"batch-{batches:05d}.parquet", numbers, rng)
        batches += 1

    for size in sizes_of(parameters):
        for start in range(loaded, size, LOADED):
            write(np.arange(start, min(start + LOADED, size)))
        loaded = size
        for _ in range(min(WARM_UP, parameters["batches"]) + parameters["batches"]):
            write(rng.choice(size, parameters["changed"], replace=False, shuffle=False))
        found.append((size, range(batches - parameters["batches"], batches)))
    return found


def run_case(parameters: Parameters) -> Figures:
    """Measure one backend on one storage."""
    from varvite import EmbeddedRocksDBStateBackend, HashMapStateBackend

    backend = HashMapStateBackend() if parameters["backend"] == "hashmap" else EmbeddedRocksDBStateBackend()
    with tempfile.TemporaryDirectory(prefix="varvite-bench-") as name:
        work, storage = Path(name), parameters["storage"]
        sizes = write_input(work / "input", parameters)
        spark = storage_session(storage, work)
        place = StateLocation.new(storage, work)
        env = varvite_environment(spark, backend, place.url)
        place.configure(env)
        keyed = env.from_dataframe(source(spark, work / "input")).key_by("key")
        writer = keyed.aggregate(n="count", total=("price", "sum"), uid="workload").foreach_batch(discard)
        writer.query_name(QUERY).option("checkpointLocation", spark_location(storage, work / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        history = {s.batch: s for s in query.checkpoint_statistics.history()}
        spark.stop()
        found = [{"state_keys": size, **figures_of([history[b] for b in batches])} for size, batches in sizes]
        return {"sizes": found, **plain_figures(place, round(found[-1]["written_bytes_p50"]), parameters["batches"])}


def plain_figures(place: StateLocation, size_bytes: int, count: int) -> dict[str, float]:
    """Of so many objects of this size, put one after the other."""
    store = open_store(place.url, place.options)
    times_ms: list[float] = []
    for number in range(count):
        body = os.urandom(size_bytes)
        begin = time.perf_counter()
        store.put_if_absent(f"plain/{number:08d}", body)
        times_ms.append((time.perf_counter() - begin) * 1000)
        time.sleep(PLAIN_PAUSE_S)
    return {f"plain_ms_p{p}": round(percentile(times_ms, p / 100), 2) for p in (50, 99)}


def figures_of(measured: list[CheckpointStatistics]) -> dict[str, float]:
    """Of the batches at one size."""
    times = {
        "ack": [s.ack_ms for s in measured],
        "durable": [s.ack_ms + sum(s.worker_ms.get(phase, 0.0) for phase in WRITING_PHASES) for s in measured],
        "batch": [s.batch_ms for s in measured],
    }
    found = {f"{name}_ms_p{p}": round(percentile(v, p / 100), 2) for name, v in times.items() for p in (50, 99)}
    written = percentile([float(s.entry_bytes + s.uploaded_bytes) for s in measured], 0.5)
    return found | {"written_bytes_p50": written, "log_commits": measured[-1].log_commits}


COLUMNS = ("ack_ms_p50", "ack_ms_p99", "durable_ms_p50", "durable_ms_p99", "batch_ms_p50", "written_bytes_p50")


def tables(cases: Cases) -> list[Table]:
    """One for each backend and storage."""
    made: list[Table] = []
    for case in cases:
        table = Table(title=f"{case['backend']} on {case['storage']}: {case['changed']:,} keys changed per batch")
        table.add_column("keys of state", justify="right")
        for column in (*COLUMNS, "ack p99 / p50", "durable p99 / p50"):
            table.add_column(column, justify="right")
        for size in case["sizes"]:
            cells = [f"{size[c]:,.1f}" for c in COLUMNS]
            table.add_row(f"{size['state_keys']:,}", *cells, *(f"{tail(size, of):.2f}x" for of in ("ack", "durable")))
        made.append(table)
    return made


def tail(figures: dict[str, Any], of: str) -> float:
    """The slowest percent over the median."""
    return figures[f"{of}_ms_p99"] / max(figures[f"{of}_ms_p50"], 0.01)


def findings(cases: Cases) -> list[str]:
    """Both targets, for each backend and storage."""
    said: list[str] = []
    for case in cases:
        sizes, name = case["sizes"], f"{case['backend']} on {case['storage']}"
        growth = sizes[-1]["durable_ms_p50"] / max(sizes[0]["durable_ms_p50"], 0.01)
        times = sizes[-1]["state_keys"] // sizes[0]["state_keys"]
        said.append(
            verdict(
                f"{name}: the time to a durable checkpoint is flat (within {FLAT_MAX}x)",
                met=growth <= FLAT_MAX,
                found=f"{growth:.2f}x with {times:,} times the state",
            )
        )
        worst, plain = max(tail(size, "durable") for size in sizes), tail(case, "plain")
        found = f"at most {worst:.2f}x, plain PUTs {plain:.2f}x ({case['plain_ms_p50']:.1f} ms)"
        said.append(verdict(f"{name}: p99 <= {RATIO_MAX:.0f} x median", met=worst <= RATIO_MAX, found=found))
    return said


def charts(cases: Cases, directory: Path) -> list[Path]:
    """Median and slowest percent over the size of the state."""
    series = {
        f"{c['backend']}, {c['storage']}, {p}": [(s["state_keys"], s[f"durable_ms_{p}"]) for s in c["sizes"]]
        for c in cases
        for p in ("p50", "p99")
    }
    path = directory / "ack_state_size.png"
    title = f"Time to a durable checkpoint (S3: + {LATENCY_MS} ms per request)"
    line_chart(path, title, ("keys of state", "ms"), series)
    return [path]


BENCHMARK = Benchmark("ack_state_size", __doc__ or "", cases, run_case, tables, findings, charts)
main = BENCHMARK.command()

if __name__ == "__main__":
    main()
