"""Arrow batches as Python rows and back: the row-at-a-time edge of a state worker.

Values have the Python types that Spark's own `collect()` gives: a timestamp is a naive `datetime` in the local time
zone, with `fold`; a struct is a `Row`, a map a `dict`, an array a `list`.
"""

from __future__ import annotations

import difflib
import keyword
from collections import _tuplegetter  # type: ignore[attr-defined]  # the C property of namedtuple: 40 ns a read
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.pandas.types import is_variant
from pyspark.sql.types import VariantVal

from varvite.changelog.types.basic import numbers
from varvite.spark_integration.elements.arrow_values import in_order, to_array
from varvite.spark_integration.elements.clock_times import local_time
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ROW_API: Final = frozenset({"asDict"})
_NAMELESS: Final = frozenset({tuple, list})
_tuple_getitem: Final = tuple.__getitem__


def row_class(names: Sequence[str]) -> type[Row]:
    """A `Row` class of these fields: `row.name` (fastest), `row["name"]`, `row[0]`, unpacking, `asDict()`."""
    index_of = {name: i for i, name in enumerate(names)}

    def getitem(self: Any, item: Any) -> Any:
        if type(item) is str:
            try:
                return _tuple_getitem(self, index_of[item])
            except KeyError:
                raise KeyError(f"no column {item!r}; the columns are {list(index_of)}") from None
        return _tuple_getitem(self, item)

    body: dict[str, Any] = {"__slots__": (), "__fields__": list(names), "__getitem__": getitem}
    for i, name in enumerate(names):
        if name.isidentifier() and not keyword.iskeyword(name) and name not in _ROW_API and not name.startswith("__"):
            body[name] = _tuplegetter(i, f"Column {i}.")
    return type("Row", (Row,), body)


class RowReader:
    """Turns record batches of one schema into lists of rows."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        self._indices = [schema.get_field_index(name) for name in columns]
        self._readers = [column_reader(schema.field(i).type) for i in self._indices]
        self._make = partial(tuple.__new__, row_class(columns))

    def rows(self, batch: pa.RecordBatch) -> list[Row]:
        """The rows of a batch, in order. Read them within `reading`: a value may have no form in Python."""
        columns = [read(batch.column(i)) for read, i in zip(self._readers, self._indices, strict=True)]
        return list(map(self._make, zip(*columns, strict=True)))


def column_reader(arrow_type: pa.DataType) -> Callable[[pa.Array], list[Any]]:
    """A function from a column of a type to the Python values that Spark gives its users."""
    if pa.types.is_timestamp(arrow_type):
        return _timestamps
    if pa.types.is_struct(arrow_type):
        return _variants if is_variant(arrow_type) else _struct_reader(arrow_type)
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return _list_reader(arrow_type)
    if pa.types.is_map(arrow_type):
        return _map_reader(arrow_type)
    return _plain


def _plain(column: pa.Array) -> list[Any]:
    return column.to_pylist()


def _timestamps(column: pa.Array) -> list[Any]:
    if column.type.tz is None:
        return column.cast(pa.timestamp("us")).to_pylist()
    since_epoch = numbers(column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()))
    return [None if us is None else local_time(us) for us in since_epoch]


def _variants(column: pa.Array) -> list[Any]:
    return [None if parts is None else VariantVal(parts["value"], parts["metadata"]) for parts in column.to_pylist()]


def _struct_reader(arrow_type: pa.StructType) -> Callable[[pa.Array], list[Any]]:
    fields = [arrow_type.field(i) for i in range(arrow_type.num_fields)]
    readers = [column_reader(field.type) for field in fields]
    make = partial(tuple.__new__, row_class([field.name for field in fields]))

    def read(column: Any) -> list[Any]:
        children = [reader(child) for reader, child in zip(readers, column.flatten(), strict=True)]
        rows = list(map(make, zip(*children, strict=True))) if children else [make(())] * len(column)
        if column.null_count:
            return [row if valid else None for row, valid in zip(rows, pc.is_valid(column).to_pylist(), strict=True)]
        return rows

    return read


def _slices(column: Any) -> list[tuple[int, int] | None]:
    """(start, end) of each element's children, or None for null, relative to the flattened children."""
    offsets = column.offsets.to_pylist()
    first = offsets[0] if offsets else 0
    valid = pc.is_valid(column).to_pylist()
    return [(a - first, b - first) if ok else None for a, b, ok in zip(offsets, offsets[1:], valid, strict=False)]


def _list_reader(arrow_type: Any) -> Callable[[pa.Array], list[Any]]:
    reader = column_reader(arrow_type.value_type)

    def read(column: Any) -> list[Any]:
        offsets = column.offsets
        if not len(column):
            return []
        values = reader(column.values.slice(offsets[0].as_py(), offsets[-1].as_py() - offsets[0].as_py()))
        return [None if s is None else values[s[0] : s[1]] for s in _slices(column)]

    return read


def _map_reader(arrow_type: pa.MapType) -> Callable[[pa.Array], list[Any]]:
    key_reader, item_reader = column_reader(arrow_type.key_type), column_reader(arrow_type.item_type)

    def read(column: Any) -> list[Any]:
        if not len(column):
            return []
        start, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
        keys = key_reader(column.keys.slice(start, end - start))
        items = item_reader(column.items.slice(start, end - start))
        return [
            None if s is None else dict(zip(keys[s[0] : s[1]], items[s[0] : s[1]], strict=True))
            for s in _slices(column)
        ]

    return read


class RowWriter:
    """Turns the rows that a user's function yields into columns of the declared output schema."""

    def __init__(self, schema: pa.Schema, operator: str) -> None:
        self._schema = schema
        self._operator = operator
        self._width = len(schema)
        self._names = schema.names
        self._name_set = frozenset(self._names)

    def columns(self, rows: list[Any]) -> list[pa.Array]:
        """One array per output column. Raises `InvalidRequestError` if a row does not fit the schema."""
        if not rows:
            return [pa.array([], field.type) for field in self._schema]
        tuples = self._tuples(rows)
        try:
            widths = set(map(len, tuples))
        except TypeError:  # a row has no length
            widths = set()
        if widths != {self._width}:
            self._explain_width(tuples)
        # One pass per column: zip(*rows) would make an iterator for every row.
        columns = [list(map(itemgetter(i), tuples)) for i in range(self._width)]
        return [self._column(i, field, columns[i]) for i, field in enumerate(self._schema)]

    def _tuples(self, rows: list[Any]) -> list[Any]:
        """Rows as sequences in column order: dicts, and Rows with the columns' names, by name; others unchanged."""
        if type(rows[0]) is dict or any(type(row) is dict for row in rows):
            names = self._names
            return [self._of_dict(row) if isinstance(row, dict) else in_order(row, names) for row in rows]
        if not isinstance(rows[0], (tuple, list)):
            if self._width == 1:
                return [(row,) for row in rows]
            raise InvalidRequestError(
                f"the function yielded a {type(rows[0]).__name__}, expected a tuple, list, Row or dict with the "
                f"columns {self._names}; a function that has one row must yield it, not return it",
                operator=self._operator,
            )
        names = self._names
        if all(kind in _NAMELESS or kind.__dict__.get("__fields__") == names for kind in set(map(type, rows))):
            return rows
        return [in_order(row, names) for row in rows]

    def _of_dict(self, row: dict[Any, Any]) -> tuple[Any, ...]:
        """The values of a dict; what it lacks is null."""
        names = self._names
        unknown = row.keys() - self._name_set
        if unknown:
            name = min(map(str, unknown))
            close = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"the columns are {names}"
            raise InvalidRequestError(
                f"the function yielded a value for a column {name!r} that the output does not have; {hint}",
                operator=self._operator,
            )
        return tuple(map(row.get, names))

    def _column(self, index: int, field: pa.Field, values: Sequence[Any]) -> pa.Array:
        try:
            return to_array(values, field.type)
        except Exception as error:
            bad = next((v for v in values if not _fits(v, field.type)), None)
            raise InvalidRequestError(
                f"output column {index} {field.name!r} is declared {field.type}, but the function yielded {bad!r} "
                f"({type(bad).__name__}): {error}",
                operator=self._operator,
            ) from error

    def _explain_width(self, tuples: list[Any]) -> None:
        bad = next((row for row in tuples if not hasattr(row, "__len__") or len(row) != self._width), None)
        raise InvalidRequestError(
            f"the function yielded {bad!r}, expected {self._width} columns {self._names}", operator=self._operator
        )


def _fits(value: Any, arrow_type: pa.DataType) -> bool:
    try:
        to_array([value], arrow_type)
    except Exception:  # noqa: BLE001  objects of the user's may raise anything
        return False
    return True


def quoted(column: str) -> str:
    """A column's name quoted for an expression, dots and backticks included."""
    return f"`{column.replace('`', '``')}`"
