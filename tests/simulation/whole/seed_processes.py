"""Processes that run seeds of the simulation by its command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def start(first: int, seeds: int, *more: str) -> subprocess.Popen[str]:
    """A process that runs these seeds."""
    command = [sys.executable, "-m", "tests.simulation.system", str(first), "--seeds", str(seeds), *more]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def check(running: list[subprocess.Popen[str]]) -> str:
    """Wait for them; what they said, if nothing has failed."""
    said = [process.communicate()[0] for process in running]
    text = "\n".join(said)
    print(text)  # noqa: T201  with the seeds that failed
    assert [process.returncode for process in running] == [0] * len(running), text[-4000:]
    return text
