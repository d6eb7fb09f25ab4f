"""Batches that a RocksDB store holds back: they read as if they were written, and are written when they have to be."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from rocksdict import WriteBatch

from tests.jobs.batch_keys import keys_of
from tests.jobs.state_model import KEY_GROUPS, KEY_TYPE, OPERATOR, link
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.segments.column_changes import ColumnChanges
from varvite.changelog.types.factory import Types, as_type, parse_type_string
from varvite.changelog.working_stores.rocksdb import write_behind as rocksdb_write_behind
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.changelog.working_stores.rocksdb.tables import remembered_bytes
from varvite.changelog.working_stores.rocksdb.write_behind import HELD_BATCHES_MAX, SLICES
from varvite.storage.errors import MayHaveHappenedError
from varvite.storage.format.records import StateSchema, ValueVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

LONG = Types.LONG().type_string()
SUM = StateSchema(name="sum", kind="value", value_type=LONG)
OTHER = StateSchema(name="other", kind="value", value_type=LONG)
LISTED = StateSchema(name="listed", kind="list", value_type=LONG)
KEYS = ["a", "b", "ключ"]


def columns(values: dict[str, int | None], schema: StateSchema = SUM) -> ColumnChanges:
    """Result of `put_many` for these values."""
    keys = keys_of(list(values))
    column: Any = pa.array([values[key] for key in keys.stored], pa.int64())
    return ColumnChanges(schema, keys, parse_type_string(schema.value_type), column)


def group_of(key: str) -> int:
    return keys_of([key]).key_groups[0]


def begun(open_store: Callable[..., RocksDBStore], **options: int) -> RocksDBStore:
    """A store at seq 1 that knows both states, with a 0 for each key."""
    store = open_store(options=RocksDBOptions(**options))
    for schema in (SUM, OTHER):
        store.value_table(schema)
    store.apply([columns(dict.fromkeys(KEYS, 0)), columns({}, OTHER)], link(1))
    return store


def read(store: RocksDBStore, schema: StateSchema = SUM) -> dict[str, int | None]:
    table = store.value_table(schema)
    return {key: table.get(group_of(key), key) for key in KEYS}


def on_disk(store: RocksDBStore, tmp_path: Path) -> tuple[int, dict[str, int | None]]:
    """Seq and values in the database, without what is held back: what a process that is killed may leave at most."""
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    store._database.checkpoint(copy)  # type: ignore[reportPrivateUsage]
    opened = RocksDBStore.open(copy, OPERATOR, KEY_TYPE, 0, KEY_GROUPS)
    try:
        return opened.version.seq, read(opened)
    finally:
        opened.close()


def test_batches_of_columns_are_held_back_and_read_as_if_they_were_written(
    open_store: Callable[..., RocksDBStore], tmp_path: Path
) -> None:
    store = begun(open_store)
    store.apply([columns({"a": 1, "b": 2})], link(2))
    store.apply([columns({"b": None, "ключ": 3})], link(3))
    assert store.version == link(3)
    assert read(store) == {"a": 1, "b": None, "ключ": 3}
    assert on_disk(store, tmp_path) == (1, dict.fromkeys(KEYS, 0))
    assert read(store) == {"a": 1, "b": None, "ключ": 3}


def test_closing_writes_them(open_store: Callable[..., RocksDBStore]) -> None:
    store = begun(open_store)
    store.apply([columns({"a": 1, "b": None})], link(2))
    store = open_store()
    assert store.version == link(2)
    assert read(store) == {"a": 1, "b": None, "ключ": 0}


@pytest.mark.parametrize(
    "access",
    [
        lambda store, table: {key: value for _, key, value in table.items()},
        lambda store, table: dict(zip(KEYS, table.get_many(list(map(group_of, KEYS)), KEYS), strict=True)),
        lambda store, table: table.prefetch(list(map(group_of, KEYS)), KEYS) or read(store),
        lambda store, table: store.flush() or read(store),
        lambda store, table: list(store.scan(b"", b"\xff" * 9)) and read(store),
        lambda store, table: store.compact(0.0, 0) and read(store),
        lambda store, table: store.write_snapshot(store.directory.with_name("snapshot")) or read(store),
        lambda store, table: store.register(StateSchema(name="new", kind="value", value_type=LONG)) or read(store),
        lambda store, table: store.value_table(StateSchema(name="new", kind="value", value_type=LONG)) and read(store),
        lambda store, table: store.apply([], link(3), lambda key_group: True) or read(store),
        lambda store, table: store.fold([], link(3), last=True) or read(store),
        lambda store, table: store.apply([row({"b": 2})], link(3)) or read(store),
    ],
    ids=["items", "get-many", "prefetch", "flush", "scan", "compact", "snapshot", "register", "table", "apply-part",
         "fold", "apply-rows"],
)  # fmt: skip
def test_whatever_reads_the_database_has_them_written_before(
    open_store: Callable[..., RocksDBStore], tmp_path: Path, access: Callable[..., dict[str, int | None]]
) -> None:
    store = begun(open_store)
    store.apply([columns({"a": 1, "b": 2})], link(2))
    found = access(store, store.value_table(SUM))
    assert found == {"a": 1, "b": 2, "ключ": 0}
    seq, written = on_disk(store, tmp_path)
    assert seq == store.version.seq
    assert written == found


def row(values: dict[str, int]) -> StateChanges:
    return StateChanges(SUM, [group_of(key) for key in values], list(values), None, None, list(values.values()))


def test_a_snapshot_has_them(open_store: Callable[..., RocksDBStore], tmp_path: Path) -> None:
    store = begun(open_store)
    store.apply([columns({"a": 1})], link(2))
    store.write_snapshot(tmp_path / "snapshot")
    snapshot = RocksDBStore.open_existing(tmp_path / "snapshot", read_only=True)
    assert snapshot.version == link(2)
    assert read(snapshot) == {"a": 1, "b": 0, "ключ": 0}
    snapshot.close()


def test_a_new_schema_is_not_confirmed_by_them(open_store: Callable[..., RocksDBStore]) -> None:
    """They are written with the states as they were; a revert forgets the new one and keeps the values."""
    store = begun(open_store)
    store.apply([columns({"a": 1})], link(2))
    rows = as_type("n bigint, name string").type_string()
    wide = msgspec.structs.replace(SUM, version=1, value_type=rows, earlier=(ValueVersion(value_type=LONG),))
    store.register(wide, lambda old: (old, "new"))
    assert store.value_table(wide).get(group_of("a"), "a") == (1, "new")
    store.revert()
    assert store.schemas == (SUM, OTHER)
    assert read(store) == {"a": 1, "b": 0, "ключ": 0}
    assert open_store().schemas == (SUM, OTHER)


MANY = {f"k{n}": n for n in range(40)}
"""Keys of many key groups."""


def advance(store: RocksDBStore, batches: int, keys: Iterable[str] = MANY) -> None:
    """Batches before which a worker works ahead; each sets the keys to its seq."""
    for _ in range(batches):
        seq = store.version.seq + 1
        changes = [columns(dict.fromkeys(keys, seq))]
        store.work_ahead()
        store.prepare(changes, seq)
        store.apply(changes, link(seq))


def values_of(store: RocksDBStore, keys: Iterable[str] = MANY) -> set[int | None]:
    table = store.value_table(SUM)
    return {table.get(group_of(key), key) for key in keys}


def test_after_so_many_batches_they_are_written_bit_by_bit_and_appear_together(
    open_store: Callable[..., RocksDBStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = begun(open_store)
    written: list[int] = []
    write = store._database.write  # type: ignore[reportPrivateUsage]
    monkeypatch.setattr(store._database, "write", lambda batch: written.append(len(batch)) or write(batch))  # type: ignore[reportPrivateUsage]
    advance(store, HELD_BATCHES_MAX)
    last = store.version.seq
    for _ in range(SLICES):
        assert (on_disk(store, tmp_path)[0], written) == (1, [])
        advance(store, 1)
        assert values_of(store) == {store.version.seq}
    assert written == [len(MANY) + 1]  # and the version
    assert on_disk(store, tmp_path)[0] == last
    assert values_of(store) == {store.version.seq} == {last + SLICES}
    advance(store, HELD_BATCHES_MAX)
    assert on_disk(store, tmp_path)[0] == last + HELD_BATCHES_MAX


@pytest.mark.parametrize("slices", range(SLICES))
def test_whatever_needs_them_in_the_meantime_has_all_of_them_written(
    open_store: Callable[..., RocksDBStore], tmp_path: Path, slices: int
) -> None:
    store = begun(open_store)
    advance(store, HELD_BATCHES_MAX)
    advance(store, slices, list(MANY)[::2])
    expected = {store.version.seq, 1 + HELD_BATCHES_MAX} if slices else {store.version.seq}
    store.flush()
    assert on_disk(store, tmp_path)[0] == store.version.seq
    assert values_of(store) == expected
    assert values_of(open_store()) == expected


def test_keys_that_only_the_older_batches_have_set_are_read_from_them(open_store: Callable[..., RocksDBStore]) -> None:
    store = begun(open_store)
    advance(store, HELD_BATCHES_MAX)
    for seq in range(HELD_BATCHES_MAX + 2, HELD_BATCHES_MAX + 2 + SLICES + 2):
        changes = [columns({"k1": None, "k2": 7})]
        store.work_ahead()
        store.apply(changes, link(seq))
        assert values_of(store, ["k1"]) == {None}
        assert values_of(store, ["k2"]) == {7}
        assert values_of(store, list(MANY)[3:]) == {HELD_BATCHES_MAX + 1}


def test_without_room_for_twice_as_much_they_are_written_at_once(
    open_store: Callable[..., RocksDBStore], tmp_path: Path
) -> None:
    room = 2 * remembered_bytes(len(KEYS), len(KEYS) * (8 + len("ключ".encode())))
    store = begun(open_store, recent_values_size_bytes=room)
    advance(store, HELD_BATCHES_MAX, KEYS)
    last = store.version.seq
    assert on_disk(store, tmp_path)[0] == 1
    store.work_ahead()
    assert on_disk(store, tmp_path) == (last, dict.fromkeys(KEYS, last))
    assert read(store) == dict.fromkeys(KEYS, last)


def test_a_disk_that_is_full_when_they_are_written_leaves_them_held_back(
    open_store: Callable[..., RocksDBStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = begun(open_store)
    advance(store, HELD_BATCHES_MAX + SLICES - 1)

    def full(batch: WriteBatch) -> None:
        write(batch)  # so that it is used up
        raise MayHaveHappenedError("the disk is full")

    with monkeypatch.context() as patched:
        write = store._database.write  # type: ignore[reportPrivateUsage]
        patched.setattr(store._database, "write", full)  # type: ignore[reportPrivateUsage]
        with pytest.raises(MayHaveHappenedError):
            advance(store, 1)
    assert values_of(store) == {store.version.seq}
    advance(store, SLICES + 1)
    assert values_of(store) == {store.version.seq}
    store.flush()
    assert values_of(open_store()) == {1 + HELD_BATCHES_MAX + 2 * SLICES}


def test_without_time_to_work_ahead_they_are_written_as_the_batches_are_applied(
    open_store: Callable[..., RocksDBStore], tmp_path: Path
) -> None:
    store = begun(open_store)
    written: set[int] = set()
    for seq in range(2, 50):
        store.apply([columns(dict.fromkeys(MANY, seq))], link(seq))
        written.add(on_disk(store, tmp_path)[0])
        assert seq - max(written) <= HELD_BATCHES_MAX + SLICES
        assert values_of(store) == {seq}
    assert written == {1, 18, 35}


def test_batches_with_few_keys_in_common_are_not_held_back_for_a_while(
    open_store: Callable[..., RocksDBStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_write_behind, "_PAUSE_BATCHES", 2)
    store = begun(open_store)
    store.apply([columns({"a": 1})], link(2))
    store.apply([columns({"b": 1})], link(3))
    store.flush()
    for seq in (4, 5):
        store.apply([columns(dict.fromkeys(KEYS, seq))], link(seq))
        assert on_disk(store, tmp_path)[0] == seq
    store.apply([columns(dict.fromkeys(KEYS, 6))], link(6))
    assert on_disk(store, tmp_path)[0] == 5


def test_other_kinds_of_changes_are_written_with_all_before_them(
    open_store: Callable[..., RocksDBStore], tmp_path: Path
) -> None:
    store = begun(open_store)
    store.list_table(LISTED)
    store.apply([StateChanges(LISTED, [group_of("a")], ["a"], None, None, [1])], link(2))
    store.apply([columns({"a": 3})], link(3))
    store.apply([StateChanges(LISTED, [group_of("a")], ["a"], None, None, [2])], link(4))
    assert on_disk(store, tmp_path) == (4, {"a": 3, "b": 0, "ключ": 0})
    assert store.list_table(LISTED).elements(group_of("a"), "a") == [1, 2]


def test_what_is_held_back_stays_within_the_memory_of_recent_values(
    open_store: Callable[..., RocksDBStore], tmp_path: Path
) -> None:
    room = 2 * remembered_bytes(len(KEYS), len(KEYS) * (8 + len("ключ".encode())))
    store = begun(open_store, recent_values_size_bytes=room)
    store.apply([columns(dict.fromkeys(KEYS, 2))], link(2))
    assert on_disk(store, tmp_path)[0] == 1
    store = begun_anew(open_store, room - 2)
    store.apply([columns(dict.fromkeys(KEYS, 4))], link(4))
    assert on_disk(store, tmp_path) == (4, dict.fromkeys(KEYS, 4))


def begun_anew(open_store: Callable[..., RocksDBStore], room: int) -> RocksDBStore:
    store = open_store(options=RocksDBOptions(recent_values_size_bytes=room))
    store.value_table(SUM)
    return store


def test_without_memory_for_recent_values_nothing_is_held_back(
    open_store: Callable[..., RocksDBStore], tmp_path: Path
) -> None:
    store = begun(open_store, recent_values_size_bytes=0)
    store.apply([columns({"a": 1})], link(2))
    assert on_disk(store, tmp_path)[0] == 2


def test_a_disk_that_is_full_when_the_store_is_closed_leaves_the_older_commit(
    open_store: Callable[..., RocksDBStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = begun(open_store)
    store.apply([columns({"a": 1})], link(2))

    def full(_: Any) -> None:
        raise MayHaveHappenedError("the disk is full")

    monkeypatch.setattr(store._database, "write", full)  # type: ignore[reportPrivateUsage]
    store.close()
    assert open_store().version == link(1)


@pytest.mark.parametrize(
    ("value_type", "value", "row_bytes"),
    [
        ("bigint", 1, 2 + 8),
        ("n bigint, total double", (1, 2.0), 2 + 16),
        ("n bigint, name string", (1, "ключ"), 2 + 8 + 8),
        ("string", None, 2),
        ("boolean", True, 2 + 1),
        ("decimal(20,2)", None, 2 + 16),
        ("array<bigint>", [1], 2 + 2),  # kept as bytes
    ],
)
def test_the_size_of_a_row_is_known_from_the_columns(value_type: str, value: Any, row_bytes: int) -> None:
    kind = as_type(value_type)
    schema = StateSchema(name="s", kind="value", value_type=kind.type_string())
    stored = [None if value is None else kind.freeze(value)] * 2
    changes = ColumnChanges(schema, keys_of(["a", "bc"]), kind, kind.to_arrow(stored))
    assert changes.row_bytes_most == row_bytes


def test_columns_of_columns_have_to_be_looked_at_row_by_row() -> None:
    lists: Any = pa.array([[1], [2, 3]])
    assert ColumnChanges(SUM, keys_of(["a", "b"]), parse_type_string(LONG), lists).row_bytes_most is None


def test_removed_values_are_deleted(open_store: Callable[..., RocksDBStore], tmp_path: Path) -> None:
    store = begun(open_store)
    store.apply([columns({"a": None})], link(2))
    held = store._behind.changes()  # type: ignore[reportPrivateUsage]
    assert [(change.keys, change.ops) for change in held] == [(["a"], bytes([Op.DELETE]))]
    store.flush()
    assert on_disk(store, tmp_path) == (2, {"a": None, "b": 0, "ключ": 0})
