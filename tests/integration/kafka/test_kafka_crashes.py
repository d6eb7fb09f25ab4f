"""The protocol of the Kafka sink: processes killed, or stopped and woken beside their successor, at any moment."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.kafka.sink_process import content, numbers
from tests.stores.kafka_broker import Kafka
from tests.tidy.project_files import ROOT

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(600)]


class Trial:
    """Runs one after another of `sink_process`."""

    def __init__(self, kafka: Kafka, directory: Path, seed: int, delivery: str) -> None:
        self.kafka, self.delivery = kafka, delivery
        self.topic = kafka.new_topic(2)
        self.home = directory / self.topic
        for name in ("chain", "offsets", "commits"):
            (self.home / name).mkdir(parents=True)
        self.chance = random.Random(seed)
        self.logs: list[Path] = []

    def start(self) -> subprocess.Popen[bytes]:
        """A run that has begun its first batch."""
        self.logs.append(self.home / f"log-{len(self.logs)}")
        arguments = (str(self.home), self.kafka.servers, self.topic, str(self.chance.randrange(1 << 30)), self.delivery)
        with self.logs[-1].open("wb") as log:
            command = [sys.executable, "-m", "tests.integration.kafka.sink_process", *arguments]
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while b"READY" not in self.logs[-1].read_bytes():
            assert process.poll() is None, self.logs[-1].read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return process

    def run(self, kills: int) -> None:
        stopped: list[subprocess.Popen[bytes]] = []
        for _ in range(kills):
            process = self.start()
            time.sleep(self.chance.uniform(0, 0.25))
            for older in stopped:  # it wakes up beside its successor
                older.send_signal(signal.SIGCONT)
            for older in stopped:
                assert older.wait(60) == 0
            stopped = []
            if self.chance.random() < 0.3:
                process.send_signal(signal.SIGSTOP)
                stopped.append(process)
            else:
                process.kill()
                process.wait()
        for older in stopped:
            older.kill()
            older.wait()
        last = self.start()
        time.sleep(0.5)
        last.kill()
        last.wait()

    def figures(self) -> tuple[int, int]:
        """Rows of acknowledged batches that are missing in the output, and that are there twice."""
        end = content(self.home / "offsets", numbers(self.home / "commits")[-1])["end"]
        seen = Counter(int(value) for value in self.kafka.values(self.topic))
        return sum(seen[i] == 0 for i in range(end)), sum(seen[i] > 1 for i in range(end))

    def words(self) -> Counter[str]:
        return Counter(line.split()[0] for log in self.logs for line in log.read_text().splitlines() if line)


def test_processes_killed_or_stopped_at_any_moment_lose_and_double_nothing(kafka: Kafka, tmp_path: Path) -> None:
    trial = Trial(kafka, tmp_path, 1, "exactly-once")
    trial.run(30)
    assert trial.figures() == (0, 0)
    assert trial.words()["REDONE"] + trial.words()["ADOPTED"] > 10


def test_without_transactions_the_same_trial_finds_rows_twice(kafka: Kafka, tmp_path: Path) -> None:
    """So the trial can see the fault."""
    trial = Trial(kafka, tmp_path, 1, "at-least-once")
    trial.run(20)
    missing, twice = trial.figures()
    assert missing == 0
    assert twice > 0
