"""Rows of a stream as values of a state, and back; and the event times of a column.

A row's timestamps are naive, in the local time zone; a state's are aware. In a state without a zone an aware datetime
leaves its clock, as on Spark.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
from pyspark.sql import types as spark

from varvite.changelog.types.collections import MapType, SequenceType
from varvite.changelog.types.composites import RowType
from varvite.changelog.types.factory import as_type
from varvite.changelog.types.times import InstantType, SqlTimestampType
from varvite.spark_integration.elements.arrow_rows import row_class
from varvite.spark_integration.elements.arrow_values import in_order
from varvite.spark_integration.elements.clock_times import local_instant, local_time
from varvite.spark_integration.elements.types import RowElements
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from varvite.changelog.types.wire import WireType
    from varvite.spark_integration.elements.types import ElementType

_FIRST_AND_LAST_YEAR: Final = (1, 9999)
_PLAIN: Final = frozenset({bool, int, float, str, bytes, datetime, type(None)})


class RowValues:
    """Turns rows into values of a state, and back."""

    def __init__(self, elements: RowElements) -> None:
        self._names = elements.schema.names
        self._values = ColumnValues(elements.schema, "a state of rows")
        self._make = partial(tuple.__new__, row_class(self._names))
        self._has_instants = "instant" in elements.state_type.notation()

    def inward(self, row: Any) -> Any:
        """The state's value of a Row, a tuple or a dict. Raises `InvalidRequestError` if it is no such row."""
        if not self._has_instants:
            return row  # its type takes it as it is
        names = self._names
        if isinstance(row, dict):
            unknown = [name for name in row if name not in names]
            if unknown:
                raise InvalidRequestError(f"a state of rows with the columns {names} takes no value for {unknown}")
            return self._values.inward(tuple(map(row.get, names)))
        return self._values.inward(in_order(row, names))

    def outward(self, stored: Any) -> Any:
        """The row, of the class that the stream's rows have."""
        return self._make(self._values.outward(stored))


def row_values(elements: ElementType | None) -> RowValues | None:
    """The conversion of rows into values of a state, which come out as rows of columns again; None: no conversion."""
    return RowValues(elements) if isinstance(elements, RowElements) else None


def columns_type(schema: Any, what: str) -> RowType:
    """The type of a state's values.

    Args:
        schema: A StructType or a DDL string of columns.
        what: For errors.

    Raises:
        InvalidRequestError: It is no list of columns, or holds a type that state cannot hold.
    """
    kind = as_type(schema)
    if not isinstance(kind, RowType):
        raise InvalidRequestError(
            f"the schema of {what} is {schema!r}; give columns, as a StructType or a DDL string such as 'count bigint'"
        )
    return kind


def plain_value(value: Any) -> Any:  # noqa: PLR0911  one line for each kind of value
    """A numpy or pandas value as Python's own, NaT as None, a Row as a tuple; anything else is returned unchanged."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if hasattr(value, "to_pytimedelta"):
        return value.to_pytimedelta()
    if hasattr(value, "to_pydatetime"):
        moment = value.to_pydatetime()
        return None if moment is value else plain_value(moment)  # NaT's is NaT
    if kind.__module__ == "numpy":
        return plain_value(value.tolist())
    if isinstance(value, dict):
        items: Any = value
        return {plain_value(k): plain_value(v) for k, v in items.items()}
    if isinstance(value, list | tuple):
        held: Any = value
        return list(map(plain_value, held)) if isinstance(value, list) else tuple(map(plain_value, held))
    return value


def value_writer(kind: Any, zoned: Callable[[Any], Any] | None = None) -> Callable[[Any], Any] | None:
    """The conversion of plain values into a type: naive datetimes get a time zone where the type has one.

    Args:
        kind: A type of a state, or of Spark.
        zoned: Makes points in time of naive datetimes, for output; None: of the local time zone, for a state, where
            aware datetimes become naive ones where the type has no zone.

    Returns:
        None if plain values need no conversion.
    """
    if isinstance(kind, InstantType | spark.TimestampType):
        return _kept if zoned is None else partial(_pointed, zoned)
    if isinstance(kind, SqlTimestampType | spark.TimestampNTZType):
        return _clock_of if zoned is None else None
    writers = [value_writer(part, zoned) for part in _parts(kind)]
    if not any(writers):
        return None
    if isinstance(kind, MapType | spark.MapType):
        return partial(_written_entries, *writers)
    if isinstance(kind, RowType | spark.StructType):
        return partial(_written_fields, dict(zip(kind.names, writers, strict=True)))
    of_item = writers[0]
    return lambda held: [_converted(of_item, i) for i in held] if isinstance(held, list | tuple) else held


def _parts(kind: Any) -> list[Any]:
    """The types within a type of a state, or of Spark: of a map key and value."""
    if isinstance(kind, RowType):
        return list(kind.types)
    if isinstance(kind, spark.StructType):
        return [field.dataType for field in kind.fields]
    if isinstance(kind, MapType):
        return [kind.key, kind.value]
    if isinstance(kind, spark.MapType):
        return [kind.keyType, kind.valueType]
    if isinstance(kind, SequenceType):
        return [kind.element]
    return [kind.elementType] if isinstance(kind, spark.ArrayType) else []


def _clock_of(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _pointed(zoned: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else zoned(value.astype("datetime64[us]").item())
    return zoned(value) if isinstance(value, datetime) and value.tzinfo is None else value


def _kept(value: Any) -> Any:
    """A point in time for a state. Raises `OverflowError` if local clocks cannot show it: it could not be read."""
    moment = _pointed(local_instant, value)
    if isinstance(moment, datetime) and moment.year in _FIRST_AND_LAST_YEAR:
        moment.astimezone()
    return moment


def _written_fields(writers: Mapping[str, Callable[[Any], Any] | None], struct: Any) -> Any:
    """The fields of a struct, by name or in order; anything else is returned unchanged, and refused later."""
    if isinstance(struct, dict):
        named: Any = struct
        return {name: _converted(writers.get(name), value) for name, value in named.items()}
    if isinstance(struct, list | tuple) and len(struct) == len(writers):
        return tuple([_converted(write, value) for write, value in zip(writers.values(), struct, strict=True)])
    return struct


def _written_entries(of_key: Callable[[Any], Any] | None, of_value: Callable[[Any], Any] | None, held: Any) -> Any:
    if not isinstance(held, dict):
        return held  # refused later
    entries: Any = held
    return {_converted(of_key, key): _converted(of_value, value) for key, value in entries.items()}


def _converted(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def value_reader(kind: WireType) -> Callable[[Any], Any] | None:
    """The conversion of a type's values into those that Spark gives; None if they are the same."""
    if isinstance(kind, InstantType):
        pack = kind.pack
        return lambda moment: local_time(pack(moment))
    if isinstance(kind, RowType):
        readers = [value_reader(field) for field in kind.types]
        make = row_class(kind.names)
        return lambda row: tuple.__new__(
            make, [i if r is None or i is None else r(i) for i, r in zip(row, readers, strict=True)]
        )
    if isinstance(kind, MapType):
        of_key, of_value = value_reader(kind.key), value_reader(kind.value)
        if of_key is None and of_value is None:
            return None
        return lambda held: {_converted(of_key, k): _converted(of_value, v) for k, v in held.items()}
    if isinstance(kind, SequenceType):
        of_item = value_reader(kind.element)
        return None if of_item is None else lambda held: [_converted(of_item, item) for item in held]
    return None


class ColumnValues:
    """Turns tuples of Spark's form into values of a state, and back.

    Args:
        schema: Of the state.
        what: For errors.
    """

    def __init__(self, schema: Any, what: str) -> None:
        self.type = columns_type(schema, what)
        self._what = what
        self._writers = [value_writer(kind) for kind in self.type.types]
        readers = [value_reader(kind) for kind in self.type.types]
        self._readers = readers if any(r is not None for r in readers) else None

    def inward(self, value: Any) -> tuple[Any, ...]:
        """The state's value of a tuple. Raises `InvalidRequestError` if it is no tuple of the schema's width."""
        if not isinstance(value, tuple | list):
            raise InvalidRequestError(
                f"{self._what} takes a tuple with a value for each of {list(self.type.names)}, not {value!r}"
            )
        items: Any = value
        if len(items) != self.type.arity:
            raise InvalidRequestError(
                f"{self._what} takes a tuple of {self.type.arity} values {list(self.type.names)}, not {value!r}"
            )
        try:
            return tuple([_converted(write, plain_value(i)) for i, write in zip(items, self._writers, strict=True)])
        except (OverflowError, ValueError) as error:
            at = next(i for i, write in enumerate(self._writers) if _fails(write, items[i]))
            raise InvalidRequestError(
                f"field {self.type.names[at]} of {self._what} is of type {self.type.types[at]}: it takes timestamps of "
                f"the years 1 to 9999 in the local time zone, not {items[at]!r}: {error}"
            ) from error

    def outward(self, stored: Any) -> tuple[Any, ...]:
        """The tuple that Spark would give."""
        if self._readers is None:
            return tuple(stored)
        return tuple(
            [
                item if read is None or item is None else read(item)
                for item, read in zip(stored, self._readers, strict=True)
            ]
        )


def _fails(write: Callable[[Any], Any] | None, value: Any) -> bool:
    try:
        _converted(write, plain_value(value))
    except (OverflowError, ValueError):
        return True
    return False


_compute: Any = pyarrow.compute


def event_times_ms(column: Any) -> Any:
    """The milliseconds of a column of timestamps, or of the ends of a column of windows (int64).

    A column of numbers is milliseconds already.
    """
    if pa.types.is_struct(column.type):
        column = _compute.struct_field(column, "end")
    if not pa.types.is_timestamp(column.type):
        return column
    cut = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
    times = cut.cast(pa.int64())
    if (_compute.min(times).as_py() or 0) > 0:
        return times
    # Arrow rounds towards 1970.
    is_later = _compute.greater(cut.cast(column.type), column)
    return _compute.subtract(times, is_later.cast(pa.int64()))
