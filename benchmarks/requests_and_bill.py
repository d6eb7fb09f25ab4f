"""`make bench-bill`: requests and bytes per checkpoint at parallelism 200, and what they cost on S3 in a month.

The job counts and sums per key, 2,000 changes a second, and makes a checkpoint every second.

* varvite runs below Spark: 200 state workers' `OperatorState` in one process, the driver's own commits, and a
  materializer with its default settings beside them, in simulated time (`simulated_job`). Both talk to Ceph RGW, to
  fake-gcs-server or to Azurite, each through a counting proxy. Five minutes pass, in which half of the ranges are
  folded, as in all that follow.
* *varvite-query* is a whole query of Spark, with an embedded materializer: all that it asks S3 for, the position of its
  input included, since its checkpoint location is a local directory. The number of partitions changes nothing here.
* With *large* changes (48 KB and more per partition and second) varvite's segments do not fit into the commit any more.
* Spark runs as it is, with 200 shuffle partitions, its checkpoint on local files that are counted (`object_files` says
  what counts as a request). A snapshot of each partition by its maintenance is counted apart and spread over
  the 60 checkpoints between two rounds of it. Its deletions are free, and the listing that they need is left out.

The logs that Spark itself keeps for its own queries (offsets, commits) come on top, and are a row of their own.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses
from rich.table import Table

from benchmarks.harness import object_files
from benchmarks.harness.case_runs import Benchmark, Figures, Parameters, verdict
from benchmarks.harness.object_files import ObjectCounts
from benchmarks.harness.report import Cases, bar_chart
from benchmarks.harness.request_kinds import kind_of_azure, kind_of_gcs
from benchmarks.harness.s3_proxy import S3Proxy, Traffic
from benchmarks.harness.servers.kinds import running
from benchmarks.harness.session import session
from benchmarks.harness.storages import S3, s3_location, server_without_latency
from benchmarks.workloads.jobs import COUNT_AND_SUM, CountAndSum, discard, varvite_environment, varvite_rows
from benchmarks.workloads.simulated_job import SimulatedJob
from varvite import HashMapStateBackend, KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor
from varvite.storage.object_stores.contract import ObjectStore
from varvite.storage.object_stores.open import open_store

PRICES_OF = "list prices of January 2025: S3 Standard us-east-1, Google Standard in one region, Azure hot LRS"
USD_PER_WRITE = 0.005 / 1000
"""PUT, COPY, POST, LIST; class A of Google; the same on all three."""
USD_PER_READ = 0.0004 / 1000
"""GET, HEAD; class B of Google; the same on all three."""
WRITES, READS = ("PUT", "COPY", "MULTIPART", "LIST"), ("GET", "HEAD")
"""DELETE is free."""
MONTH_S = 30 * 24 * 3600
PARTITIONS, KEY_GROUPS = 200, 1_024
ROWS, KEYS = 2_000, 20_000
LARGE_ROWS, LARGE_BYTES = 1_000, 12_000
QUERY, LOGGED, WHOLE = "varvite-query", "spark-changelog", "spark-no-changelog"
KINDS_OF_CLOUDS = {"gcs": kind_of_gcs, "azure": kind_of_azure}
CHECKPOINTS = {"small": 300, "large": 20, QUERY: 300, LOGGED: 10, WHOLE: 5}
QUERY_USD_MAX = 15
"""A month of a whole query."""
QUERY_PARTITIONS = 2
WARM_UP = 2
MAINTENANCE_S, SPARKS_MAINTENANCE_S = 20, 60
"""Between two rounds of Spark's maintenance, here and by default."""


class KeepLatest(KeyedProcessFunction):
    """Remembers the last payload of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.latest = runtime_context.get_state(ValueStateDescriptor("latest", Types.BINARY()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:  # noqa: ARG002
        self.latest.update(value.payload)


def cases(is_tiny: bool) -> list[Parameters]:
    """Small and large changes on varvite, a whole query, and Spark with and without its changelog."""
    partitions = 4 if is_tiny else PARTITIONS
    varvite = [
        {"system": "varvite", "changes": c, "partitions": partitions, "checkpoints": 5 if is_tiny else CHECKPOINTS[c],
         "storage": S3}
        for c in ("small", "large")
    ]  # fmt: skip
    varvite += [{**varvite[0], "storage": cloud} for cloud in KINDS_OF_CLOUDS]
    spark = [
        {"system": s, "changes": "small", "partitions": partitions, "checkpoints": 3 if is_tiny else CHECKPOINTS[s],
         "storage": "files"}
        for s in (LOGGED, WHOLE)
    ]  # fmt: skip
    query = {"system": QUERY, "changes": "small", "partitions": QUERY_PARTITIONS, "storage": S3}
    query["checkpoints"] = 3 if is_tiny else CHECKPOINTS[QUERY]
    return [*varvite, query, *spark]


def run_case(parameters: Parameters) -> Figures:
    """Count one system's requests."""
    # Spark's maintenance may still write while the directory is removed.
    with tempfile.TemporaryDirectory(prefix="varvite-bench-", ignore_cleanup_errors=True) as name:
        run = {"varvite": run_varvite, QUERY: run_query}.get(parameters["system"], run_spark)
        return run(parameters, Path(name))


# --- varvite
# -----------------------------------------------------------------------------------------------------------


def run_varvite(parameters: Parameters, work: Path) -> Figures:
    """Below Spark, through two proxies."""
    is_large = parameters["changes"] == "large"
    rng = np.random.default_rng(1)
    with _counted(parameters["storage"], work / "server") as (proxies, stores):
        jobs, sidecars = proxies
        with SimulatedJob(
            work, large_job if is_large else small_job, "key string, payload binary" if is_large else INPUT,
            stores=stores, materializes=not is_large, parallelism=parameters["partitions"],
            max_parallelism=KEY_GROUPS, backend=HashMapStateBackend(),
        ) as job:  # fmt: skip
            for _ in range(WARM_UP):
                job.batch(rows_of(rng, is_large=is_large))
            before = jobs.counts(), sidecars.counts()
            for _ in range(parameters["checkpoints"]):
                job.batch(rows_of(rng, is_large=is_large))
            after = jobs.counts(), sidecars.counts()
            materializations = len(job.events.materialized)
    parts = dict(zip(("job", "materializer"), map(_difference, after, before), strict=True))
    each = {name: per_checkpoint(counts, parameters["checkpoints"]) for name, counts in parts.items()}
    return {"parts": each, "materializations": materializations}


@contextmanager
def _counted(storage: str, home: Path) -> Generator[tuple[list[S3Proxy], tuple[ObjectStore, ObjectStore]]]:
    """The storage as the job and as the materializer see it, each through a proxy that counts."""
    kind_of, url, endpoints = KINDS_OF_CLOUDS.get(storage), "", list[dict[str, Any]]()
    with ExitStack() as stack:
        if kind_of is None:
            upstream = server_without_latency()
        else:
            server: Any = stack.enter_context(running(storage, home))
            upstream = "http://" + server.endpoint_url.removeprefix("http://").partition("/")[0]
        proxies = [stack.enter_context(S3Proxy(upstream, kind_of=kind_of)) for _ in range(2)]
        if kind_of is None:
            place = s3_location("")
            url, endpoints = place.url, [{**place.options, "endpoint_url": proxy.url} for proxy in proxies]
        else:
            url, endpoints = server.new_location(), [server.at(proxy.url).storage_options() for proxy in proxies]
        yield proxies, (open_store(url, endpoints[0]), open_store(url, endpoints[1]))


INPUT = "key string, price double"


def small_job(stream: Any) -> Any:
    """The program of small changes."""
    return stream.key_by("key").process(CountAndSum(), COUNT_AND_SUM.output, uid="workload")


def large_job(stream: Any) -> Any:
    """The program of large changes."""
    return stream.key_by("key").process(KeepLatest(), "key string", uid="workload")


def rows_of(rng: np.random.Generator, *, is_large: bool) -> pa.Table:
    """The rows of a second."""
    count = LARGE_ROWS if is_large else ROWS
    keys = pa.array([f"key-{n:09d}" for n in rng.integers(KEYS, size=count)])
    if is_large:
        return pa.table({"key": keys, "payload": pa.array([rng.bytes(LARGE_BYTES) for _ in range(count)])})
    return pa.table({"key": keys, "price": rng.random(count)})


def _difference(after: Mapping[str, Traffic], before: Mapping[str, Traffic]) -> dict[str, Traffic]:
    return {kind: traffic - before[kind] for kind, traffic in after.items()}


def per_checkpoint(counts: Mapping[str, Traffic], checkpoints: int) -> Figures:
    """Requests by kind, and bytes."""
    return {
        "requests": {kind: t.requests / checkpoints for kind, t in counts.items() if t.requests},
        "written_bytes": sum(t.sent_bytes for t in counts.values()) / checkpoints,
        "read_bytes": sum(t.received_bytes for t in counts.values()) / checkpoints,
    }


def run_query(parameters: Parameters, work: Path) -> Figures:
    """A real query of which all requests go through one proxy."""
    checkpoints = parameters["checkpoints"]
    spark = session({"spark.local.dir": str(work)})
    with S3Proxy(server_without_latency()) as proxy:
        place = s3_location(proxy.url)
        env = varvite_environment(spark, HashMapStateBackend(), place.url)
        place.configure(env)
        env.configure("materializer.mode", "embedded")
        rows = varvite_rows(env.from_dataframe(priced_rows(spark)), COUNT_AND_SUM, aggregate=False)
        writer = rows.foreach_batch(discard).query_name("benchmark").trigger(processingTime="1 second")
        query = writer.start()
        _await_batches(query, WARM_UP)
        before, first = proxy.counts(), query.lastProgress["batchId"]
        _await_batches(query, first + checkpoints)
        after, last = proxy.counts(), query.lastProgress["batchId"]
        query.stop()
    spark.stop()
    return {"parts": {"query": per_checkpoint(_difference(after, before), last - first)}}


# --- Spark -----------------------------------------------------------------------------------------------------------


def priced_rows(spark: Any) -> Any:
    """A stream with the rows of a second in each batch."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2).load()
    number = F.pmod(F.xxhash64("value"), F.lit(KEYS))
    return stream.select(F.format_string("key-%09d", number).alias("key"), (F.col("value") / 100).alias("price"))


def run_spark(parameters: Parameters, work: Path) -> Figures:
    """A real query on counted files."""
    partitions, checkpoints = parameters["partitions"], parameters["checkpoints"]
    stores = "spark.sql.streaming.stateStore."
    spark = object_files.session_with_objects(
        work / "classes",
        more={
            "spark.sql.shuffle.partitions": str(partitions),
            f"{stores}rocksdb.changelogCheckpointing.enabled": "true" if parameters["system"] == LOGGED else "false",
            f"{stores}maintenanceInterval": f"{MAINTENANCE_S if partitions == PARTITIONS else 2}s",
            f"{stores}minDeltasForSnapshot": "1",  # each round of maintenance uploads what there is, as after 60 s
        },
    )
    counted = priced_rows(spark).groupBy("key").agg(F.count("*").alias("n"), F.sum("price").alias("total"))
    writer = counted.writeStream.format("noop").outputMode("update").queryName("benchmark")
    query = writer.option("checkpointLocation", f"{object_files.SCHEME}://{work / 'checkpoint'}").start()
    _await_batches(query, WARM_UP)
    before, first = ObjectCounts.of(spark), query.lastProgress["batchId"]
    _await_batches(query, first + checkpoints)
    while not (ObjectCounts.of(spark) - before).by_kind(("snapshot",), background=parameters["system"] == LOGGED):
        time.sleep(1)
    passed, done = ObjectCounts.of(spark) - before, query.lastProgress["batchId"] - first
    query.stop()
    spark.stop()
    return {"parts": spark_parts(passed, done, partitions)}


def _await_batches(query: Any, batch: int) -> None:
    while query.lastProgress is None or query.lastProgress["batchId"] < batch:
        if query.awaitTermination(1):
            raise RuntimeError("the query has ended")


def spark_parts(passed: ObjectCounts, checkpoints: int, partitions: int) -> dict[str, Figures]:
    """Per checkpoint: state, maintenance, and the logs that Spark keeps of every query."""
    state = ("changelog", "snapshot", "state")
    rounds = passed.requests[True, "PUT", "snapshot"] / partitions
    per_round = (1 / rounds if rounds else 0.0) / SPARKS_MAINTENANCE_S

    def part(files: tuple[str, ...], factor: float, *, background: bool) -> Figures:
        kinds = passed.by_kind(files, background=background)
        size = passed.put_bytes(files, background=background)
        requests = {kind: number * factor for kind, number in kinds.items() if kind != "RENAME"}
        return {"requests": requests, "renames": kinds["RENAME"] * factor, "written_bytes": size * factor}

    return {
        "job": part(state, 1 / checkpoints, background=False),
        "maintenance": part(state, per_round, background=True),
        "Spark's logs": part(("logs",), 1 / checkpoints, background=False),
    }


# --- what it costs ---------------------------------------------------------------------------------------------------


def usd_per_month(requests: Mapping[str, float], renames: float = 0.0) -> float:
    """Of so many requests each second; a rename is a COPY (and a DELETE, which is free)."""
    writes = sum(requests.get(kind, 0.0) for kind in WRITES) + renames
    reads = sum(requests.get(kind, 0.0) for kind in READS)
    return MONTH_S * (writes * USD_PER_WRITE + reads * USD_PER_READ)


def state_bill(case: dict[str, Any], *, renames: bool = False) -> float:
    """Cost of a system's state, without Spark's logs."""
    parts = [part for name, part in case["parts"].items() if name != "Spark's logs"]
    return sum(usd_per_month(p["requests"], p.get("renames", 0.0) if renames else 0.0) for p in parts)


def tables(cases: Cases) -> list[Table]:
    """Every part of every system."""
    table = Table(title=f"requests per checkpoint; US dollars a month at one checkpoint per second ({PRICES_OF})")
    for column in ("system", "storage", "changes", "partitions", "part"):
        table.add_column(column)
    for column in ("PUT", "LIST", "GET", "HEAD", "DELETE", "bytes written", "USD / month", "with renames"):
        table.add_column(column, justify="right")
    for case in cases:
        for name, part in case["parts"].items():
            counts = Counter(part["requests"])
            writes = sum(counts[kind] for kind in ("PUT", "COPY", "MULTIPART"))
            cells = [f"{n:,.2f}" for n in (writes, counts["LIST"], counts["GET"], counts["HEAD"], counts["DELETE"])]
            bills = [f"{usd_per_month(counts, r):,.2f}" for r in (0.0, part.get("renames", 0.0))]
            place = (case["system"], case["storage"], case["changes"], str(case["partitions"]), name)
            table.add_row(*place, *cells, f"{part['written_bytes']:,.0f}", *bills)
    return [table]


def findings(cases: Cases) -> list[str]:
    """The bill of varvite against each of Spark's."""
    bills = {(c["system"], c["changes"], c["storage"]): state_bill(c) for c in cases}
    said: list[str] = []
    for (system, changes, storage), own in bills.items():
        for peer in (LOGGED, WHOLE):
            theirs = bills.get((peer, "small", "files"))
            if system == "varvite" and theirs is not None:
                found = f"{own:,.2f} USD a month, {peer} {theirs:,.2f} ({theirs / max(own, 1e-9):.1f}x)"
                said.append(
                    verdict(f"{changes} changes on {storage} cost less than on {peer}", met=own < theirs, found=found)
                )
        if system == QUERY:
            target = f"a whole query costs less than {QUERY_USD_MAX} USD a month"
            said.append(verdict(target, met=own < QUERY_USD_MAX, found=f"{own:,.2f} USD"))
    return said


def charts(cases: Cases, directory: Path) -> list[Path]:
    """The bills."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for case in cases:
        groups.setdefault(f"{case['changes']} changes", []).append(
            (f"{case['system']} {case['storage']}", state_bill(case))
        )
    path = directory / "requests_and_bill.png"
    title = f"State at parallelism {cases[0]['partitions']}, a checkpoint per second"
    bar_chart(path, title, "US dollars a month for requests", groups)
    return [path]


BENCHMARK = Benchmark("requests_and_bill", __doc__ or "", cases, run_case, tables, findings, charts)
main = BENCHMARK.command()

if __name__ == "__main__":
    main()
