"""`pyflink.datastream.connectors.jdbc`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.datastream.functions import SinkFunction
from varvite.spark_integration.elements.flink_types import RowTypeInfo
from varvite.spark_integration.options.absent import BOTH_WITH_SPARK, WRITE_WITH_SPARK, absent

__all__ = ["JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink", "RowTypeInfo", "SinkFunction"]

JdbcConnectionOptions: Any = absent("JdbcConnectionOptions", BOTH_WITH_SPARK)
JdbcExecutionOptions: Any = absent("JdbcExecutionOptions", BOTH_WITH_SPARK)
JdbcSink: Any = absent("JdbcSink", WRITE_WITH_SPARK)
