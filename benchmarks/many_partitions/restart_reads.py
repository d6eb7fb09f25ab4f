"""Reads of the chain by the tasks of a run's first batch: each by itself, or its slice from the driver.

`python -m benchmarks.many_partitions.restart_reads`: Ceph RGW behind a proxy that adds latency and counts requests. The
tasks of one executor's slots run at the same time, as threads here; state itself is not read, since that is the same
both ways.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import msgspec
from rich.table import Table

from benchmarks.harness.report import Cases, results_option, wide_console, write_cases
from benchmarks.harness.s3_proxy import S3Proxy
from benchmarks.harness.servers.ceph import running_ceph
from benchmarks.harness.storages import BUCKET, LATENCY_MS
from benchmarks.many_partitions.driver_cost import OPERATOR, Driver
from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.chain.view import LineView
from varvite.changelog.chain.view_slices import ViewSlices, slices_of
from varvite.storage.object_stores.contract import ObjectStore
from varvite.storage.object_stores.open import open_store

SLOTS = 8
"""Tasks at the same time."""
INLINE_BYTES = 2_000
"""Of each partition's segment."""


def measure(store: ObjectStore, proxy: S3Proxy, parallelism: int, batches: int) -> Cases:
    """Requests, bytes and seconds of all tasks, by way; a job of so many batches is written first."""
    driver = Driver(parallelism, INLINE_BYTES, store)
    for _ in range(batches):
        driver.execute(*driver.answers())
        driver.settle()
    base, key_groups = driver.run.state.view.base, driver.key_groups

    def read(_partition: int) -> LineView:
        return ChainReader(store, driver.run.record.job_id).load_line(base, key_groups).view

    started = time.perf_counter()
    sent = msgspec.msgpack.encode(slices_of(driver.run.state.view, OPERATOR, parallelism))
    driver_ms = (time.perf_counter() - started) * 1000

    def decode(partition: int) -> LineView:
        return msgspec.msgpack.decode(sent, type=ViewSlices).only(partition).view(partition)

    cases: Cases = []
    for way, view_of in (("each task reads", read), ("slices", decode)):
        took_s, requests, size = _counted(proxy, parallelism, view_of)
        own_ms = round(driver_ms, 1) if way == "slices" else 0.0
        cases.append(
            {"partitions": parallelism, "way": way, "requests": requests, "bytes": size, "seconds": round(took_s, 2),
             "driver_ms": own_ms, "sent_bytes": len(sent) if way == "slices" else 0}
        )  # fmt: skip
    driver.run.close()
    return cases


def _counted(proxy: S3Proxy, parallelism: int, view_of: Callable[[int], LineView]) -> tuple[float, int, int]:
    before, started = proxy.counts(), time.perf_counter()
    with ThreadPoolExecutor(SLOTS) as pool:
        list(pool.map(view_of, range(parallelism)))
    took_s = time.perf_counter() - started
    after = proxy.counts()
    passed = [traffic - before[kind] if kind in before else traffic for kind, traffic in after.items()]
    return took_s, sum(traffic.requests for traffic in passed), sum(traffic.received_bytes for traffic in passed)


@click.command()
@click.option("--partitions", default=200, show_default=True)
@click.option("--batches", default=24, show_default=True, help="Batches before the restart.")
@results_option("restart_reads")
def main(partitions: int, batches: int, results: Path) -> None:
    """Measure the reads of the chain at a restart."""
    with running_ceph() as ceph, S3Proxy(ceph.endpoint_url, LATENCY_MS) as proxy:
        ceph.make_bucket(BUCKET)
        store = open_store(f"s3://{BUCKET}/restart", ceph.storage_options(proxy.url))
        cases = measure(store, proxy, partitions, batches)
    write_cases(results, cases)
    table = Table("way", "requests", "bytes read", "s, all tasks", "driver, ms", "bytes sent")
    for case in cases:
        table.add_row(*(f"{case[name]:,}" if name != "way" else case[name] for name in
                        ("way", "requests", "bytes", "seconds", "driver_ms", "sent_bytes")))  # fmt: skip
    wide_console().print(table)


if __name__ == "__main__":
    main()
