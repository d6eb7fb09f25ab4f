"""`KafkaSource` and `FlinkKafkaConsumer`: PyFlink's builders, over Spark's source of Kafka.

A job's position is in its checkpoints; offsets of the group are read, if the program says so, and never written.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses

from varvite.spark_integration.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsets,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    Start,
    Subscription,
    spark_offsets,
)
from varvite.spark_integration.connectors.kafka.settings import SERVERS
from varvite.spark_integration.connectors.sources.stream_source import (
    TIME_COLUMN,
    VALUE_COLUMN,
    StreamSource,
    records,
)
from varvite.spark_integration.elements.formats.schemas import DeserializationSchema
from varvite.spark_integration.options.flink_values import log_without_effect
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from varvite.changelog.types.contract import TypeInformation
    from varvite.spark_integration.plan.transformations import Transformation

_log: Final = logging.getLogger(__name__)
GROUP: Final = "group.id"
_WITHOUT_EFFECT: Final = {
    "auto.offset.reset": "set_starting_offsets says it",
    "enable.auto.commit": "the position is in the job's checkpoints",
    "auto.commit.interval.ms": "the position is in the job's checkpoints",
    "commit.offsets.on.checkpoint": "the position is in the job's checkpoints",
    "key.deserializer": "keys are not read",
    "value.deserializer": "set_value_only_deserializer says it",
    "partition.discovery.interval.ms": "new partitions are found with each batch",
    "register.consumer.metrics": "there is nothing to register them with",
    "client.id.prefix": "Spark names its clients",
    "client.id": "Spark names its clients",
}
"""Properties that Flink sets itself or that are Flink's own, and the reason why they do nothing here."""
_OF_SPARK: Final = (
    "failOnDataLoss", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs",
)  # fmt: skip
"""Options of Spark's source that a program may set as properties."""


_OF_BATCHES: Final = frozenset({"maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"})
"""Options of these that divide the input into batches."""


@dataclass(frozen=True)
class KafkaSource(StreamSource):
    """Values of Kafka's records, with the records' time stamps; made by `builder`."""

    subscription: Subscription
    schema: DeserializationSchema
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of Kafka's client, passwords among them, and of Spark's source."""
    start: KafkaOffsetsInitializer = field(default_factory=KafkaOffsetsInitializer.earliest)
    stop: KafkaOffsetsInitializer | None = None
    """None: it does not end."""

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """A builder."""
        return KafkaSourceBuilder()

    @property
    def has_watermarks_apart(self) -> bool:
        return self.stop is None  # what is read in one batch is never late

    def transformation(
        self, spark: SparkSession, parallelism: int, type_info: TypeInformation | None
    ) -> Transformation:
        del parallelism
        rows = self._rows(spark)
        values = rows.select(F.col(VALUE_COLUMN), F.expr("unix_millis(timestamp)").alias(TIME_COLUMN))
        return records(values, self.schema, type_info, is_bounded=self.stop is not None)

    def _rows(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.format("kafka").options(**self._options())
        _load(reader)  # before Kafka's client is asked for offsets, which comes with the source
        rows = _load(reader.option("startingOffsets", self._starting(spark)))
        return rows if self.stop is None or self.stop.kind is Start.LATEST else self._up_to(rows, self.stop)

    def _options(self) -> dict[str, str]:
        """Options of Spark's source, but for the offsets to start from."""
        name, topics = self.subscription.spark_option()
        options = {name: topics}
        for key, value in self.properties.items():
            if key == GROUP:
                options["groupIdPrefix"] = value
            elif key in _WITHOUT_EFFECT:
                log_without_effect(f"the property {key!r} of KafkaSource", _WITHOUT_EFFECT[key])
            else:
                options[key if key in _OF_SPARK else f"kafka.{key}"] = value
        return options

    def _starting(self, spark: SparkSession) -> str:
        """The offsets to start from, as Spark's option has them."""
        if self.start.kind in {Start.EARLIEST, Start.LATEST}:
            return self.start.kind.value
        return spark_offsets(self._resolve(spark, self.start))

    def _up_to(self, rows: DataFrame, stop: KafkaOffsetsInitializer) -> DataFrame:
        """The rows before the offsets to stop at, which are asked for now."""
        ends = self._resolve(rows.sparkSession, stop)
        _log.warning(
            "KafkaSource: rows of %s behind the offsets to stop at are read and dropped; another run of a job that "
            "keeps its state begins behind them",
            self.subscription,
        )
        is_before = F.lit(False)
        for at, end in ends.items():
            of_partition = (F.col("topic") == at.topic) & (F.col("partition") == at.partition)
            is_before |= of_partition & (F.col("offset") < end)
        return rows.where(is_before)

    def _resolve(self, spark: SparkSession, initializer: KafkaOffsetsInitializer) -> dict[KafkaTopicPartition, int]:
        client = {k: v for k, v in self.properties.items() if k not in _WITHOUT_EFFECT and k not in _OF_SPARK}
        client.pop("isolation.level", None)
        group = client.pop(GROUP, None)
        jvm: Any = spark._jvm  # noqa: SLF001  Kafka's client is in the JVM
        return KafkaOffsets(jvm, client).resolve(initializer, self.subscription, group)


def _load(reader: DataStreamReader) -> DataFrame:
    """The rows. Raises `InvalidRequestError` if Spark does not have its source of Kafka."""
    try:
        return reader.load()
    except AnalysisException as error:
        if "kafka" not in str(error).lower() or "find" not in str(error):
            raise
        raise InvalidRequestError(
            "Spark's source of Kafka is not there: start Spark with the package "
            "org.apache.spark:spark-sql-kafka-0-10_2.13 of its version (spark.jars.packages, or spark-submit "
            "--packages)"
        ) from error


class KafkaSourceBuilder:
    """Builds a `KafkaSource`."""

    def __init__(self) -> None:
        self._subscription: Subscription | None = None
        self._schema: DeserializationSchema | None = None
        self._properties: dict[str, str] = {}
        self._start = KafkaOffsetsInitializer.earliest()
        self._stop: KafkaOffsetsInitializer | None = None

    def build(self) -> KafkaSource:
        """The source.

        Raises:
            InvalidRequestError: Servers, topics or the deserializer are missing; or a source that ends is to be read in
                several batches.
        """
        if not self._properties.get(SERVERS):
            raise InvalidRequestError("KafkaSource needs the brokers' addresses: set_bootstrap_servers(...)")
        if self._subscription is None:
            raise InvalidRequestError("KafkaSource needs topics: set_topics(...), set_topic_pattern(...)")
        if self._schema is None:
            raise InvalidRequestError("KafkaSource needs set_value_only_deserializer(SimpleStringSchema()), say")
        of_batches = sorted(_OF_BATCHES & set(self._properties))
        if self._stop is not None and of_batches:
            raise InvalidRequestError(
                f"KafkaSource with set_bounded reads everything in one batch, which {of_batches[0]} would divide: "
                "leave it out, or read without an end"
            )
        return KafkaSource(self._subscription, self._schema, dict(self._properties), self._start, self._stop)

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Set the addresses of the brokers."""
        return self.set_property(SERVERS, bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Set the group whose committed offsets may be read; it begins the names of the groups that read."""
        return self.set_property(GROUP, group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Set the topics. Raises `InvalidRequestError` if topics were set in another way, as do the next two."""
        return self._subscribe(Subscription(topics=topics))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Set a pattern of Java's of the topics' names."""
        return self._subscribe(Subscription(pattern=topic_pattern))

    def set_partitions(self, partitions: Iterable[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Set single partitions."""
        return self._subscribe(Subscription(partitions=tuple(sorted(partitions))))

    def _subscribe(self, subscription: Subscription) -> KafkaSourceBuilder:
        if self._subscription is not None:
            raise InvalidRequestError(f"KafkaSource reads {self._subscription} already; set topics once")
        if not any((subscription.topics, subscription.pattern, subscription.partitions)):
            raise InvalidRequestError("KafkaSource needs a topic")
        self._subscription = subscription
        return self

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Set the offsets at which a new job begins; the earliest."""
        self._start = _checked(starting_offsets_initializer)
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """As `set_bounded`: the job ends there as well."""
        return self.set_bounded(stopping_offsets_initializer)

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Set the offsets at which the job ends; all is read in one batch.

        Raises:
            InvalidRequestError: The earliest, which are no end.
        """
        if _checked(stopping_offsets_initializer).kind is Start.EARLIEST:
            raise InvalidRequestError("earliest() is no end; take latest()")
        self._stop = stopping_offsets_initializer
        return self

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> KafkaSourceBuilder:
        """Set the schema of the values. Raises `InvalidRequestError` for anything else."""
        if not isinstance(deserialization_schema, DeserializationSchema):
            raise InvalidRequestError(f"{deserialization_schema!r} is no DeserializationSchema")
        self._schema = deserialization_schema
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """A hint without effect."""
        return self.set_property("client.id.prefix", prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Set a property of Kafka's Java client, or an option of Spark's source such as `maxOffsetsPerTrigger`."""
        self._properties[key] = str(value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> KafkaSourceBuilder:
        """Set several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self


def _checked(initializer: Any) -> KafkaOffsetsInitializer:
    if not isinstance(initializer, KafkaOffsetsInitializer):
        raise InvalidRequestError(f"{initializer!r} is none of KafkaOffsetsInitializer's; take earliest(), say")
    return initializer


class FlinkKafkaConsumer(StreamSource):
    """The same under the name of Flink 1, for `add_source`. It begins at the group's committed offsets.

    Args:
        topics: One topic, or several.
        deserialization_schema: Of the values.
        properties: Of Kafka's client: `bootstrap.servers`, `group.id`, and `auto.offset.reset` for partitions without
            a committed offset, by default the latest.
    """

    def __init__(
        self, topics: str | list[str], deserialization_schema: DeserializationSchema, properties: Mapping[str, str]
    ) -> None:
        names = [topics] if isinstance(topics, str) else topics
        builder = KafkaSource.builder().set_topics(*names).set_value_only_deserializer(deserialization_schema)
        self._source = builder.set_properties(properties).build()
        self.set_start_from_group_offsets()

    def transformation(
        self, spark: SparkSession, parallelism: int, type_info: TypeInformation | None
    ) -> Transformation:
        return self._source.transformation(spark, parallelism, type_info)

    def set_start_from_earliest(self) -> FlinkKafkaConsumer:
        """Begin at the first records."""
        return self._start(KafkaOffsetsInitializer.earliest())

    def set_start_from_latest(self) -> FlinkKafkaConsumer:
        """Begin at the end."""
        return self._start(KafkaOffsetsInitializer.latest())

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> FlinkKafkaConsumer:
        """Begin at a time, milliseconds since the epoch."""
        return self._start(KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp))

    def set_start_from_group_offsets(self) -> FlinkKafkaConsumer:
        """Begin at the group's committed offsets; the default."""
        reset = self._source.properties.get("auto.offset.reset", "latest").upper()
        if reset not in KafkaOffsetResetStrategy.__members__:
            raise InvalidRequestError(f"auto.offset.reset is {reset.lower()!r}; it is earliest, latest or none")
        return self._start(KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy[reset]))

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> FlinkKafkaConsumer:
        """A hint without effect, as the next one."""
        log_without_effect(f"set_commit_offsets_on_checkpoints({commit_on_checkpoints})", "no offsets are committed")
        return self

    def disable_filter_restored_partitions_with_subscribed_topics(self) -> FlinkKafkaConsumer:
        """A hint without effect."""
        log_without_effect("disable_filter_restored_partitions_with_subscribed_topics()", "Spark reads what it reads")
        return self

    def get_produced_type(self) -> TypeInformation:
        """Type of the elements."""
        return self._source.schema.get_produced_type()

    def _start(self, initializer: KafkaOffsetsInitializer) -> FlinkKafkaConsumer:
        self._source = replace(self._source, start=initializer)
        return self
