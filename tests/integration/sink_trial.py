"""Runs of `sink_driver`, killed, or stopped and woken beside their successor, at any moment."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.integration.sink_driver import content, numbers
from tests.tidy.project_files import ROOT


class Trial:
    """Runs one after another with a sink."""

    def __init__(self, home: Path, seed: int, *sink: str) -> None:
        self.home, self.sink = home, sink
        for name in ("chain", "offsets", "commits"):
            (self.home / name).mkdir(parents=True)
        self.chance = random.Random(seed)
        self.logs: list[Path] = []

    def start(self) -> subprocess.Popen[bytes]:
        """A run that has begun its first batch."""
        self.logs.append(self.home / f"log-{len(self.logs)}")
        arguments = (str(self.home), str(self.chance.randrange(1 << 30)), *self.sink)
        with self.logs[-1].open("wb") as log:
            command = [sys.executable, "-m", "tests.integration.sink_driver", *arguments]
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

    def figures(self, values: Iterable[str]) -> tuple[int, int]:
        """Rows of acknowledged batches that are missing in the output, and that are there twice."""
        end = content(self.home / "offsets", numbers(self.home / "commits")[-1])["end"]
        seen = Counter(map(int, values))
        return sum(seen[i] == 0 for i in range(end)), sum(seen[i] > 1 for i in range(end))

    def words(self) -> Counter[str]:
        return Counter(line.split()[0] for log in self.logs for line in log.read_text().splitlines() if line)
