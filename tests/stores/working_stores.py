"""All working stores for the suites that run over them, and what a store holds in a form that can be compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from examples.sqlite_store import SQLiteStore
from varvite.changelog.working_stores.custom import copy_store
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.changelog.working_stores.table_store import StoreTarget

if TYPE_CHECKING:
    from varvite.changelog.working_stores.contract import WorkingStore

KINDS = ("hashmap", "rocksdb", "sqlite")
"""The last one is a store that a user could have written."""
OPERATOR = "counter"


def open_store(kind: str, directory: Path, key_type: str = "1:string", low: int = 0, high: int = 8) -> WorkingStore:
    """A new empty store; `directory` is where a store with files is, and must not exist."""
    if kind == "hashmap":
        return HashMapStore(operator=OPERATOR, key_type=key_type, low=low, high=high)
    if kind == "sqlite":
        return SQLiteStore(StoreTarget(operator=OPERATOR, key_type=key_type, low=low, high=high, directory=directory))
    return RocksDBStore.open(directory, OPERATOR, key_type, low, high)


def open_snapshot(kind: str, snapshot: Path) -> WorkingStore:
    """A store that begins with the state of a snapshot, whose directory then belongs to it."""
    source = RocksDBStore.open_existing(snapshot)
    if kind == "rocksdb":
        return source
    groups = source.key_groups
    store = open_store(kind, snapshot.with_name(f"{snapshot.name}-{kind}"), source.key_type, groups.start, groups.stop)
    if isinstance(store, HashMapStore):
        store.load_later(source, source.close)
        return store
    copy_store(source, store)
    source.close()
    return store
