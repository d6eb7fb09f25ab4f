"""Cost of firing timers: k due ones of n, in both working stores. `python -m benchmarks.timers`.

Each figure is the median CPU time of `RUNS` runs of: find the due timers, decode each, note its removal in the overlay.
The user's function is not called. Cyclic garbage is collected as rarely as in a state worker.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.keyed.timers import TimeDomain, timer_schema
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.types.factory import Types, as_type
from varvite.changelog.working_stores.contract import WorkingStore
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.format.records import Link

KEY = as_type(Types.STRING())
SCHEMA = timer_schema("user-timers", TimeDomain.EVENT_TIME)
KEY_GROUPS = 64
RUNS = 5


def filled(store: WorkingStore, count: int) -> KeyedStateBackend:
    """A backend with a timer at each millisecond from 0, of random keys in random key groups."""
    rng = random.Random(1)
    rows = [(rng.randrange(KEY_GROUPS), f"key-{rng.randrange(10**7):08d}", i) for i in range(count)]
    rows.sort()
    groups, keys, times = (list(column) for column in zip(*rows, strict=True))
    store.apply([StateChanges(SCHEMA, groups, keys, None, None, times)], Link(1, "t"))
    return KeyedStateBackend(store, KEY, "op")


def measured_ms(backend: KeyedStateBackend, due: int) -> float:
    """Median CPU time of firing the timers of the first `due` milliseconds."""
    spent: list[float] = []
    for _ in range(RUNS):
        queue = backend.get_timers("user-timers", TimeDomain.EVENT_TIME)
        started = time.thread_time()
        fired = 0
        while queue.pop_due(due - 1) is not None:
            fired += 1
        spent.append((time.thread_time() - started) * 1000)
        if fired != due:
            sys.exit(f"{fired} timers fired instead of {due}")
        backend.drop()
    return statistics.median(spent)


def main() -> None:
    """Print the table."""
    gc.set_threshold(200_000, 50, 1_000)
    print(f"{'store':8} {'timers':>9} {'due':>9} {'ms':>10} {'µs each':>8}")
    for kind in ("hashmap", "rocksdb"):
        for count in (10_000, 100_000, 1_000_000):
            with tempfile.TemporaryDirectory() as directory:
                store: WorkingStore = (
                    HashMapStore(operator="op", key_type=KEY.type_string(), low=0, high=KEY_GROUPS)
                    if kind == "hashmap"
                    else RocksDBStore.open(Path(directory) / "db", "op", KEY.type_string(), 0, KEY_GROUPS)
                )
                backend = filled(store, count)
                for due in (0, 1_000, 10_000, count):
                    ms = measured_ms(backend, due)
                    print(f"{kind:8} {count:9} {due:9} {ms:10.2f} {ms * 1000 / max(due, 1):8.2f}")
                store.close()


if __name__ == "__main__":
    main()
