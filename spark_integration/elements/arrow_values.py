"""Python values as an Arrow column of a type that Spark has, at any depth.

A naive datetime means local time where the type has a zone, as everywhere in Spark's Python API. A number goes into a
column of integers only if it is whole: Arrow would cut it off. A struct is a dict by names, or its values in order, but
for a row that has just the names of the fields (`in_order`).
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
from pyspark.sql import Row as SparkRow

from varvite.changelog.row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import tzinfo

_compute: Any = pyarrow.compute
_NONE: Final = type(None)
_INTEGERS: Final = frozenset({int, _NONE})
_DATETIMES: Final = frozenset({datetime, _NONE})
_FRACTIONAL: Final = (float, np.floating, Decimal)


def to_array(values: Sequence[Any], arrow_type: Any, zone: tzinfo | None = None) -> pa.Array:
    """A column of these values; raises whatever Python and Arrow raise for one that is not of the type.

    `zone` is that of naive datetimes, if it is not the local one.
    """
    return pa.array(_suited(values, arrow_type, zone), arrow_type)


def zoned(column: Any, arrow_type: Any, zone: str | None) -> Any:
    """The column with its naive timestamps, at any depth, as those of a zone where `arrow_type` has one.

    Args:
        column: Of some type; one without such timestamps is given back as it is.
        arrow_type: What it is to become.
        zone: Of naive timestamps; None: the local one.

    Raises whatever Arrow raises for a column that is not of the type.
    """
    if not _is_naive(column.type, arrow_type):
        return column
    if zone is not None and pa.types.is_timestamp(arrow_type):
        return _compute.assume_timezone(column, zone, ambiguous="earliest", nonexistent="latest")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"))
    epoch: Any = None if zone is None else pa.scalar(0, pa.timestamp("us", tz=zone)).as_py()
    return to_array(column.to_pylist(), arrow_type, None if epoch is None else epoch.tzinfo)


def zone_in(kind: Any) -> str | None:
    """The time zone of the timestamps in columns of that type, at any depth; None if there are none with a zone."""
    if pa.types.is_timestamp(kind):
        return kind.tz
    parts = [kind.field(i).type for i in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return next(filter(None, map(zone_in, parts)), None)


def _is_naive(kind: Any, wanted: Any) -> bool:
    """Whether columns of the one type have naive timestamps where the other has a zone."""
    if pa.types.is_timestamp(kind):
        return kind.tz is None and pa.types.is_timestamp(wanted) and wanted.tz is not None
    if not (pa.types.is_nested(kind) and pa.types.is_nested(wanted)) or kind.num_fields != wanted.num_fields:
        return False
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        names = [field.name for field in kind]
        return any(_is_naive(kind.field(field.name).type, field.type) for field in wanted if field.name in names)
    return any(_is_naive(kind.field(i).type, wanted.field(i).type) for i in range(kind.num_fields))


def in_order(row: Any, names: list[str]) -> Any:
    """The values of a row that has these names in another order, in this order; anything else as it is."""
    own: Any = None
    if isinstance(row, Row):
        own = row.FIELD_NAMES
    elif isinstance(row, SparkRow):
        own = getattr(row, "__fields__", None)
    if own is None or list(own) == names or len(own) != len(names) or set(own) != set(names):
        return row
    values = dict(zip(own, tuple(row), strict=True))
    return tuple([values[name] for name in names])


def _suited(values: Sequence[Any], kind: Any, zone: tzinfo | None) -> Sequence[Any]:
    """Values that Arrow takes for what they mean; the given object if these are such."""
    if pa.types.is_integer(kind):
        return _whole(values)
    if pa.types.is_timestamp(kind):
        return values if kind.tz is None else _instants(values, zone)
    if pa.types.is_struct(kind):
        return _structs(values, kind, zone)
    if pa.types.is_map(kind):
        return _maps(values, kind, zone)
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_looked_at(kind.value_type):
        return _lists(values, lambda elements: _suited(elements, kind.value_type, zone))
    return values


def _is_looked_at(kind: Any) -> bool:
    return pa.types.is_nested(kind) or pa.types.is_integer(kind) or pa.types.is_timestamp(kind)


def _whole(values: Sequence[Any]) -> Sequence[Any]:
    if not set(map(type, values)) <= _INTEGERS:
        for value in values:
            if isinstance(value, _FRACTIONAL) and value % 1:
                raise TypeError(f"{value!r} is not a whole number")
    return values


def _instants(values: Sequence[Any], zone: tzinfo | None) -> list[Any]:
    if zone is None and set(map(type, values)) <= _DATETIMES:
        return [value if value is None or value.tzinfo is not None else value.astimezone() for value in values]
    return [_instant(value, zone) for value in values]


def _instant(value: Any, zone: tzinfo | None) -> datetime | None:
    given: Any = value
    if isinstance(value, np.datetime64):
        given = value.astype("datetime64[us]").item()
    if given is None or (isinstance(given, datetime) and given != given):  # noqa: PLR0124 - only NaT differs
        return None
    if not isinstance(given, datetime):
        raise TypeError(f"{value!r} is no datetime")
    if given.tzinfo is not None:
        return given
    of_pandas: Any = getattr(given, "to_pydatetime", None)
    plain: datetime = given if of_pandas is None else of_pandas()
    return plain.astimezone() if zone is None else plain.replace(tzinfo=zone)


def _structs(values: Sequence[Any], kind: Any, zone: tzinfo | None) -> list[Any]:
    names = [field.name for field in kind]
    records = [value if value is None or isinstance(value, dict) else _record(value, names) for value in values]
    changed: dict[str, Sequence[Any]] = {}
    for field in kind:
        column = [None if record is None else record.get(field.name) for record in records]
        suited = _suited(column, field.type, zone)
        if suited is not column:
            changed[field.name] = suited
    if not changed:
        return records
    return [
        None if record is None else {**record, **{name: column[i] for name, column in changed.items()}}
        for i, record in enumerate(records)
    ]


def _record(value: Any, names: list[str]) -> dict[str, Any]:
    if isinstance(value, str | bytes) or len(value) != len(names):
        raise TypeError(f"{value!r} has no {len(names)} fields {names}")
    return dict(zip(names, in_order(value, names), strict=True))


def _maps(values: Sequence[Any], kind: Any, zone: tzinfo | None) -> Sequence[Any]:
    def suited(pairs: list[Any]) -> list[Any]:
        given = [key for key, _ in pairs], [item for _, item in pairs]
        keys, items = _suited(given[0], kind.key_type, zone), _suited(given[1], kind.item_type, zone)
        return pairs if keys is given[0] and items is given[1] else list(zip(keys, items, strict=True))

    return _lists([list(value.items()) if isinstance(value, dict) else value for value in values], suited)


def _lists(values: Sequence[Any], suited: Callable[[list[Any]], Sequence[Any]]) -> Sequence[Any]:
    """The lists with other elements, if all of them together need others."""
    elements = list(chain.from_iterable(value for value in values if value is not None))
    others = suited(elements)
    if others is elements:
        return values
    rest = iter(others)
    return [None if value is None else [next(rest) for _ in value] for value in values]
