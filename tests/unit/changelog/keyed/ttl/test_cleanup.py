"""Cleaning up what has expired: how far it goes, and that nothing else is removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.jobs.state_model import KEY_GROUPS, KEY_TYPE, OPERATOR, key_group, link
from tests.stores.working_stores import open_snapshot, open_store
from varvite.changelog.api.time_spans import Time
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.changelog.schema.history import change
from varvite.changelog.schema.ttl import enabled_settings, with_ttl
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.working_stores.contract import StateActivity, WorkingStore
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.changelog.working_stores.rocksdb.sweep import SWEEP_KEY, read_marks
from varvite.storage.errors import CorruptDataError
from varvite.storage.format.records import StateSchema

PLAIN = {
    "value": StateSchema(name="s", kind="value", value_type="1:long"),
    "list": StateSchema(name="s", kind="list", value_type="1:long"),
    "map": StateSchema(name="s", kind="map", value_type="1:long", map_key_type="1:string"),
}
KEYS = [f"k{i}" for i in range(100)]


def schema(kind: str, build: Any = lambda b: b) -> StateSchema:
    config = build(StateTtlConfig.new_builder(Time.milliseconds(100))).build()
    return with_ttl(PLAIN[kind], None, enabled_settings(config), BatchTime(0))


def rows(state: StateSchema, stamps: dict[str, int]) -> StateChanges:
    """One value, element or entry per key, with this stamp."""
    keys = sorted(stamps, key=lambda k: (key_group(k), k))
    map_keys = ["m"] * len(keys) if state.kind == "map" else None
    ops = bytes([Op.APPEND]) * len(keys) if state.kind == "list" else None
    return StateChanges(state, [key_group(k) for k in keys], keys, ops, map_keys, [(stamps[k], 1) for k in keys])


def held(store: WorkingStore, state: StateSchema) -> set[str]:
    tables: dict[str, Any] = {"value": store.value_table, "list": store.list_table, "map": store.map_table}
    return {row[1] for row in tables[state.kind](state).items()}


def half_expired() -> dict[str, int]:
    """At time 150 the even ones have expired."""
    return {key: 50 if i % 2 == 0 else 51 for i, key in enumerate(KEYS)}


EVEN, ODD = set(KEYS[::2]), set(KEYS[1::2])
AT_150 = BatchTime(150)


@pytest.fixture
def hashmap() -> HashMapStore:
    return HashMapStore(operator=OPERATOR, key_type=KEY_TYPE, low=0, high=KEY_GROUPS)


@pytest.fixture
def rocksdb(tmp_path: Path) -> Any:
    store = RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE, 0, KEY_GROUPS)
    yield store
    store.close()


@pytest.mark.parametrize("kind", PLAIN)
def test_accesses_pay_for_checks_in_memory(hashmap: HashMapStore, kind: str) -> None:
    state = schema(kind, lambda b: b.cleanup_incrementally(3, False))
    hashmap.apply([rows(state, half_expired())], link(1))
    assert hashmap.clean_up(AT_150, {"s": StateActivity(accesses=0, records=50)}) == 0
    removed = hashmap.clean_up(AT_150, {"s": StateActivity(accesses=10)})
    assert 0 < removed <= 30
    assert len(held(hashmap, state)) == 100 - removed
    removed += hashmap.clean_up(AT_150, {"s": StateActivity(accesses=1000)})
    assert removed == 50
    assert held(hashmap, state) == ODD
    assert hashmap.clean_up(BatchTime(151), {"s": StateActivity(accesses=1000)}) == 50
    assert held(hashmap, state) == set()
    assert hashmap.clean_up(BatchTime(151), {"s": StateActivity(accesses=1000)}) == 0


def test_every_row_may_count_as_an_access(hashmap: HashMapStore) -> None:
    state = schema("value", lambda b: b.cleanup_incrementally(1, True))
    hashmap.apply([rows(state, dict.fromkeys(KEYS, 0))], link(1))
    assert hashmap.clean_up(AT_150, {"s": StateActivity(accesses=10, records=20)}) == 30


def test_without_the_strategy_nothing_is_checked(hashmap: HashMapStore, rocksdb: RocksDBStore) -> None:
    off = schema("value", lambda b: b.disable_cleanup_in_background())
    for store in (hashmap, rocksdb):
        store.apply([rows(off, half_expired())], link(1))
        assert store.clean_up(AT_150, {"s": StateActivity(9**9, 9**9, 9**9)}) == 0
        assert len(held(store, off)) == 100


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("backend", ["hashmap", "sqlite"])
def test_a_full_snapshot_of_a_table_store_leaves_out_what_has_expired(
    tmp_path: Path, backend: str, kind: str, filtered: bool
) -> None:
    state = schema(kind, lambda b: b.cleanup_full_snapshot() if filtered else b)
    store = open_store(backend, tmp_path / "store", KEY_TYPE, 0, KEY_GROUPS)
    store.apply([rows(state, half_expired())], link(1))
    store.write_snapshot(tmp_path / "snapshot", AT_150)
    assert held(store, state) == EVEN | ODD, "what is in the store stays"
    store.close()
    copy = open_snapshot("hashmap", tmp_path / "snapshot")
    assert held(copy, state) == (ODD if filtered else EVEN | ODD)


def test_a_snapshot_without_a_time_holds_everything(hashmap: HashMapStore, tmp_path: Path) -> None:
    state = schema("value", lambda b: b.cleanup_full_snapshot())
    hashmap.apply([rows(state, half_expired())], link(1))
    hashmap.write_snapshot(tmp_path / "snapshot")
    assert held(open_snapshot("hashmap", tmp_path / "snapshot"), state) == EVEN | ODD


@pytest.mark.parametrize("kind", PLAIN)
def test_a_sweep_goes_over_the_state_slice_by_slice(rocksdb: RocksDBStore, kind: str) -> None:
    state = schema(kind, lambda b: b.cleanup_in_rocksdb_compact_filter(10, Time(0)))
    stamps = dict.fromkeys(KEYS, 51) | {"k7": 0}
    rocksdb.apply([rows(state, stamps)], link(1))
    removed = [rocksdb.clean_up(AT_150, {"s": StateActivity(mutations=100)}) for _ in range(11)]
    assert sum(removed) == 1, "ten slices that were not worth it, and then it begins anew"
    assert held(rocksdb, state) == set(KEYS) - {"k7"}


@pytest.mark.parametrize("kind", PLAIN)
def test_a_sweep_goes_on_while_it_is_worth_it(rocksdb: RocksDBStore, kind: str) -> None:
    state = schema(kind, lambda b: b.cleanup_in_rocksdb_compact_filter(10))
    rocksdb.apply([rows(state, half_expired())], link(1))
    assert rocksdb.clean_up(AT_150, {"s": StateActivity(mutations=100)}) == 50
    assert held(rocksdb, state) == ODD
    assert rocksdb.clean_up(BatchTime(151), {"s": StateActivity(mutations=2)}) == 10, "one slice: nothing was written"


def test_a_sweep_is_where_it_was_after_a_restart(tmp_path: Path) -> None:
    state = schema("value", lambda b: b.cleanup_in_rocksdb_compact_filter(10, Time(0)))
    store = RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE, 0, KEY_GROUPS)
    store.apply([rows(state, dict.fromkeys(KEYS, 0))], link(1))
    removed = store.clean_up(AT_150, {})
    for _ in range(9):
        store.close()
        store = RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE, 0, KEY_GROUPS)
        removed += store.clean_up(AT_150, {})
    assert removed == 100
    assert store.version == link(1)
    store.close()


def test_within_the_period_every_row_is_looked_at(rocksdb: RocksDBStore) -> None:
    state = schema("value", lambda b: b.cleanup_in_rocksdb_compact_filter(1, Time.milliseconds(1000)))
    rocksdb.apply([rows(state, dict.fromkeys(KEYS, 51) | dict.fromkeys(KEYS[:5], 0))], link(1))
    rocksdb.clean_up(BatchTime(100), {})
    assert len(held(rocksdb, state)) >= 99, "one row per sweep, if there is no hurry"
    rocksdb.clean_up(BatchTime(2100), {})
    assert held(rocksdb, state) == set(), "everything had expired, and was looked at"


def test_values_from_before_ttl_are_swept_when_they_have_expired(rocksdb: RocksDBStore, hashmap: HashMapStore) -> None:
    settings = enabled_settings(StateTtlConfig.new_builder(Time.milliseconds(100)).build())
    wanted = with_ttl(PLAIN["value"], PLAIN["value"], settings, BatchTime(1000))
    state = change(PLAIN["value"], wanted, {}, OPERATOR, migrates=False).schema
    old = StateChanges(PLAIN["value"], [key_group(k) for k in KEYS[:4]], KEYS[:4], None, None, [1] * 4)
    for store in (rocksdb, hashmap):
        store.apply([old], link(1))
        store.value_table(state)
        store.apply([], link(2))
        assert store.clean_up(BatchTime(1099), {"s": StateActivity(accesses=99)}) == 0
        assert store.clean_up(BatchTime(1100), {"s": StateActivity(accesses=99)}) == 4
        assert held(store, state) == set()


def test_a_value_that_was_swept_is_not_remembered(rocksdb: RocksDBStore) -> None:
    state = schema("value")
    rocksdb.apply([rows(state, {"k1": 0})], link(1))
    table = rocksdb.value_table(state)
    assert table.get(key_group("k1"), "k1") == (0, 1)
    assert rocksdb.clean_up(AT_150, {}) == 1
    assert table.get(key_group("k1"), "k1") is None


def test_a_damaged_mark_is_an_error(rocksdb: RocksDBStore) -> None:
    database: Any = rocksdb._database
    assert read_marks(database) == {}
    rocksdb.apply([rows(schema("value"), {"k1": 0})], link(1))
    rocksdb.clean_up(AT_150, {})
    assert list(read_marks(database)) == ["s"]
    batch = msgspec.json.encode([1])
    database._rdict.put(SWEEP_KEY, batch, database._write_options)
    with pytest.raises(CorruptDataError, match="sweep"):
        rocksdb.clean_up(AT_150, {})


def test_replay_of_older_rows_leaves_the_later_ttl(rocksdb: RocksDBStore, hashmap: HashMapStore) -> None:
    """Of two partitions that became one, one may tell of a TTL that the log of the other does not know yet."""
    settings = enabled_settings(StateTtlConfig.new_builder(Time.milliseconds(100)).build())
    wanted = with_ttl(PLAIN["value"], PLAIN["value"], settings, BatchTime(1000))
    state = change(PLAIN["value"], wanted, {}, OPERATOR, migrates=False).schema
    old = StateChanges(PLAIN["value"], [key_group("k1")], ["k1"], None, None, [7])
    for store in (rocksdb, hashmap):
        store.apply([rows(state, {"k2": 1000})], link(1))
        table = store.value_table(state)
        assert table.get(key_group("k1"), "k1") is None
        store.apply([old], link(2))
        assert store.schemas == (state,)
        assert table.get(key_group("k1"), "k1") == (-(1 << 63), 7)
        assert table.get(key_group("k2"), "k2") == (1000, 1)


@pytest.mark.parametrize("confirmed", [True, False])
def test_cleaning_up_takes_back_what_was_done_ahead(hashmap: HashMapStore, confirmed: bool) -> None:
    """Values of a batch are in the tables before it is confirmed; only confirmed values are looked at."""
    state = schema("value")
    hashmap.apply([rows(state, half_expired())], link(1))
    before = held(hashmap, state)
    ahead = [rows(state, dict.fromkeys(KEYS[:10], 120))]
    hashmap.prepare(ahead, 2)
    removed = hashmap.clean_up(AT_150, {"s": StateActivity(accesses=1000)})
    assert removed == 50
    if confirmed:
        hashmap.apply(ahead, link(2))
    assert held(hashmap, state) == (before & ODD) | (set(KEYS[:10]) if confirmed else set())


@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
def test_a_state_whose_table_is_converted_is_cleaned_up_in_its_new_form(tmp_path: Path, kind: str) -> None:
    state = schema("value")
    wide = change(state, msgspec.structs.replace(state, value_type="1:stamped<big_dec>"), {}, OPERATOR, migrates=False)
    store = open_store(kind, tmp_path / "db", KEY_TYPE, 0, KEY_GROUPS)
    store.apply([rows(state, half_expired())], link(1))
    assert store.clean_up(BatchTime(0), {"s": StateActivity(accesses=1)}) == 0
    store.register(wide.schema)
    store.apply([], link(2))
    store.clean_up(AT_150, {"s": StateActivity(accesses=1000, mutations=1000)})
    assert held(store, wide.schema) == ODD
    store.close()
