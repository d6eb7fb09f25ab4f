"""The two clients of S3 beside each other: the same calls on a Ceph RGW in memory, in turn.

```console
$ python -m benchmarks.harness.s3_clients --calls 200
```

CPU is that of this process, server not included. Needs Ceph's programs, obstore and s3fs.
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
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.harness.servers.ceph import running_ceph
from varvite.storage.object_stores.remote.store import RemoteStore

if TYPE_CHECKING:
    from collections.abc import Callable

ENGINES = ("obstore", "s3fs")
BUCKET = "varvite-bench"
SMALL = bytes(range(250)) * 400
LARGE_BYTES = 64 << 20
RANGE_BYTES = 4 << 20
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


def calls_of(store: RemoteStore, work: Path) -> dict[str, Callable[[int], object]]:
    """The calls by name; each takes its number."""

    def put_by_eight_threads(number: int) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: store.put(f"many/{number}/{n}", SMALL), range(32)))

    ranges = LARGE_BYTES // RANGE_BYTES
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
    }


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200, help="of each kind, small ones; large ones are a tenth")
    count = parser.parse_args().calls
    samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    with running_ceph() as ceph, tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        (work / "large").write_bytes(SMALL * (LARGE_BYTES // len(SMALL) + 1))
        with (work / "large").open("r+b") as file:
            file.truncate(LARGE_BYTES)
        ceph.make_bucket(BUCKET)
        urls = {engine: f"s3://{BUCKET}/{uuid.uuid4().hex}" for engine in ENGINES}
        options = {engine: {**ceph.storage_options(), "engine": engine} for engine in ENGINES}
        stores = {engine: RemoteStore(urls[engine], options[engine]) for engine in ENGINES}
        kinds = {engine: calls_of(store, work) for engine, store in stores.items()}
        for store in stores.values():
            for number in range(200):
                store.put(f"listed/{number}", b"x")
        for kind in kinds[ENGINES[0]]:
            is_large = "MiB" in kind or "threads" in kind or "list" in kind
            for number in range(max(5, count // 10) if is_large else count):
                for engine in ENGINES if number % 2 else reversed(ENGINES):
                    samples[kind, engine].append(measured(lambda e=engine, n=number, k=kind: kinds[e][k](n)))
        print("| call | client | p50 ms | p99 ms | CPU ms |\n|---|---|---|---|---|")
        for (kind, engine), taken in samples.items():
            walls = sorted(sample.wall_ms for sample in taken)
            cpu_ms = statistics.mean(sample.cpu_ms for sample in taken)
            p99 = walls[min(len(walls) - 1, len(walls) * 99 // 100)]
            print(f"| {kind} | {engine} | {statistics.median(walls):.1f} | {p99:.1f} | {cpu_ms:.1f} |")
        print("\n| first put of a process | s | CPU s | RSS MiB |\n|---|---|---|---|")
        for engine in ENGINES:
            command = [sys.executable, "-c", FIRST_CALL, urls[engine], json.dumps(options[engine])]
            firsts = [json.loads(subprocess.check_output(command)) for _ in range(5)]
            print(
                f"| {engine} | "
                + " | ".join(f"{statistics.median(column):.2f}" for column in zip(*firsts, strict=True))
                + " |"
            )


if __name__ == "__main__":
    main()
