"""The columns of a Kafka sink, which are those of Spark's, and their rows as messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructType

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

# Arrow makes these functions at import, so type checkers do not see them.
_compute: Any = pyarrow.compute
TOPIC: Final = "topic"
KEY: Final = "key"
VALUE: Final = "value"
HEADERS: Final = "headers"
PARTITION: Final = "partition"
TIME: Final = "__varvite_record_time"
"""int64, in rows that varvite makes of elements: the record's time stamp, milliseconds; null: that of writing."""
ROWS_MAX: Final = 10_000
"""Rows that are handed to the client in one call."""
BYTES_MAX: Final = 16 << 20
"""Bytes of their columns, but for a single row."""
_TYPES: Final = {
    TOPIC: "a string",
    KEY: "a string or binary",
    VALUE: "a string or binary",
    HEADERS: "an array of structs (key string, value binary)",
    PARTITION: "an int",
    TIME: "a long",
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise `InvalidRequestError` unless rows of these columns can be written, as Spark's sink checks them.

    Args:
        schema: The columns.
        topic: The topic of all rows; None: their column says it.
    """
    if VALUE not in schema.names:
        raise InvalidRequestError(
            f"rows for Kafka need a column `{VALUE}`, {_TYPES[VALUE]}; the output has {', '.join(schema.names)}"
        )
    if topic is None and TOPIC not in schema.names:
        raise InvalidRequestError(f"no topic is named: give the option `{TOPIC}`, or yield a column `{TOPIC}`")
    for field in schema.fields:
        if field.name in _TYPES and not _is_allowed(field.name, field.dataType):
            raise InvalidRequestError(
                f"column `{field.name}` is of type {field.dataType.simpleString()}; for Kafka it is "
                f"{_TYPES[field.name]}"
            )


def _is_allowed(name: str, kind: DataType) -> bool:
    if name in {KEY, VALUE}:
        return isinstance(kind, (StringType, BinaryType))
    if name == HEADERS:
        return isinstance(kind, ArrayType) and _is_header(kind.elementType)
    return isinstance(kind, {TOPIC: StringType, TIME: LongType}.get(name, IntegerType))


def _is_header(kind: DataType) -> bool:
    if not isinstance(kind, StructType) or kind.names != [KEY, VALUE]:
        return False
    return isinstance(kind[KEY].dataType, StringType) and isinstance(kind[VALUE].dataType, BinaryType)


def columns_of(df: DataFrame) -> DataFrame:
    """The columns that are written."""
    return df.select(*(F.col(name) for name in df.columns if name in _TYPES))


def topics_of(table: pa.Table, topic: str | None) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each topic, in their order. Raises `InvalidRequestError` for a topic that is null."""
    if topic is not None:
        yield topic, table
        return
    column = table.column(TOPIC)
    for name in _compute.unique(column).to_pylist():
        if name is None:
            raise InvalidRequestError(f"a row has null in its column `{TOPIC}`; yield a topic, or give the option")
        yield name, table.filter(_compute.equal(column, name))


def messages_of(table: pa.Table) -> Iterator[tuple[list[dict[str, Any]], int]]:
    """The messages of the rows of a topic, in pieces; each piece with its size in bytes."""
    names = [name for name in (KEY, VALUE, PARTITION, HEADERS, TIME) if name in table.column_names]
    rows = table.select(names)
    bytes_per_row = rows.nbytes // max(rows.num_rows, 1) + 1
    for batch in rows.to_batches(max_chunksize=max(1, min(ROWS_MAX, BYTES_MAX // bytes_per_row))):
        columns = [_values(name, batch.column(name)) for name in names]
        messages = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        if TIME in names:
            messages = [_with_time(message) for message in messages]
        yield [_without_nulls(message) for message in messages] if PARTITION in names else messages, batch.nbytes


def _values(name: str, column: pa.Array) -> list[Any]:
    if name in {KEY, VALUE}:
        return column.cast(pa.binary()).to_pylist()
    values: list[Any] = column.to_pylist()
    if name == HEADERS:
        return [None if row is None else [(header[KEY], header[VALUE]) for header in row] for row in values]
    return values


def _with_time(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its time as the client has it; without one, or before 1970, it is that of writing."""
    time_ms = message.pop(TIME)
    return message if time_ms is None or time_ms < 0 else {**message, "timestamp": time_ms}


def _without_nulls(message: dict[str, Any]) -> dict[str, Any]:
    """The message; without a partition, if that is null, the client chooses one."""
    if message[PARTITION] is None:
        del message[PARTITION]
    return message
