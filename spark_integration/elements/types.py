"""Types of a stream's elements, and their form in the columns of its DataFrame.

A stream of rows has the columns of its DataFrame, and its elements are rows as Spark gives them. Any other stream has
elements of a `TypeInformation`: ROW and TUPLE have a column for each field (a tuple's are f0, f1 and so on), every
other type the one column `value`. `Types.PICKLED_BYTE_ARRAY()` takes any object, at the price of a pickle per element.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from varvite.changelog.types.collections import PickledType
from varvite.changelog.types.composites import CompositeType
from varvite.changelog.types.factory import Types, as_type
from varvite.spark_integration.elements.arrow_rows import RowReader, RowWriter
from varvite.spark_integration.elements.columns import value_column
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.types.wire import WireType

VALUE_COLUMN: Final = "value"
"""The column of elements that are neither rows nor tuples."""


class ElementReader(ABC):
    """Turns record batches into elements."""

    @abstractmethod
    def rows(self, batch: pa.RecordBatch) -> list[Any]:
        """The elements of a batch, in order; columns that are not the stream's are ignored."""


class ElementWriter(ABC):
    """Turns elements into columns."""

    @abstractmethod
    def columns(self, rows: list[Any]) -> list[pa.Array]:
        """One array per column. Raises `InvalidRequestError` if an element does not fit."""


class ElementType(ABC):
    """A type of elements; picklable, equal if it means the same."""

    schema: StructType
    """The columns."""
    state_type: WireType
    """Type of a state that keeps an element."""

    @abstractmethod
    def reader(self, schema: pa.Schema) -> ElementReader | RowReader:
        """A reader of batches with this schema."""

    @abstractmethod
    def writer(self, operator: str) -> ElementWriter | RowWriter:
        """A writer; errors name the operator."""

    @abstractmethod
    def conform(self, elements: list[Any]) -> list[Any]:
        """The elements as they would be after `writer` and `reader`; for functions that run one after the other.

        Raises:
            InvalidRequestError: One does not fit.
        """


class RowElements(ElementType):
    """Rows with the columns of a DataFrame."""

    def __init__(self, schema: StructType) -> None:
        self.schema = schema

    @cached_property
    def state_type(self) -> WireType:  # pyright: ignore[reportIncompatibleVariableOverride]
        return as_type(self.schema)

    def reader(self, schema: pa.Schema) -> RowReader:
        return RowReader(schema, self.schema.names)

    def writer(self, operator: str) -> RowWriter:
        return RowWriter(to_arrow_schema(self.schema, timezone="UTC"), operator)

    def conform(self, elements: list[Any]) -> list[Any]:
        schema = to_arrow_schema(self.schema, timezone="UTC")
        batch = pa.RecordBatch.from_arrays(RowWriter(schema, "").columns(elements), schema=schema)
        return RowReader(schema, schema.names).rows(batch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowElements) and self.schema == other.schema

    def __hash__(self) -> int:
        return hash(tuple(self.schema.names))

    def __reduce__(self) -> tuple[Any, ...]:
        return RowElements, (self.schema,)


class TypedElements(ElementType):
    """Values of a type."""

    def __init__(self, kind: WireType) -> None:
        self.state_type = kind
        fields = list(zip(kind.names, kind.types, strict=True)) if isinstance(kind, CompositeType) else None
        self._columns = [(name, value_column(field)) for name, field in fields or [(VALUE_COLUMN, kind)]]
        self.schema = StructType([StructField(n, from_arrow_type(c.arrow_type)) for n, c in self._columns])

    def declared_types(self) -> dict[str, WireType]:
        """Column → type of its values."""
        kind = self.state_type
        return dict(zip(self.schema.names, kind.types if isinstance(kind, CompositeType) else (kind,), strict=True))

    def reader(self, schema: pa.Schema) -> ElementReader:
        return _TypedReader(self, schema)

    def writer(self, operator: str) -> ElementWriter:
        del operator
        return _TypedWriter(self)

    def conform(self, elements: list[Any]) -> list[Any]:
        kind = self.state_type
        if isinstance(kind, PickledType):
            return elements
        freeze, thaw = kind.freeze, kind.thaw
        if isinstance(kind, CompositeType):  # it has no null element, only null fields
            return [thaw(freeze(element)) for element in elements]
        return [None if element is None else thaw(freeze(element)) for element in elements]

    def decode(self, columns: Sequence[Any]) -> list[Any]:
        """The elements of these columns."""
        values = [codec.decode(column) for (_, codec), column in zip(self._columns, columns, strict=True)]
        kind = self.state_type
        return kind.make_all(zip(*values, strict=True)) if isinstance(kind, CompositeType) else values[0]

    def encode(self, elements: list[Any]) -> list[pa.Array]:
        """The columns of these elements. Raises `InvalidRequestError` for one that is not of the type."""
        kind = self.state_type
        if not isinstance(kind, CompositeType):
            return [self._columns[0][1].encode(elements)]
        ordered = [kind.ordered(element) for element in elements]
        return [codec.encode([row[i] for row in ordered]) for i, (_, codec) in enumerate(self._columns)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedElements) and self.state_type == other.state_type

    def __hash__(self) -> int:
        return hash(self.state_type)

    def __reduce__(self) -> tuple[Any, ...]:
        return TypedElements, (self.state_type,)


class _TypedReader(ElementReader):
    def __init__(self, elements: TypedElements, schema: pa.Schema) -> None:
        self._elements = elements
        self._indices = [schema.get_field_index(name) for name in elements.schema.names]

    def rows(self, batch: pa.RecordBatch) -> list[Any]:
        return self._elements.decode([batch.column(i) for i in self._indices])


class _TypedWriter(ElementWriter):
    def __init__(self, elements: TypedElements) -> None:
        self._elements = elements

    def columns(self, rows: list[Any]) -> list[pa.Array]:
        return self._elements.encode(rows)


class UndeclaredElements(TypedElements):
    """Elements without a declared type: any objects, pickled like those of the pickled type."""

    def __init__(self) -> None:
        super().__init__(as_type(Types.PICKLED_BYTE_ARRAY()))


def pickled_elements() -> TypedElements:
    """Elements without a declared type."""
    return UndeclaredElements()


def united_elements(first: ElementType, second: ElementType) -> ElementType:
    """The type of elements that may come from either stream.

    Raises:
        InvalidRequestError: They are of different types, or rows with different columns.
    """
    if isinstance(first, RowElements) and isinstance(second, RowElements):
        columns = [[(f.name, f.dataType.simpleString()) for f in rows.schema.fields] for rows in (first, second)]
        if columns[0] == columns[1]:
            return RowElements(StructType([StructField(f.name, f.dataType) for f in first.schema.fields]))
    elif first == second:
        return second if isinstance(second, UndeclaredElements) else first
    raise InvalidRequestError(
        "streams that are united have elements of one type, not "
        f"{first.schema.simpleString()} and {second.schema.simpleString()}; map them to one type before"
    )
