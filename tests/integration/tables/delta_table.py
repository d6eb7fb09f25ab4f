"""A Delta table of a test, and what tests do with it."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from tests.stores.s3_servers import S3Server
from varvite.changelog.commit.base_decision import SinkCommit
from varvite.spark_integration.connectors.sink import Sink
from varvite.spark_integration.connectors.tables.delta_sink import DeltaSink

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "long": LongType(),
    "array": ArrayType(StringType()),
    "void": NullType(),
    "interval": DayTimeIntervalType(),
}


class Table:
    """A place for a table, and the sinks of one job that write to it."""

    def __init__(self, path: str, schema: str = "k string, v long", **settings: Any) -> None:
        self.path, self.schema, self.settings = path, struct(schema), settings
        self.job = uuid.uuid4().hex

    def sink(self, schema: str | None = None, **settings: Any) -> DeltaSink:
        """A sink that is not prepared."""
        sink = DeltaSink(self.path, **{**self.settings, **settings})
        sink.check_columns(self.schema if schema is None else struct(schema))
        return sink

    def open(self, schema: str | None = None, *, job: str | None = None, **settings: Any) -> DeltaSink:
        """A sink as a new driver makes it."""
        sink = self.sink(schema, **settings)
        sink.prepare(job or self.job)
        sink.take_over()
        return sink

    def table(self) -> DeltaTable:
        return DeltaTable(self.path, storage_options=self.settings.get("storage_options"))

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """All rows, in order; these columns."""
        names = list(columns) or self.schema.names
        return sorted(zip(*self.table().to_pyarrow_table(columns=names).to_pydict().values(), strict=True), key=repr)


def s3_options(server: S3Server) -> dict[str, str]:
    """Options of delta-rs for a server."""
    return {
        "AWS_ENDPOINT_URL": server.endpoint_url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": server.key,
        "AWS_SECRET_ACCESS_KEY": server.secret,
    }


def struct(columns: str) -> StructType:
    """Columns as DDL has them, for which Spark would need a session: name, space, type."""
    pairs = [column.rsplit(" ", 1) for column in columns.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def write(sink: Sink, at: SinkCommit, *rows: tuple[Any, ...], schema: str = "k string, v long") -> None:
    """Write rows of these columns."""
    arrow = to_arrow_schema(struct(schema))
    table = pa.Table.from_pylist([dict(zip(arrow.names, row, strict=True)) for row in rows], arrow)
    sink.write_table(table, at)
    sink.complete(at)
