"""Result of a batch: the rows of its net effect, in a fixed order."""

from __future__ import annotations

from typing import Any

import pytest

from varvite.changelog.api.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.types.factory import Types
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.records import Link

VALUE = ValueStateDescriptor("value", "int")
LIST = ListStateDescriptor("list", "int")
MAP = MapStateDescriptor("map", "string", "int")
SUM = ReducingStateDescriptor("sum", lambda a, b: a + b, "int")


@pytest.fixture
def backend() -> KeyedStateBackend:
    store = HashMapStore(operator="op", key_type="1:string", low=0, high=4)
    return KeyedStateBackend(store, Types.STRING(), "op")


def rows(changes: StateChanges) -> list[Any]:
    """(key group, key, op, map key, value) of each row."""
    ops = changes.ops or [None] * len(changes)
    return list(zip(changes.key_groups, changes.keys, ops, changes.map_keys or ops, changes.values, strict=True))


def test_a_batch_without_changes_has_none(backend: KeyedStateBackend) -> None:
    value, items = backend.get_state(VALUE), backend.get_list_state(LIST)
    backend.set_current_key(0, "a")
    value.value()
    items.get()
    items.add_all([])
    assert backend.changes() == []


def test_puts_alone_need_no_ops(backend: KeyedStateBackend) -> None:
    value, items, entries = backend.get_state(VALUE), backend.get_list_state(LIST), backend.get_map_state(MAP)
    for group, key in ((2, "b"), (0, "a"), (2, "c"), (2, "b")):
        backend.set_current_key(group, key)
        value.update(group)
        items.add(group)
        entries.put(key, None)
    changes = backend.changes()
    assert [change.ops for change in changes] == [None, None, None]
    assert [change.schema.name for change in changes] == ["value", "list", "map"]
    value_rows, list_rows, map_rows = [rows(change) for change in changes]
    assert value_rows == [(0, "a", None, None, 0), (2, "b", None, None, 2), (2, "c", None, None, 2)], "by key group"
    assert [row[1] for row in list_rows] == ["a", "b", "b", "c"]
    assert map_rows == [(0, "a", None, "a", None), (2, "b", None, "b", None), (2, "c", None, "c", None)]


def test_the_last_of_several_changes_is_the_net_effect(backend: KeyedStateBackend) -> None:
    value, total = backend.get_state(VALUE), backend.get_reducing_state(SUM)
    for key, numbers in (("a", [1, 2, 3]), ("b", [1, None]), ("c", [None, 7])):
        backend.set_current_key(1, key)
        for number in numbers:
            value.update(number)
            total.add(number)
    values, sums = backend.changes()
    expected = [(1, "a", Op.PUT, Op.PUT, 3), (1, "b", Op.DELETE, Op.DELETE, None), (1, "c", Op.PUT, Op.PUT, 7)]
    assert rows(values) == expected
    assert [row[4] for row in rows(sums)] == [6, None, 7]


def test_a_cleared_list_is_a_clear_and_what_came_after(backend: KeyedStateBackend) -> None:
    items = backend.get_list_state(LIST)
    backend.set_current_key(1, "a")
    items.add(1)
    items.update([2, 3])
    items.add(4)
    backend.set_current_key(1, "b")
    items.add(5)
    backend.set_current_key(1, "c")
    items.clear()
    (changes,) = backend.changes()
    found = [(key, op, value) for _, key, op, _, value in rows(changes)]
    assert found == [
        ("a", Op.CLEAR, None), ("a", Op.APPEND, 2), ("a", Op.APPEND, 3), ("a", Op.APPEND, 4), ("b", Op.APPEND, 5),
        ("c", Op.CLEAR, None),
    ]  # fmt: skip


def test_a_cleared_map_is_a_clear_and_the_puts_after(backend: KeyedStateBackend) -> None:
    entries = backend.get_map_state(MAP)
    backend.set_current_key(1, "a")
    entries.put("gone", 1)
    entries.clear()
    entries.put("kept", None)
    entries.put("removed", 2)
    entries.remove("removed")
    backend.set_current_key(2, "b")
    entries.remove("x")
    entries.put("y", 3)
    (changes,) = backend.changes()
    assert rows(changes) == [
        (1, "a", Op.CLEAR, None, None), (1, "a", Op.PUT, "kept", None), (2, "b", Op.DELETE, "x", None),
        (2, "b", Op.PUT, "y", 3),
    ]  # fmt: skip


def test_changes_are_made_once_until_a_key_is_set(backend: KeyedStateBackend) -> None:
    value = backend.get_state(VALUE)
    backend.set_current_key(1, "a")
    value.update(1)
    first = backend.changes()
    assert backend.changes() is first, "the store may have prepared just these"
    with pytest.raises(InvalidRequestError):
        value.update(2)
    backend.set_current_key(1, "a")
    value.update(2)
    assert backend.changes()[0].values == [2]
    assert first[0].values == [1], "what was handed out does not change"


def test_a_fold_empties_the_overlay(backend: KeyedStateBackend) -> None:
    value, items, entries = backend.get_state(VALUE), backend.get_list_state(LIST), backend.get_map_state(MAP)
    backend.set_current_key(1, "a")
    value.update(1)
    items.update([1])
    entries.clear()
    entries.put("x", 1)
    backend.prepare(1)
    backend.fold(Link(1, "t"))
    assert backend.changes() == []
    assert backend.store.version == Link(1, "t")
    backend.set_current_key(1, "a")
    items.add(2)
    entries.put("y", 2)
    assert (value.value(), items.get(), entries.items()) == (1, [1, 2], [("x", 1), ("y", 2)])


def test_reading_leaves_no_trace(backend: KeyedStateBackend) -> None:
    """Equal batches have equal changes, whatever they read."""
    value = backend.get_state(VALUE)
    for group in (3, 2, 1):
        backend.set_current_key(group, f"k{group}")
        value.value()
    for group, key in ((1, "b"), (1, "a"), (3, "c")):
        backend.set_current_key(group, key)
        value.update(1)
    (changes,) = backend.changes()
    assert changes.keys == ["b", "a", "c"]


def test_only_value_tables_that_are_read_are_prefetched() -> None:
    class Table:
        def __init__(self) -> None:
            self.asked: list[list[str]] = []

        def get(self, key_group: int, key: str) -> Any:
            return None

        def prefetch(self, key_groups: list[int], keys: list[str]) -> None:
            self.asked.append(keys)

    class Store(HashMapStore):
        def value_table(self, schema: Any) -> Any:
            return tables[schema.name]

    tables = {"read": Table(), "written": Table()}
    store = Store(operator="op", key_type="1:string", low=0, high=4)
    backend = KeyedStateBackend(store, Types.STRING(), "op")
    read = backend.get_state(ValueStateDescriptor("read", "int"))
    written = backend.get_state(ValueStateDescriptor("written", "int"))
    counts: list[int] = []
    for batch in ("writes", "reads and writes", "writes", "writes"):
        backend.prefetch([0], ["a"])
        counts.append(len(tables["read"].asked))
        backend.set_current_key(0, "a")
        written.update(1)
        if batch == "reads and writes":
            read.value()
            backend.prefetch([0], ["b"])
        backend.drop()
    assert tables["written"].asked == []
    assert counts == [0, 0, 2, 2], "in the batch that reads, and in the one after it"


def test_a_key_type_must_be_hashable() -> None:
    store = HashMapStore(operator="op", key_type="1:string", low=0, high=4)
    with pytest.raises(InvalidRequestError, match="cannot be the type of a key"):
        KeyedStateBackend(store, Types.LIST("int"), "op")


def test_the_current_key_comes_back_as_the_user_gave_it() -> None:
    kind = Types.ROW_NAMED(["a"], ["int"])
    store = HashMapStore(operator="op", key_type=kind.type_string(), low=0, high=4)
    backend = KeyedStateBackend(store, kind, "op")
    backend.set_current_key(0, kind.freeze((5,)))
    assert backend.get_current_key().a == 5
