"""Programs with PyFlink's `KafkaSource` and `KafkaSink` against a real broker, in the shape of Flink's own examples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.stores.kafka_broker import Kafka
from tests.tidy.pages.doc_blocks import ROOT, blocks_of
from varvite.common import ByteArraySchema, Row, SimpleStringSchema, Time, Types, WatermarkStrategy
from varvite.common.serialization import RowFieldExtractorSchema
from varvite.datastream import StreamExecutionEnvironment
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
)
from varvite.datastream.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema
from varvite.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from varvite.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from varvite.datastream.functions import ProcessFunction, ProcessWindowFunction
from varvite.datastream.window import TumblingEventTimeWindows
from varvite.spark_integration.api.query import VarviteStreamingQuery
from varvite.storage.errors import InvalidRequestError, UserFunctionError

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

NO_TIMES = WatermarkStrategy.no_watermarks()
EARLIEST, LATEST = KafkaOffsetsInitializer.earliest(), KafkaOffsetsInitializer.latest()
PAIR = Types.ROW([Types.INT(), Types.STRING()])
PAIRS = [(1, "hi"), (2, "hello"), (3, "hi"), (4, "hello"), (5, "hi"), (6, "hello"), (6, "hello")]
RECORD = json.dumps(
    {
        "type": "record",
        "name": "TestRecord",
        "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}],
    }
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's cache, with the locations that varvite makes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def env(spark: SparkSession) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(spark).set_parallelism(1)


def sink_of(kafka: Kafka, topic: str, schema: Any) -> Any:
    records = KafkaRecordSerializationSchema.builder().set_topic(topic).set_value_serialization_schema(schema).build()
    builder = KafkaSink.builder().set_record_serializer(records).set_bootstrap_servers(kafka.servers)
    return builder.set_property("group.id", "test_group").build()


def source_builder(kafka: Kafka, topic: str, schema: Any = None, start: Any = EARLIEST) -> Any:
    builder = KafkaSource.builder().set_topics(topic).set_value_only_deserializer(schema or SimpleStringSchema())
    builder.set_properties({"bootstrap.servers": kafka.servers, "group.id": "test_group_1"})
    return builder.set_starting_offsets(start)


def collected(stream: Any, name: str = "job") -> list[Any]:
    with stream.execute_and_collect(name) as elements:
        return list(elements)


def read(env: StreamExecutionEnvironment, builder: Any, strategy: WatermarkStrategy = NO_TIMES) -> Any:
    return env.from_source(builder.build(), watermark_strategy=strategy, source_name="kafka source")


def schemas(name: str) -> tuple[Any, Any]:
    if name == "json":
        reader = JsonRowDeserializationSchema.Builder().type_info(PAIR).build()
        return JsonRowSerializationSchema.Builder().with_type_info(PAIR).build(), reader
    if name == "csv":
        return CsvRowSerializationSchema.Builder(PAIR).build(), CsvRowDeserializationSchema.Builder(PAIR).build()
    pytest.importorskip("fastavro", reason="the extra avro is not installed")
    return AvroRowSerializationSchema(avro_schema_string=RECORD), AvroRowDeserializationSchema(
        avro_schema_string=RECORD
    )


@pytest.mark.parametrize(
    ("name", "first"), [("json", b'{"f0":1,"f1":"hi"}'), ("csv", b"1,hi\n"), ("avro", b"\x02\x04hi")]
)
def test_rows_go_to_kafka_and_come_back(env: StreamExecutionEnvironment, kafka: Kafka, name: str, first: bytes) -> None:
    writer, reader = schemas(name)
    topic = kafka.new_topic(1)
    env.from_collection(PAIRS, type_info=PAIR).sink_to(sink_of(kafka, topic, writer))
    env.execute()
    messages = kafka.messages(topic)
    assert (messages[0].value(), messages[0].key(), len(messages)) == (first, None, 7)
    found = collected(read(env, source_builder(kafka, topic, reader).set_bounded(LATEST)))
    assert [tuple(row) for row in found] == PAIRS
    assert found[0].get_field_names() == (["id", "name"] if name == "avro" else ["f0", "f1"])


def test_bytes_go_to_kafka_and_come_back(env: StreamExecutionEnvironment, kafka: Kafka) -> None:
    data = [(json.dumps({"id": n}).encode(),) for n in range(3)]
    topic = kafka.new_topic(1)
    ds = env.from_collection(data, type_info=Types.ROW([Types.PRIMITIVE_ARRAY(Types.BYTE())]))
    ds = ds.map(lambda x: x[0], output_type=Types.PRIMITIVE_ARRAY(Types.BYTE()))
    ds.sink_to(sink_of(kafka, topic, ByteArraySchema()))
    env.execute()
    back = read(env, source_builder(kafka, topic, ByteArraySchema()).set_bounded(LATEST))
    assert collected(back.map(lambda value: value.decode())) == ['{"id": 0}', '{"id": 1}', '{"id": 2}']


def test_fields_are_keys_and_values_and_topics_are_selected(env: StreamExecutionEnvironment, kafka: Kafka) -> None:
    first, second = kafka.new_topic(), kafka.new_topic()
    kind = Types.ROW([Types.PRIMITIVE_ARRAY(Types.BYTE())] * 2)
    rows = [Row(b"user-1", b"a"), Row(b"user-2", b"b"), Row(b"user-1", b"c")]
    records = KafkaRecordSerializationSchema.builder()
    records.set_topic_selector(lambda row: first if row[0] == b"user-1" else second)
    records.set_key_serialization_schema(RowFieldExtractorSchema(0))
    records.set_value_serialization_schema(RowFieldExtractorSchema(1))
    sink = KafkaSink.builder().set_bootstrap_servers(kafka.servers).set_record_serializer(records.build())
    sink.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
    env.from_collection(rows, type_info=kind).map(lambda row: row, output_type=kind).sink_to(sink.build())
    env.execute("fields")
    assert [(m.key(), m.value()) for m in kafka.messages(first)] == [(b"user-1", b"a"), (b"user-1", b"c")]
    assert [(m.key(), m.value()) for m in kafka.messages(second)] == [(b"user-2", b"b")]


def test_exactly_once_is_a_transaction_per_batch(env: StreamExecutionEnvironment, kafka: Kafka, tmp_path: Path) -> None:
    """Batch by batch; a job of the same name goes on where it was."""
    source, target = kafka.new_topic(1), kafka.new_topic(1)
    env.get_checkpoint_config().set_checkpoint_storage(f"file://{tmp_path}/state")
    records = KafkaRecordSerializationSchema.builder().set_topic(target)
    records.set_value_serialization_schema(SimpleStringSchema())
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.servers).set_record_serializer(records.build())
    builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("mine")
    for begin in (0, 5):
        kafka.put(source, *({"value": str(n)} for n in range(begin, begin + 5)))
        stream = read(env, source_builder(kafka, source).set_bounded(LATEST))
        stream.map(lambda text: f"got {text}", Types.STRING()).sink_to(builder.build())
        env.execute("exact")
    assert kafka.values(target) == [f"got {n}" for n in range(10)]


def test_branches_of_a_topic_go_to_two_topics_in_one_transaction(
    env: StreamExecutionEnvironment, kafka: Kafka, tmp_path: Path
) -> None:
    source, large, small = (kafka.new_topic(1) for _ in range(3))
    env.get_checkpoint_config().set_checkpoint_storage(f"file://{tmp_path}/state")

    def written(topic: str) -> Any:
        records = KafkaRecordSerializationSchema.builder().set_topic(topic)
        records.set_value_serialization_schema(SimpleStringSchema())
        builder = KafkaSink.builder().set_bootstrap_servers(kafka.servers).set_record_serializer(records.build())
        return builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("two").build()

    for begin in (0, 10):
        kafka.put(source, *({"value": str(n)} for n in range(begin, begin + 10)))
        stream = read(env, source_builder(kafka, source).set_bounded(LATEST))
        stream.filter(lambda text: int(text) % 10 > 4).sink_to(written(large))
        stream.filter(lambda text: int(text) % 10 < 5).map(lambda text: text, Types.STRING()).sink_to(written(small))
        client = env.execute_async("branches")
        assert isinstance(client, VarviteStreamingQuery), "one query, so that its sinks can share a transaction"
        client.awaitTermination()
    assert kafka.values(large) == [str(n) for n in (5, 6, 7, 8, 9, 15, 16, 17, 18, 19)]
    assert kafka.values(small) == [str(n) for n in (0, 1, 2, 3, 4, 10, 11, 12, 13, 14)]
    # A record of a commit comes at the end of each transaction: so the offsets in both topics have one gap each.
    assert [m.offset() for m in kafka.messages(large)] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert [m.offset() for m in kafka.messages(small)] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]


def numbers(kafka: Kafka, *, partitions: int = 2) -> str:
    """A topic with the values 0 to 9 at the times 1000 to 1009, alternating over the partitions."""
    topic = kafka.new_topic(partitions)
    kafka.put(topic, *({"value": str(n), "partition": n % partitions, "timestamp": 1000 + n} for n in range(10)))
    return topic


@pytest.mark.parametrize(
    ("start", "values"),
    [
        (EARLIEST, "0123456789"),
        (LATEST, ""),
        (KafkaOffsetsInitializer.timestamp(1004), "456789"),
        (KafkaOffsetsInitializer.timestamp(9999), ""),
        (KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST), "0123456789"),
        (KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.LATEST), ""),
    ],
    ids=["earliest", "latest", "time", "time-of-none", "group-earliest", "group-latest"],
)
def test_a_job_begins_at_the_offsets_of_its_initializer(
    env: StreamExecutionEnvironment, kafka: Kafka, start: KafkaOffsetsInitializer, values: str
) -> None:
    stream = read(env, source_builder(kafka, numbers(kafka), start=start).set_bounded(LATEST))
    assert sorted(collected(stream)) == list(values)


def test_single_partitions_offsets_and_the_offsets_of_a_group(env: StreamExecutionEnvironment, kafka: Kafka) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = numbers(kafka)
    at = [KafkaTopicPartition(topic, number) for number in range(2)]
    some = KafkaOffsetsInitializer.offsets({at[0]: 3, at[1]: 99}, KafkaOffsetResetStrategy.LATEST)
    stream = read(env, source_builder(kafka, topic, start=some).set_bounded(LATEST))
    assert sorted(collected(stream)) == ["6", "8"]
    single = KafkaSource.builder().set_bootstrap_servers(kafka.servers).set_partitions({at[1]})
    single.set_value_only_deserializer(SimpleStringSchema()).set_bounded(LATEST)
    assert collected(read(env, single)) == ["1", "3", "5", "7", "9"]
    by_name = KafkaSource.builder().set_bootstrap_servers(kafka.servers).set_topic_pattern(f"{topic[:-1]}.")
    assert (
        len(collected(read(env, by_name.set_value_only_deserializer(SimpleStringSchema()).set_bounded(LATEST)))) == 10
    )
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": f"group-{topic}"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 5)], asynchronous=False)
    consumer.close()
    own = source_builder(kafka, topic, start=KafkaOffsetsInitializer.committed_offsets()).set_bounded(LATEST)
    assert collected(read(env, own.set_group_id(f"group-{topic}"))) == ["8"]
    with pytest.raises(InvalidRequestError, match="its group has committed none"):
        read(env, source_builder(kafka, topic, start=KafkaOffsetsInitializer.committed_offsets()))
    with pytest.raises(InvalidRequestError, match="no Kafka topic 'nowhere'"):
        read(env, source_builder(kafka, "nowhere", start=some))


@pytest.mark.parametrize("call", ["set_bounded", "set_unbounded"])
def test_a_job_ends_at_the_offsets_of_its_initializer(env: StreamExecutionEnvironment, kafka: Kafka, call: str) -> None:
    topic = numbers(kafka)
    for stop, values in (
        (KafkaOffsetsInitializer.timestamp(1003), "012"),
        (KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 1}, KafkaOffsetResetStrategy.EARLIEST), "0"),
    ):
        builder = source_builder(kafka, topic)
        assert sorted(collected(read(env, getattr(builder, call)(stop)))) == list(values)


class WithTime(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value, ctx.timestamp()


class Contents(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield context.window().start, sorted(elements)


@pytest.mark.parametrize("strategy", [WatermarkStrategy.for_monotonous_timestamps(), NO_TIMES])
def test_elements_have_the_time_stamps_of_their_records(
    env: StreamExecutionEnvironment, kafka: Kafka, strategy: WatermarkStrategy
) -> None:
    """As in Flink, whether a watermark follows them or not; at the end of what is read all windows fire."""
    stream = read(env, source_builder(kafka, numbers(kafka, partitions=1)).set_bounded(LATEST), strategy)
    assert collected(stream.process(WithTime()))[:2] == [("0", 1000), ("1", 1001)]
    windows = stream.map(int, Types.INT()).key_by(lambda _: 0, Types.INT())
    windows = windows.window(TumblingEventTimeWindows.of(Time.milliseconds(4))).process(Contents())
    assert sorted(collected(windows)) == [(1000, [0, 1, 2, 3]), (1004, [4, 5, 6, 7]), (1008, [8, 9])]


def test_a_watermark_follows_the_records_while_the_job_runs(
    env: StreamExecutionEnvironment, kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    """It is one for all partitions, and a warning says so."""
    topic = numbers(kafka, partitions=1)
    read(env, source_builder(kafka, topic))
    read(env, source_builder(kafka, topic).set_bounded(LATEST), WatermarkStrategy.for_monotonous_timestamps())
    assert "one watermark" not in caplog.text
    stream = read(env, source_builder(kafka, topic), WatermarkStrategy.for_monotonous_timestamps())
    assert "source 'kafka source' has one watermark for all its partitions" in caplog.text
    windows = stream.map(int, Types.INT()).key_by(lambda _: 0, Types.INT())
    windows = windows.window(TumblingEventTimeWindows.of(Time.milliseconds(4))).process(Contents())
    with windows.execute_and_collect("windows") as elements:
        kafka.put(topic, {"value": "10", "timestamp": 2000})
        found = [next(elements) for _ in range(3)]
    assert found == [(1000, [0, 1, 2, 3]), (1004, [4, 5, 6, 7]), (1008, [8, 9])]


def test_a_record_that_cannot_be_read_fails_the_job_or_is_skipped(
    env: StreamExecutionEnvironment, kafka: Kafka
) -> None:
    topic = kafka.new_topic(1)
    kafka.put(topic, {"value": '{"f0": 1, "f1": "a"}'}, {"value": "{broken"}, {"value": '{"f0": "x", "f1": "b"}'})
    builder = JsonRowDeserializationSchema.builder().type_info(PAIR)
    with pytest.raises(UserFunctionError, match=r"Failed to deserialize JSON '\{broken'.*kafka source"):
        collected(read(env, source_builder(kafka, topic, builder.build()).set_bounded(LATEST)))
    reader = builder.ignore_parse_errors().build()
    found = collected(read(env, source_builder(kafka, topic, reader).set_bounded(LATEST)))
    assert [tuple(row) for row in found] == [(1, "a"), (None, "b")]
    tombstones = kafka.new_topic(1)
    kafka.put(tombstones, {"key": "k", "value": None})
    with pytest.raises(UserFunctionError, match="tombstone"):
        collected(read(env, source_builder(kafka, tombstones).set_bounded(LATEST)))


def test_the_names_of_flink_1_read_and_write(env: StreamExecutionEnvironment, kafka: Kafka) -> None:
    source, target = numbers(kafka, partitions=1), kafka.new_topic(1)
    servers = {"bootstrap.servers": kafka.servers}
    consumer = FlinkKafkaConsumer(source, SimpleStringSchema(), {**servers, "group.id": "g"}).set_start_from_earliest()
    assert consumer.get_produced_type() == Types.STRING()
    producer = FlinkKafkaProducer(target, SimpleStringSchema(), servers)
    env.add_source(consumer).map(lambda text: f"<{text}>", Types.STRING()).add_sink(producer)
    client = env.execute_async("flink 1")
    try:
        for _ in range(200):
            if len(kafka.values(target)) == 10 or client.exception():
                break
    finally:
        client.stop()
    assert kafka.values(target) == [f"<{n}>" for n in range(10)]


def test_a_sink_of_elements_is_given_to_sink_to(env: StreamExecutionEnvironment, kafka: Kafka, tmp_path: Path) -> None:
    stream = env.from_collection([1], Types.INT())
    writer = stream.write_stream.query_name("x").option("checkpointLocation", str(tmp_path / "c"))
    writer = writer.option("execution.checkpointing.dir", str(tmp_path / "state"))
    with pytest.raises(InvalidRequestError, match="`value` is of type int"):
        writer.foreach_batch(sink_of(kafka, "t", SimpleStringSchema())).start()
    stream.sink_to(sink_of(kafka, kafka.new_topic(), SimpleStringSchema()))
    with pytest.raises(UserFunctionError, match=r"map\(str, Types\.STRING\(\)\)"):
        env.execute()


def times(kafka: Kafka, topic: str) -> list[int]:
    return sorted(message.timestamp()[1] for message in kafka.messages(topic))


def test_records_have_the_event_times_of_their_elements(env: StreamExecutionEnvironment, kafka: Kafka) -> None:
    """As in Flink: of an element from its record, of a window's result its last millisecond."""
    source, target, of_windows, of_flink_1 = numbers(kafka), kafka.new_topic(1), kafka.new_topic(1), kafka.new_topic(1)
    stream = read(env, source_builder(kafka, source).set_bounded(LATEST), WatermarkStrategy.for_monotonous_timestamps())
    stream.sink_to(sink_of(kafka, target, SimpleStringSchema()))
    env.execute()
    assert times(kafka, target) == list(range(1000, 1010))
    windows = stream.map(int, Types.INT()).key_by(lambda _: 0, Types.INT())
    windows = windows.window(TumblingEventTimeWindows.of(Time.milliseconds(4))).process(Contents())
    windows.map(str, Types.STRING()).sink_to(sink_of(kafka, of_windows, SimpleStringSchema()))
    env.execute()
    assert times(kafka, of_windows) == [1003, 1007, 1011]
    stream.add_sink(FlinkKafkaProducer(of_flink_1, SimpleStringSchema(), {"bootstrap.servers": kafka.servers}))
    env.execute()
    assert times(kafka, of_flink_1)[0] > 1_700_000_000_000, "its default is the time of writing"
    producer = FlinkKafkaProducer(of_flink_1, SimpleStringSchema(), {"bootstrap.servers": kafka.servers})
    stream.add_sink(producer.set_write_timestamp_to_kafka(True))
    env.execute()
    assert times(kafka, of_flink_1)[:10] == list(range(1000, 1010))


def test_the_programs_of_the_page_run(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    page = blocks_of("docs/guide/flink-connectors.md", (ROOT / "docs/guide/flink-connectors.md").read_text())
    orders, totals = kafka.new_topic(1), kafka.new_topic(1)
    kafka.put(orders, *({"value": json.dumps({"customer": c, "amount": n})} for c, n in (("a", 1), ("b", 2), ("a", 3))))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "1").write_text("a\nlonger\n")
    for block in (block for block in page if "run" in block.tags):
        text = block.text.replace("localhost:9092", kafka.servers).replace("/data/", f"{tmp_path}/")
        text = text.replace('set_topics("orders")', f'set_topics("{orders}")')
        text = text.replace('set_topic("totals")', f'set_topic("{totals}")')
        exec(compile(text, block.name, "exec", dont_inherit=True), {"__name__": "page"})
    assert sorted(map(json.loads, kafka.values(totals)), key=lambda row: (row["customer"], row["amount"])) == [
        {"customer": "a", "amount": 1}, {"customer": "a", "amount": 4}, {"customer": "b", "amount": 2},
    ]  # fmt: skip
    files = (tmp_path / "lengths").glob("lengths-*.txt")
    assert sorted(line for file in files for line in file.read_text().splitlines()) == ["(a,1)", "(longer,6)"]
