"""`KafkaSink.builder()` and `FlinkKafkaProducer`: elements as records of Kafka, by PyFlink's builders.

A step in the workers makes topic, key and value of each element; `sink` writes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from varvite.spark_integration.connectors.kafka.columns import KEY, TIME, TOPIC, VALUE
from varvite.spark_integration.connectors.kafka.settings import SERVERS, TRANSACTIONAL_ID_PREFIX, Delivery
from varvite.spark_integration.connectors.kafka.sink import KafkaSink
from varvite.spark_integration.connectors.sink import ElementSink
from varvite.spark_integration.elements.formats.schemas import SerializationSchema
from varvite.spark_integration.elements.types import RowElements
from varvite.spark_integration.functions.stateless import ProcessFunction
from varvite.spark_integration.options.flink_values import DeliveryGuarantee, log_without_effect
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from varvite.spark_integration.elements.types import ElementType

_WITHOUT_EFFECT: Final = {
    "group.id": "a sink has no group",
    "key.serializer": "the key's schema says it",
    "value.serializer": "the value's schema says it",
}
"""Properties that do nothing in Flink's sink either, with the reason."""
_SCHEMA: Final = StructType(
    [
        StructField(TOPIC, StringType()),
        StructField(KEY, BinaryType()),
        StructField(VALUE, BinaryType()),
        StructField(TIME, LongType()),
    ]
)


class KafkaTopicSelector(ABC):
    """Selects the topic of an element."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """The topic."""


class KafkaRecordSerializationSchema:
    """Topic, key and value of each element; made by `builder`; picklable."""

    def __init__(
        self,
        topic: str | None,
        selector: Callable[[Any], str] | None,
        key: SerializationSchema | None,
        value: SerializationSchema,
    ) -> None:
        self.topic = topic
        """None: the selector says it."""
        self._selector, self._key, self._value = selector, key, value

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """A builder."""
        return KafkaRecordSerializationSchemaBuilder()

    def __call__(self, element: Any) -> tuple[str | None, bytes | None, bytes | None]:
        """The row of an element."""
        topic = self.topic if self._selector is None else self._selector(element)
        if not isinstance(topic, str) or not topic:
            raise InvalidRequestError(f"the topic selector answers {topic!r} for {element!r}; it has to be a topic")
        key = None if self._key is None else self._key.serialize(element)
        return topic, key, self._value.serialize(element)


class KafkaRecordSerializationSchemaBuilder:
    """Builds a `KafkaRecordSerializationSchema`."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._selector: Callable[[Any], str] | None = None
        self._key: SerializationSchema | None = None
        self._value: SerializationSchema | None = None

    def build(self) -> KafkaRecordSerializationSchema:
        """The schema. Raises `InvalidRequestError` without a topic, or without the schema of values."""
        if self._value is None:
            raise InvalidRequestError("records need a value: set_value_serialization_schema(SimpleStringSchema()), say")
        if self._topic is None and self._selector is None:
            raise InvalidRequestError("records need a topic: set_topic(...) or set_topic_selector(...)")
        return KafkaRecordSerializationSchema(self._topic, self._selector, self._key, self._value)

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Set the topic of all records. Raises `InvalidRequestError` if a topic is set already."""
        self._check_free()
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: Callable[[Any], str] | KafkaTopicSelector
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set a function from an element to its topic.

        Raises:
            TypeError: It cannot be called.
            InvalidRequestError: A topic is set already.
        """
        if not isinstance(topic_selector, KafkaTopicSelector) and not callable(topic_selector):
            raise TypeError("topic_selector must be KafkaTopicSelector or a callable")
        self._check_free()
        is_object = isinstance(topic_selector, KafkaTopicSelector)
        self._selector = topic_selector.apply if is_object else topic_selector
        return self

    def _check_free(self) -> None:
        if self._topic is not None or self._selector is not None:
            raise InvalidRequestError("the topic of the records is set already; set it once")

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema of keys; without one, records have none."""
        self._key = _checked(key_serialization_schema)
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema of values."""
        self._value = _checked(value_serialization_schema)
        return self


def _checked(schema: Any) -> SerializationSchema:
    if not isinstance(schema, SerializationSchema):
        raise InvalidRequestError(f"{schema!r} is no SerializationSchema; take SimpleStringSchema(), say")
    return schema


class RecordOf(ProcessFunction[Any, Any]):
    """The row of an element: topic, key, value and time."""

    def __init__(self, records: KafkaRecordSerializationSchema, *, writes_times: bool) -> None:
        self._records, self._writes_times = records, writes_times

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[tuple[Any, ...]]:
        return ((*self._records(value), ctx.timestamp() if self._writes_times else None),)


class RecordKafkaSink(KafkaSink, ElementSink):
    """Writes elements as records; made by `builder`."""

    title = "KafkaSink"

    def __init__(self, servers: str, records: KafkaRecordSerializationSchema, **settings: Any) -> None:
        super().__init__(servers, records.topic, **settings)
        self._records = records
        self.writes_times = True
        """Elements' event times become the records' time stamps, as in Flink."""

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """A builder."""
        return KafkaSinkBuilder()

    def form(self, elements: ElementType) -> tuple[RecordOf, ElementType]:
        del elements
        return RecordOf(self._records, writes_times=self.writes_times), RowElements(_SCHEMA)


class KafkaSinkBuilder:
    """Builds a sink. Without a guarantee it is at least once, which is more than Flink's default."""

    def __init__(self) -> None:
        self._servers = ""
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix = TRANSACTIONAL_ID_PREFIX
        self._records: KafkaRecordSerializationSchema | None = None
        self._properties: dict[str, Any] = {}

    def build(self) -> RecordKafkaSink:
        """The sink.

        Raises:
            InvalidRequestError: Servers or the serializer are missing, or a property is one of the Java client alone.
        """
        if self._records is None:
            raise InvalidRequestError(
                "KafkaSink needs set_record_serializer(KafkaRecordSerializationSchema.builder()...)"
            )
        return RecordKafkaSink(
            self._servers or str(self._properties.get(SERVERS, "")),
            self._records,
            delivery=delivery_of(self._guarantee is DeliveryGuarantee.EXACTLY_ONCE),
            options=client_options(self._properties),
            transactional_id_prefix=self._prefix,
        )

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Set the addresses of the brokers."""
        self._servers = bootstrap_servers
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Set the guarantee: EXACTLY_ONCE writes a transaction per batch, both others at least once."""
        if not isinstance(delivery_guarantee, DeliveryGuarantee):
            raise InvalidRequestError(f"{delivery_guarantee!r} is no DeliveryGuarantee")
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set the beginning of the transactional id, which ends with the job's id."""
        self._prefix = transactional_id_prefix
        return self

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        """Set topic, key and value of elements. Raises `InvalidRequestError` for anything else."""
        if not isinstance(record_serializer, KafkaRecordSerializationSchema):
            raise InvalidRequestError(f"{record_serializer!r} is no KafkaRecordSerializationSchema")
        self._records = record_serializer
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of the client, which is librdkafka. Those of the Java client alone are refused at `build`."""
        self._properties[key] = value
        return self


def delivery_of(is_exactly_once: bool) -> str:
    """The guarantee as the sink has it."""
    return (Delivery.EXACTLY_ONCE if is_exactly_once else Delivery.AT_LEAST_ONCE).value


def client_options(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The client's options among a program's properties."""
    for name, reason in _WITHOUT_EFFECT.items():
        if name in properties:
            log_without_effect(f"the property {name!r} of KafkaSink", reason)
    return {name: value for name, value in properties.items() if name != SERVERS and name not in _WITHOUT_EFFECT}


class Semantic(Enum):
    """Guarantees of `FlinkKafkaProducer`; PyFlink's numbers."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class FlinkKafkaProducer(RecordKafkaSink):
    """The same under the name of Flink 1, for `add_sink`.

    Args:
        topic: Of all records.
        serialization_schema: Of the values; keys there are none.
        producer_config: Properties of the client, `bootstrap.servers` among them.
        kafka_producer_pool_size: No effect: there is one producer.
        semantic: The guarantee.
    """

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema,
        producer_config: Mapping[str, Any],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        del kafka_producer_pool_size
        records = KafkaRecordSerializationSchema(topic, None, None, _checked(serialization_schema))
        super().__init__(
            str(producer_config.get(SERVERS, "")),
            records,
            delivery=delivery_of(semantic is Semantic.EXACTLY_ONCE),
            options=client_options(producer_config),
        )
        self.writes_times = False

    def set_log_failures_only(self, log_failures_only: bool) -> FlinkKafkaProducer:
        """Not possible if true, for records would be lost. Raises `InvalidRequestError`."""
        if log_failures_only:
            raise InvalidRequestError(
                "set_log_failures_only(True) is not possible: records would be lost; leave it out"
            )
        return self

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> FlinkKafkaProducer:
        """A hint without effect: all records are delivered before their batch is acknowledged."""
        log_without_effect(f"set_flush_on_checkpoint({flush_on_checkpoint})", "records are always delivered")
        return self

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> FlinkKafkaProducer:
        """Let elements' event times be the records' time stamps; by default those are the times of writing."""
        self.writes_times = write_timestamp_to_kafka
        return self

    def ignore_failures_after_transaction_timeout(self) -> FlinkKafkaProducer:
        """Not possible, for records would be lost. Raises `InvalidRequestError` always."""
        raise InvalidRequestError(
            "ignore_failures_after_transaction_timeout() is not possible: records would be lost; raise "
            "transaction.timeout.ms"
        )
