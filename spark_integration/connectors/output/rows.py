"""Rows of a batch for a table: in pieces of Arrow, as often as they are asked for, in bounded memory.

The rows of a DataFrame come to the driver one partition after another, so memory is bounded by the largest partition;
those of a DataFrame that is known to be small come in one job.

Invariants: I2 (the loss of rows that Spark has kept is raised as it is), I10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from varvite.spark_integration.connectors.output.table import plain
from varvite.spark_integration.elements.arrow_rows import quoted
from varvite.spark_integration.elements.arrow_task import map_in_arrow
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

SMALL_BYTES: Final = 32 << 20
"""Estimated bytes of a DataFrame up to which its rows are collected at once."""
_PIECE: Final = "piece"
_NUMBER: Final = "__varvite_row_number"
_ROW: Final = "__varvite_row"


class OutputRows(Protocol):
    """The rows of a batch."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, from the first on at each call; timestamps are in UTC."""
        ...

    def last_by(self, keys: Sequence[str]) -> OutputRows:
        """The last row of each key."""
        ...


class TableRows(OutputRows):
    """The rows of a small batch."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from plain(self._table).to_batches()

    def last_by(self, keys: Sequence[str]) -> TableRows:
        numbers: pa.Array = pa.array(np.arange(self._table.num_rows))
        numbered = pa.Table.from_arrays([*(self._table.column(key) for key in keys), numbers], [*keys, _NUMBER])
        last: Any = numbered.group_by(list(keys)).aggregate([(_NUMBER, "max")])
        return TableRows(self._table.take(np.sort(last.column(f"{_NUMBER}_max").to_numpy())))


class FrameRows(OutputRows):
    """The rows of a DataFrame. An estimate of its size decides if they come at once."""

    def __init__(self, df: DataFrame, small_bytes: int = SMALL_BYTES) -> None:
        self._df = df
        self._small_bytes = small_bytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        arrow = to_arrow_schema(self._df.schema, timezone="UTC")
        if estimated_bytes(self._df) <= self._small_bytes:
            yield from self._df.toArrow().cast(arrow).to_batches()
            return
        pieces = map_in_arrow(self._df, encoded_batches, StructType([StructField(_PIECE, BinaryType())]))
        for row in pieces.toLocalIterator(prefetchPartitions=True):
            with pa.ipc.open_stream(row[_PIECE]) as reader:
                for batch in reader:
                    yield batch.cast(arrow)

    def last_by(self, keys: Sequence[str]) -> FrameRows:
        rows, names = self._df, [F.col(quoted(name)) for name in self._df.columns]
        numbered = rows.withColumn(_NUMBER, F.monotonically_increasing_id())
        last = numbered.groupBy(*(F.col(quoted(key)) for key in keys)).agg(
            F.max_by(F.struct(*names), _NUMBER).alias(_ROW)
        )
        return FrameRows(last.select(f"{_ROW}.*"), self._small_bytes)


def encoded_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch as one row: the bytes of Arrow's stream format. Runs in Spark's tasks."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], [_PIECE])


def estimated_bytes(df: DataFrame) -> int:
    """Spark's estimate of the rows' size, which is near for rows that Spark has cached; else far above."""
    java_frame: Any = df._jdf  # noqa: SLF001  there is no public way to a plan's statistics
    return int(str(java_frame.queryExecution().optimizedPlan().stats().sizeInBytes()))


class CheckedRows:
    """The rows as a reader of a library takes them. The reader passes on the text of an error alone.

    Args:
        rows: The rows.
        schema: The columns to be; those that the rows do not have are null.
        constants: Values of columns that the rows do not have.
        keys: Columns that must not be null.
    """

    def __init__(
        self, rows: OutputRows, schema: pa.Schema, constants: dict[str, int], keys: Sequence[str] = ()
    ) -> None:
        self._rows, self._schema, self._constants, self._keys = rows, schema, constants, keys
        self.error: BaseException | None = None
        """The error that has ended the reading."""
        self.rows_read = 0

    def reader(self) -> pa.RecordBatchReader:
        """A reader of all rows."""
        return pa.RecordBatchReader.from_batches(self._schema, self.batches())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows. Raises `InvalidRequestError` for a key that is null."""
        self.error, self.rows_read = None, 0
        try:
            for batch in self._rows.batches():
                self._check_keys(batch)
                self.rows_read += batch.num_rows
                yield self._shaped(batch)
        except Exception as error:
            self.error = error
            raise

    def _check_keys(self, batch: pa.RecordBatch) -> None:
        for key in self._keys:
            if batch.column(key).null_count:
                raise InvalidRequestError(f"a row has null in its key column `{key}`; yield a key, or no such row")

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names, columns = set(batch.schema.names), []
        for field in self._schema:
            if field.name in self._constants:
                column: pa.Array = pa.array(np.full(batch.num_rows, self._constants[field.name]), field.type)
            elif field.name in names:
                column = batch.column(field.name).cast(field.type)
            else:
                column = pa.nulls(batch.num_rows, field.type)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
