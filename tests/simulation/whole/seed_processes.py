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


def check(process: subprocess.Popen[str]) -> str:
    """Wait for it; its output, if nothing has failed."""
    text = process.communicate()[0]
    print(text)  # noqa: T201  with the seeds that failed
    assert process.returncode == 0, text[-4000:]
    return text
