"""The driver's own materializer is started again whenever it dies, and not once it was stopped."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.workers.state_worker_setup import alive, eventually
from varvite.materializer.options.materializer_config import MaterializerConfig
from varvite.materializer.service.supervisor import SupervisedMaterializer, ending
from varvite.storage.object_stores.backoff import Backoff

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.sidecar
PATIENCE_S = 60.0


class Told:
    """Events that reach the driver."""

    def __init__(self) -> None:
        self.starts = 0
        self.troubles: list[str] = []

    def started(self) -> None:
        self.starts += 1


@pytest.fixture
def told() -> Told:
    return Told()


def supervised(directory: Path, told: Told, *, settled_s: float = 600.0, **options: object) -> SupervisedMaterializer:
    config = MaterializerConfig(storage_url=f"file://{directory}", working_directory=directory / "work", **options)  # type: ignore[arg-type]
    restarts = Backoff(attempts=1, initial_s=0.01, maximum_s=0.02)
    return SupervisedMaterializer(
        config, started=told.started, trouble=told.troubles.append, restarts=restarts, settled_s=settled_s
    )


def test_a_child_that_is_killed_is_replaced_until_it_is_stopped(tmp_path: Path, told: Told) -> None:
    child = supervised(tmp_path, told)
    try:
        assert eventually(lambda: child.pid is not None, PATIENCE_S)
        for number in (signal.SIGKILL, signal.SIGABRT):
            before, starts = child.pid, told.starts
            assert before is not None
            os.kill(before, number)
            assert eventually(lambda starts=starts: told.starts > starts, PATIENCE_S)  # type: ignore[misc]
            assert child.pid != before
    finally:
        child.stop()
    assert child.pid is not None
    assert not alive(child.pid)
    assert "killed by SIGKILL, as the kernel does when memory runs out" in told.troubles[0]
    assert "killed by SIGABRT" in told.troubles[1]
    assert "failure 2 in a row" in told.troubles[1]
    starts = told.starts
    child.stop()
    assert told.starts == starts


def test_a_child_that_dies_at_once_is_tried_again_and_again(tmp_path: Path, told: Told) -> None:
    """Its configuration cannot work; the job is not harmed."""
    (tmp_path / "work").write_text("a file where the directory should be")
    child = supervised(tmp_path, told)
    assert eventually(lambda: told.starts >= 3, PATIENCE_S)
    child.stop()
    assert all("ended with exit code" in text for text in told.troubles)


def test_a_child_that_has_settled_ends_the_trouble(tmp_path: Path, told: Told) -> None:
    child = supervised(tmp_path, told, settled_s=0.05)
    assert eventually(lambda: told.troubles == [""], PATIENCE_S)
    child.stop()


@pytest.mark.parametrize(
    ("code", "text"), [(2, "ended with exit code 2"), (-15, "was killed by SIGTERM"), (-99, "was killed by signal 99")]
)
def test_an_exit_code_is_told_in_words(code: int, text: str) -> None:
    assert ending(code) == text
