"""The choice of a batch's way, by the driver or by Spark's tasks; pure.

The choice is made before the rows are read, and confirmed while they are: the driver reads a few rows more than it may
take. If it gets them the batch takes Spark's way, and what was read is dropped.

Invariants: I10 (rows in the driver are limited by number and by size).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as spark

from varvite.spark_integration.driver.answer_size import REST_BATCHES

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

ANSWER_RATIO_MAX: Final = 8
"""An answer may be as many times as large as the largest input."""
FIRST_ROWS_MAX: Final = 1_000
"""Rows to read at most while nothing is known of their size."""
_VALUE_BYTES: Final = {
    spark.BooleanType: 1, spark.ByteType: 1, spark.ShortType: 2, spark.IntegerType: 4, spark.FloatType: 4,
    spark.DateType: 4, spark.LongType: 8, spark.DoubleType: 8, spark.TimestampType: 8, spark.TimestampNTZType: 8,
    spark.DayTimeIntervalType: 8, spark.DecimalType: 16,
}  # fmt: skip
"""Bytes of values of one width, in Arrow."""
_OTHER_CARRIED: Final = (spark.StringType, spark.BinaryType, spark.NullType)
"""Other types whose values pass from Spark to the driver and back unchanged."""


class Way(Enum):
    """A way of a batch."""

    DRIVER = "driver"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class SmallBatchLimits:
    """The limits of a small batch."""

    rows_max: int
    """0: no batch is small."""
    size_max_bytes: int

    @property
    def answer_max_bytes(self) -> int:
        """Largest answer of an operator."""
        return self.size_max_bytes * ANSWER_RATIO_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize:
    """The size of a batch, as far as it is known before it is read."""

    rows_max: int | None = None
    """It has at most so many rows; None: nothing is known."""
    size_bytes: int | None = None
    """About its size where it comes from; None: nothing is known."""

    @property
    def is_empty(self) -> bool:
        """Is it known that there are no rows?"""
        return self.rows_max == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PastBatches:
    """The driver's memory of the batches before."""

    rows: int | None = None
    """Rows of the last one; None: there was none."""
    row_bytes: int | None = None
    """Mean size of its rows; None: no batch had any."""
    rest: int = 0
    """Batches that take Spark's way from now on, whatever their size."""

    def after(self, rows: int, row_bytes: int | None) -> PastBatches:
        """The memory after a batch with so many rows; `row_bytes` is None if it had none."""
        return PastBatches(
            rows=rows,
            row_bytes=self.row_bytes if row_bytes is None else row_bytes,
            rest=max(0, self.rest - 1),
        )

    def with_row_bytes(self, row_bytes: int) -> PastBatches:
        """The memory with the mean size of rows that were read."""
        return replace(self, row_bytes=row_bytes)

    def after_large_answer(self) -> PastBatches:
        """The memory after an attempt whose answer was too large: others are likely to be."""
        return replace(self, rest=REST_BATCHES)


@dataclass(frozen=True, slots=True)
class Choice:
    """The way of a batch."""

    way: Way
    rows_max: int = 0
    """Rows that the driver takes at most."""


SPARKS: Final = Choice(Way.SPARK)


def choose(limits: SmallBatchLimits, size: BatchSize, past: PastBatches, row_bytes: int | None) -> Choice:
    """Choose the way of a batch.

    Args:
        limits: Of small batches.
        size: Its size, as far as it is known.
        past: The batches before.
        row_bytes: The size of each row, if all have the same.
    """
    if limits.rows_max == 0 or past.rest:
        return SPARKS
    if size.is_empty:
        return Choice(Way.DRIVER)
    rows = past.rows if size.rows_max is None else size.rows_max
    if size.size_bytes is not None and size.size_bytes > limits.size_max_bytes:
        return SPARKS
    mean_bytes = past.row_bytes or row_bytes
    if mean_bytes is not None:
        rows_max = min(limits.rows_max, limits.size_max_bytes // mean_bytes)
    else:
        rows_max = limits.rows_max if size.size_bytes is not None else min(limits.rows_max, FIRST_ROWS_MAX)
    if rows_max == 0 or (rows is not None and rows > rows_max):
        return SPARKS
    return Choice(Way.DRIVER, rows_max)


def width_bytes(schema: StructType) -> int | None:
    """The size of each row of these columns; None if rows differ."""
    widths = [_VALUE_BYTES.get(type(field.dataType)) for field in schema.fields]
    return None if None in widths else max(1, sum(width for width in widths if width is not None))


def is_carried(kind: DataType) -> bool:
    """Do values of a type pass from Spark to the driver and back, unchanged?"""
    if isinstance(kind, spark.StructType):
        return all(is_carried(field.dataType) for field in kind.fields)
    if isinstance(kind, spark.ArrayType):
        return is_carried(kind.elementType)
    if isinstance(kind, spark.MapType):
        return is_carried(kind.keyType) and is_carried(kind.valueType)
    if isinstance(kind, spark.StringType):
        return type(kind) is spark.StringType  # char and varchar are of subclasses
    return type(kind) in _VALUE_BYTES or type(kind) in _OTHER_CARRIED


def obstacle(
    limits: SmallBatchLimits,
    *,
    is_one_process: bool,
    has_spark_state: bool,
    schemas: tuple[StructType, ...],
) -> str | None:
    """The reason that no batch of a job may take the driver's way; None if small ones may.

    Args:
        limits: Of small batches.
        is_one_process: Driver and executor are one process.
        has_spark_state: The input has operators of Spark with state.
        schemas: Columns of the rows that go to operators and to the sink.
    """
    if limits.rows_max == 0:
        return "it is switched off"
    if not is_one_process:
        return "it is for local mode alone"
    if has_spark_state:
        return "the input has operators of Spark with state, which must be read to the end"
    for schema in schemas:
        for column in schema.fields:
            if not is_carried(column.dataType):
                return f"column {column.name!r} has the type {column.dataType.simpleString()}"
    return None
