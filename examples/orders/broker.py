"""A Kafka broker (KRaft, one process for all roles) on this machine, from the jars of `deploy/install_kafka.sh`."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

JARS = Path(__file__).resolve().parents[2] / ".kafka"
JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError")
START_S = 120.0


def connector_jars() -> str:
    """Spark's `spark.jars` for its Kafka source; empty if they are not there."""
    return ",".join(sorted(str(jar) for jar in (JARS / "connector").glob("*.jar")))


def is_installed() -> bool:
    """Are the jars there?"""
    return (JARS / "versions").exists()


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

    def __init__(self, home: Path, secure: str = "", **settings: Any) -> None:
        """Format the storage; `start` starts the broker.

        Args:
            home: Directory of everything.
            secure: Address of a second listener, `SECURE`.
            settings: They have `_` for `.`.
        """
        self._home = home
        home.mkdir(parents=True, exist_ok=True)
        self.port, controller = _free_ports(2)
        self.process: subprocess.Popen[bytes] | None = None
        listeners = f"PLAINTEXT://127.0.0.1:{self.port}" + (f",SECURE://{secure}" if secure else "")
        values: dict[str, Any] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
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
            # Records may bear event times of long ago; Kafka would count their age from those and delete them.
            "log.retention.ms": -1,
            "num.network.threads": 2,
            "num.io.threads": 4,
            "log.cleaner.dedupe.buffer.size": 16 << 20,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self._config = home / "server.properties"
        self._config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        number = uuid.uuid4().int >> 1  # so that it begins with a letter: with `-` it would be taken for an option
        cluster = base64.urlsafe_b64encode(number.to_bytes(16, "big")).rstrip(b"=").decode()
        command = _java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._config))
        subprocess.run(command, check=True, capture_output=True)

    @property
    def servers(self) -> str:
        """Its address."""
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
