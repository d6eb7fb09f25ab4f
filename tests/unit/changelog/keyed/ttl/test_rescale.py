"""Stamps, and what is known of the TTL, when partitions become one, and one becomes several."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.jobs.state_model import KEY_TYPE, OPERATOR, key_group, link
from varvite.changelog.restore.clip import SnapshotSource, open_clipped
from varvite.changelog.schema.history import change
from varvite.changelog.schema.ttl import TtlSettings, record_of, with_ttl
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.types.stamped import STAMP_MIN, Stamped
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.format.records import StateSchema

PLAIN = StateSchema(name="s", kind="value", value_type="1:long")
HUNDRED = TtlSettings(ttl_ms=100, time="processing")
TTL = change(PLAIN, with_ttl(PLAIN, PLAIN, HUNDRED, BatchTime(1000)), {}, OPERATOR, migrates=False).schema
KEYS = [f"k{i}" for i in range(40)]


def snapshot(directory: Path, low: int, high: int, *steps: StateSchema) -> SnapshotSource:
    """A partition that wrote its keys under each schema: the i-th key in the i-th step, round and round."""
    store = RocksDBStore.open(directory / f"db-{low}", OPERATOR, KEY_TYPE, low, high)
    for i, schema in enumerate(steps):
        keys = sorted((k for k in KEYS[i :: len(steps)] if low <= key_group(k) < high), key=key_group)
        values = [7 if schema is PLAIN else (1000 + int(k[1:]), 7) for k in keys]
        store.apply([StateChanges(schema, [key_group(k) for k in keys], keys, None, None, values)], link(1 + i))
    store.apply([], link(9))
    store.write_snapshot(directory / f"snapshot-{low}")
    store.close()
    return SnapshotSource(directory / f"snapshot-{low}", low, high, link(9))


def expected(key: str, steps: int) -> Stamped:
    return (STAMP_MIN if steps > 1 and KEYS.index(key) % steps == 0 else 1000 + int(key[1:])), 7


@pytest.mark.parametrize(("low", "high"), [(0, 8), (2, 6), (0, 4), (3, 8)])
def test_every_row_keeps_its_stamp(tmp_path: Path, low: int, high: int) -> None:
    """The first partition had rows from before TTL; the second knows the state only since."""
    new = msgspec.structs.replace(TTL, ttl=with_ttl(PLAIN, None, HUNDRED, BatchTime(1000)).ttl)
    sources = [snapshot(tmp_path, 0, 4, PLAIN, TTL), snapshot(tmp_path, 4, 8, new)]
    wanted = [source for source in sources if source.low < high and low < source.high]
    store = open_clipped(tmp_path / "made", wanted, operator=OPERATOR, key_type=KEY_TYPE, low=low, high=high)
    memory = HashMapStore(operator=OPERATOR, key_type=KEY_TYPE, low=low, high=high)
    memory.load_later(store, lambda: None)
    [schema] = store.schemas
    record = record_of(schema)
    assert record is not None
    assert record.enabled_at_ms == (1000 if low < 4 else None)
    rows = {key: expected(key, 2 if key_group(key) < 4 else 1) for key in KEYS if low <= key_group(key) < high}
    for made in (store, memory):
        assert {key: stamped for _, key, stamped in made.value_table(schema).items()} == rows
        assert made.changed_ttls == ()
    store.close()
