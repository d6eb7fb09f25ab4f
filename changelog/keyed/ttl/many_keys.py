"""`get_many`, `put_many` and `remove_many` of states with TTL: key by key, through the methods for one key.

They write the stamp of a row without event time, because there is no current row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varvite.changelog.keyed.many_keys import check_keys, check_length, stored_map_keys
from varvite.changelog.types.columns import canonical_column, check_columnar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varvite.changelog.api.batch_keys import BatchKeys
    from varvite.changelog.keyed.context import KeyContext
    from varvite.changelog.types.contract import TypeInformation


def each_key(context: KeyContext, keys: BatchKeys) -> Iterator[int]:
    """Yield the position of each key, which is the current key until the next one is asked for."""
    before = context.key_group, context.key
    try:
        for i, (key_group, key) in enumerate(zip(keys.key_groups, keys.stored, strict=True)):
            context.key_group, context.key = key_group, key
            yield i
    finally:
        context.key_group, context.key = before


def get_values(
    name: str, value_type: TypeInformation, context: KeyContext, keys: BatchKeys, read: Callable[[], Any]
) -> Any:
    """The result of `read` for each key, as a column; raises as `ValueState.get_many`."""
    check_keys(keys, name)
    check_columnar(value_type, f"state {name!r}")
    return _column(value_type, [read() for _ in each_key(context, keys)])


def put_values(
    name: str,
    value_type: TypeInformation,
    context: KeyContext,
    keys: BatchKeys,
    values: Any,
    write: Callable[[Any], Any],
) -> None:
    """Call `write` with each key's value, None for null; raises as `ValueState.put_many`."""
    check_keys(keys, name)
    thawed = _values(value_type, values, keys, name, f"state {name!r}")
    for i in each_key(context, keys):
        write(thawed[i])


def get_entries(
    name: str,
    types: tuple[TypeInformation, TypeInformation],
    context: KeyContext,
    keys: BatchKeys,
    map_keys: Any,
    read: Callable[[Any], Any],
) -> Any:
    """The result of `read` for each (key, map key), as a column; raises as `MapState.get_many`."""
    key_type, value_type = types
    entries = _map_keys(name, key_type, keys, map_keys)
    check_columnar(value_type, f"the values of state {name!r}")
    return _column(value_type, [read(entries[i]) for i in each_key(context, keys)])


def put_entries(
    name: str,
    types: tuple[TypeInformation, TypeInformation],
    context: KeyContext,
    keys: BatchKeys,
    map_keys: Any,
    values: Any,
    *,
    write: Callable[[Any, Any], None],
) -> None:
    """Call `write` for each (key, map key) with its value, None for null; raises as `MapState.put_many`."""
    key_type, value_type = types
    entries = _map_keys(name, key_type, keys, map_keys)
    thawed = _values(value_type, values, keys, name, f"the values of state {name!r}")
    for i in each_key(context, keys):
        write(entries[i], thawed[i])


def remove_entries(
    name: str,
    key_type: TypeInformation,
    context: KeyContext,
    keys: BatchKeys,
    map_keys: Any,
    remove: Callable[[Any], None],
) -> None:
    """Call `remove` for each (key, map key); raises as `MapState.remove_many`."""
    entries = _map_keys(name, key_type, keys, map_keys)
    for i in each_key(context, keys):
        remove(entries[i])


def _map_keys(name: str, key_type: TypeInformation, keys: BatchKeys, map_keys: Any) -> list[Any]:
    return list(map(key_type.thaw, stored_map_keys(name, key_type, keys, map_keys)))


def _column(value_type: TypeInformation, values: list[Any]) -> Any:
    return value_type.to_arrow([None if value is None else value_type.freeze(value) for value in values])


def _values(value_type: TypeInformation, values: Any, keys: BatchKeys, name: str, what: str) -> list[Any]:
    check_columnar(value_type, what)
    column = canonical_column(value_type, values, what)
    check_length(keys, column, name)
    return [None if stored is None else value_type.thaw(stored) for stored in value_type.from_arrow(column)]
