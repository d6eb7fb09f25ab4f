"""Columns of a PostgreSQL table for those of Spark, and rows as the text that COPY reads."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.csv
from pyspark.sql import types as spark

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

_JSON: Final = (spark.ArrayType, spark.MapType, spark.StructType)
_TYPES: Final[dict[type[spark.DataType], tuple[str, ...]]] = {
    spark.BooleanType: ("boolean",),
    spark.ByteType: ("smallint", "integer", "bigint", "numeric"),
    spark.ShortType: ("smallint", "integer", "bigint", "numeric"),
    spark.IntegerType: ("integer", "bigint", "numeric"),
    spark.LongType: ("bigint", "numeric"),
    spark.FloatType: ("real", "double precision"),
    spark.DoubleType: ("double precision",),
    spark.StringType: ("text", "character varying", "json", "jsonb", "uuid"),
    spark.CharType: ("text", "character varying"),
    spark.VarcharType: ("text", "character varying"),
    spark.BinaryType: ("bytea",),
    spark.DateType: ("date",),
    spark.TimestampType: ("timestamp with time zone",),
    spark.TimestampNTZType: ("timestamp without time zone",),
    **dict.fromkeys(_JSON, ("jsonb", "json")),
}
"""Spark's type → the type of a column that is made, and those that take all of its values as they are."""


def column_types(kind: spark.DataType, name: str) -> tuple[str, ...]:
    """The types that a column may have, the best first. Raises `InvalidRequestError` if there are none."""
    if isinstance(kind, spark.DecimalType):
        return (f"numeric({kind.precision},{kind.scale})", "numeric")
    types = _TYPES.get(type(kind))
    if types is None:
        raise InvalidRequestError(f"PostgreSQL has no type for column `{name}` ({kind.simpleString()})")
    return types


def csv_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """The rows as COPY reads them in the format csv: nothing is null, and an empty string is quoted."""
    options: Any = pyarrow.csv.WriteOptions(include_header=False)
    for batch in batches:
        sink = pa.BufferOutputStream()
        columns = [_plain(column) for column in batch.columns]
        pyarrow.csv.write_csv(pa.RecordBatch.from_arrays(columns, batch.schema.names), sink, options)
        yield sink.getvalue().to_pybytes()


def _plain(column: pa.Array) -> pa.Array:
    """A column that Arrow writes as PostgreSQL reads it."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_binary(kind):
        return pa.array([None if v is None else f"\\x{v.hex()}" for v in column.to_pylist()], pa.string())
    if pa.types.is_nested(kind):
        texts = [None if v is None else json.dumps(_json_value(v, kind)) for v in column.to_pylist()]
        return pa.array(texts, pa.string())
    return column


def _json_value(value: Any, kind: pa.DataType) -> Any:
    """A value as JSON has it; what JSON has no type for is text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if pa.types.is_struct(kind):
        return {field.name: _json_value(value[field.name], field.type) for field in kind}
    if isinstance(kind, pa.MapType):
        return {str(_json_value(k, kind.key_type)): _json_value(v, kind.item_type) for k, v in value}
    if isinstance(kind, pa.ListType):
        return [_json_value(each, kind.value_type) for each in value]
    if isinstance(value, float) and math.isfinite(value):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)
