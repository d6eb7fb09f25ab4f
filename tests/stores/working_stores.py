"""All working stores for the suites that run over them, and what a store holds in a form that can be compared."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.sqlite_store import SQLiteStore
from varvite.changelog.types.factory import parse_type_string
from varvite.changelog.types.key_wire import key_writer
from varvite.changelog.working_stores.custom import copy_store
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.changelog.working_stores.table_store import StoreTarget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varvite.changelog.working_stores.contract import WorkingStore

KINDS = ("hashmap", "rocksdb", "sqlite")
"""The last one is a store that a user could have written."""
OPERATOR = "counter"
_MEMORY = Path("/dev/shm")
_NEEDED_BYTES = 512 * 1024**2


@contextmanager
def quick_directory() -> Iterator[Path]:
    """A directory in memory where there is one: RocksDB's fsyncs take most of the time of tests without crashes."""
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _NEEDED_BYTES
    with tempfile.TemporaryDirectory(prefix="varvite-", dir=_MEMORY if roomy else None) as name:
        yield Path(name)


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


def contents(store: WorkingStore, key_type: str = "1:string") -> dict[str, dict[Any, Any]]:
    """State name → wire form of the key, and map key, → wire form of the value, or of all elements in order."""
    key_wire = key_writer(parse_type_string(key_type))
    found: dict[str, dict[Any, Any]] = {}
    for schema in store.schemas:
        value = parse_type_string(schema.value_type).to_wire
        if schema.kind == "map":
            map_key = parse_type_string(schema.map_key_type or "").to_wire
            found[schema.name] = {
                (group, key_wire(key), map_key(entry)): None if held is None else value(held)
                for group, key, entry, held in store.map_table(schema).items()
            }
        elif schema.kind == "timers":
            found[schema.name] = dict.fromkeys(store.timer_table(schema).items(), True)
        elif schema.kind == "list":
            found[schema.name] = {
                (group, key_wire(key)): [value(element) for element in elements]
                for group, key, elements in store.list_table(schema).items()
            }
        else:
            found[schema.name] = {
                (group, key_wire(key)): value(held) for group, key, held in store.value_table(schema).items()
            }
    return found
