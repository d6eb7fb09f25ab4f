"""A real Kafka broker for tests (KRaft, one process for all roles), and what tests do with it.

`kafka` is one broker for all processes of a test run: topics have names of their own. A test that stops or kills a
broker starts `Broker` itself. `deploy/install_kafka.sh .kafka` brings the jars; without them such tests are skipped.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from examples.orders.broker import Broker, connector_jars, is_installed

__all__ = ["Broker", "Kafka", "committed_values", "connector_jars", "kafka", "running_broker", "skip_without_kafka"]


def skip_without_kafka() -> None:
    """Skip the test, with the reason, where Kafka's jars are missing."""
    if not is_installed():
        pytest.skip("Kafka is not installed (deploy/install_kafka.sh .kafka); tests of a real broker did not run")


class Kafka:
    """A cluster, by its addresses."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})

    def new_topic(self, partitions: int = 2, name: str = "", **config: str) -> str:
        """A new, empty topic; config has `_` for `.`."""
        from confluent_kafka.admin import NewTopic

        name = name or f"topic-{uuid.uuid4().hex[:8]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result()
        self._wait_for(name, is_there=True)
        return name

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result()
        self._wait_for(name, is_there=False)

    def _wait_for(self, name: str, *, is_there: bool) -> None:
        deadline = time.monotonic() + 30
        while (name in self.admin.list_topics(timeout=10).topics) != is_there:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def put(self, topic: str, *messages: dict[str, Any]) -> None:
        """Write messages, without a transaction."""
        from confluent_kafka import Producer

        with Producer({"bootstrap.servers": self.servers, "partitioner": "murmur2_random"}) as producer:
            for message in messages:
                producer.produce(topic, **message)
            assert producer.flush(30) == 0

    def messages(self, topic: str, *, committed: bool = True) -> list[Any]:
        """All messages up to the end as it is now, partition by partition."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        level = "read_committed" if committed else "read_uncommitted"
        config = {"bootstrap.servers": self.servers, "group.id": "test", "isolation.level": level, "log_level": 2}
        consumer = Consumer({**config, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
        try:
            partitions = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
            read, ended = [], set()
            deadline = time.monotonic() + 60
            while len(ended) < partitions:
                assert time.monotonic() < deadline
                for message in consumer.consume(1000, 0.2):
                    error = message.error()
                    if error is None:
                        read.append(message)
                        ended.discard(message.partition())
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended.add(message.partition())
            return sorted(read, key=lambda message: (message.partition(), message.offset()))
        finally:
            consumer.close()

    def values(self, topic: str, *, committed: bool = True) -> list[str]:
        return [message.value().decode() for message in self.messages(topic, committed=committed)]


@contextmanager
def running_broker(home: Path, **settings: Any) -> Generator[Broker]:
    """A broker of the test's own."""
    skip_without_kafka()
    broker = Broker(home, **settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.end()


@contextmanager
def _locked(directory: Path) -> Iterator[dict[str, Any]]:
    """The state that the processes of a run share; what the block changes in it is kept."""
    with (directory / "kafka.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = directory / "kafka.json"
        state = json.loads(file.read_text()) if file.exists() else {}
        yield state
        file.write_text(json.dumps(state))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """The run's broker: whoever needs it first starts it, and whoever needs it last ends it."""
    skip_without_kafka()
    directory = tmp_path_factory.getbasetemp()
    directory = directory.parent if "PYTEST_XDIST_WORKER" in os.environ else directory
    with _locked(directory) as state:
        if not state.get("users"):
            broker = Broker(directory / f"kafka-{uuid.uuid4().hex[:8]}")
            broker.start()
            assert broker.process is not None
            state |= {"users": 0, "servers": broker.servers, "pid": broker.process.pid}
            broker.process.returncode = 0  # it belongs to the run, not to this process, which may end before
        state["users"] += 1
        servers = state["servers"]
    try:
        yield Kafka(servers)
    finally:
        with _locked(directory) as state:
            state["users"] -= 1
            if not state["users"]:
                os.kill(state["pid"], signal.SIGTERM)
                with suppress(ChildProcessError):  # another process of the run has started it
                    os.waitpid(state["pid"], 0)


def committed_values(kafka: Kafka, topics: Sequence[str]) -> list[int]:
    """Numbers in the values of all topics, sorted."""
    return sorted(int(value) for topic in topics for value in kafka.values(topic))
