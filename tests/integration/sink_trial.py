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

    def start(self, stopped: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """A run that has begun its first batch.

        A stopped run may hold a lock (of SQLite, Iceberg's catalogue) for which its successor waits in vain. Then that
        is refused, as it should be, and started again when the others have been woken.
        """
        process = self._start()
        if process is None:
            assert stopped, self.logs[-1].read_text()
            wake(stopped)
            process = self._start()
        assert process is not None, self.logs[-1].read_text()
        return process

    def _start(self) -> subprocess.Popen[bytes] | None:
        """A run; None if its start was refused because of that lock. Any other refusal fails the test."""
        self.logs.append(self.home / f"log-{len(self.logs)}")
        arguments = (str(self.home), str(self.chance.randrange(1 << 30)), *self.sink)
        with self.logs[-1].open("wb") as log:
            command = [sys.executable, "-m", "tests.integration.sink_driver", *arguments]
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while b"READY" not in self.logs[-1].read_bytes():
            if process.poll() == 0 and b"database is locked" in self.logs[-1].read_bytes():
                return None
            assert process.poll() is None, self.logs[-1].read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return process

    def run(self, kills: int) -> None:
        stopped: list[subprocess.Popen[bytes]] = []
        for _ in range(kills):
            process = self.start(stopped)
            time.sleep(self.chance.uniform(0, 0.25))
            wake(stopped)  # beside its successor
            if self.chance.random() < 0.3:
                process.send_signal(signal.SIGSTOP)
                stopped.append(process)
            else:
                process.kill()
                process.wait()
        for older in stopped:
            older.kill()
            older.wait()
        last = self.start([])
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


def wake(stopped: list[subprocess.Popen[bytes]]) -> None:
    """Wake stopped runs, and wait until they notice that they have a successor."""
    for run in stopped:
        run.send_signal(signal.SIGCONT)
    for run in stopped:
        assert run.wait(60) == 0
    stopped.clear()
