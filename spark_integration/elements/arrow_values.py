"""Python values as an Arrow column of a type that Spark has, at any depth.

A naive datetime means local time where the type has a zone, as everywhere in Spark's Python API. Where it has none, an
aware one gives the clock of UTC. NaT is null. A column of integers takes whole numbers only, and one of dates or times
no numbers: Arrow would cut them, or count from 1970. A struct is a dict by names, or its values in order; a row with
exactly the names of the fields is read by name (`in_order`).
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
from pyspark.sql import Row as SparkRow
from pyspark.sql.types import VariantVal

from varvite.changelog.row import Row
from varvite.spark_integration.elements.clock_times import instant_in, local_instant, missing_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import tzinfo

_compute: Any = pyarrow.compute
_NONE: Final = type(None)
_INTEGERS: Final = frozenset({int, _NONE})
_DATETIMES: Final = frozenset({datetime, _NONE})
_FRACTIONAL: Final = (float, np.floating, Decimal)
_TIMES: Final[tuple[tuple[Callable[[Any], bool], tuple[type, ...]], ...]] = (
    (pa.types.is_timestamp, (datetime,)),
    (pa.types.is_date, (date, datetime)),
    (pa.types.is_time, (time,)),
    (pa.types.is_duration, (timedelta,)),
    (pa.types.is_interval, (object,)),
)
"""Test of an Arrow type, and the classes of its values."""


def to_array(values: Sequence[Any], arrow_type: Any, zone: tzinfo | None = None) -> pa.Array:
    """A column of these values; raises what Python and Arrow raise for a value that is not of the type.

    `zone` is that of naive datetimes, if it is not the local one.
    """
    return pa.array(_converted(values, arrow_type, zone), arrow_type)


def zoned(column: Any, arrow_type: Any, zone: str | None) -> Any:
    """The column with its naive timestamps, at any depth, as those of a zone where `arrow_type` has one.

    Args:
        column: Of some type; without such timestamps it is returned unchanged.
        arrow_type: The type that it is to get.
        zone: Of naive timestamps; None: the local one.

    Raises what Arrow raises for a column that is not of the type.
    """
    if not _is_naive(column.type, arrow_type):
        return column
    if zone is not None and pa.types.is_timestamp(arrow_type):
        return _compute.assume_timezone(column, zone, ambiguous="earliest", nonexistent="latest")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"))
    return to_array(column.to_pylist(), arrow_type, None if zone is None else zone_info(zone))


def zone_in(kind: Any) -> str | None:
    """The time zone of the timestamps in columns of that type, at any depth; None if there are none with a zone."""
    if pa.types.is_timestamp(kind):
        return kind.tz
    parts = [kind.field(i).type for i in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return next(filter(None, map(zone_in, parts)), None)


def zone_info(zone: str) -> tzinfo:
    """The time zone of that name in Arrow."""
    epoch: Any = pa.scalar(0, pa.timestamp("us", tz=zone)).as_py()
    return epoch.tzinfo


def _is_naive(kind: Any, target: Any) -> bool:
    """True if columns of the first type have naive timestamps where the other has a zone."""
    if pa.types.is_timestamp(kind):
        return kind.tz is None and pa.types.is_timestamp(target) and target.tz is not None
    if not (pa.types.is_nested(kind) and pa.types.is_nested(target)) or kind.num_fields != target.num_fields:
        return False
    if pa.types.is_struct(kind) and pa.types.is_struct(target):
        names = [field.name for field in kind]
        return any(_is_naive(kind.field(field.name).type, field.type) for field in target if field.name in names)
    return any(_is_naive(kind.field(i).type, target.field(i).type) for i in range(kind.num_fields))


def in_order(row: Any, names: list[str]) -> Any:
    """The values in this order of a row that has these names in another one; anything else is returned unchanged."""
    fields: Any = None
    if isinstance(row, Row):
        fields = row.FIELD_NAMES
    elif isinstance(row, SparkRow):
        fields = getattr(row, "__fields__", None)
    if fields is None or list(fields) == names or len(fields) != len(names) or set(fields) != set(names):
        return row
    values = dict(zip(fields, tuple(row), strict=True))
    return tuple([values[name] for name in names])


def _converted(values: Sequence[Any], kind: Any, zone: tzinfo | None) -> Sequence[Any]:  # noqa: PLR0911  a line each
    """Values that Arrow reads as they are meant; the same object if nothing changes."""
    if pa.types.is_integer(kind):
        return _whole(values)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _instants(values, zone)
    if pa.types.is_temporal(kind):
        return _times(values, kind)
    if pa.types.is_struct(kind):
        return _structs(values, kind, zone)
    if pa.types.is_map(kind):
        return _maps(values, kind, zone)
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _may_change(kind.value_type):
        return _lists(values, lambda elements: _converted(elements, kind.value_type, zone))
    return values


def _may_change(kind: Any) -> bool:
    return pa.types.is_nested(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind)


def _whole(values: Sequence[Any]) -> Sequence[Any]:
    if not set(map(type, values)) <= _INTEGERS:
        for value in values:
            if isinstance(value, _FRACTIONAL) and value % 1:
                raise TypeError(f"{value!r} is not a whole number")
    return values


def _instants(values: Sequence[Any], zone: tzinfo | None) -> list[Any]:
    if zone is None and set(map(type, values)) <= _DATETIMES:
        return [value if value is None or value.tzinfo is not None else local_instant(value) for value in values]
    return [_instant(value, zone) for value in values]


def _instant(value: Any, zone: tzinfo | None) -> datetime | None:
    moment = _time(value, (datetime,))
    if moment is None or moment.tzinfo is not None:
        return moment
    of_pandas: Any = getattr(moment, "to_pydatetime", None)
    return instant_in(zone, moment if of_pandas is None else of_pandas())


def _times(values: Sequence[Any], kind: Any) -> Sequence[Any]:
    """Dates, times of day, intervals, or timestamps without a zone."""
    accepted = next(classes for test, classes in _TIMES if test(kind))
    if set(map(type, values)) <= {accepted[0], _NONE}:
        return values
    return [_time(value, accepted) for value in values]


def _time(value: Any, accepted: tuple[type, ...]) -> Any:
    moment: Any = value
    if isinstance(value, np.datetime64 | np.timedelta64):
        moment = value.astype(f"{value.dtype.kind}8[us]").item()
    if moment is None or missing_time(moment) is True:
        return None
    if not isinstance(moment, accepted):
        raise TypeError(f"{value!r} is no {accepted[0].__name__}")
    return moment


def _structs(values: Sequence[Any], kind: Any, zone: tzinfo | None) -> list[Any]:
    names = [field.name for field in kind]
    records = [value if value is None or isinstance(value, dict) else _record(value, names) for value in values]
    known = frozenset(names)
    for record in records:
        if record is not None and not known.issuperset(record):
            raise TypeError(f"{record!r} has fields {sorted(map(str, record.keys() - known))}, and not only {names}")
    changed: dict[str, Sequence[Any]] = {}
    for field in kind:
        column = [None if record is None else record.get(field.name) for record in records]
        converted = _converted(column, field.type, zone)
        if converted is not column:
            changed[field.name] = converted
    if not changed:
        return records
    return [
        None if record is None else {**record, **{name: column[i] for name, column in changed.items()}}
        for i, record in enumerate(records)
    ]


def _record(value: Any, names: list[str]) -> dict[str, Any]:
    if isinstance(value, VariantVal):
        return {"value": value.value, "metadata": value.metadata}
    if isinstance(value, str | bytes) or len(value) != len(names):
        raise TypeError(f"{value!r} has no {len(names)} fields {names}")
    return dict(zip(names, in_order(value, names), strict=True))


def _maps(values: Sequence[Any], kind: Any, zone: tzinfo | None) -> Sequence[Any]:
    def convert(pairs: list[Any]) -> list[Any]:
        old_keys, old_items = [key for key, _ in pairs], [item for _, item in pairs]
        keys, items = _converted(old_keys, kind.key_type, zone), _converted(old_items, kind.item_type, zone)
        return pairs if keys is old_keys and items is old_items else list(zip(keys, items, strict=True))

    return _lists([list(value.items()) if isinstance(value, dict) else value for value in values], convert)


def _lists(values: Sequence[Any], convert: Callable[[list[Any]], Sequence[Any]]) -> Sequence[Any]:
    """The lists with converted elements; the same object if no element changes."""
    elements = list(chain.from_iterable(value for value in values if value is not None))
    converted = convert(elements)
    if converted is elements:
        return values
    rest = iter(converted)
    return [None if value is None else [next(rest) for _ in value] for value in values]
