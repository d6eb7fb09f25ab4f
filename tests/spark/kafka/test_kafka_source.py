"""Gaps that Spark's Kafka source does not tell of: another topic under the same name, rows that are gone unread."""

from __future__ import annotations

import json
import logging
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions
from pyspark.sql import SparkSession

from tests.spark.kafka.kafka_jobs import KafkaJob, environment, kafka_rows, messages, numbered
from tests.spark.rate_jobs import wait_for
from tests.stores.kafka_broker import Kafka
from varvite.spark_integration.connectors.kafka.sink import KafkaSink
from varvite.storage.errors import InvalidRequestError, LineageError

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def job(spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaJob:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return KafkaJob(spark, kafka, tmp_path)


@pytest.mark.parametrize(("rows", "loss"), [(30, "true"), (300, "false")])
def test_a_topic_that_was_made_anew_is_an_error(job: KafkaJob, rows: int, loss: str) -> None:
    """With more rows than the old one had, Spark says nothing, and skips as many as those."""
    job.source_options["failOnDataLoss"] = loss
    job.put(100)
    job.run()
    job.kafka.delete_topic(job.source)
    job.kafka.new_topic(name=job.source)
    job.kafka.put(job.source, *messages(0, rows))
    with pytest.raises(LineageError, match=f"the topic '{job.source}' is another one"):
        job.start()
    assert not job.spark.streams.active


def delete_most(job: KafkaJob) -> None:
    """Delete all but ten rows of each partition."""
    ends = {message.partition(): message.offset() + 1 for message in job.kafka.messages(job.source)}
    begins = [TopicPartition(job.source, partition, end - 10) for partition, end in ends.items()]
    for future in job.kafka.admin.delete_records(begins).values():
        future.result()


def delete_unread(job: KafkaJob) -> int:
    """Put 100 rows more, of which Kafka deletes some before the job reads them; answers how many."""
    job.put(100)
    delete_most(job)
    return 100 - len(job.kafka.values(job.source))


def metric(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[-1] for line in lines if line.startswith("varvite_lost_offsets_total{")))


@pytest.mark.long
def test_rows_that_kafka_has_deleted_unread_are_an_error_or_counted(
    job: KafkaJob, caplog: pytest.LogCaptureFixture
) -> None:
    job.put(100)
    job.run()
    lost = delete_unread(job)
    assert lost > 50
    with pytest.raises(InvalidRequestError, match=rf"offsets {job.source}-.*failOnDataLoss to false"):
        job.start()
    caplog.set_level(logging.WARNING, "varvite")
    job.source_options["failOnDataLoss"] = "false"
    query = job.start(**{"metrics.reporter.prom.port": 0, "metrics.reporter.prom.host": "127.0.0.1"})
    try:
        job.wait(query, 200 - lost)
        assert metric(query.metrics_port) == lost
    finally:
        query.stop()
    assert "rows are lost, because Kafka has deleted them unread" in caplog.text
    caplog.clear()
    job.start().stop()
    assert "rows are lost" not in caplog.text


@pytest.mark.long
def test_rows_that_kafka_deletes_unread_while_the_query_runs_are_counted(job: KafkaJob, tmp_path: Path) -> None:
    """A batch has 40 rows, and there is time between two batches. Spark may have fetched some of the rows before."""
    job.put(100)
    rows = kafka_rows(job.spark, job.kafka.servers, job.source, failOnDataLoss="false")
    writer = numbered(environment(job.spark, str(tmp_path / "state")), rows).write_stream.query_name("numbered")
    writer = writer.foreach_batch(KafkaSink(job.kafka.servers, job.target)).trigger(processingTime="5 seconds")
    options = {"metrics.reporter.prom.port": 0, "metrics.reporter.prom.host": "127.0.0.1"}
    query = writer.options(**options).start()
    try:
        job.wait(query, 40)
        delete_most(job)
        wait_for(query, lambda: len(job.kafka.values(job.target)) + metric(query.metrics_port) >= 100, 100)
        lost = metric(query.metrics_port)
        assert 0 < lost <= 60
    finally:
        query.stop()


@pytest.mark.parametrize("small_batch_rows", [0, 2000])
def test_rows_that_are_deleted_between_plan_and_execution_are_an_error_that_says_what_to_set(
    job: KafkaJob, small_batch_rows: int
) -> None:
    """Spark's error has 20,000 characters; Spark fails to keep it and says nothing at all."""
    job.put(100)
    begins = [TopicPartition(job.source, partition, 10) for partition in range(2)]
    for future in job.kafka.admin.delete_records(begins).values():
        future.result()
    job.source_options["startingOffsets"] = json.dumps({job.source: {"0": 0, "1": 0}})
    query = job.start(**{"execution.small-batch.max-rows": small_batch_rows})
    with pytest.raises(InvalidRequestError, match=rf"Could not read records in offset .*{job.source}.*failOnDataLoss"):
        query.awaitTermination(120)


@pytest.mark.long
def test_topics_are_noted_by_their_source_beside_other_sources(job: KafkaJob, tmp_path: Path) -> None:
    """A union of two topics and a rate: the note has both, each under its source."""
    other = job.kafka.new_topic()
    job.kafka.put(other, *messages(100, 150))
    job.put(100)
    rate = job.spark.readStream.format("rate").load().where("value < 0").selectExpr("'' key", "'' value")

    def start() -> Any:
        first, second = (kafka_rows(job.spark, job.kafka.servers, topic) for topic in (job.source, other))
        stream = numbered(environment(job.spark, str(tmp_path / "state")), first.union(rate).union(second))
        return (
            stream.write_stream.query_name("numbered").foreach_batch(KafkaSink(job.kafka.servers, job.target)).start()
        )

    query = start()
    job.wait(query, 150)
    query.stop()
    job.kafka.delete_topic(other)
    job.kafka.new_topic(name=other)
    with pytest.raises(LineageError, match=f"the topic '{other}' is another one"):
        start()


@pytest.mark.long
def test_topics_of_a_pattern_and_partitions_that_are_added_are_read_over_restarts(
    job: KafkaJob, tmp_path: Path
) -> None:
    """With several tasks per partition, a limit of rows per batch, and rows without a key, which are one key."""
    prefix = f"in-{job.source}"
    first = job.kafka.new_topic(1, name=f"{prefix}-1")
    options = {"subscribePattern": f"{prefix}-.*", "minPartitions": 5, "maxOffsetsPerTrigger": 60}

    def run(rows: int) -> None:
        reader = job.spark.readStream.format("kafka").option("kafka.bootstrap.servers", job.kafka.servers)
        reader = reader.options(**options).option("startingOffsets", "earliest")
        reader = reader.option("kafka.metadata.max.age.ms", 500)  # a topic that comes later is noticed within it
        read = reader.load().selectExpr("cast(key as string) key", "cast(value as string) value")
        stream = numbered(environment(job.spark, str(tmp_path / "state")), read)
        sink = KafkaSink(job.kafka.servers, job.target)
        query = stream.write_stream.query_name("numbered").foreach_batch(sink).start()
        job.wait(query, rows)
        query.stop()

    job.kafka.put(first, *messages(0, 100))
    job.kafka.put(first, *({"key": None, "value": str(i)} for i in range(100, 120)))
    run(120)
    [grown] = job.kafka.admin.create_partitions([NewPartitions(first, 3)]).values()
    grown.result()
    second = job.kafka.new_topic(2, name=f"{prefix}-2")
    job.kafka.put(first, *messages(120, 200))
    job.kafka.put(second, *messages(200, 300))
    run(300)
    read = [(m.key(), *map(int, m.value().split())) for m in job.kafka.messages(job.target)]
    assert sorted(value for *_, value in read) == list(range(300))
    numbers = Counter((key, number) for key, number, _ in read)
    per_key = Counter(key for key, _, _ in read)
    assert per_key[None] == 20
    assert numbers == Counter((key, number) for key, count in per_key.items() for number in range(1, count + 1))
