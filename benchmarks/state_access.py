"""`make bench-state`: what one access of keyed state costs, in nanoseconds, without Spark.

A real `KeyedStateBackend` executes batches as a state worker does: keys in random order, in pieces of an Arrow batch,
each prefetched and then visited key by key; at the end of the batch the net effect, its checkpoint, and the fold. Every
(store, changelog, state) begins filled. Four phases are told apart:

* *access*: what the user's function waits for; includes making the key current, which alone is the row "(key only)";
* *checkpoint*: what the acknowledgement waits for. Changelog on: the net effect of the batch, encoded as a segment.
  Off: the net effect, folded, and a snapshot of the whole state in local files. Neither is uploaded here;
* *ahead*: the part of the fold that a worker does while nobody waits (changelog on);
* *fold*: what the next batch waits for (changelog on).

The last three are per mutation. Figures are medians of wall time; the JSON also has CPU time of the thread.
"""

from __future__ import annotations

import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.report import Cases, bar_chart, results_option, wide_console, write_cases
from benchmarks.workloads.accesses import KINDS, Access, Kind, Row
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.segments.segment import SegmentHeader, encode_segment
from varvite.changelog.types.factory import Types, as_type
from varvite.changelog.working_stores.contract import WorkingStore
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.changelog.working_stores.rocksdb.memory import SharedMemory
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.format.records import Link

KEY = as_type(Types.STRING())
KEY_GROUPS = 64
PIECE = 10_000
"""Rows of an Arrow batch."""
OPERATOR = "op"


@dataclass(frozen=True)
class Size:
    """Sizes of the measurement."""

    entries: int
    """Values, elements or map entries in the state when it begins."""
    rows: int
    """Keys of a batch, each once."""
    repetitions: int
    warm_up: int = 2
    """Repetitions that do not count."""


WORKER_MEMORY_BYTES = 256 << 20
"""Memory of a state worker by default where two share an executor."""
SMALL_CACHES = RocksDBOptions(
    block_cache_size_bytes=1 << 18, write_buffer_size_bytes=1 << 20, recent_values_size_bytes=0
)


def _rocksdb_in_cache(directory: Path) -> WorkingStore:
    memory = SharedMemory(WORKER_MEMORY_BYTES, write_buffer_ratio=0.5, stores=1)
    options = RocksDBOptions(memory=memory)
    return RocksDBStore.open(directory, OPERATOR, KEY.type_string(), 0, KEY_GROUPS, options)


STORES: dict[str, Callable[[Path], WorkingStore]] = {
    "hashmap": lambda _: HashMapStore(operator=OPERATOR, key_type=KEY.type_string(), low=0, high=KEY_GROUPS),
    "rocksdb": _rocksdb_in_cache,
    "rocksdb-small-caches": lambda directory: RocksDBStore.open(
        directory, OPERATOR, KEY.type_string(), 0, KEY_GROUPS, SMALL_CACHES
    ),
}
"""The last one reads most blocks from files, which the operating system may have in its memory."""


class Stopwatch:
    """Wall and CPU time of the thread, in nanoseconds, since it was made or asked."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter_ns(), time.thread_time_ns()

    def lap(self) -> tuple[int, int]:
        """(wall, CPU) since the last lap."""
        wall, cpu = self._wall, self._cpu
        self._wall, self._cpu = time.perf_counter_ns(), time.thread_time_ns()
        return self._wall - wall, self._cpu - cpu


@dataclass
class Bench:
    """One state of one backend, which has committed `seq` batches."""

    kind: Kind
    backend: KeyedStateBackend
    directory: Path
    """For snapshots."""
    changelog: bool
    keys: list[Row]
    seq: int = 0

    def __post_init__(self) -> None:
        """Fill the state, in batches of a bounded size."""
        self.backend.begin_batch(BatchTime(0))
        self.state = self.kind.handle(self.backend)
        for piece in pieces(self.keys):
            self.kind.fill(self.backend, self.state, piece)
            self.seq += 1
            self.backend.fold(self._link())

    def measure(self, access: Access, rows: list[Row]) -> tuple[dict[str, tuple[int, int]], int]:
        """Execute one batch; (phase → (wall, CPU) in ns, mutations)."""
        self.seq += 1
        self.backend.begin_batch(BatchTime(self.seq))
        gc.collect(0)  # as a state worker between batches
        batches = [([row[0] for row in piece], [row[1] for row in piece], piece) for piece in pieces(rows)]
        watch = Stopwatch()
        for key_groups, keys, piece in batches:
            self.backend.prefetch(key_groups, keys)
            access(self.backend, self.state, piece)
        spent = {"access": watch.lap()}
        changes = self.backend.changes()
        mutations = sum(map(len, changes))
        if self.changelog:
            encode_segment(self._header(), changes)
            spent["checkpoint"] = watch.lap()
            self.backend.work_ahead()
            self.backend.prepare(self.seq)
            spent["ahead"] = watch.lap()
            self.backend.fold(self._link())
            spent["fold"] = watch.lap()
        else:
            self.backend.fold(self._link())
            if mutations:  # without any the last snapshot is named again
                self.backend.store.write_snapshot(self.directory / f"snapshot-{self.seq}")
            spent["checkpoint"] = watch.lap()
        return spent, mutations

    def _link(self) -> Link:
        return Link(self.seq, f"token-{self.seq}")

    def _header(self) -> SegmentHeader:
        return SegmentHeader(
            job_id="job", operator=OPERATOR, partition=0, low=0, high=KEY_GROUPS, seq=self.seq, tag="tag",
            key_type=KEY.type_string(),
        )  # fmt: skip


def pieces(rows: list[Row]) -> Iterator[list[Row]]:
    """The rows, as many at a time as an Arrow batch has."""
    return (rows[start : start + PIECE] for start in range(0, len(rows), PIECE))


def all_keys(count: int, rng: random.Random) -> list[Row]:
    """Keys in random order, in random key groups."""
    rows = [(rng.randrange(KEY_GROUPS), f"key-{n:09d}", n) for n in range(count)]
    rng.shuffle(rows)
    return rows


def median_ns(spent: list[tuple[int, int]], operations: int) -> tuple[float, float]:
    """Medians of (wall, CPU) per operation; of no operations 0."""
    if not operations:
        return 0.0, 0.0
    walls, cpus = zip(*spent, strict=True)
    return round(statistics.median(walls) / operations, 1), round(statistics.median(cpus) / operations, 1)


def measure_kind(store: str, kind: Kind, size: Size, *, changelog: bool) -> Cases:
    """All accesses of one kind of state in one store."""
    rng = random.Random(1)
    found: Cases = []
    with tempfile.TemporaryDirectory(prefix="varvite-bench-") as name:
        directory = Path(name)
        working = STORES[store](directory / "db")
        backend = KeyedStateBackend(working, KEY, OPERATOR)
        bench = Bench(kind, backend, directory, changelog, all_keys(size.entries // kind.entries_per_key, rng))
        for access_name, access in kind.accesses.items():
            phases: dict[str, list[tuple[int, int]]] = {}
            mutations = 0
            for repetition in range(size.warm_up + size.repetitions):
                rows = rng.sample(bench.keys, min(size.rows, len(bench.keys)))
                spent, mutations = bench.measure(access, rows)
                if repetition >= size.warm_up:
                    for phase, times in spent.items():
                        phases.setdefault(phase, []).append(times)
            case: dict[str, Any] = {
                "store": store,
                "changelog": changelog,
                "state": kind.name,
                "access": access_name,
                "rows": min(size.rows, len(bench.keys)),
                "entries": size.entries,
                "mutations": mutations,
            }
            for phase, times in phases.items():
                wall, cpu = median_ns(times, case["rows"] if phase == "access" else mutations)
                case |= {f"{phase}_ns": wall, f"{phase}_cpu_ns": cpu}
            found.append(case)
        working.close()
    return found


def table_of(store: str, cases: Cases) -> Table:
    """The figures of one store."""
    table = Table(title=f"{store}: median ns per access, and per mutation")
    for column in ("state", "access", "changelog"):
        table.add_column(column)
    for column in ("access", "checkpoint", "ahead", "fold"):
        table.add_column(column, justify="right")
    for case in cases:
        figures = [f"{case[f'{p}_ns']:,.0f}" if case.get(f"{p}_ns") else "" for p in PHASES]
        table.add_row(case["state"], case["access"], "on" if case["changelog"] else "off", *figures)
    return table


PHASES = ("access", "checkpoint", "ahead", "fold")


@click.command()
@click.option("--store", multiple=True, type=click.Choice(tuple(STORES)), help="Only these stores.")
@click.option("--entries", default=400_000, show_default=True, help="Values, elements or map entries in the state.")
@click.option("--rows", default=20_000, show_default=True, help="Keys per batch.")
@click.option("--repetitions", default=7, show_default=True, help="Batches per figure, after two to warm up.")
@results_option("state_access")
def main(*, store: tuple[str, ...], entries: int, rows: int, repetitions: int, results: Path) -> None:
    """Measure what one access of keyed state costs."""
    gc.set_threshold(200_000, 50, 1_000)  # as in a state worker
    size = Size(entries, rows, repetitions)
    console = wide_console()
    cases: Cases = []
    started = time.monotonic()
    for name in store or STORES:
        for kind in KINDS:
            for changelog in (True, False):
                cases += measure_kind(name, kind, size, changelog=changelog)
        write_cases(results, cases)
        console.print(table_of(name, [c for c in cases if c["store"] == name]))
    bar_chart(results.with_suffix(".png"), "State access", "ns per access", chart_groups(cases))
    console.print(f"{len(cases)} cases in {time.monotonic() - started:.0f} s, written to {results}")


def chart_groups(cases: Cases) -> dict[str, list[tuple[str, float]]]:
    """Nanoseconds of each access, by store."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for c in cases:
        if c["changelog"]:
            groups.setdefault(f"{c['state']} {c['access']}", []).append((c["store"], c["access_ns"]))
    return groups


if __name__ == "__main__":
    main()
