"""`pyflink.datastream.connectors.kafka`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.changelog.row import Row
from varvite.changelog.types.contract import TypeInformation
from varvite.changelog.types.factory import Types
from varvite.common.serialization import DeserializationSchema, SerializationSchema
from varvite.datastream.connectors.base import Sink, Source, StreamTransformer, SupportsPreprocessing
from varvite.datastream.functions import SinkFunction, SourceFunction
from varvite.spark_integration.options.absent import BOTH_WITH_SPARK, READ_WITH_SPARK, WRITE_WITH_SPARK, absent
from varvite.spark_integration.options.flink_values import DeliveryGuarantee

__all__ = [
    "DeliveryGuarantee",
    "DeserializationSchema",
    "FlinkKafkaConsumer",
    "FlinkKafkaProducer",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
    "Row",
    "Semantic",
    "SerializationSchema",
    "Sink",
    "SinkFunction",
    "Source",
    "SourceFunction",
    "StreamTransformer",
    "SupportsPreprocessing",
    "TypeInformation",
    "Types",
]

FlinkKafkaConsumer: Any = absent("FlinkKafkaConsumer", READ_WITH_SPARK)
FlinkKafkaProducer: Any = absent("FlinkKafkaProducer", WRITE_WITH_SPARK)
KafkaOffsetResetStrategy: Any = absent("KafkaOffsetResetStrategy", BOTH_WITH_SPARK)
KafkaOffsetsInitializer: Any = absent("KafkaOffsetsInitializer", BOTH_WITH_SPARK)
KafkaRecordSerializationSchema: Any = absent("KafkaRecordSerializationSchema", BOTH_WITH_SPARK)
KafkaRecordSerializationSchemaBuilder: Any = absent("KafkaRecordSerializationSchemaBuilder", BOTH_WITH_SPARK)
KafkaSink: Any = absent("KafkaSink", WRITE_WITH_SPARK)
KafkaSinkBuilder: Any = absent("KafkaSinkBuilder", WRITE_WITH_SPARK)
KafkaSource: Any = absent("KafkaSource", READ_WITH_SPARK)
KafkaSourceBuilder: Any = absent("KafkaSourceBuilder", READ_WITH_SPARK)
KafkaTopicPartition: Any = absent("KafkaTopicPartition", BOTH_WITH_SPARK)
KafkaTopicSelector: Any = absent("KafkaTopicSelector", BOTH_WITH_SPARK)
Semantic: Any = absent("Semantic", BOTH_WITH_SPARK)
