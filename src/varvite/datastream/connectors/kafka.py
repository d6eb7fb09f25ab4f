"""`pyflink.datastream.connectors.kafka`'s names."""

from varvite.changelog.row import Row
from varvite.changelog.types.contract import TypeInformation
from varvite.changelog.types.factory import Types
from varvite.common.serialization import DeserializationSchema, SerializationSchema
from varvite.datastream.connectors.base import Sink, Source, StreamTransformer, SupportsPreprocessing
from varvite.datastream.functions import SinkFunction, SourceFunction
from varvite.spark_integration.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from varvite.spark_integration.connectors.kafka.record_sink import (
    FlinkKafkaProducer,
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaSinkBuilder,
    KafkaTopicSelector,
    Semantic,
)
from varvite.spark_integration.connectors.kafka.record_sink import RecordKafkaSink as KafkaSink
from varvite.spark_integration.connectors.kafka.record_source import (
    FlinkKafkaConsumer,
    KafkaSource,
    KafkaSourceBuilder,
)
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

SourceFunction.register(FlinkKafkaConsumer)
SinkFunction.register(FlinkKafkaProducer)
