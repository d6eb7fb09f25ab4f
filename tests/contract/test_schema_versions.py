"""Behaviour of every working store with several schema versions of a state: in both orders, pending and confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.stores.working_stores import KINDS, open_snapshot, open_store
from varvite.changelog.schema.history import change
from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.segments.columns import type_of
from varvite.storage.errors import IncompatibleError
from varvite.storage.format.records import Link, StateSchema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from varvite.changelog.working_stores.contract import WorkingStore

OLD = StateSchema(name="orders", kind="value", value_type="1:row<a:int>")
NEW = change(
    OLD, StateSchema(name="orders", kind="value", value_type="1:row<b:string,a:long>"), {"b": b"\xa1x"}, "op",
    migrates=False,
).schema  # fmt: skip
MIGRATED = change(
    OLD, StateSchema(name="orders", kind="value", value_type="1:row<text:string>"), {}, "op", migrates=True
).schema  # fmt: skip
LIST = StateSchema(name="events", kind="list", value_type="1:int")
LISTED = change(
    LIST, StateSchema(name="events", kind="list", value_type="1:string"), {}, "op", migrates=True
).schema  # fmt: skip


GROWN = change(
    MIGRATED, StateSchema(name="orders", kind="value", value_type="1:row<text:string,n:int>"), {}, "op", migrates=False
).schema  # fmt: skip


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def store(kind: str, tmp_path: Path) -> Iterator[WorkingStore]:
    opened = open_store(kind, tmp_path / "db")
    yield opened
    opened.close()


def rows(schema: StateSchema, *cells: tuple[int, str, Any]) -> StateChanges:
    """(key group, key, value); None deletes."""
    freeze = type_of(schema.value_type).freeze
    return StateChanges(
        schema, [cell[0] for cell in cells], [cell[1] for cell in cells],
        bytes([Op.DELETE if cell[2] is None else Op.PUT for cell in cells]), None,
        [None if cell[2] is None else freeze(cell[2]) for cell in cells],
    )  # fmt: skip


def values(store: WorkingStore, schema: StateSchema, *keys: tuple[int, str]) -> list[Any]:
    table = store.value_table(schema)
    found = [table.get(*key) for key in keys]
    assert sorted(table.items()) == sorted((*k, v) for k, v in zip(keys, found, strict=True) if v is not None)
    return [tuple(row) if isinstance(row, tuple) else row for row in found]


def test_old_rows_are_read_as_new_ones(store: WorkingStore) -> None:
    store.apply([rows(OLD, (0, "a", (1,)), (1, "b", (2,)))], Link(1, "t"))
    assert values(store, OLD, (0, "a"), (1, "b")) == [(1,), (2,)]
    store.register(NEW)
    assert values(store, NEW, (0, "a"), (1, "b")) == [("x", 1), ("x", 2)]
    store.apply([rows(NEW, (0, "a", ("own", 2**40)))], Link(2, "t"))
    assert values(store, NEW, (0, "a"), (1, "b")) == [("own", 2**40), ("x", 2)]
    assert store.schemas == (NEW,)


def test_old_changes_are_replayed_over_the_new_schema(store: WorkingStore) -> None:
    """A table that was read before knows what is applied, whatever its version."""
    store.register(NEW)
    table = store.value_table(NEW)
    assert table.get(0, "a") is None
    store.apply([rows(OLD, (0, "a", (1,)))], Link(1, "t"))
    assert tuple(table.get(0, "a")) == ("x", 1)
    store.apply([rows(NEW, (0, "a", ("own", 2)))], Link(2, "t"))
    assert tuple(table.get(0, "a")) == ("own", 2)
    store.apply([rows(OLD, (0, "a", None), (3, "c", (3,)))], Link(3, "t"))
    assert values(store, OLD, (0, "a"), (3, "c")) == [None, ("x", 3)], "the newest schema counts"


def test_partitions_may_change_the_schema_at_different_places_of_a_replay(store: WorkingStore) -> None:
    batches = [
        Batch([rows(OLD, (0, "a", (1,)))], 1),
        Batch([rows(NEW, (0, "aa", ("own", 2)))], 2),
        Batch([rows(OLD, (5, "b", (3,)))], 1),
        Batch([rows(NEW, (5, "bb", ("own", 4)))], 2),
    ]
    store.fold(batches[:3], Link(2, "t"), last=False)
    store.fold(batches[3:], Link(2, "t"), last=True)
    expected = [("x", 1), ("own", 2), ("x", 3), ("own", 4)]
    assert values(store, NEW, (0, "a"), (0, "aa"), (5, "b"), (5, "bb")) == expected


@pytest.mark.parametrize("in_parts", [True, False])
def test_a_migration_is_replayed_without_its_function(store: WorkingStore, *, in_parts: bool) -> None:
    """The segment that begins a version has every row of its key groups; rows of before may come from others first."""
    clear, append = bytes([Op.CLEAR]), bytes([Op.APPEND])
    before = StateChanges(LIST, [0, 5], ["a", "b"], None, None, [1, 2])
    anew = [
        StateChanges(LISTED, [group] * 2, [key] * 2, clear + append, None, [None, text])
        for group, key, text in ((0, "a", "one"), (5, "b", "two"))
    ]
    batches = [
        Batch([rows(OLD, (0, "a", (1,))), before], 1),
        Batch([rows(MIGRATED, (0, "a", ("one",))), anew[0]], 3),
        Batch([rows(GROWN, (0, "aa", ("own", 1)))], 4),
        Batch([rows(OLD, (5, "b", (2,)))], 2),
        Batch([rows(MIGRATED, (5, "b", ("two",))), anew[1]], 3),
    ]
    parts = (batches[:1], batches[1:3], batches[3:4], batches[4:]) if in_parts else (batches,)
    for i, part in enumerate(parts, 1):
        store.fold(part, Link(4, "t"), last=i == len(parts))
    assert values(store, GROWN, (0, "a"), (0, "aa"), (5, "b")) == [("one", None), ("own", 1), ("two", None)]
    assert [held for _, _, held in store.list_table(LISTED).items()] == [["one"], ["two"]]
    assert store.schemas == (GROWN, LISTED)


def test_a_migration_reads_through_its_function_until_it_is_applied(store: WorkingStore) -> None:
    store.apply([rows(OLD, (0, "a", (1,)))], Link(1, "t"))
    freeze = type_of(MIGRATED.value_type).freeze
    store.register(MIGRATED, lambda row: freeze((f"#{row.a}",)))
    assert values(store, MIGRATED, (0, "a")) == [("#1",)]
    store.revert()
    assert store.schemas == (OLD,)
    assert values(store, OLD, (0, "a")) == [(1,)]


def test_what_is_registered_is_pending_until_something_is_applied(store: WorkingStore) -> None:
    store.apply([rows(OLD, (0, "a", (1,)))], Link(1, "t"))
    other = StateSchema(name="other", kind="map", value_type="1:int", map_key_type="1:int")
    for _ in range(2):
        store.register(NEW)
        store.register(other)
        assert store.schemas == (NEW, other)
        store.revert()
        assert store.schemas == (OLD,)
        assert values(store, OLD, (0, "a")) == [(1,)]
    store.register(StateSchema(name="third", kind="value", value_type="1:int"))
    store.register(NEW)
    store.apply([], Link(2, "t"))
    store.revert()
    assert [schema.name for schema in store.schemas] == ["orders", "third"]
    assert values(store, NEW, (0, "a")) == [("x", 1)]


@pytest.mark.parametrize("reader", KINDS)
def test_a_snapshot_keeps_versions_and_history(store: WorkingStore, reader: str, tmp_path: Path) -> None:
    store.apply([rows(OLD, (0, "a", (1,)))], Link(1, "t"))
    store.apply([rows(NEW, (1, "b", ("own", 2)))], Link(2, "t"))
    store.write_snapshot(tmp_path / "snapshot")
    opened = open_snapshot(reader, tmp_path / "snapshot")
    assert opened.schemas == (NEW,)
    assert values(opened, NEW, (0, "a"), (1, "b")) == [("x", 1), ("own", 2)]
    opened.apply([rows(OLD, (2, "late", (3,)))], Link(3, "t"))
    assert values(opened, NEW, (0, "a"), (1, "b"), (2, "late")) == [("x", 1), ("own", 2), ("x", 3)]
    opened.close()


def test_another_history_is_refused(store: WorkingStore) -> None:
    store.apply([rows(NEW, (0, "a", ("own", 1)))], Link(1, "t"))
    wanted = StateSchema(name="orders", kind="value", value_type="1:row<a:long>")
    other = change(OLD, wanted, {}, "op", migrates=False).schema
    with pytest.raises(IncompatibleError, match=r"'orders'.*row<b:string,a:long>.*row<a:long>"):
        store.register(other)
    assert values(store, NEW, (0, "a")) == [("own", 1)]
