"""`pyflink.datastream.connectors.jdbc`'s names."""

from varvite.datastream.functions import SinkFunction
from varvite.spark_integration.connectors.tables.jdbc_sink import (
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    JdbcSink,
)
from varvite.spark_integration.elements.flink_types import RowTypeInfo

__all__ = ["JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink", "RowTypeInfo", "SinkFunction"]

SinkFunction.register(JdbcSink)
