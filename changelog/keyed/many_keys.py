"""Reads and writes the state of many keys at once: `get_many`, `put_many` and `remove_many` of state without TTL.

If nothing else of a value state is pending, the changes of `put_many` stay in columns (`ValueOverlay.columns`) until
the end of the batch. Any other access of that state in the same batch first turns them into cells (`PendingCells`).

Invariants: I4 (writes go to the overlay alone), I5 (the changes of a batch are the same, whether it used these methods
or those for one key).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from varvite.changelog.api.batch_keys import BatchKeys
from varvite.changelog.keyed.overlays.base import MISSING
from varvite.changelog.segments.changes import DELETED
from varvite.changelog.segments.column_changes import ColumnChanges
from varvite.changelog.types.columns import canonical_column, check_columnar
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.keyed.overlays.map import MapOverlay
    from varvite.changelog.keyed.overlays.value import ValueOverlay
    from varvite.changelog.types.contract import TypeInformation

arrow: Final[Any] = pa


def get_values(overlay: ValueOverlay, value_type: TypeInformation, keys: BatchKeys) -> Any:
    """The value of each key as a column of the value's type; null where there is none."""
    check_keys(keys, overlay.schema.name)
    check_columnar(value_type, f"state {overlay.schema.name!r}")
    overlay.make_cells()
    if overlay.sealed is None and not any(overlay.pending.values()):
        return _confirmed_values(overlay, value_type, keys)
    stored = [MISSING] * len(keys)
    for key_group, start, end in keys.runs():
        cells = overlay.pending.get(key_group, {})
        stored[start:end] = [cells.get(key, MISSING) for key in keys.stored[start:end]]
    unknown = [i for i, value in enumerate(stored) if value is MISSING]
    groups, names = keys.key_groups, keys.stored
    confirmed = overlay.table.get_many([groups[i] for i in unknown], [names[i] for i in unknown])
    for i, value in zip(unknown, confirmed, strict=True):
        stored[i] = value
    return value_type.to_arrow(stored)


def _confirmed_values(overlay: ValueOverlay, value_type: TypeInformation, keys: BatchKeys) -> Any:
    recent, table = overlay.recent, overlay.table
    places = recent.find(keys)
    if places is None:
        return value_type.to_arrow(table.get_many(keys.key_groups, keys.stored))
    unknown = np.flatnonzero(places < 0)
    values = recent.values
    if len(unknown):
        rest = keys.take(unknown)
        places[unknown] = np.arange(len(values), len(values) + len(unknown))
        values = arrow.concat_arrays([values, value_type.to_arrow(table.get_many(rest.key_groups, rest.stored))])
    return values.take(arrow.array(places))


def put_values(overlay: ValueOverlay, value_type: TypeInformation, keys: BatchKeys, values: Any) -> None:
    """Set the value of each key; null removes it. If a key comes twice, its last value counts."""
    name = overlay.schema.name
    check_keys(keys, name)
    check_columnar(value_type, f"state {name!r}")
    column = canonical_column(value_type, values, f"state {name!r}")
    check_length(keys, column, name)
    if not len(keys):
        return
    untouched = overlay.sealed is None and not any(overlay.pending.values())
    if keys.distinct and untouched and (overlay.columns is None or overlay.columns.batch_keys is keys):
        overlay.pending.clear()  # so that the next access of a key group finds it missing
        overlay.columns = ColumnChanges(overlay.schema, keys, value_type, column)
        return
    overlay.make_cells()
    keys.put_into(overlay.pending, value_type.from_arrow(column))
    overlay.removed |= bool(column.null_count)


def get_entries(
    overlay: MapOverlay, types: tuple[TypeInformation, TypeInformation], keys: BatchKeys, entry_keys: Any
) -> Any:
    """For each (key, map key) the value as a column; null where there is no entry, or its value is null."""
    key_type, value_type = types
    map_keys = stored_map_keys(overlay.schema.name, key_type, keys, entry_keys)
    check_columnar(value_type, f"the values of state {overlay.schema.name!r}")
    result: list[Any] = [None] * len(keys)
    unknown: list[int] = []
    stored = keys.stored
    for key_group, start, end in keys.runs():
        maps = overlay.pending.get(key_group, {})
        for i in range(start, end):
            entries = maps.get(stored[i])
            value = MISSING if entries is None else entries.get(map_keys[i], MISSING)
            if value is not MISSING:
                result[i] = None if value is DELETED else value
            elif stored[i] not in overlay.cleared:
                unknown.append(i)
    groups = keys.key_groups
    if overlay.sealed is None:
        read = overlay.table.get_many([groups[i] for i in unknown], [stored[i] for i in unknown],
                                      [map_keys[i] for i in unknown])  # fmt: skip
    else:
        read = [overlay.get(groups[i], stored[i], map_keys[i])[1] for i in unknown]
    for i, value in zip(unknown, read, strict=True):
        result[i] = value
    overlay.read = overlay.read or bool(unknown)
    return value_type.to_arrow(result)


def put_entries(
    overlay: MapOverlay,
    types: tuple[TypeInformation, TypeInformation],
    keys: BatchKeys,
    entry_keys: Any,
    values: Any,
) -> None:
    """Set the entry of each (key, map key); a null is a null value. Of a pair that comes twice the last counts."""
    key_type, value_type = types
    what = f"the values of state {overlay.schema.name!r}"
    map_keys = stored_map_keys(overlay.schema.name, key_type, keys, entry_keys)
    check_columnar(value_type, what)
    column = canonical_column(value_type, values, what)
    check_length(keys, column, overlay.schema.name)
    stored, new, pending = keys.stored, value_type.from_arrow(column), overlay.pending
    for key_group, start, end in keys.runs():
        maps = pending[key_group]
        for i in range(start, end):
            maps.setdefault(stored[i], {})[map_keys[i]] = new[i]


def remove_entries(overlay: MapOverlay, key_type: TypeInformation, keys: BatchKeys, entry_keys: Any) -> None:
    """Remove the entry of each (key, map key)."""
    map_keys = stored_map_keys(overlay.schema.name, key_type, keys, entry_keys)
    for key_group, key, map_key in zip(keys.key_groups, keys.stored, map_keys, strict=True):
        overlay.remove(key_group, key, map_key)


def stored_map_keys(name: str, key_type: TypeInformation, keys: BatchKeys, entry_keys: Any) -> list[Any]:
    """Stored forms of a column of map keys. Raises `InvalidRequestError`."""
    check_keys(keys, name)
    check_columnar(key_type, f"the map keys of state {name!r}")
    column = canonical_column(key_type, entry_keys, f"the map keys of state {name!r}")
    check_length(keys, column, name)
    if column.null_count:
        raise InvalidRequestError(f"state {name!r}: a map key is null")
    return key_type.from_arrow(column)


def check_keys(keys: Any, name: str) -> None:
    """Raise `InvalidRequestError` unless the keys come from the context of a vectorized function."""
    if not isinstance(keys, BatchKeys):
        raise InvalidRequestError(
            f"state {name!r}: the keys are a {type(keys).__name__}; give ctx.keys(), or its take() or its filter()"
        )


def check_length(keys: BatchKeys, column: Any, name: str) -> None:
    """Raise `InvalidRequestError` unless there is one value per key."""
    if len(keys) != len(column):
        raise InvalidRequestError(f"state {name!r}: {len(column)} values for {len(keys)} keys")


def nulls(value_type: TypeInformation, length: int) -> Any:
    """A column of nulls, which remove values."""
    return arrow.nulls(length, value_type.arrow_type)
