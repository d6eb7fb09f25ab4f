"""Jobs from Kafka to Kafka: each row is counted and written once, over restarts, with progress in the chain."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tests.spark.kafka.kafka_jobs import KafkaJob, check_numbered, environment, kafka_rows, numbered
from tests.spark.rate_jobs import wait_for
from tests.stores.kafka_broker import Kafka
from tests.tidy.pages.doc_blocks import ROOT, blocks_of
from varvite import KeyedProcessFunction, OutputTag, RuntimeContext, Types, ValueStateDescriptor
from varvite.spark_integration.connectors.kafka.sink import KafkaSink
from varvite.storage.errors import InvalidRequestError, UserFunctionError

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This machine's cache, with the locations that varvite makes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def job(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> KafkaJob:
    return KafkaJob(spark, kafka, tmp_path)


def test_a_job_without_a_location_goes_on_over_restarts(
    job: KafkaJob, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "varvite")
    for _ in range(2):
        job.put(60)
        job.run()
        shutil.rmtree(cache)
    job.check()
    assert "the position of its input is in its checkpoints alone" in caplog.text


@pytest.mark.long
def test_a_job_over_what_is_available_has_nothing_to_do_twice(job: KafkaJob, tmp_path: Path) -> None:
    job.location = tmp_path / "location"
    for number in (100, 50, 0):
        job.put(number)
        rows = kafka_rows(job.spark, job.kafka.servers, job.source)
        stream = numbered(environment(job.spark, str(tmp_path / "state")), rows)
        writer = stream.write_stream.query_name("numbered").foreach_batch(KafkaSink(job.kafka.servers, job.target))
        writer = writer.option("checkpointLocation", str(job.location)).trigger(availableNow=True)
        writer.start().awaitTermination(120)
        job.check()


def test_at_least_once_is_a_choice(job: KafkaJob) -> None:
    job.put(50)
    job.run(delivery="at-least-once")
    job.check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka__bootstrap__servers": ""}, "kafka.bootstrap.servers"),
        ({"kafka__sasl__jaas__config": "x"}, "kafka.sasl.username"),
        ({"no_such_option": "x"}, "'no_such_option' is not one of a Kafka sink"),
        ({"path": "/x"}, "format 'kafka' has no path"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_the_query_starts(
    job: KafkaJob, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        job.start(**options)
    assert not job.spark.streams.active


def test_columns_that_do_not_fit_are_refused_before_the_query_starts(job: KafkaJob, tmp_path: Path) -> None:
    rows = kafka_rows(job.spark, job.kafka.servers, job.source).selectExpr("key", "value AS v")
    stream = environment(job.spark, str(tmp_path / "state")).from_dataframe(rows)
    with pytest.raises(InvalidRequestError, match=r"need a column `value`.*; the output has key, v"):
        stream.write_stream.query_name("x").foreach_batch(KafkaSink(job.kafka.servers, job.target)).start()


ODD = OutputTag("odd", Types.ROW_NAMED(["value"], [Types.STRING()]))


class Split(KeyedProcessFunction):
    """Numbers the rows of a key; odd values to a side output."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        number = (self._count.value() or 0) + 1
        self._count.update(number)
        text = f"{number} {value.value}"
        yield (ODD, (text,)) if int(value.value) % 2 else (text,)


@pytest.mark.long
def test_outputs_of_one_job_commit_together_whatever_fails_in_between(job: KafkaJob, tmp_path: Path) -> None:
    """The main output in a topic, a side output in another one and in files, and a function that fails at times.

    Once the sinks were called one after the other, each on its own, and a failure doubled what the first had written.
    """
    odd = job.kafka.new_topic()
    job.put(100)
    calls: list[int] = []

    def fail_at_times(rows: DataFrame, batch: int) -> None:
        calls.append(batch)
        if len(calls) in {2, 4}:
            raise ConnectionError("database down")

    def read() -> list[str]:
        return job.kafka.values(job.target) + job.kafka.values(odd)

    def start() -> Any:
        rows = kafka_rows(job.spark, job.kafka.servers, job.source)
        stream = environment(job.spark, str(tmp_path / "state")).from_dataframe(rows).key_by("key")
        split = stream.process(Split(), "value string", uid="split")
        side = split.get_side_output(ODD)
        writer = split.write_stream.query_name("split").format("kafka").option("topic", job.target)
        writer = writer.option("kafka.bootstrap.servers", job.kafka.servers)
        writer = writer.side_output(side, KafkaSink(job.kafka.servers, odd)).side_output(side, fail_at_times)
        return writer.start()

    for failures in range(2):
        with pytest.raises(UserFunctionError, match="database down"):
            wait_for(start(), lambda: False, "a failure")
        assert len(calls) == 2 * failures + 2
    query = start()
    job.wait(query, 100, job.target, odd)
    query.stop()
    check_numbered(read(), 100)
    assert {int(value.split()[1]) % 2 for value in job.kafka.values(odd)} == {1}


def test_two_clusters_in_one_job_are_refused_before_the_query_starts(job: KafkaJob, tmp_path: Path) -> None:
    rows = kafka_rows(job.spark, job.kafka.servers, job.source)
    stream = environment(job.spark, str(tmp_path / "state")).from_dataframe(rows).key_by("key")
    split = stream.process(Split(), "value string", uid="split")
    other = KafkaSink(f"{job.kafka.servers},127.0.0.1:1", job.target)
    writer = split.write_stream.query_name("split").foreach_batch(KafkaSink(job.kafka.servers, job.target))
    with pytest.raises(InvalidRequestError, match="give all but one delivery='at-least-once'"):
        writer.side_output(split.get_side_output(ODD), other).start()
    assert not job.spark.streams.active


def test_the_program_of_the_page_runs(job: KafkaJob, tmp_path: Path) -> None:
    page = blocks_of("docs/guide/kafka.md", (ROOT / "docs" / "guide" / "kafka.md").read_text())
    (program,) = [block for block in page if "run" in block.tags]
    text = program.text.replace("localhost:9092", job.kafka.servers).replace("s3://bucket/varvite", str(tmp_path / "s"))
    text = text.replace('"subscribe", "orders"', f'"subscribe", "{job.source}"')
    text = text.replace('"topic", "counts"', f'"topic", "{job.target}"')
    job.put(100)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(text, program.name, "exec", dont_inherit=True), names)
    job.wait(names["query"], 100)
    names["query"].stop()
    check_numbered([value.removeprefix("order ").replace(":", "") for value in job.kafka.values(job.target)], 100)
