"""A process that applies batch after batch to a RocksDB store until it is killed. Arguments: directory, first seq.

Batch s sets every `total` to s, puts s under map key s % 7, clears the map whenever s % 7 is 0, and appends s to the
list. So the state at seq v is known, and a mixture of two versions is not it.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from tests.jobs.state_model import KEY_GROUPS, KEY_TYPE, OPERATOR, BatchChanges, Model, link
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore

SMALL = RocksDBOptions(write_buffer_size_bytes=1 << 16, target_file_size_bytes=1 << 16, recent_values_size_bytes=0)
"""Flushes and compactions every few batches."""
KEYS = [f"N{i}" for i in range(60)]


def batch(seq: int) -> BatchChanges:
    """The changes of a seq."""
    return BatchChanges(
        totals=dict.fromkeys(KEYS, seq),
        by_name={key: (seq % 7 == 0, {str(seq % 7): seq}) for key in KEYS},
        events={key: (seq % 50 == 0, [str(seq)]) for key in KEYS[::4]},
    )


def model_at(seq: int) -> Model:
    """The state after a seq."""
    model = Model()
    for each in range(1, seq + 1):
        model.apply(batch(each))
    return model


def main() -> None:
    """Apply for ever; print each seq once it is applied."""
    store = RocksDBStore.open(Path(sys.argv[1]), OPERATOR, KEY_TYPE, 0, KEY_GROUPS, SMALL)
    for seq in count(int(sys.argv[2])):
        rows = batch(seq).rows()
        if seq % 2:
            store.prepare(rows, seq)
        store.apply(rows, link(seq))
        print(seq, flush=True)  # noqa: T201 - the parent reads it


if __name__ == "__main__":
    main()
