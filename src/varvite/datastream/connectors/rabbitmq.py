"""`pyflink.datastream.connectors.rabbitmq`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.common.serialization import DeserializationSchema, SerializationSchema
from varvite.datastream.functions import SinkFunction, SourceFunction
from varvite.spark_integration.options.absent import BOTH_WITH_SPARK, READ_WITH_SPARK, WRITE_WITH_SPARK, absent

__all__ = [
    "DeserializationSchema",
    "RMQConnectionConfig",
    "RMQSink",
    "RMQSource",
    "SerializationSchema",
    "SinkFunction",
    "SourceFunction",
]

RMQConnectionConfig: Any = absent("RMQConnectionConfig", BOTH_WITH_SPARK)
RMQSink: Any = absent("RMQSink", WRITE_WITH_SPARK)
RMQSource: Any = absent("RMQSource", READ_WITH_SPARK)
