"""Values of a type as Arrow columns that Spark can hold, and back.

A type that Spark has becomes that type, nested ones too. Any other (pickled objects, integers of any size, times of
day) becomes a binary column of the value's wire form, or of the pickle itself. None is null everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from varvite.changelog.types.collections import MapType, PickledType, SequenceType
from varvite.changelog.types.composites import CompositeType
from varvite.changelog.types.decimals import BigDecimalType, BigIntType
from varvite.changelog.types.dynamic_key import DynamicKeyType
from varvite.changelog.types.times import SqlTimeType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.types.wire import WireType

_NOT_OF_SPARK: Final = (BigDecimalType, BigIntType, DynamicKeyType, SqlTimeType)


class ValueColumn(ABC):
    """The column of a type."""

    arrow_type: pa.DataType

    @abstractmethod
    def encode(self, values: Sequence[Any]) -> pa.Array:
        """A column of these values. Raises `InvalidRequestError` for a value that is not of the type."""

    @abstractmethod
    def decode(self, column: Any) -> list[Any]:
        """The values of a column of `arrow_type`."""


def value_column(kind: WireType) -> ValueColumn:
    """The column of a type."""
    if isinstance(kind, PickledType):
        return _Pickled(kind)
    if isinstance(kind, SequenceType):
        return _List(kind)
    if isinstance(kind, MapType):
        return _Map(kind)
    if isinstance(kind, CompositeType):
        return _Struct(kind)
    return _Wire(kind) if isinstance(kind, _NOT_OF_SPARK) else _Stored(kind)


class _Stored(ValueColumn):
    """Types whose own column is one that Spark has."""

    def __init__(self, kind: WireType) -> None:
        self._kind = kind
        self.arrow_type = kind.arrow_type

    def encode(self, values: Sequence[Any]) -> pa.Array:
        freeze = self._kind.freeze
        return self._kind.to_arrow([None if value is None else freeze(value) for value in values])

    def decode(self, column: Any) -> list[Any]:
        # Spark sends timestamps in the session's zone.
        return self._kind.from_arrow(column if column.type == self.arrow_type else column.cast(self.arrow_type))


class _Wire(ValueColumn):
    """Types that Spark does not have."""

    arrow_type = pa.binary()

    def __init__(self, kind: WireType) -> None:
        self._kind = kind

    def encode(self, values: Sequence[Any]) -> pa.Array:
        kind = self._kind
        return pa.array([None if value is None else kind.to_wire(kind.freeze(value)) for value in values], pa.binary())

    def decode(self, column: Any) -> list[Any]:
        kind = self._kind
        return [None if wire is None else kind.thaw(kind.from_wire(wire)) for wire in column.to_pylist()]


class _Pickled(ValueColumn):
    """Any objects."""

    arrow_type = pa.binary()

    def __init__(self, kind: PickledType) -> None:
        self._kind = kind

    def encode(self, values: Sequence[Any]) -> pa.Array:
        dump = self._kind.dump
        return pa.array([None if value is None else dump(value) for value in values], pa.binary())

    def decode(self, column: Any) -> list[Any]:
        load = self._kind.load
        return [None if data is None else load(data) for data in column.to_pylist()]


class _List(ValueColumn):
    """Lists and arrays."""

    def __init__(self, kind: SequenceType) -> None:
        self._kind = kind
        self._element = value_column(kind.element)
        self.arrow_type = pa.list_(self._element.arrow_type)

    def encode(self, values: Sequence[Any]) -> pa.Array:
        lists = [None if value is None else self._listed(value) for value in values]
        elements = self._element.encode(list(chain.from_iterable(held for held in lists if held is not None)))
        return pa.ListArray.from_arrays(_offsets(lists), elements)

    def decode(self, column: Any) -> list[Any]:
        # flatten() honours slices and leaves the elements of null lists out.
        elements = iter(self._element.decode(column.flatten()))
        return _take(elements, column)

    def _listed(self, value: Any) -> list[Any]:
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise self._kind.reject(value, "a list is needed")
        elements: Any = value
        return list(elements)


class _Map(ValueColumn):
    """Dicts."""

    def __init__(self, kind: MapType) -> None:
        self._kind = kind
        self._entry = key, value = value_column(kind.key), value_column(kind.value)
        self.arrow_type = pa.map_(key.arrow_type, value.arrow_type)

    def encode(self, values: Sequence[Any]) -> pa.Array:
        entries = [None if value is None else self._entries(value) for value in values]
        flat = list(chain.from_iterable(held for held in entries if held is not None))
        key, value = self._entry
        return pa.MapArray.from_arrays(
            _offsets(entries), key.encode([k for k, _ in flat]), value.encode([v for _, v in flat])
        )

    def decode(self, column: Any) -> list[Any]:
        key, value = self._entry
        as_lists = column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
        entries = as_lists.flatten()
        keys, values = key.decode(entries.field(0)), value.decode(entries.field(1))
        lists = _take(iter(zip(keys, values, strict=True)), as_lists)
        return [None if held is None else dict(held) for held in lists]

    def _entries(self, value: Any) -> list[tuple[Any, Any]]:
        try:
            entries = list(dict(value).items())
        except (TypeError, ValueError):
            raise self._kind.reject(value, "a dict is needed") from None
        if any(key is None for key, _ in entries):
            raise self._kind.reject(value, "a key cannot be None")
        return entries


class _Struct(ValueColumn):
    """Tuples and rows."""

    def __init__(self, kind: CompositeType) -> None:
        self._kind = kind
        self._columns = [value_column(field) for field in kind.types]
        self._fields = [pa.field(n, c.arrow_type) for n, c in zip(kind.names, self._columns, strict=True)]
        self.arrow_type = pa.struct(self._fields)

    def encode(self, values: Sequence[Any]) -> pa.Array:
        absent = pa.array([value is None for value in values], pa.bool_())
        blank = (None,) * self._kind.arity
        ordered = [blank if value is None else self._kind.ordered(value) for value in values]
        children = [c.encode([row[i] for row in ordered]) for i, c in enumerate(self._columns)]
        struct_array: Any = pa.StructArray
        return struct_array.from_arrays(children, fields=self._fields, mask=absent)

    def decode(self, column: Any) -> list[Any]:
        children = [c.decode(child) for c, child in zip(self._columns, column.flatten(), strict=True)]
        rows = self._kind.make_all(zip(*children, strict=True))
        if not column.null_count:
            return rows
        return [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]


def _offsets(lists: Sequence[list[Any] | None]) -> Any:
    """Offsets of a list column; a null offset makes a null list."""
    ends = list(accumulate((0 if held is None else len(held) for held in lists), initial=0))
    starts = [None if held is None else start for held, start in zip(lists, ends, strict=False)]
    return pa.array([*starts, ends[-1]], pa.int32())


def _take(elements: Any, column: Any) -> list[Any]:
    """The elements, cut into the lists of a list column."""
    lengths = column.value_lengths().to_pylist()
    return [None if length is None else [next(elements) for _ in range(length)] for length in lengths]
