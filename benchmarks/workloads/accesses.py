"""Measurements of `benchmarks.state_access`: each access of each kind of state, as a tight loop over rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from varvite.changelog.api.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.types.factory import Types

CATEGORIES = 20
"""Entries of a map, elements of a list."""

Row = tuple[int, str, int]
"""(key group, key, a number)."""
Access = Callable[[KeyedStateBackend, Any, Iterable[Row]], None]
"""Visits rows with the handle of a state."""


def _key_only(backend: KeyedStateBackend, state: Any, rows: Iterable[Row]) -> None:  # noqa: ARG001
    set_current_key = backend.set_current_key
    for key_group, key, _ in rows:
        set_current_key(key_group, key)


def _value_get(backend: KeyedStateBackend, state: Any, rows: Iterable[Row]) -> None:
    set_current_key = backend.set_current_key
    for key_group, key, _ in rows:
        set_current_key(key_group, key)
        state.value()


def _value_update(backend: KeyedStateBackend, state: Any, rows: Iterable[Row]) -> None:
    set_current_key = backend.set_current_key
    for key_group, key, number in rows:
        set_current_key(key_group, key)
        state.update(number)


def _list_add(backend: KeyedStateBackend, state: Any, rows: Iterable[Row]) -> None:
    set_current_key = backend.set_current_key
    for key_group, key, number in rows:
        set_current_key(key_group, key)
        state.add(number)


def _list_get(backend: KeyedStateBackend, state: Any, rows: Iterable[Row]) -> None:
    set_current_key = backend.set_current_key
    for key_group, key, _ in rows:
        set_current_key(key_group, key)
        for _ in state.get():
            pass


def _map_put(backend: KeyedStateBackend, state: Any, rows: Iterable[Row]) -> None:
    set_current_key = backend.set_current_key
    for key_group, key, number in rows:
        set_current_key(key_group, key)
        state.put(number % CATEGORIES, number)


def _map_get(backend: KeyedStateBackend, state: Any, rows: Iterable[Row]) -> None:
    set_current_key = backend.set_current_key
    for key_group, key, number in rows:
        set_current_key(key_group, key)
        state.get(number % CATEGORIES)


def _map_iterate(backend: KeyedStateBackend, state: Any, rows: Iterable[Row]) -> None:
    set_current_key = backend.set_current_key
    for key_group, key, _ in rows:
        set_current_key(key_group, key)
        for _ in state.items():
            pass


@dataclass(frozen=True)
class Kind:
    """A kind of state and what is done with it."""

    name: str
    entries_per_key: int
    handle: Callable[[KeyedStateBackend], Any]
    fill: Access
    accesses: dict[str, Access]


def _fill_lists(backend: KeyedStateBackend, state: Any, rows: Iterable[Row]) -> None:
    for key_group, key, number in rows:
        backend.set_current_key(key_group, key)
        state.add_all(range(number, number + CATEGORIES))


def _fill_maps(backend: KeyedStateBackend, state: Any, rows: Iterable[Row]) -> None:
    for key_group, key, number in rows:
        backend.set_current_key(key_group, key)
        state.put_all(dict.fromkeys(range(CATEGORIES), number))


KINDS = (
    Kind(
        "value",
        1,
        lambda backend: backend.get_state(ValueStateDescriptor("value", Types.LONG())),
        _value_update,
        {"(key only)": _key_only, "get": _value_get, "update": _value_update},
    ),
    Kind(
        "list",
        CATEGORIES,
        lambda backend: backend.get_list_state(ListStateDescriptor("list", Types.LONG())),
        _fill_lists,
        {"get all": _list_get, "add": _list_add},
    ),
    Kind(
        "map",
        CATEGORIES,
        lambda backend: backend.get_map_state(MapStateDescriptor("map", Types.LONG(), Types.LONG())),
        _fill_maps,
        {"get": _map_get, "put": _map_put, "iterate": _map_iterate},
    ),
)
