"""The Kafka sink with rows of Spark: the contract of sinks, and what Spark's own sink writes and refuses."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tests.stores.kafka_broker import Kafka
from varvite.changelog.commit.base_decision import SinkCommit
from varvite.spark_integration.connectors.kafka.sink import KafkaSink
from varvite.spark_integration.connectors.output.table import output_table
from varvite.storage.errors import InvalidRequestError
from varvite.testing.contracts import SinkContract
from varvite.testing.contracts.sink import commit

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


class Numbers(KafkaSink):
    """Writes the column `v` of the contract as text."""

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        super().write(df.selectExpr("cast(v as string) value"), commit)

    def write_table(self, table: pa.Table, commit: SinkCommit) -> None:
        super().write_table(pa.table({"value": table.column("v").cast(pa.string())}), commit)


class Topic:
    """A topic, as `SinkContract` wants it."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._topic = kafka.new_topic(2)
        self._job = uuid.uuid4().hex
        self.sinks: list[KafkaSink] = []

    def open(self) -> KafkaSink:
        self.sinks.append(Numbers(self._kafka.servers, self._topic))
        self.sinks[-1].prepare(self._job)
        self.sinks[-1].take_over()
        return self.sinks[-1]

    def values(self) -> list[int]:
        return sorted(map(int, self._kafka.values(self._topic)))


class TestKafkaSink(SinkContract):
    @pytest.fixture
    def output(self, kafka: Kafka) -> Iterator[Topic]:
        topic = Topic(kafka)
        yield topic
        for sink in topic.sinks:
            sink.close()


def keyed(spark: SparkSession) -> DataFrame:
    """Rows whose key says the partition."""
    text = "if(id % 50 = 7, '', repeat('é', int(id % 9))) || cast(id % 40 as string)"
    headers = "if(id % 3 = 0, null, array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))))"
    value = "if(id % 11 = 3, null, cast(id as string)) value"
    kind = "array<struct<key:string,value:binary>>"
    return spark.range(200).selectExpr(f"{text} key", value, f"cast({headers} as {kind}) headers")


@pytest.mark.parametrize("way", ["write", "write_table"])
def test_rows_are_written_as_spark_writes_them(spark: SparkSession, kafka: Kafka, way: str) -> None:
    """Key and partition, too: a topic that both write to keeps the rows of a key together."""
    theirs, ours = kafka.new_topic(4), kafka.new_topic(4)
    rows = keyed(spark)
    options = {"kafka.bootstrap.servers": kafka.servers, "topic": theirs}
    rows.write.format("kafka").options(**options).save()
    sink = KafkaSink(kafka.servers, ours)
    sink.prepare(uuid.uuid4().hex)
    sink.take_over()
    if way == "write":
        sink.write(rows, commit(0, 2))
    else:
        sink.write_table(output_table(rows.schema, [rows.toArrow().to_batches()]), commit(0, 2))
    sink.complete(commit(0, 2))
    sink.close()

    def read(topic: str) -> list[Any]:
        return sorted(
            [(m.partition(), m.key(), m.value() or b"null", m.headers() or []) for m in kafka.messages(topic)],
            key=repr,
        )

    assert read(ours) == read(theirs)


@pytest.mark.parametrize(
    ("columns", "topic"),
    [
        (["1L AS value"], "t"),
        (["'a' AS v"], "t"),
        (["'a' AS value"], None),
        (["'a' AS value", "1 AS key"], "t"),
        (["'a' AS value", "1L AS partition"], "t"),
        (["'a' AS value", "1 AS topic"], None),
        (["'a' AS value", "array(named_struct('key', 'h', 'value', 'x')) AS headers"], "t"),
    ],
)
def test_columns_that_spark_refuses_are_refused(
    spark: SparkSession, kafka: Kafka, columns: list[str], topic: str | None
) -> None:
    rows = spark.range(1).selectExpr(*columns)
    options = {"kafka.bootstrap.servers": kafka.servers} | ({"topic": topic} if topic else {})
    with pytest.raises(AnalysisException):
        rows.write.format("kafka").options(**options).save()
    with pytest.raises(InvalidRequestError):
        KafkaSink(kafka.servers, topic).check_columns(rows.schema)
