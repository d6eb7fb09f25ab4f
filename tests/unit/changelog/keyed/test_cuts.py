"""A batch whose changes leave in parts: what each part holds, and what is read, counted and folded after cuts."""

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


def rows(changes: list[StateChanges]) -> list[Any]:
    """(key, op or None, map key, value) of each row."""
    found: list[Any] = []
    for change in changes:
        ops = change.ops or [None] * len(change)
        found += zip(change.keys, ops, change.map_keys or [None] * len(change), change.values, strict=True)
    return found


def test_each_part_holds_what_changed_since_the_last_cut(backend: KeyedStateBackend) -> None:
    value, total = backend.get_state(VALUE), backend.get_reducing_state(SUM)
    backend.set_current_key(1, "a")
    value.update(1)
    total.add(1)
    first = backend.cut()
    assert rows(first) == [("a", None, None, 1), ("a", None, None, 1)]
    assert (backend.changes(), backend.count_rows()) == ([], 0)
    backend.set_current_key(1, "a")
    value.clear()
    total.add(10)
    backend.set_current_key(1, "b")
    value.update(5)
    assert backend.count_rows() == 3
    assert rows(backend.cut()) == [
        ("a", Op.DELETE, None, None), ("b", Op.PUT, None, 5), ("a", None, None, 11),
    ]  # fmt: skip
    backend.set_current_key(1, "b")
    value.update(6)
    assert rows(backend.changes()) == [("b", None, None, 6)], "what an earlier part removed needs no ops here"
    assert rows(first) == [("a", None, None, 1), ("a", None, None, 1)], "what was handed out does not change"


def test_no_element_of_a_list_is_in_two_parts(backend: KeyedStateBackend) -> None:
    items = backend.get_list_state(LIST)
    backend.set_current_key(1, "a")
    items.add_all([1, 2])
    assert rows(backend.cut()) == [("a", None, None, 1), ("a", None, None, 2)]
    backend.set_current_key(1, "a")
    items.add(3)
    assert items.get() == [1, 2, 3]
    assert rows(backend.cut()) == [("a", None, None, 3)]
    backend.set_current_key(1, "a")
    items.update([9])
    assert items.get() == [9]
    assert backend.count_rows() == 2
    assert rows(backend.cut()) == [("a", Op.CLEAR, None, None), ("a", Op.APPEND, None, 9)]
    backend.set_current_key(1, "a")
    items.add(10)
    assert items.get() == [9, 10]
    assert rows(backend.changes()) == [("a", None, None, 10)]


def test_a_map_cleared_in_an_earlier_part_has_only_what_came_after(backend: KeyedStateBackend) -> None:
    entries = backend.get_map_state(MAP)
    backend.set_current_key(1, "a")
    entries.put_all({"x": 1, "y": 2})
    backend.fold(Link(1, "t"))
    backend.set_current_key(1, "a")
    entries.clear()
    entries.put("z", 3)
    assert rows(backend.cut()) == [("a", Op.CLEAR, None, None), ("a", Op.PUT, "z", 3)]
    backend.set_current_key(1, "a")
    assert (entries.items(), entries.get("x"), entries.contains("y")) == ([("z", 3)], None, False)
    entries.put("w", None)
    entries.remove("z")
    assert (entries.items(), entries.contains("z"), entries.contains("w")) == ([("w", None)], False, True)
    assert rows(backend.cut()) == [("a", Op.PUT, "w", None), ("a", Op.DELETE, "z", None)]
    backend.set_current_key(1, "a")
    assert (entries.items(), entries.contains("z")) == ([("w", None)], False)
    assert list(backend.get_keys("map")) == ["a"]
    backend.set_current_key(1, "a")
    entries.remove("w")
    assert list(backend.get_keys("map")) == []
    backend.fold(Link(2, "t"))
    assert list(backend.store.map_table(backend.schemas[0]).items()) == []


def test_a_fold_applies_the_net_effect_of_all_concurrent_parts(backend: KeyedStateBackend) -> None:
    applied: list[list[StateChanges]] = []
    store = backend.store
    apply = store.apply
    store.apply = lambda changes, version, accepts=None: (applied.append(list(changes)), apply(changes, version))[1]  # type: ignore[method-assign]
    value, items = backend.get_state(VALUE), backend.get_list_state(LIST)
    for number in range(5):
        backend.set_current_key(1, "a")
        value.update(number)
        items.add(number)
        backend.cut()
    backend.set_current_key(2, "b")
    value.update(7)
    backend.fold(Link(1, "t"))
    (whole,) = applied
    assert rows(whole) == [
        ("a", None, None, 4), ("b", None, None, 7), *[("a", None, None, number) for number in range(5)],
    ]  # fmt: skip
    assert (backend.changes(), backend.store.version) == ([], Link(1, "t"))
    backend.set_current_key(1, "a")
    value.update(1)
    assert rows(backend.changes()) == [("a", None, None, 1)], "the next batch begins without a cut"


def test_preparing_changes_nothing_that_can_be_seen(backend: KeyedStateBackend) -> None:
    value, items, entries = backend.get_state(VALUE), backend.get_list_state(LIST), backend.get_map_state(MAP)
    for number in (1, 2):
        backend.set_current_key(1, "a")
        value.update(number)
        items.add(number)
        entries.put(f"x{number}", number)
        if number == 1:
            backend.cut()
    rest = rows(backend.changes())
    for _ in range(2):
        backend.prepare(1)
        assert rows(backend.changes()) == rest
        backend.set_current_key(1, "a")
        assert (value.value(), items.get(), entries.items()) == (2, [1, 2], [("x1", 1), ("x2", 2)])
    items.add(3)
    assert rows(backend.cut())[2] == ("a", None, None, 3)
    backend.fold(Link(1, "t"))
    backend.set_current_key(1, "a")
    assert items.get() == [1, 2, 3]


def test_a_drop_forgets_every_part(backend: KeyedStateBackend) -> None:
    value, items, entries = backend.get_state(VALUE), backend.get_list_state(LIST), backend.get_map_state(MAP)
    for _ in range(3):
        backend.set_current_key(1, "a")
        value.update(1)
        items.update([1])
        entries.clear()
        entries.put("x", 1)
        backend.cut()
    backend.drop()
    backend.set_current_key(1, "a")
    assert (value.value(), items.get(), entries.items()) == (None, [], [])
    assert [list(backend.get_keys(name)) for name in ("value", "list", "map")] == [[], [], []]
    backend.fold(Link(1, "t"))
    assert [len(list(backend.get_keys(name))) for name in ("value", "list", "map")] == [0, 0, 0]


def test_no_key_is_current_after_a_cut(backend: KeyedStateBackend) -> None:
    value = backend.get_state(VALUE)
    backend.set_current_key(1, "a")
    value.update(1)
    backend.cut()
    with pytest.raises(InvalidRequestError, match="no key is current"):
        value.value()
