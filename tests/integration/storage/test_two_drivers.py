"""Two driver processes of one job, one of them stopped across the other's takeover (I6)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.integration.committing_process import FENCED

ROOT = Path(__file__).parents[3]


def start(storage: Path, sink: Path, batches: int) -> subprocess.Popen[bytes]:
    """A driver process."""
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
    command = [sys.executable, "-m", "tests.integration.committing_process", str(storage), str(sink), str(batches)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL)


def lines(sink: Path) -> list[tuple[int, ...]]:
    """Calls of the sink: (epoch, batch, seq)."""
    return [tuple(map(int, line.split())) for line in sink.read_text().splitlines()] if sink.exists() else []


def wait_for_batches(sink: Path, count: int) -> None:
    """Until so many batches are in the sink."""
    deadline_s = time.monotonic() + 60
    while len(lines(sink)) < count:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_driver_that_was_stopped_across_a_takeover_ends_without_touching_the_sink(tmp_path: Path) -> None:
    storage, sink = tmp_path / "state", tmp_path / "sink"
    first = start(storage, sink, 10_000)
    try:
        wait_for_batches(sink, 5)
        os.kill(first.pid, signal.SIGSTOP)
        time.sleep(0.1)
        before = lines(sink)
        second = start(storage, sink, 20)
        assert second.wait(60) == 0
        after = lines(sink)
        os.kill(first.pid, signal.SIGCONT)
        assert first.wait(60) == FENCED
    finally:
        first.kill()
        first.wait()
    late = lines(sink)[len(after) :]
    assert len(late) <= 1, "at most the one call of the sink that was in flight"
    assert len(after) == len(before) + 20
    epochs = [epoch for epoch, _, _ in after]
    assert epochs == sorted(epochs)
    assert len({seq for _, _, seq in after}) == len(after), "no seq is used twice"


def test_of_two_drivers_at_once_one_is_fenced_and_the_other_goes_on(tmp_path: Path) -> None:
    storage, sink = tmp_path / "state", tmp_path / "sink"
    first = start(storage, sink, 10_000)
    try:
        wait_for_batches(sink, 3)
        second = start(storage, sink, 10)
        assert second.wait(60) == 0
        assert first.wait(60) == FENCED
    finally:
        first.kill()
        first.wait()
