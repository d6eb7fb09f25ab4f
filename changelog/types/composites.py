"""TUPLE and ROW: a fixed number of fields, each of its own type and each possibly None.

A composite of immutable types is immutable: its stored form is a tuple, or a `Row`, of the fields' stored forms, and
its column is a struct column. With one mutable field the whole is mutable, and is kept as wire bytes. On the wire both
are arrays without names; the names of a row are in its type string.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final

import msgspec
import pyarrow as pa

from varvite.changelog.row import Row, make_row, row_class
from varvite.changelog.types.basic import NAN, DoubleType, FloatingType, IntType, LongType
from varvite.changelog.types.composites_fast import FixedWidthRows, canonical_freezer
from varvite.changelog.types.wire import NIL, ImmutableType, WireType, encode
from varvite.changelog.types.wire_columns import array_head, joined, masked, parts_or_else
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.frame import UNPARSABLE

_SIMPLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

_SHOWN_CHARACTERS: Final = 80
"""Of a type in the error of one of its fields."""
_NUMBERS: Final[dict[type[WireType], type[int | float]]] = {IntType: int, LongType: int, DoubleType: float}
"""Types whose columns `FixedWidthRows` extracts → classes of their values."""

Convert = Callable[[Any], Any]


class CompositeType(WireType):
    """Base of TUPLE and ROW; `names` are the names of the columns, and of the fields of a row."""

    def get_field_types(self) -> list[WireType]:
        """Types of the fields."""
        return list(self.types)

    def __init__(self, types: Sequence[WireType], names: Sequence[str]) -> None:
        if not types:
            raise InvalidRequestError("a TUPLE or ROW needs at least one field")
        self.types = tuple(types)
        self.names = tuple(names)
        self.arity = len(types)
        self.immutable = all(field.immutable for field in types)
        self.hashable = all(field.hashable for field in types)
        self.packs_itself = all(field.packs_itself for field in types)
        self._decode = msgspec.msgpack.Decoder(self.wire_schema).decode
        self._load_fields = _loader(self.types)
        self._fields_load_themselves = all(field.loads_itself for field in types)
        self._dump_fields = _each([field.dump for field in types])
        self._pack_fields = _each([field.pack if isinstance(field, ImmutableType | CompositeType) else field.dump
                                   for field in types])  # fmt: skip
        self._freeze_fields = self._freezer()
        self._fields = [pa.field(name, field.arrow_type) for name, field in zip(names, types, strict=True)]
        self._arrow_type = self._column_type()

    def _pass_canonical(self, value_type: type[Any]) -> None:
        """Let `freeze` return canonical values of this class as they are, if every field has a canonical test."""
        tests = [field.canonical_test if isinstance(field, ImmutableType) else None for field in self.types]
        fast = canonical_freezer(value_type, tests, self.freeze)
        if fast is not None:
            setattr(self, "freeze", fast)  # noqa: B010 - for the type checker a method cannot be assigned

    @abstractmethod
    def make_all(self, rows: Iterable[tuple[Any, ...]]) -> list[Any]:
        """The user's objects with these values."""

    @abstractmethod
    def ordered(self, value: Any) -> tuple[Any, ...]:
        """The values of the fields of a user's object, in order. Raises `InvalidRequestError`."""

    def _freezer(self) -> Convert:
        """A function from ordered values to the stored form."""
        if not self.immutable:
            dump = self._dump_fields
            return lambda values: encode(dump(values))
        return _each([field.freeze for field in self.types])

    def field_error(self, values: Sequence[Any], error: InvalidRequestError) -> InvalidRequestError:
        """The error of the first field that is wrong, with its name."""
        for name, field, value in zip(self.names, self.types, values, strict=True):
            try:
                _ = value if value is None else field.freeze(value)
            except InvalidRequestError as wrong:
                whole = self.notation()
                whole = whole if len(whole) < _SHOWN_CHARACTERS else f"{whole[:_SHOWN_CHARACTERS]}..."
                return InvalidRequestError(f"field {name} of {whole}: {wrong.message}")
        return error

    @property
    def wire_schema(self) -> Any:
        return tuple[tuple(field.wire_schema | None for field in self.types)]

    def dump(self, value: Any) -> Any:
        values = self.ordered(value)
        try:
            return self._dump_fields(values)
        except InvalidRequestError as error:
            raise self.field_error(values, error) from None

    def load_all(self, plain: Sequence[Any]) -> list[Any]:
        return self.make_all(plain if self._fields_load_themselves else map(self._load_fields, plain))

    def pack(self, stored: Any) -> Any:
        """Plain form of a stored form; only of an immutable composite."""
        return stored if self.packs_itself else self._pack_fields(stored)

    def thaw(self, stored: Any) -> Any:
        return stored if self.immutable else self._open(stored)

    def to_wire(self, stored: Any) -> bytes:
        if not self.immutable:
            return stored
        return encode(stored if self.packs_itself else self._pack_fields(stored))

    def from_wire(self, data: bytes) -> Any:
        return self._open(data) if self.immutable else data

    def _open(self, data: bytes) -> Any:
        try:
            return self.load(self._decode(data))
        except UNPARSABLE as error:
            raise self.corrupt(error) from error

    def _column_type(self) -> pa.DataType:
        return pa.struct(self._fields) if self.immutable else pa.binary()

    @property
    def arrow_type(self) -> pa.DataType:
        return self._arrow_type

    def to_arrow(self, stored: Sequence[Any]) -> pa.Array[Any]:
        if not self.immutable:
            return pa.array(stored, pa.binary())
        children, absent = self._children(stored)
        struct_array: Any = pa.StructArray
        return struct_array.from_arrays(children, fields=self._fields, mask=absent)

    def _children(self, stored: Sequence[Any]) -> tuple[list[pa.Array[Any]], pa.Array[Any] | None]:
        """The column of each field, and which values are None; None if no value is."""
        absent: pa.Array[Any] | None = None
        # One pass over the rows, which are scattered in memory: an access per field takes three times as long, as does
        # zip, and a search for None takes the same again.
        try:
            flat = list(chain.from_iterable(stored))
        except TypeError:
            absent = pa.array([row is None for row in stored])
            blank = (None,) * self.arity
            flat = list(chain.from_iterable(blank if row is None else row for row in stored))
        if len(flat) != self.arity * len(stored):
            raise ValueError(f"not every value has {self.arity} fields")
        columns = [flat[i :: self.arity] for i in range(self.arity)]
        return [field.to_arrow(column) for field, column in zip(self.types, columns, strict=True)], absent

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        return self._rows(column, [field.from_arrow for field in self.types], self.make_all)

    def wire_ready(self, column: pa.Array[Any]) -> list[Any]:
        return self._rows(column, [field.wire_ready for field in self.types], list)

    def wire_column(self, column: pa.Array[Any]) -> pa.Array[Any]:
        return masked(joined(self.wire_parts(column)), column) if self.immutable else column

    def wire_parts(self, column: pa.Array[Any]) -> list[Any]:
        if not self.immutable:
            return [column]
        struct: Any = column
        parts = [array_head(self.arity)]
        for field, child in zip(self.types, struct.flatten(), strict=True):
            parts += parts_or_else(field, child, NIL)
        return parts

    def _rows(self, column: pa.Array[Any], reads: Sequence[Convert], make_all: Convert) -> list[Any]:
        if not self.immutable:
            return column.to_pylist()
        struct: Any = column
        columns = [read(child) for read, child in zip(reads, struct.flatten(), strict=True)]
        rows = make_all(zip(*columns, strict=True))
        if column.null_count:
            return [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]
        return rows


class TupleType(CompositeType):
    """Tuples."""

    def __init__(self, types: Sequence[WireType]) -> None:
        super().__init__(types, [f"f{i}" for i in range(len(types))])
        self.loads_itself = self._fields_load_themselves
        numbers = [_NUMBERS[type(field)] for field in types if type(field) in _NUMBERS]
        self._numbers = FixedWidthRows(numbers) if len(numbers) == self.arity else None
        self._pass_canonical(tuple)

    def notation(self) -> str:
        return f"tuple<{','.join(field.notation() for field in self.types)}>"

    def arguments(self) -> tuple[Any, ...]:
        return (self.types,)

    def freeze(self, value: Any) -> Any:
        values: Any = value
        if type(value) is not tuple or len(values) != self.arity:
            values = self.ordered(value)
        try:
            return self._freeze_fields(values)
        except InvalidRequestError as error:
            raise self.field_error(values, error) from None

    def _children(self, stored: Sequence[Any]) -> tuple[list[pa.Array[Any]], pa.Array[Any] | None]:
        columns = None if self._numbers is None else self._numbers.columns(stored)
        if columns is None:
            return super()._children(stored)
        typed: Any = zip(self._fields, columns, strict=True)
        return [pa.array(column.astype(field.type.to_pandas_dtype()), field.type) for field, column in typed], None

    def load(self, plain: Any) -> Any:
        return self._load_fields(plain)

    def ordered(self, value: Any) -> tuple[Any, ...]:
        fields: Any = value
        if not isinstance(value, (tuple, list)) or len(fields) != self.arity:
            raise self.reject(value, f"a tuple of {self.arity} fields is needed")
        return tuple(fields)

    def make_all(self, rows: Iterable[tuple[Any, ...]]) -> list[Any]:
        return list(rows)


class RowType(CompositeType):
    """Rows. Takes `Row`s and PySpark rows (by name if they have names), dicts, tuples and lists."""

    def __init__(self, names: Sequence[str], types: Sequence[WireType]) -> None:
        if len(names) != len(types):
            raise InvalidRequestError(f"a ROW with {len(names)} names has {len(types)} types")
        if len(set(names)) != len(names):
            raise InvalidRequestError(f"the field names {list(names)} of a ROW are not unique")
        self._class = row_class(tuple(names))
        super().__init__(types, names)
        self._pass_canonical(self._class)

    def get_field_names(self) -> list[str]:
        """Names of the fields."""
        return list(self.names)

    def get_field_index(self, field_name: str) -> int:
        """Position of a field; -1 if there is none."""
        return list(self.names).index(field_name) if field_name in self.names else -1

    def notation(self) -> str:
        fields = zip(self.names, self.types, strict=True)
        return f"row<{','.join(f'{quote_name(name)}:{field.notation()}' for name, field in fields)}>"

    def arguments(self) -> tuple[Any, ...]:
        return self.names, self.types

    def _freezer(self) -> Convert:
        if not self.immutable:
            return super()._freezer()
        cls, freeze_fields = self._class, super()._freezer()
        return lambda values: make_row(cls, freeze_fields(values))

    def freeze(self, value: Any) -> Any:
        if type(value) is not self._class:
            value = self.ordered(value)
        try:
            return self._freeze_fields(value)
        except InvalidRequestError as error:
            raise self.field_error(value, error) from None

    def load(self, plain: Any) -> Any:
        return make_row(self._class, self._load_fields(plain))

    def ordered(self, value: Any) -> tuple[Any, ...]:
        fields: Any = value
        if isinstance(value, dict):
            return self._by_name(value, fields)
        if not isinstance(value, (tuple, list)) or len(fields) != self.arity:
            raise self.reject(value, f"a Row of {self.arity} fields is needed")
        names = fields.FIELD_NAMES if isinstance(value, Row) else getattr(fields, "__fields__", None)
        if names is None or tuple(names) == self.names:
            return tuple(fields)
        return self._by_name(value, dict(zip(names, tuple(fields), strict=True)))

    def _by_name(self, value: Any, named: dict[str, Any]) -> tuple[Any, ...]:
        if named.keys() != set(self.names):
            raise self.reject(value, f"its fields are {list(named)}")
        return tuple([named[name] for name in self.names])

    def make_all(self, rows: Iterable[tuple[Any, ...]]) -> list[Any]:
        cls = self._class
        return [make_row(cls, row) for row in rows]


def quote_name(name: str) -> str:
    """A field name in the notation of type strings."""
    return name if _SIMPLE_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _each(converts: Sequence[Convert]) -> Convert:
    """A function that converts each field of a tuple of that length; unrolled for the common small ones."""
    unrolled = {1: _only, 2: _both, 3: _all_three}.get(len(converts))
    if unrolled is not None:
        return unrolled(*converts)
    return lambda values: tuple(
        [None if value is None else convert(value) for convert, value in zip(converts, values, strict=True)]
    )


def _only(first: Convert) -> Convert:
    return lambda values: (None if values[0] is None else first(values[0]),)


def _both(first: Convert, second: Convert) -> Convert:
    def convert(values: Any) -> Any:
        a, b = values
        return (None if a is None else first(a), None if b is None else second(b))

    return convert


def _all_three(first: Convert, second: Convert, third: Convert) -> Convert:
    def convert(values: Any) -> Any:
        a, b, c = values
        return (None if a is None else first(a), None if b is None else second(b), None if c is None else third(c))

    return convert


def _loader(types: Sequence[WireType]) -> Convert:
    """A function from the decoded tuple to the tuple of values; the identity if all fields load themselves."""
    loaded = [field for field in types if not field.loads_itself]
    if not loaded:
        return lambda plain: plain
    load_all = _each([field.load for field in types])
    if not all(isinstance(field, FloatingType) for field in loaded):
        return load_all
    floats = [position for position, field in enumerate(types) if isinstance(field, FloatingType)]

    def load(plain: Any) -> Any:
        for position in floats:
            if plain[position] != plain[position]:  # only NaN differs from itself
                return tuple([NAN if value != value else value for value in plain])  # noqa: PLR0124
        return plain

    return load
