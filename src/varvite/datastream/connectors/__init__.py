"""`pyflink.datastream.connectors`' names; what cannot be used says so when it is used.

| module | owns |
|---|---|
| `base` | `Sink`, `Source`, `StreamTransformer` |
| `cassandra` | `CassandraCommitter`, `CassandraFailureHandler`, `CassandraSink` |
| `dynamic_kafka` | `DynamicKafkaSource`, `DynamicKafkaSourceBuilder` |
| `elasticsearch` | `Elasticsearch6SinkBuilder`, `Elasticsearch7SinkBuilder` |
| `file_system` | `BucketAssigner`, `BulkFormat`, `DefaultRollingPolicy` |
| `hybrid_source` | `HybridSource` |
| `jdbc` | `JdbcConnectionOptions`, `JdbcExecutionOptions` |
| `kafka` | `FlinkKafkaConsumer`, `FlinkKafkaProducer` |
| `kinesis` | `FlinkKinesisConsumer`, `KinesisDeserializationSchema` |
| `number_seq` | `NumberSequenceSource` |
| `pulsar` | `MessageDelayer`, `PulsarSink`, `PulsarSinkBuilder`, `PulsarSource` |
| `rabbitmq` | `RMQConnectionConfig`, `RMQSink` |
"""

from varvite.datastream.connectors.base import Sink, Source
from varvite.datastream.connectors.dynamic_kafka import (
    DynamicKafkaSource,
    DynamicKafkaSourceBuilder,
    KafkaMetadataService,
    KafkaRecordDeserializationSchema,
    KafkaStreamSetSubscriber,
    KafkaStreamSubscriber,
    SingleClusterTopicMetadataService,
    StreamPatternSubscriber,
)
from varvite.datastream.connectors.file_system import (
    BucketAssigner,
    FileEnumeratorProvider,
    FileSink,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
    StreamingFileSink,
)
from varvite.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcExecutionOptions, JdbcSink
from varvite.datastream.connectors.kafka import FlinkKafkaConsumer, FlinkKafkaProducer, KafkaSource, Semantic
from varvite.datastream.connectors.number_seq import NumberSequenceSource
from varvite.datastream.connectors.pulsar import PulsarSource, PulsarSourceBuilder, StartCursor, StopCursor
from varvite.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSink, RMQSource
from varvite.spark_integration.options.flink_values import DeliveryGuarantee

__all__ = [
    "BucketAssigner",
    "DeliveryGuarantee",
    "DynamicKafkaSource",
    "DynamicKafkaSourceBuilder",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "FlinkKafkaConsumer",
    "FlinkKafkaProducer",
    "JdbcConnectionOptions",
    "JdbcExecutionOptions",
    "JdbcSink",
    "KafkaMetadataService",
    "KafkaRecordDeserializationSchema",
    "KafkaSource",
    "KafkaStreamSetSubscriber",
    "KafkaStreamSubscriber",
    "NumberSequenceSource",
    "OutputFileConfig",
    "PulsarSource",
    "PulsarSourceBuilder",
    "RMQConnectionConfig",
    "RMQSink",
    "RMQSource",
    "RollingPolicy",
    "Semantic",
    "SingleClusterTopicMetadataService",
    "Sink",
    "Source",
    "StartCursor",
    "StopCursor",
    "StreamFormat",
    "StreamPatternSubscriber",
    "StreamingFileSink",
]
