"""An executor of a test's own, whose processes end with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.state_worker_setup import Executor, alive, eventually


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Executor]:
    """A new one; no process of it may be left behind."""
    executor = Executor(tmp_path)
    yield executor
    pids = executor.pids()
    executor.end()
    assert eventually(lambda: not any(alive(p) for p in pids), 30), "a process was left behind"
