"""`pyflink.datastream.connectors.dynamic_kafka`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.common.serialization import DeserializationSchema
from varvite.datastream.connectors.base import Source
from varvite.datastream.connectors.kafka import KafkaOffsetsInitializer
from varvite.spark_integration.options.absent import BOTH_WITH_SPARK, READ_WITH_SPARK, absent

__all__ = [
    "DeserializationSchema",
    "DynamicKafkaSource",
    "DynamicKafkaSourceBuilder",
    "KafkaMetadataService",
    "KafkaOffsetsInitializer",
    "KafkaRecordDeserializationSchema",
    "KafkaStreamSetSubscriber",
    "KafkaStreamSubscriber",
    "SingleClusterTopicMetadataService",
    "Source",
    "StreamPatternSubscriber",
]

DynamicKafkaSource: Any = absent("DynamicKafkaSource", READ_WITH_SPARK)
DynamicKafkaSourceBuilder: Any = absent("DynamicKafkaSourceBuilder", READ_WITH_SPARK)
KafkaMetadataService: Any = absent("KafkaMetadataService", BOTH_WITH_SPARK)
KafkaRecordDeserializationSchema: Any = absent("KafkaRecordDeserializationSchema", BOTH_WITH_SPARK)
KafkaStreamSetSubscriber: Any = absent("KafkaStreamSetSubscriber", BOTH_WITH_SPARK)
KafkaStreamSubscriber: Any = absent("KafkaStreamSubscriber", BOTH_WITH_SPARK)
SingleClusterTopicMetadataService: Any = absent("SingleClusterTopicMetadataService", BOTH_WITH_SPARK)
StreamPatternSubscriber: Any = absent("StreamPatternSubscriber", BOTH_WITH_SPARK)
