"""PyFlink's builders of Kafka's source and sink: what they make, and errors that say what to do."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from varvite.changelog.row import Row
from varvite.common.serialization import RowFieldExtractorSchema, SimpleStringSchema
from varvite.datastream import SinkFunction, SourceFunction
from varvite.datastream.connectors.kafka import (
    DeliveryGuarantee,
    FlinkKafkaConsumer,
    FlinkKafkaProducer,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTopicPartition,
    KafkaTopicSelector,
    Semantic,
)
from varvite.spark_integration.connectors.kafka.record_source import _load
from varvite.spark_integration.connectors.kafka.settings import Delivery
from varvite.storage.errors import InvalidRequestError


def source_builder() -> Any:
    return KafkaSource.builder().set_bootstrap_servers("h:1").set_value_only_deserializer(SimpleStringSchema())


def bounded() -> Any:
    return source_builder().set_topics("t").set_bounded(KafkaOffsetsInitializer.latest())


def records_builder() -> Any:
    return KafkaRecordSerializationSchema.builder().set_value_serialization_schema(SimpleStringSchema())


def sink_builder() -> Any:
    return (
        KafkaSink.builder().set_bootstrap_servers("h:1").set_record_serializer(records_builder().set_topic("t").build())
    )


class Second(KafkaTopicSelector):
    def apply(self, data: Any) -> str:
        return data[1]


def test_properties_of_the_source_are_options_of_sparks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "varvite")
    builder = source_builder().set_topics("a", "b").set_group_id("g").set_client_id_prefix("c")
    builder.set_properties({"isolation.level": "read_committed", "auto.offset.reset": "latest"})
    source = builder.set_property("maxOffsetsPerTrigger", "5").build()
    assert source._options() == {
        "subscribe": "a,b", "kafka.bootstrap.servers": "h:1", "groupIdPrefix": "g",
        "kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": "5",
    }  # fmt: skip
    for name in ("client.id.prefix", "auto.offset.reset"):
        assert f"the property '{name}' of KafkaSource has no effect" in caplog.text
    assert source.start == KafkaOffsetsInitializer.earliest(), "Flink's default"
    assert source.stop is None


def test_the_consumer_of_flink_1_begins_at_the_offsets_of_its_group() -> None:
    consumer = FlinkKafkaConsumer("t", SimpleStringSchema(), {"bootstrap.servers": "h:1", "group.id": "g"})
    source = consumer._source
    assert source.start == KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.LATEST)
    assert consumer.set_start_from_earliest()._source.start == KafkaOffsetsInitializer.earliest()
    assert consumer.set_start_from_timestamp(5)._source.start == KafkaOffsetsInitializer.timestamp(5)
    other = {"bootstrap.servers": "h:1", "auto.offset.reset": "earliest"}
    source = FlinkKafkaConsumer(["t", "u"], SimpleStringSchema(), other)._source
    assert source.start == KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)
    assert source.subscription.topics == ("t", "u")


def test_records_have_topic_key_and_value() -> None:
    fixed = records_builder().set_topic("t").build()
    assert pickle.loads(pickle.dumps(fixed))("a") == ("t", None, b"a")
    fields = KafkaRecordSerializationSchema.builder().set_topic_selector(lambda row: f"t-{row[2]}")
    fields.set_key_serialization_schema(RowFieldExtractorSchema(0))
    fields.set_value_serialization_schema(RowFieldExtractorSchema(1))
    assert fields.build()(Row(b"k", b"v", 7)) == ("t-7", b"k", b"v")
    selected = KafkaRecordSerializationSchema.builder().set_topic_selector(Second())
    assert selected.set_value_serialization_schema(RowFieldExtractorSchema(0)).build()((b"v", "x")) == ("x", None, b"v")


def test_settings_of_the_sink(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "varvite")
    sink = sink_builder().set_property("group.id", "g").set_property("linger.ms", "5").build()
    assert isinstance(sink, KafkaSink)
    assert (sink.settings.delivery, dict(sink.settings.options)) == (Delivery.AT_LEAST_ONCE, {"linger.ms": "5"})
    assert "'group.id' of KafkaSink has no effect" in caplog.text
    exact = sink_builder().set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("p")
    assert exact.build().settings.delivery is Delivery.EXACTLY_ONCE
    assert exact.build().settings.producer("job")["transactional.id"] == "p-job"
    producer = FlinkKafkaProducer("t", SimpleStringSchema(), {"bootstrap.servers": "h:1"})
    assert isinstance(producer, SinkFunction)
    assert not isinstance(producer, SourceFunction)
    assert (producer.settings.servers, producer.settings.delivery) == ("h:1", Delivery.AT_LEAST_ONCE)
    producer = FlinkKafkaProducer(
        "t", SimpleStringSchema(), {"bootstrap.servers": "h:1"}, semantic=Semantic.EXACTLY_ONCE
    )
    assert producer.settings.delivery is Delivery.EXACTLY_ONCE


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: KafkaSource.builder().build(), "set_bootstrap_servers"),
        (lambda: source_builder().build(), "set_topics"),
        (lambda: KafkaSource.builder().set_bootstrap_servers("h:1").set_topics("t").build(), "value_only_deserializer"),
        (lambda: source_builder().set_topics("t").set_topic_pattern("t"), "reads subscribe t already"),
        (lambda: source_builder().set_topics(), "needs a topic"),
        (lambda: source_builder().set_partitions({KafkaTopicPartition("t", 0)}).set_topics("t"), "already"),
        (lambda: source_builder().set_bounded(KafkaOffsetsInitializer.earliest()), "no end"),
        (
            lambda: bounded().set_property("maxOffsetsPerTrigger", "5").build(),
            "one batch, which maxOffsetsPerTrigger would divide",
        ),
        (lambda: source_builder().set_starting_offsets("earliest"), "earliest()"),
        (lambda: source_builder().set_value_only_deserializer(str), "no DeserializationSchema"),
        (lambda: KafkaOffsetsInitializer.timestamp(-1), "milliseconds"),
        (lambda: KafkaSink.builder().build(), "set_record_serializer"),
        (
            lambda: KafkaSink.builder().set_record_serializer(records_builder().set_topic("t").build()).build(),
            "servers",
        ),
        (lambda: KafkaRecordSerializationSchema.builder().set_topic("t").build(), "need a value"),
        (lambda: records_builder().build(), "need a topic"),
        (lambda: records_builder().set_topic("t").set_topic_selector(str), "set it once"),
        (lambda: records_builder().set_topic_selector(lambda _: None).build()("a"), "answers None for 'a'"),
        (lambda: records_builder().set_key_serialization_schema(str), "no SerializationSchema"),
        (lambda: sink_builder().set_property("buffer.memory", "1").build(), "Java client"),
        (lambda: sink_builder().set_delivery_guarantee("exactly-once"), "no DeliveryGuarantee"),
        (lambda: FlinkKafkaProducer("t", SimpleStringSchema(), {}), "needs the brokers"),
    ],
)
def test_what_is_missing_or_does_not_fit_is_an_error(call: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        call()


def test_a_session_without_sparks_source_of_kafka_is_told_what_to_load() -> None:
    class Reader:
        def load(self) -> None:
            raise AnalysisException("Failed to find data source: kafka. Deploy the application as per the guide")

    reader: Any = Reader()
    with pytest.raises(InvalidRequestError, match=r"spark-sql-kafka-0-10_2\.13"):
        _load(reader)
