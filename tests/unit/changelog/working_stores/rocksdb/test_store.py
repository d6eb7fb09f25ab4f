"""The RocksDB working store: what it applies it holds, and what it cannot vouch for it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.jobs.state_model import (
    ALARMS,
    BY_NAME,
    EVENTS,
    FULL,
    GONE,
    LONG,
    OPERATOR,
    STRING,
    TOTAL,
    BatchChanges,
    Model,
    cells,
    key_group,
    link,
    model_of,
    puts,
)
from tests.stores import rocksdb_writer
from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.types.factory import as_type
from varvite.changelog.working_stores.rocksdb import tables as rocksdb_tables
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.changelog.working_stores.rocksdb.tables import RecentValues, remembered_bytes
from varvite.storage.errors import (
    IncompatibleError,
    InvalidRequestError,
    InvariantError,
)
from varvite.storage.format.records import ORIGIN, StateSchema, ValueVersion
from varvite.storage.options.declaration import options_of

if TYPE_CHECKING:
    from collections.abc import Callable


def test_an_empty_store_is_at_the_origin(open_store: Callable[..., RocksDBStore]) -> None:
    store = open_store()
    assert store.version == ORIGIN
    assert store.schemas == ()
    assert cells(store) == Model().cells()
    assert store.value_table(TOTAL).get(0, "a") is None
    assert store.map_table(BY_NAME).get(0, "a", "x") == (False, None)


def test_what_is_applied_is_held_and_survives_closing(open_store: Callable[..., RocksDBStore]) -> None:
    store = open_store()
    store.apply(FULL.rows(), link(3))
    for _ in range(2):
        assert cells(store) == model_of(FULL).cells()
        assert store.version == link(3)
        assert store.schemas == (TOTAL, BY_NAME, EVENTS, ALARMS)
        assert store.value_table(TOTAL).get(key_group("a"), "a") == 1
        assert store.map_table(BY_NAME).get(key_group("a"), "a", "y") == (True, None)
        assert store.map_table(BY_NAME).get(key_group("a"), "a", "z") == (False, None)
        assert store.map_table(BY_NAME).entries(key_group("a"), "a") == {"x": 1, "y": None}
        assert store.list_table(EVENTS).elements(key_group("a"), "a") == ["one", "two"]
        assert store.list_table(EVENTS).elements(key_group("b"), "b") == []
        store = open_store()


def test_a_clear_spares_keys_that_begin_alike(open_store: Callable[..., RocksDBStore]) -> None:
    clear = BatchChanges(by_name={"a": (True, {})}, events={"a": (True, [])})
    store = open_store()
    store.apply(FULL.rows(), link(1))
    store.apply(clear.rows(), link(2))
    assert cells(store) == model_of(FULL, clear).cells()
    assert store.map_table(BY_NAME).entries(key_group("ab"), "ab") == {"x": 2}


def test_a_clear_comes_before_what_the_batch_adds(open_store: Callable[..., RocksDBStore]) -> None:
    again = BatchChanges(by_name={"a": (True, {"y": 9})}, events={"a": (True, ["new"])})
    store = open_store()
    store.apply(FULL.rows(), link(1))
    store.prepare(again.rows(), 2)
    store.apply(again.rows(), link(2))
    assert cells(store) == model_of(FULL, again).cells()


def test_list_elements_are_ordered_by_seq_and_then_by_row(open_store: Callable[..., RocksDBStore]) -> None:
    store = open_store()
    for seq in (1, 9, 10, 300):
        store.apply(BatchChanges(events={"a": (False, [f"{seq}-{i}" for i in range(3)])}).rows(), link(seq))
    expected = [f"{seq}-{i}" for seq in (1, 9, 10, 300) for i in range(3)]
    assert store.list_table(EVENTS).elements(key_group("a"), "a") == expected


def test_several_parts_of_a_batch_add_up(open_store: Callable[..., RocksDBStore]) -> None:
    whole = BatchChanges(events={"a": (True, [str(i) for i in range(9)])}, by_name={"a": (True, {"x": 1, "y": 2})})
    store = open_store()
    store.apply(FULL.rows(), link(1))
    store.apply([row for part in whole.split(3) for row in part.rows()], link(2))
    assert cells(store) == model_of(FULL, whole).cells()


def test_a_clear_removes_what_an_earlier_part_of_the_batch_added(open_store: Callable[..., RocksDBStore]) -> None:
    first = BatchChanges(by_name={"a": (False, {"x": 1})}, events={"a": (False, ["early"])})
    second = BatchChanges(by_name={"a": (True, {"y": 2})}, events={"a": (True, ["late"])})
    store = open_store()
    store.apply([*first.rows(), *second.rows()], link(1))
    assert cells(store) == model_of(first, second).cells()


def test_refused_key_groups_are_skipped(open_store: Callable[..., RocksDBStore]) -> None:
    store = open_store()
    store.apply(FULL.rows(), link(1), lambda group: group == key_group("a"))
    assert cells(store) == model_of(FULL).cells(key_group("a"), key_group("a") + 1)


def test_a_key_group_outside_of_the_store_is_a_bug(open_store: Callable[..., RocksDBStore]) -> None:
    store = open_store(low=0, high=1)
    with pytest.raises(InvariantError):
        store.apply(puts({"a": 1, "b": 2, "N0": 3, "N1": 4}), link(1))
    assert cells(store) == Model().cells()
    with pytest.raises(InvariantError):
        store.value_table(TOTAL).get(1, "a")


def test_a_version_never_goes_back(open_store: Callable[..., RocksDBStore]) -> None:
    store = open_store()
    store.apply([], link(5))
    store.apply([], link(5))
    with pytest.raises(InvariantError):
        store.apply([], link(4))


def test_prepare_changes_nothing_that_can_be_seen(open_store: Callable[..., RocksDBStore]) -> None:
    store = open_store()
    store.apply(FULL.rows(), link(1))
    before = cells(store)
    store.prepare(puts({"a": 100}), 2)
    assert (cells(store), store.version) == (before, link(1))
    assert cells(open_store()) == before


@pytest.mark.parametrize("seq", [2, 3])
def test_other_changes_than_the_prepared_ones_are_applied(open_store: Callable[..., RocksDBStore], seq: int) -> None:
    other = BatchChanges(totals={"b": 7}, events={"b": (False, ["x"])})
    store = open_store()
    store.apply(FULL.rows(), link(1))
    store.prepare(puts({"a": 100}), 2)
    store.apply(other.rows(), link(seq))
    assert cells(store) == model_of(FULL, other).cells()


def test_prepared_changes_applied_at_another_seq_keep_the_order_of_lists(
    open_store: Callable[..., RocksDBStore],
) -> None:
    rows = BatchChanges(events={"a": (False, ["first"])}).rows()
    store = open_store()
    store.list_table(EVENTS)
    store.prepare(rows, 9)
    store.apply(rows, link(6))
    store.apply(BatchChanges(events={"a": (False, ["second"])}).rows(), link(7))
    assert store.list_table(EVENTS).elements(key_group("a"), "a") == ["first", "second"]


def test_a_prepared_clear_is_made_anew_if_the_state_changed_meanwhile(open_store: Callable[..., RocksDBStore]) -> None:
    clear = BatchChanges(events={"a": (True, ["only"])}).rows()
    store = open_store()
    store.apply(FULL.rows(), link(1))
    store.prepare(clear, 3)
    store.apply(BatchChanges(events={"a": (False, ["between"])}).rows(), link(2))
    store.apply(clear, link(3))
    assert store.list_table(EVENTS).elements(key_group("a"), "a") == ["only"]


def test_prepared_changes_that_are_only_partly_accepted_are_not_taken_whole(
    open_store: Callable[..., RocksDBStore],
) -> None:
    rows = puts({"a": 1, "N0": 2, "N1": 3})
    store = open_store()
    store.value_table(TOTAL)
    store.prepare(rows, 1)
    store.apply(rows, link(1), lambda _: False)
    assert cells(store) == Model().cells()


@pytest.mark.parametrize("recent", [0, 300, 1000, 3000, 1 << 20])
@pytest.mark.parametrize("prefetch", [False, True])
def test_caches_never_answer_with_an_older_value(
    open_store: Callable[..., RocksDBStore], recent: int, prefetch: bool
) -> None:
    store = open_store(options=RocksDBOptions(recent_values_size_bytes=recent))
    table = store.value_table(TOTAL)
    names = [f"N{i}" for i in range(20)]
    model = Model()
    for seq in range(1, 30):
        chosen = [name for i, name in enumerate(names) if (seq + i) % (2 + seq % 5) == 0]
        if prefetch:
            table.prefetch([key_group(name) for name in chosen], chosen)
        assert [table.get(key_group(name), name) for name in chosen] == [model.totals.get(name) for name in chosen]
        batch = BatchChanges(totals={n: GONE if (seq + i) % 6 == 0 else seq for i, n in enumerate(chosen)})
        if seq % 3 == 0:
            store.prepare(batch.rows(), seq)
        store.apply(batch.rows(), link(seq))
        model.apply(batch)
        assert [table.get(key_group(name), name) for name in names] == [model.totals.get(name) for name in names]


def test_a_prefetch_of_most_of_the_state_reads_it_in_one_scan(open_store: Callable[..., RocksDBStore]) -> None:
    store = open_store(options=RocksDBOptions(recent_values_size_bytes=0))
    names = [f"N{i}" for i in range(100)]
    store.apply(puts(dict.fromkeys(names, 1)), link(1))
    table = store.value_table(TOTAL)
    table.prefetch([key_group(name) for name in names], names)
    table._read = None  # type: ignore[assignment] - single reads would fail
    assert [table.get(key_group(name), name) for name in names] == [1] * 100


@pytest.mark.parametrize("rows", [0, 1, 2, 10])
def test_recent_values_are_bounded(rows: int) -> None:
    wire_bytes = 30
    recent = RecentValues(remembered_bytes(rows, rows * wire_bytes))
    for i in range(50):
        recent.put(i, i, wire_bytes)
        assert len(recent.young) + len(recent.old) <= rows
    for size in (1, 3, 5, 40):
        recent.update({i: i for i in range(size)}, size * wire_bytes)
        assert len(recent.young) + len(recent.old) <= rows
    recent.put("large", 0, rows * wire_bytes * 1000)
    assert "large" not in recent.young


def test_states_are_registered_once_and_keep_their_rows(open_store: Callable[..., RocksDBStore]) -> None:
    store = open_store()
    store.list_table(EVENTS)
    store.apply(FULL.rows(), link(1))
    expiring = msgspec.structs.replace(TOTAL, ttl={"ms": 5}, version=1, earlier=(ValueVersion(value_type=LONG),))
    assert store.value_table(expiring).get(key_group("a"), "a") == 1
    store.apply([], link(2))
    store = open_store()
    assert store.schemas == (EVENTS, expiring, BY_NAME, ALARMS)
    assert cells(store) == model_of(FULL).cells()


@pytest.mark.parametrize("rows_at_once", [1, 3, 256])
def test_a_table_has_the_same_rows_however_many_are_decoded_together(
    open_store: Callable[..., RocksDBStore], monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    """Null keys, null map values and values of an older schema version among them."""
    monkeypatch.setattr(rocksdb_tables, "_ROWS_AT_ONCE", rows_at_once)
    narrow, wide = as_type("n bigint"), as_type("n bigint, name string")
    old = StateSchema(name="row", kind="value", value_type=narrow.type_string())
    new = StateSchema(
        name="row", kind="value", value_type=wide.type_string(), version=1,
        earlier=(ValueVersion(value_type=narrow.type_string()),),
    )  # fmt: skip
    keys: list[str | None] = [None, *map(str, range(20))]
    group, count = 3, len(keys)
    store = open_store()
    store.apply(
        [StateChanges(old, [group] * count, keys, None, None, [narrow.freeze((i,)) for i in range(count)])], link(1)
    )
    table = store.value_table(new)
    newer = [wide.freeze((-i, f"name {i}")) for i in range(0, count, 3)]
    store.apply([StateChanges(new, [group] * len(newer), keys[::3], None, None, newer)], link(2))
    found = {key: value for key_group, key, value in table.items() if key_group == group}
    assert found == {key: table.get(group, key) for key in keys}
    assert {type(value) for value in found.values()} == {type(newer[0])}

    entries = {(key, f"m{i}"): None if i % 4 == 0 else i for i, key in enumerate(keys * 2)}
    pairs = [list(column) for column in zip(*entries, strict=True)]
    changes = StateChanges(BY_NAME, [group] * len(entries), pairs[0], None, pairs[1], list(entries.values()))
    store.apply([changes], link(3))
    assert {(key, map_key): value for _, key, map_key, value in store.map_table(BY_NAME).items()} == entries


@pytest.mark.parametrize(
    "other",
    [
        StateSchema(name="total", kind="value", value_type=STRING),
        StateSchema(name="total", kind="reducing", value_type=LONG),
        StateSchema(name="total", kind="map", value_type=LONG, map_key_type=STRING),
        StateSchema(name="total", kind="value", value_type=LONG, namespace_type=STRING),
    ],
)
def test_a_state_declared_otherwise_is_refused_with_both_schemas(
    open_store: Callable[..., RocksDBStore], other: StateSchema
) -> None:
    store = open_store()
    store.apply(FULL.rows(), link(1))
    with pytest.raises(IncompatibleError) as caught:
        store.map_table(other) if other.kind == "map" else store.value_table(other)
    assert caught.value.context["operator"] == OPERATOR
    for part in ("'total'", f"{TOTAL.kind} of {TOTAL.value_type}", f"{other.kind} of {other.value_type}"):
        assert part in str(caught.value)


def test_a_table_of_the_wrong_kind_is_a_bug(open_store: Callable[..., RocksDBStore]) -> None:
    with pytest.raises(InvariantError):
        open_store().list_table(TOTAL)


def test_folded_batches_are_the_same_as_single_ones(open_store: Callable[..., RocksDBStore]) -> None:
    steps = [rocksdb_writer.batch(seq) for seq in range(1, 12)]
    store = open_store()
    store.fold([Batch(step.rows(), seq) for seq, step in enumerate(steps[:5], 1)], link(11), last=False)
    store.fold([Batch(step.rows(), seq) for seq, step in enumerate(steps[5:], 6)], link(11), last=True)
    assert cells(store) == model_of(*steps).cells()
    assert store.version == link(11)
    assert cells(open_store()) == model_of(*steps).cells()


def test_in_the_middle_of_folding_the_store_has_no_version_and_cannot_be_reopened(
    open_store: Callable[..., RocksDBStore],
) -> None:
    store = open_store()
    store.apply(puts({"a": 1}), link(1))
    store.fold([Batch(puts({"a": 2}), 2)], link(3), last=False)
    assert not store.is_complete
    with pytest.raises(InvariantError):
        _ = store.version
    with pytest.raises(IncompatibleError, match="middle of a restore"):
        open_store()


def test_folding_tells_the_caches(open_store: Callable[..., RocksDBStore]) -> None:
    store = open_store()
    table = store.value_table(TOTAL)
    store.apply(puts({"a": 1}), link(1))
    assert table.get(key_group("a"), "a") == 1
    store.fold([Batch(puts({"a": 2}), 2), Batch(puts({"a": 3}), 3)], link(3), last=True)
    assert table.get(key_group("a"), "a") == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"compression": "lzma"}, {"max_open_files": 3}, {"max_open_files": -2}, {"write_buffer_size_bytes": 1},
        {"write_buffer_count": 1}, {"bloom_filter_bits_per_key": -1}, {"recent_values_size_bytes": -1},
        {"background_jobs": 0}, {"block_size_bytes": 0},
    ],
)  # fmt: skip
def test_options_that_rocksdb_would_misread_are_refused(wrong: dict[str, int]) -> None:
    [field] = wrong
    with pytest.raises(InvalidRequestError, match=f"{field}|{options_of(RocksDBOptions)[field].key}"):
        RocksDBOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("compression", ["none", "snappy", "lz4", "zstd"])
def test_every_compression_works(open_store: Callable[..., RocksDBStore], compression: str) -> None:
    store = open_store(options=RocksDBOptions(compression=compression, bloom_filter_bits_per_key=0, max_open_files=-1))
    store.apply(FULL.rows(), link(1))
    store.flush()
    assert cells(open_store()) == model_of(FULL).cells()
