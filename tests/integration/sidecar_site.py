"""A storage on local disk with one committing job, and sidecars beside it as processes of their own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from tests.jobs.committing_job import CommittingJob, random_batch, restored_cells
from varvite.materializer.monitoring.events import Event, decode_event
from varvite.storage.clock import SystemClock
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE_S: Final = 60.0
QUICK: Final = ("--interval", "100ms", "--poll", "50ms", "--collect-interval", "200ms")


class Site:
    """A storage on local disk with one committing job, and sidecars beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.storage = directory / "storage"
        self.store = PrefixedStore(LocalStore(str(self.storage)), "flights")
        self.job = CommittingJob(self.store, SystemClock(), name="flights")
        self.processes: list[subprocess.Popen[bytes]] = []
        self.rng = random.Random(11)
        self._checks = 0

    def sidecar(self, *options: str, name: str = "sidecar", environment: dict[str, str] | None = None) -> Sidecar:
        command = [sys.executable, "-m", "varvite.materializer", "--storage", f"file://{self.storage}", *QUICK]
        command += ["--working-directory", str(self.directory / "work"), "--json", *options]
        output = self.directory / f"{name}-{len(self.processes)}.jsonl"
        with output.open("wb") as stdout, output.with_suffix(".log").open("wb") as stderr:
            process = subprocess.Popen(command, stdout=stdout, stderr=stderr, env={**os.environ, **(environment or {})})
        self.processes.append(process)
        return Sidecar(process, output)

    def commit(self, count: int = 1) -> None:
        for _ in range(count):
            self.job.commit(random_batch(self.rng))

    def commit_until(
        self, condition: Callable[[], bool], *, patience_s: float = PATIENCE_S, pause_s: float = 0.05
    ) -> None:
        deadline = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < deadline, self.logs()
            self.commit()
            time.sleep(pause_s)

    def check(self) -> None:
        """The newest commit restores to what the model says."""
        assert self.job.run is not None
        base = self.job.run.state.base
        assert base is not None
        self._checks += 1
        directory = self.directory / f"check-{self._checks}"
        found = restored_cells(self.store, self.job.run.record.job_id, base.link, directory)
        assert found == self.job.models[base.link].cells()

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.directory.glob("*.log")))

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self.job.close()


class Sidecar:
    """A running materializer and its events."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    def events(self) -> list[Event]:
        # The last line may still be under way.
        return [
            decode_event(line) for line in self._output.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")
        ]

    def count(self, kind: type[Any]) -> int:
        return sum(type(event) is kind for event in self.events())

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)
