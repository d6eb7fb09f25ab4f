"""A job that reads from Kafka, numbers the rows of each key, and writes to Kafka."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from tests.spark.rate_jobs import wait_for
from tests.stores.kafka_broker import Kafka
from varvite import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment, Types, ValueStateDescriptor
from varvite.datastream import DataStream

OUTPUT = "key string, value string"
KEYS = 5


class Numbering(KeyedProcessFunction):
    """Yields each row with its number among those of its key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, str]]:
        number = (self._count.value() or 0) + 1
        self._count.update(number)
        yield ctx.get_current_key(), f"{number} {value.value}"


def messages(begin: int, end: int) -> list[dict[str, Any]]:
    """Messages with the values begin to end - 1."""
    return [{"key": str(i % KEYS), "value": str(i)} for i in range(begin, end)]


def kafka_rows(spark: SparkSession, servers: str, topic: str, **options: Any) -> DataFrame:
    """The topic as a stream, from its beginning."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.load().selectExpr("cast(key as string) key", "cast(value as string) value")


def environment(spark: SparkSession, storage: str) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(spark)
    env.enable_changelog_state_backend(True).set_parallelism(2)
    return env.configure("execution.checkpointing.dir", storage)


def numbered(env: StreamExecutionEnvironment, rows: DataFrame) -> DataStream:
    return env.from_dataframe(rows).key_by("key").process(Numbering(), OUTPUT, uid="numbering")


def check_numbered(values: list[str], end: int) -> None:
    """Each of the inputs 0 to end - 1 is in the output once, and so is each number of each key."""
    pairs = sorted((int(number), int(value)) for number, value in (text.split() for text in values))
    assert sorted(value for _, value in pairs) == list(range(end))
    assert Counter(number for number, _ in pairs) == Counter(i // KEYS + 1 for i in range(end))


class KafkaJob:
    """Runs of the job in one session."""

    def __init__(self, spark: SparkSession, kafka: Kafka, directory: Path) -> None:
        self.spark, self.kafka, self.directory = spark, kafka, directory
        self.source, self.target = kafka.new_topic(), kafka.new_topic()
        self.servers = kafka.servers
        """The address for the job, if it is another one."""
        self.written = 0
        self.location: Path | None = None
        self.source_options: dict[str, Any] = {}

    def put(self, number: int) -> None:
        """So many rows more in the source."""
        self.kafka.put(self.source, *messages(self.written, self.written + number))
        self.written += number

    def start(self, **options: Any) -> Any:
        rows = kafka_rows(self.spark, self.servers, self.source, **self.source_options)
        stream = numbered(environment(self.spark, str(self.directory / "state")), rows)
        writer = stream.write_stream.query_name("numbered").format("kafka").option("topic", self.target)
        writer = writer.option("kafka.bootstrap.servers", self.servers)
        if self.location is not None:
            writer = writer.option("checkpointLocation", str(self.location))
        for name, value in options.items():
            writer = writer.option(name.replace("__", "."), value)
        return writer.start()

    def run(self, **options: Any) -> Any:
        """Run until everything is in the target, and stop; answers the query."""
        query = self.start(**options)
        self.wait(query, self.written)
        query.stop()
        return query

    def wait(self, query: Any, number: int, *targets: str) -> None:
        """Wait until so many rows are in the target, or in these topics together."""
        wait_for(query, lambda: self.number_in(*(targets or (self.target,))) >= number, number)

    def number_in(self, *topics: str) -> int:
        time.sleep(0.3)  # a look into a topic takes a core's while
        return sum(len(self.kafka.values(topic)) for topic in topics)

    def check(self) -> None:
        """Each row is there once."""
        check_numbered(self.kafka.values(self.target), self.written)
