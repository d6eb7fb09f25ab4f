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
from varvite.spark_integration.options.flink_values import DeliveryGuarantee

__all__ = ["DeliveryGuarantee", "Sink", "Source"]
