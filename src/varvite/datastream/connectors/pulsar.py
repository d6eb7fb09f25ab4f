"""`pyflink.datastream.connectors.pulsar`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.changelog.api.time_spans import Duration
from varvite.common.serialization import DeserializationSchema, SerializationSchema
from varvite.datastream.connectors.base import Sink, Source
from varvite.spark_integration.options.absent import BOTH_WITH_SPARK, READ_WITH_SPARK, WRITE_WITH_SPARK, absent
from varvite.spark_integration.options.configuration import ConfigOption, ConfigOptions
from varvite.spark_integration.options.flink_values import DeliveryGuarantee

__all__ = [
    "ConfigOption",
    "ConfigOptions",
    "DeliveryGuarantee",
    "DeserializationSchema",
    "Duration",
    "MessageDelayer",
    "PulsarSink",
    "PulsarSinkBuilder",
    "PulsarSource",
    "PulsarSourceBuilder",
    "RangeGenerator",
    "SerializationSchema",
    "Sink",
    "Source",
    "StartCursor",
    "StopCursor",
    "TopicRoutingMode",
]

MessageDelayer: Any = absent("MessageDelayer", BOTH_WITH_SPARK)
PulsarSink: Any = absent("PulsarSink", WRITE_WITH_SPARK)
PulsarSinkBuilder: Any = absent("PulsarSinkBuilder", WRITE_WITH_SPARK)
PulsarSource: Any = absent("PulsarSource", READ_WITH_SPARK)
PulsarSourceBuilder: Any = absent("PulsarSourceBuilder", READ_WITH_SPARK)
RangeGenerator: Any = absent("RangeGenerator", BOTH_WITH_SPARK)
StartCursor: Any = absent("StartCursor", READ_WITH_SPARK)
StopCursor: Any = absent("StopCursor", READ_WITH_SPARK)
TopicRoutingMode: Any = absent("TopicRoutingMode", BOTH_WITH_SPARK)
