"""The storages beside each other: the same calls on a server of each, in turn.

```console
$ python -m benchmarks.harness.storage_calls --clients obstore s3fs --calls 200
```

`obstore` and `s3fs` are the clients of S3, on one Ceph RGW; `gcs` is fake-gcs-server, in memory; `azure` is
Azurite, `hdfs` a NameNode and a DataNode, `local` a directory. CPU is that of this process, servers not included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
import zlib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.harness.servers import kinds
from benchmarks.harness.servers.ceph import running_ceph
from varvite.storage.object_stores.open import open_store
from varvite.storage.transfer.download import DownloadPolicy, FileDownload, download

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.storage.object_stores.contract import ObjectStore

ENGINES = ("obstore", "s3fs")
CLIENTS = (*ENGINES, "gcs", "azure", "hdfs", "local")
BUCKET = "varvite-bench"
SMALL = bytes(range(250)) * 400
LARGE_BYTES = 64 << 20
RANGE_BYTES = 4 << 20
RESTORED_FILES = 16
FIRST_CALL = """
import json, os, sys, time
from varvite.storage.object_stores.open import open_store
began, cpu = time.perf_counter(), time.process_time()
store = open_store(sys.argv[1], json.loads(sys.argv[2]))
store.put("first", b"x" * 100_000)
rss = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
print(json.dumps([time.perf_counter() - began, time.process_time() - cpu, rss]))
"""


class Sample(NamedTuple):
    """One call."""

    wall_ms: float
    cpu_ms: float


def measured(call: Callable[[], object]) -> Sample:
    """Make a call."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    call()
    return Sample((time.perf_counter() - began_s) * 1000, (time.process_time() - began_cpu_s) * 1000)


def calls_of(store: ObjectStore, work: Path) -> dict[str, Callable[[int], object]]:
    """The calls by name; each takes its number."""

    def put_by_eight_threads(number: int) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: store.put(f"many/{number}/{n}", SMALL), range(32)))

    ranges = LARGE_BYTES // RANGE_BYTES
    crc32 = zlib.crc32((work / "large").read_bytes())

    def restore(number: int) -> None:
        with tempfile.TemporaryDirectory(dir=work) as name:
            files = [
                FileDownload(f"restored/{n}", Path(name) / f"{number}-{n}", LARGE_BYTES, crc32)
                for n in range(RESTORED_FILES)
            ]
            download(store, files, DownloadPolicy())

    for number in range(200):
        store.put(f"listed/{number}", b"x")
    for number in range(RESTORED_FILES):
        store.put_file(f"restored/{number}", work / "large")
    return {
        "put 100 KB": lambda n: store.put(f"put/{n}", SMALL),
        "put_if_absent 100 KB": lambda n: store.put_if_absent(f"absent/{n}", SMALL),
        "get 100 KB": lambda n: store.get(f"put/{n}"),
        "get_range 4 KB": lambda n: store.get_range(f"put/{n}", 5000, 4096),
        "list 200": lambda _: store.list("listed/"),
        "32 puts by 8 threads": put_by_eight_threads,
        "put_file 64 MiB": lambda _: store.put_file("large", work / "large"),
        "get_file 64 MiB": lambda _: store.get_file("large", work / "back"),
        "16 ranges of 4 MiB": lambda _: [store.get_range("large", n * RANGE_BYTES, RANGE_BYTES) for n in range(ranges)],
        "restore of 1 GiB": restore,
    }


def places_of(clients: list[str], work: Path, stack: ExitStack) -> dict[str, tuple[str, dict[str, Any]]]:
    """URL and options of each client, with the servers that they need."""
    places: dict[str, tuple[str, dict[str, Any]]] = {}
    if not set(clients).isdisjoint(ENGINES):
        ceph = stack.enter_context(running_ceph(durable=True))
        ceph.make_bucket(BUCKET)
        places |= {
            engine: (f"s3://{BUCKET}/{uuid.uuid4().hex}", {**ceph.storage_options(), "engine": engine})
            for engine in ENGINES
        }
    for client in set(clients) & set(kinds.KINDS):
        server = stack.enter_context(kinds.running(client, work / client))
        places[client] = (server.new_location(), server.storage_options())
    places["local"] = (str(work / "local"), {})
    return {client: places[client] for client in clients}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200, help="of each kind, small ones; large ones are a tenth")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(ENGINES))
    arguments = parser.parse_args()
    count, clients = arguments.calls, arguments.clients
    samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (work / "large").write_bytes((SMALL * (LARGE_BYTES // len(SMALL) + 1))[:LARGE_BYTES])
        places = places_of(clients, work, stack)
        calls = {client: calls_of(open_store(*place), work) for client, place in places.items()}
        for kind in calls[clients[0]]:
            is_large = "MiB" in kind or "threads" in kind or "list" in kind
            for number in range(3 if "GiB" in kind else max(5, count // 10) if is_large else count):
                for client in clients if number % 2 else reversed(clients):
                    samples[kind, client].append(measured(lambda c=client, n=number, k=kind: calls[c][k](n)))
        print("| call | client | p50 ms | p99 ms | CPU ms |\n|---|---|---|---|---|")
        for (kind, client), taken in samples.items():
            walls = sorted(sample.wall_ms for sample in taken)
            cpu_ms = statistics.mean(sample.cpu_ms for sample in taken)
            p99 = walls[min(len(walls) - 1, len(walls) * 99 // 100)]
            print(f"| {kind} | {client} | {statistics.median(walls):.1f} | {p99:.1f} | {cpu_ms:.1f} |")
        print("\n| first put of a process | s | CPU s | RSS MiB |\n|---|---|---|---|")
        for client, (url, options) in places.items():
            command = [sys.executable, "-c", FIRST_CALL, url, json.dumps(options)]
            firsts = [json.loads(subprocess.check_output(command)) for _ in range(5)]
            print(
                f"| {client} | "
                + " | ".join(f"{statistics.median(column):.2f}" for column in zip(*firsts, strict=True))
                + " |"
            )


if __name__ == "__main__":
    main()
