"""A real Kafka broker for tests (KRaft, one process for all roles), and what tests do with it.

`kafka` is one broker for all processes of a test run: topics have names of their own. A test that stops or kills a
broker starts `Broker` itself. `deploy/install_kafka.sh .kafka` brings the jars; without them such tests are skipped.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

JARS = Path(__file__).resolve().parents[2] / ".kafka"
JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError")
START_S = 120.0


def connector_jars() -> str:
    """Spark's `spark.jars` for its Kafka source; empty if they are not there."""
    return ",".join(sorted(str(jar) for jar in (JARS / "connector").glob("*.jar")))


def skip_without_kafka() -> None:
    """Skip the test, with the reason, where Kafka's jars are missing."""
    if not (JARS / "versions").exists():
        pytest.skip("Kafka is not installed (deploy/install_kafka.sh .kafka); tests of a real broker did not run")


def _free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _java(main: str, *arguments: str) -> list[str]:
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else "java"
    return [program, *JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{JARS}/broker/*", main, *arguments]


class Broker:
    """A broker on two free ports of the loopback, with its data in a directory."""

    def __init__(self, home: Path, **settings: Any) -> None:
        """Format the storage; `start` starts the broker. Settings have `_` for `.`."""
        skip_without_kafka()
        self._home = home
        home.mkdir(parents=True, exist_ok=True)
        self.port, controller = _free_ports(2)
        self.process: subprocess.Popen[bytes] | None = None
        values: dict[str, Any] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": home / "data",
            "num.partitions": 2,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            # 50 each by default, and each is made at the first use.
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            "log.initial.task.delay.ms": 500,
            "num.network.threads": 2,
            "num.io.threads": 4,
            "log.cleaner.dedupe.buffer.size": 16 << 20,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self._config = home / "server.properties"
        self._config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        command = _java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._config))
        subprocess.run(command, check=True, capture_output=True)

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        with (self._home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                _java("kafka.Kafka", str(self._config)), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the broker ended: {(self._home / 'server.log').read_text()[-3000:]}")
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                with suppress(KafkaException):
                    if AdminClient({"bootstrap.servers": self.servers, "log_level": 2}).list_topics(timeout=5).brokers:
                        return
            time.sleep(0.05)
        raise TimeoutError(f"the broker does not answer after {START_S} s")

    def end(self, with_signal: signal.Signals = signal.SIGTERM) -> None:
        """End the process."""
        if self.process is not None:
            self.process.send_signal(with_signal)
            self.process.wait(30)
            self.process = None


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
