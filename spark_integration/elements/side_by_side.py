"""Rows of several streams in one: a column with the number of the stream, and a struct column for each stream.

A row has its columns in the struct of its stream; the other structs are null. This is the form of a job's input from
several sources, of the input of an operator on two connected streams, and of side outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses
from pyspark.sql.types import IntegerType, StructField, StructType

from varvite.spark_integration.elements.arrow_rows import quoted
from varvite.spark_integration.elements.input_errors import reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from varvite.spark_integration.elements.arrow_rows import RowReader
    from varvite.spark_integration.elements.types import ElementReader, ElementType

# Arrow makes these functions at import, so type checkers do not see them.
_compute: Any = pyarrow.compute
INPUT_COLUMN: Final = "__varvite_input"
"""int32: number of the row's stream, from 0."""
OUTPUT_COLUMN: Final = "__varvite_output"
"""int32: number of the row's side output, from 0; null for the main output."""


def rows_column(number: int) -> str:
    """Name of the column with a stream's rows."""
    return f"__varvite_rows_{number}"


def side_by_side_schema(schemas: Sequence[StructType]) -> StructType:
    """Columns of the rows of these streams, in their order."""
    rows = [StructField(rows_column(i), schema) for i, schema in enumerate(schemas)]
    return StructType([StructField(INPUT_COLUMN, IntegerType()), *rows])


def side_by_side(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of these DataFrames in one."""
    schema = side_by_side_schema([frame.schema for frame in frames])
    parts: list[DataFrame] = []
    for number, frame in enumerate(frames):
        columns = [F.lit(number).alias(INPUT_COLUMN)]
        for i, field in enumerate(schema.fields[1:]):
            struct = F.struct(*[F.col(quoted(name)) for name in frame.columns])
            columns.append((struct if i == number else F.lit(None).cast(field.dataType)).alias(field.name))
        parts.append(frame.select(*columns))
    return reduce(lambda united, part: united.union(part), parts)


def split(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each stream, by number; the streams in the order in which they begin."""
    numbers = batch.column(INPUT_COLUMN)
    streams: Any = _compute.unique(numbers).to_pylist()
    for number in streams:
        rows: Any = batch.column(rows_column(number))
        if len(streams) > 1:
            rows = rows.filter(_compute.equal(numbers, number))
        yield number, pa.RecordBatch.from_struct_array(rows)


def with_side_outputs(main: Sequence[pa.Array], sides: Sequence[pa.StructArray]) -> list[pa.Array]:
    """The columns of an answer: the rows of the main output, then those of each side output in a struct column."""
    null: Any = pa.nulls
    counts = [len(main[0]), *map(len, sides)]
    after = sum(counts[1:])
    numbers = [null(counts[0], pa.int32())]
    numbers += [pa.repeat(pa.scalar(i, pa.int32()), len(side)) for i, side in enumerate(sides)]
    columns: list[pa.Array] = [pa.concat_arrays([column, null(after, column.type)]) for column in main]
    columns.append(pa.concat_arrays(numbers))
    for i, side in enumerate(sides):
        before, rest = sum(counts[: i + 1]), sum(counts[i + 2 :])
        columns.append(pa.concat_arrays([null(before, side.type), side, null(rest, side.type)]))
    return columns


def side_output_fields(schemas: Sequence[StructType]) -> list[StructField]:
    """The columns of side outputs with these columns, beside those of the main output."""
    rows = [StructField(rows_column(i), schema) for i, schema in enumerate(schemas)]
    return [StructField(OUTPUT_COLUMN, IntegerType()), *rows] if rows else []


def rows_of_stream(df: DataFrame, number: int, column: str = INPUT_COLUMN) -> DataFrame:
    """The rows of one stream; `column` has the numbers of the streams."""
    return df.where(f"{column} = {number}").select(f"{rows_column(number)}.*")


def rows_of_output(df: DataFrame, number: int | None) -> DataFrame:
    """The rows of one side output; None: of the main output."""
    if number is not None:
        return rows_of_stream(df, number, OUTPUT_COLUMN)
    sides = [name for name in df.columns if name == OUTPUT_COLUMN or name.startswith(rows_column(0)[:-1])]
    return df.where(f"{OUTPUT_COLUMN} IS NULL").drop(*sides)


@dataclass(frozen=True)
class ConnectedElements:
    """The elements of connected streams: read as pairs of the stream's number and the element; picklable."""

    inputs: tuple[ElementType, ...]

    @cached_property
    def schema(self) -> StructType:
        """The columns."""
        return side_by_side_schema([elements.schema for elements in self.inputs])

    def reader(self, schema: pa.Schema) -> ConnectedReader:
        """A reader of batches with this schema."""
        return ConnectedReader(self.inputs, schema)

    def columns(self, number: int, columns: Sequence[pa.Array], types: Sequence[pa.DataType]) -> list[pa.Array]:
        """The columns, `types`, of rows that are all of one stream, given the stream's own columns."""
        count = len(columns[0])
        stream_type: Any = types[number + 1]
        null: Any = pa.nulls
        cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, stream_type, strict=True)]
        connected: list[pa.Array] = [pa.repeat(pa.scalar(number, pa.int32()), count)]
        for i in range(len(self.inputs)):
            is_own = i == number
            rows = pa.StructArray.from_arrays(cast, fields=list(stream_type)) if is_own else null(count, types[i + 1])
            connected.append(rows)
        return connected


class StreamReader:
    """Reads the elements of batches whose rows are all of one stream."""

    def __init__(self, reader: ElementReader | RowReader, number: int) -> None:
        self._reader = reader
        self._column = rows_column(number)

    def rows(self, batch: pa.RecordBatch) -> list[Any]:
        """The elements of a batch. Raises `UnreadableInputError`."""
        column: Any = batch.column(self._column)
        rows = pa.RecordBatch.from_struct_array(column)
        with reading(rows, rows.schema.names, self._reader.rows):
            return self._reader.rows(rows)


class ConnectedReader:
    """Reads (number of the stream, element) pairs, in the order of the rows."""

    def __init__(self, inputs: Sequence[ElementType], schema: pa.Schema) -> None:
        self._readers: list[ElementReader | RowReader] = []
        for number, elements in enumerate(inputs):
            kind: Any = schema.field(rows_column(number)).type
            self._readers.append(elements.reader(pa.schema(list(kind))))

    def of_stream(self, number: int) -> StreamReader:
        """A reader of the elements of one stream."""
        return StreamReader(self._readers[number], number)

    def rows(self, batch: pa.RecordBatch) -> list[tuple[int, Any]]:
        """The pairs of a batch. Raises `UnreadableInputError`."""
        elements: dict[int, Iterator[Any]] = {}
        for number, rows in split(batch):
            with reading(rows, rows.schema.names, self._readers[number].rows):
                elements[number] = iter(self._readers[number].rows(rows))
        numbers: Any = batch.column(INPUT_COLUMN).to_pylist()
        return [(number, next(elements[number])) for number in numbers]
