"""The Kafka sink against a real broker, without Spark: transactions, fencing, the topic of commits, errors."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.outages import outage
from tests.stores.kafka_broker import Kafka, running_broker
from varvite.changelog.commit.base_decision import SinkCommit
from varvite.spark_integration.connectors.kafka import producer as producer_module
from varvite.spark_integration.connectors.kafka.sink import KafkaSink
from varvite.spark_integration.connectors.several_sinks import SeveralSinks
from varvite.spark_integration.connectors.sink import Sink
from varvite.storage.errors import DidNotHappenError, FencedError, InvalidRequestError, LineageError
from varvite.testing.contracts.sink import commit

pytestmark = [pytest.mark.kafka, pytest.mark.long]


def text(*values: Any, **columns: Any) -> pa.Table:
    """Rows with these values."""
    return pa.table({"value": [None if v is None else str(v) for v in values], **columns})


@pytest.fixture
def job_id() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def opened(kafka: Kafka, job_id: str) -> Iterator[Callable[..., KafkaSink]]:
    """Makes sinks that are ready, and closes them."""
    sinks: list[KafkaSink] = []

    def make(topic: str | None, job: str = job_id, **settings: Any) -> KafkaSink:
        sinks.append(KafkaSink(kafka.servers, topic, **settings))
        take_over(sinks[-1], job)
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


def take_over(sink: Sink, job: str) -> None:
    sink.prepare(job)
    sink.take_over()


def write(sink: Sink, rows: pa.Table, at: SinkCommit) -> None:
    sink.write_table(rows, at)
    sink.complete(at)


def test_keys_values_headers_and_partitions_arrive_as_they_are(kafka: Kafka, opened: Any) -> None:
    topic = kafka.new_topic(3)
    headers = pa.array([[{"key": "h", "value": b"\x00"}, {"key": "h", "value": None}], [], None],
                       pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))  # fmt: skip
    rows = pa.table({
        "key": pa.array([b"\xff", b"", None], pa.binary()),
        "value": ["a", None, ""],
        "partition": pa.array([0, 1, 2], pa.int32()),
        "headers": headers,
    })  # fmt: skip
    write(opened(topic), rows, commit(0, 2))
    read = [(m.partition(), m.key(), m.value(), m.headers()) for m in kafka.messages(topic)]
    assert read == [(0, b"\xff", b"a", [("h", b"\x00"), ("h", None)]), (1, b"", None, None), (2, None, b"", None)]


def test_rows_with_key_and_value_alone_take_the_fast_way_and_are_the_same(kafka: Kafka, opened: Any) -> None:
    topic = kafka.new_topic(1)
    rows = pa.table({"key": pa.array([b"\xff", b"", None], pa.binary()), "value": ["a", None, ""]})
    write(opened(topic), rows, commit(0, 2))
    assert [(m.key(), m.value()) for m in kafka.messages(topic)] == [(b"\xff", b"a"), (b"", None), (None, b"")]


def test_a_partition_without_headers_counts(kafka: Kafka, opened: Any) -> None:
    """The client's call for many messages ignores it without a word."""
    topic = kafka.new_topic(3)
    rows = text(*range(6), key=["k"] * 6, partition=pa.array([0, 1, 2, 2, 1, 0], pa.int32()))
    write(opened(topic), rows, commit(0, 2))
    assert [(m.partition(), m.value()) for m in kafka.messages(topic)] == [
        (0, b"0"), (0, b"5"), (1, b"1"), (1, b"4"), (2, b"2"), (2, b"3"),
    ]  # fmt: skip


def test_the_topic_of_a_row_is_its_columns(kafka: Kafka, opened: Any) -> None:
    topics = [kafka.new_topic(1), kafka.new_topic(1)]
    rows = text(1, 2, 3, topic=[topics[0], topics[1], topics[0]])
    write(opened(None), rows, commit(0, 2))
    assert [kafka.values(topic) for topic in topics] == [["1", "3"], ["2"]]


def test_the_rows_of_a_key_stay_in_order_when_the_queue_is_bounded(
    kafka: Kafka, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_module, "QUEUE_BYTES_MAX", 100_000)
    topic = kafka.new_topic(2)
    number = 50_000
    write(opened(topic), text(*range(number), key=[str(i % 7) for i in range(number)]), commit(0, 2))
    seen: dict[bytes, int] = {}
    for message in kafka.messages(topic):
        value = int(message.value())
        assert seen.get(message.key(), -1) < value
        seen[message.key()] = value
    assert len(kafka.values(topic)) == number


def test_an_older_driver_is_refused_from_the_moment_that_a_newer_one_takes_over(kafka: Kafka, opened: Any) -> None:
    topic = kafka.new_topic(1)
    older = opened(topic)
    write(older, text(1), commit(0, 2))
    older.write_table(text(2), commit(1, 3))
    older.producer._flush()  # in its transaction, which is open
    newer = opened(topic)
    assert newer.last_committed() == commit(0, 2)
    with pytest.raises(FencedError, match="a newer driver"):
        older.complete(commit(1, 3))
    write(newer, text(3), commit(1, 5))
    assert kafka.values(topic) == ["1", "3"]
    assert kafka.values(topic, committed=False) == ["1", "2", "3"]


def test_a_sink_that_fails_in_between_writes_nothing_of_the_batch_twice(kafka: Kafka, opened: Any) -> None:
    topic = kafka.new_topic(1)
    sink, bad = opened(topic), opened(None, job="other")
    with pytest.raises(InvalidRequestError, match="null in its column `topic`"):
        bad.write_table(text(1, 2, topic=[topic, None]), commit(0, 2))
    write(sink, text(1), commit(0, 2))
    write(bad, text(5, topic=[topic]), commit(0, 2))
    assert kafka.values(topic) == ["1", "5"]


def test_an_open_transaction_of_another_job_does_not_hide_the_last_commit(
    kafka: Kafka, opened: Any, job_id: str
) -> None:
    """The topic of commits is shared: committed messages end before the first open transaction of anybody."""
    topic = kafka.new_topic(1)
    shared = {"commit_topic": f"commits-{job_id}", "options": {"transaction.timeout.ms": 5_000}}
    other = opened(topic, "other", **shared)
    other.write_table(text("other"), commit(0, 2))
    other.producer.produce(shared["commit_topic"], [{"key": b"x", "value": b"y"}], 1, is_plain=True)
    other.producer._flush()
    write(opened(topic, **shared), text(1), commit(0, 2))
    began = time.monotonic()
    assert opened(topic, **shared).last_committed() == commit(0, 2)
    assert time.monotonic() - began > 0.5, "it did not wait, so the other job's transaction was over"


def test_several_sinks_of_a_cluster_commit_together(kafka: Kafka, job_id: str) -> None:
    topics = [kafka.new_topic(1) for _ in range(3)]
    first = SeveralSinks([KafkaSink(kafka.servers, topic) for topic in topics])
    take_over(first, job_id)
    write(first, text(1), commit(0, 2))
    first.write_table(text(2), commit(1, 3))  # and then the driver is gone
    second = SeveralSinks([KafkaSink(kafka.servers, topic) for topic in topics])
    take_over(second, job_id)
    assert second.last_committed() == commit(0, 2)
    write(second, text(3), commit(1, 5))
    second.close()
    first.close()
    assert [kafka.values(topic) for topic in topics] == [["1", "3"]] * 3


def test_a_repeated_batch_is_appended_if_that_is_allowed(
    kafka: Kafka, opened: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.new_topic(1)
    for batch in range(3):
        write(opened(topic), text(batch), commit(batch, batch + 2))
    with pytest.raises(LineageError, match=r"up to batch 2 \(seq 4\) already, batch 1 .* set allow_repeats"):
        opened(topic).write_table(text(1), commit(1, 8))
    write(opened(topic, allow_repeats=True), text(1), commit(1, 8))
    assert "rows of batch 1 are written once more" in caplog.text
    assert opened(topic).last_committed() == commit(1, 8)
    assert kafka.values(topic) == ["0", "1", "2", "1"]


def test_at_least_once_waits_until_the_rows_are_there(kafka: Kafka, opened: Any) -> None:
    topic = kafka.new_topic(1)
    sink = opened(topic, delivery="at-least-once")
    for seq in (2, 3):
        write(sink, text(seq), commit(0, seq))
        assert kafka.values(topic, committed=False)[-1] == str(seq)
    assert sink.last_committed() is None


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        ({}, text("x" * 3_000), r"MSG_SIZE_TOO_LARGE.*raise the topic's max\.message\.bytes"),
        ({"message.max.bytes": 1_000}, text("x" * 2_000), "MSG_SIZE_TOO_LARGE"),
        ({}, text("x", partition=pa.array([9], pa.int32())), "UNKNOWN_PARTITION.*correct the column `partition`"),
    ],
    ids=["by the broker", "by the client", "partition"],
)
def test_a_row_that_kafka_does_not_take_is_an_error_and_nothing_is_committed(
    kafka: Kafka, opened: Any, delivery: str, options: dict[str, Any], rows: pa.Table, message: str
) -> None:
    topic = kafka.new_topic(1, max_message_bytes="2500")
    sink = opened(topic, delivery=delivery, options=options)
    with pytest.raises(InvalidRequestError, match=message):
        write(sink, rows, commit(0, 2))
    sink.close()
    assert kafka.values(topic) == []
    assert opened(topic).last_committed() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"no.such.option": "1"}, 'No such configuration property: "no.such.option"'),
        ({"acks": "soon"}, "acks"),
        ({"transaction.timeout.ms": 10_000_000}, "transaction.max.timeout.ms"),
    ],
)
def test_an_option_that_the_client_does_not_take_prevents_the_start(
    opened: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        opened("t", options=options)


@pytest.mark.parametrize(
    ("partitions", "config", "message"),
    [(1, {"cleanup_policy": "delete"}, "cleanup.policy=delete"), (2, {"cleanup_policy": "compact"}, "2 partitions")],
)
def test_a_topic_of_commits_that_would_lose_them_is_refused(
    kafka: Kafka, opened: Any, partitions: int, config: dict[str, str], message: str
) -> None:
    topic = kafka.new_topic(partitions, **config)
    with pytest.raises(InvalidRequestError, match=f"{message}.*give another commit_topic"):
        opened("t", commit_topic=topic)


def test_a_commit_in_the_topic_is_found_among_those_of_others_and_after_compaction(kafka: Kafka, opened: Any) -> None:
    commits = f"commits-{uuid.uuid4().hex[:8]}"
    topic = kafka.new_topic(1)
    jobs = [uuid.uuid4().hex for _ in range(3)]
    for number, job in enumerate(jobs):
        sink = opened(topic, job, commit_topic=commits)
        for batch in range(number + 2):
            write(sink, text(batch), commit(batch, batch + 2))
    for number, job in enumerate(jobs):
        assert opened(topic, job, commit_topic=commits).last_committed() == commit(number + 1, number + 3)


def test_without_the_client_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'varvite\[kafka\]'"):
        KafkaSink("a:1", "t").prepare("job")


def test_brokers_that_do_not_answer_are_a_retryable_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("varvite.spark_integration.connectors.kafka.producer.CONNECT_TIMEOUT_S", 1.0)
    with pytest.raises(DidNotHappenError, match=r"_TRANSPORT.*Connection refused"):
        KafkaSink("127.0.0.1:1", "t").prepare("job")


@pytest.mark.parametrize("away_s", [12, pytest.param(60, marks=pytest.mark.rare)])
def test_brokers_that_are_away_for_a_while_delay_a_commit(tmp_path: Path, job_id: str, away_s: int) -> None:
    import signal

    with running_broker(tmp_path / "kafka") as broker:
        kafka = Kafka(broker.servers)
        topic = kafka.new_topic(1)
        sink = KafkaSink(broker.servers, topic)
        take_over(sink, job_id)
        write(sink, text(1), commit(0, 2))
        sink.write_table(text(2), commit(1, 3))
        with outage(away_s, lambda: broker.end(signal.SIGKILL), broker.start):
            sink.complete(commit(1, 3))
        write(sink, text(3), commit(2, 4))
        sink.close()
        assert kafka.values(topic) == ["1", "2", "3"]


def test_the_raw_commit_topic_is_compacted_and_of_one_partition(kafka: Kafka, opened: Any, job_id: str) -> None:
    from confluent_kafka.admin import ConfigResource

    name = f"commits-{job_id}"
    write(opened(kafka.new_topic(1), commit_topic=name), text(1), commit(0, 2))
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    assert kafka.admin.describe_configs([resource])[resource].result()["cleanup.policy"].value == "compact"
    assert [m.key().decode() for m in kafka.messages(name)] == [job_id]
