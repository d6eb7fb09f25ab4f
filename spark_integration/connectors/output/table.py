"""The output of a small batch as an Arrow table, which sinks get, and as a DataFrame.

The table has the columns of the output as Arrow has them, timestamps in UTC. Metadata of its schema say which columns
Spark would have, and how many rows each partition has put out; rows are in the order of partitions.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.pandas.conversion import SparkConversionMixin
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from varvite.spark_integration.elements.side_by_side import INPUT_COLUMN, OUTPUT_COLUMN, rows_column
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

# Arrow makes these functions at import, so type checkers do not see them.
_compute: Any = pyarrow.compute
_SCHEMA: Final = b"varvite.spark_schema"
"""Spark's schema, as JSON."""
_ROWS: Final = b"varvite.partition_rows"
"""Rows of each partition, as a JSON list."""
_batch_session: ContextVar[SparkSession] = ContextVar("varvite batch session")
"""The session of the batch whose rows a sink gets."""


def output_table(schema: StructType, partitions: Sequence[Sequence[pa.RecordBatch]]) -> pa.Table:
    """The table of the rows of all partitions.

    Args:
        schema: Spark's columns of the rows.
        partitions: Rows of each, with these columns and perhaps others.
    """
    arrow = to_arrow_schema(schema, timezone="UTC")
    batches = [batch.select(arrow.names).cast(arrow) for rows in partitions for batch in rows]
    counts = [sum(batch.num_rows for batch in rows) for rows in partitions]
    return _with_metadata(pa.Table.from_batches(batches, arrow), schema, counts)


def spark_schema(table: pa.Table) -> StructType:
    """Spark's columns of a table; those that fit Arrow's if the table does not say."""
    encoded = (table.schema.metadata or {}).get(_SCHEMA)
    return from_arrow_schema(table.schema) if encoded is None else StructType.fromJson(json.loads(encoded))


def partition_rows(table: pa.Table) -> list[int]:
    """Rows of each partition, in the order of the table's rows; all are of one if the table does not say."""
    encoded = (table.schema.metadata or {}).get(_ROWS)
    counts: list[int] = [table.num_rows] if encoded is None else json.loads(encoded)
    return counts


def row_partitions(table: pa.Table) -> list[int]:
    """The partition of each row."""
    counts = partition_rows(table)
    partitions: list[int] = np.repeat(np.arange(len(counts)), counts).tolist()
    return partitions


def plain(table: pa.Table) -> pa.Table:
    """The table without the metadata of this module; each column has at least one chunk, which PySpark relies on."""
    bare = table.replace_schema_metadata(None)
    return bare if bare.num_rows else bare.schema.empty_table()


class TableDataFrame(ClassicDataFrame):
    """The rows of a table as a DataFrame. Spark gets them with the first call that it has to answer.

    Number and columns of the rows, `toArrow`, and `toPandas` with Arrow need no Spark.
    """

    def __init__(self, table: pa.Table, session: SparkSession) -> None:
        """The DataFrame belongs to a session."""
        self._table = table
        java: Any = None
        super().__init__(java, session)

    @property
    def _jdf(self) -> Any:
        if self._java is None:
            made: Any = frame_of(self.sparkSession, plain(self._table), self.schema)
            self._java = made._jdf  # noqa: SLF001  this class stands for it
        return self._java

    @_jdf.setter
    def _jdf(self, java: Any) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]  made when needed
        self._java = java

    @cached_property
    def schema(self) -> StructType:
        """Spark's columns."""
        return spark_schema(self._table)

    def count(self) -> int:
        """Number of rows."""
        return self._table.num_rows

    def isEmpty(self) -> bool:  # noqa: N802  PySpark's name
        """Are there no rows?"""
        return self._table.num_rows == 0

    def _collect_as_arrow(
        self,
        split_batches: bool = False,
        empty_list_if_zero_records: bool = True,
        prefers_large_var_types: bool = False,
    ) -> list[pa.RecordBatch]:
        """The rows as Spark would send them: with times in the session's time zone."""
        del split_batches  # nobody else needs the memory
        if not self._table.num_rows and empty_list_if_zero_records:
            return []
        zone = str(self.sparkSession.conf.get("spark.sql.session.timeZone"))
        sent = to_arrow_schema(self.schema, timezone=zone, prefers_large_types=prefers_large_var_types)
        batches: list[pa.RecordBatch] = plain(self._table).cast(sent).combine_chunks().to_batches()
        return batches or [pa.RecordBatch.from_pylist([], sent)]


def frame_of(session: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """A DataFrame of a table, as `createDataFrame` makes it.

    That would also change the session that Python holds for the active one, in all threads.
    """
    return SparkConversionMixin.createDataFrame(session, table, schema)


@contextmanager
def session_of_batch(session: SparkSession) -> Iterator[None]:
    """Let the DataFrames that are made inside of the block belong to the session of a batch."""
    before = _batch_session.set(session)
    try:
        yield
    finally:
        _batch_session.reset(before)


def dataframe_of(table: pa.Table) -> DataFrame:
    """The rows as a DataFrame of the batch's session. Raises `InvalidRequestError` if no session is active."""
    session = _batch_session.get(None) or SparkSession.getActiveSession()
    if session is None:
        raise InvalidRequestError("no Spark session is active in this thread, so no DataFrame can be made of the rows")
    return TableDataFrame(table, session)


def table_of_stream(table: pa.Table, number: int, column: str = INPUT_COLUMN) -> pa.Table:
    """The rows of one of several streams that are side by side; `column` has the numbers of the streams."""
    rows, counts = _filtered(table, _compute.equal(table.column(column), number))
    inner: Any = spark_schema(table)[rows_column(number)].dataType
    structs: Any = rows.column(rows_column(number)).combine_chunks()
    columns = StructType(inner.fields)
    arrow = to_arrow_schema(columns, timezone="UTC")
    flat = pa.Table.from_arrays(structs.flatten(), names=columns.names).cast(arrow)
    return _with_metadata(flat, columns, counts)


def table_of_output(table: pa.Table, number: int | None) -> pa.Table:
    """The rows of one side output; None: of the main output."""
    if number is not None:
        return table_of_stream(table, number, OUTPUT_COLUMN)
    rows, counts = _filtered(table, _compute.is_null(table.column(OUTPUT_COLUMN)))
    sides = {OUTPUT_COLUMN, *(name for name in table.column_names if name.startswith(rows_column(0)[:-1]))}
    columns = StructType([field for field in spark_schema(table).fields if field.name not in sides])
    return _with_metadata(rows.select(columns.names), columns, counts)


def _filtered(table: pa.Table, is_selected: Any) -> tuple[pa.Table, list[int]]:
    """The rows for which it is true, and how many each partition has of them."""
    is_selected = _compute.fill_null(is_selected, False)
    selected = np.flatnonzero(is_selected.to_numpy())
    ends = np.searchsorted(selected, np.cumsum([0, *partition_rows(table)]))
    counts: list[int] = np.diff(ends).tolist()
    return table.filter(is_selected), counts


def _with_metadata(table: pa.Table, schema: StructType, counts: Sequence[int]) -> pa.Table:
    return table.replace_schema_metadata({_SCHEMA: schema.json(), _ROWS: json.dumps(list(counts))})
