"""`deploy/spark_submit.sh` with stand-ins for spark-submit and the sidecar that note what happens to them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).resolve().parents[3] / "deploy" / "spark_submit.sh"
DOCUMENTED = "--storage s3://bucket/varvite --job orders -- --master yarn --py-files varvite.zip orders.py"
SPARK = """#!/usr/bin/env bash
printf '%s\\n' "$@" >"$NOTES/spark.arguments"
trap 'echo TERM >"$NOTES/spark.signal"; exit 143' TERM
touch "$NOTES/spark.runs"
until [ -e "$NOTES/spark.may_end" ]; do sleep 0.05; done
exit "$(cat "$NOTES/spark.may_end")"
"""
SIDECAR = """#!/usr/bin/env bash
printf '%s\\n' "$@" >"$NOTES/sidecar.arguments"
trap 'touch "$NOTES/sidecar.ended"; exit 0' TERM
echo $$ >>"$NOTES/sidecar.pids"
while true; do sleep 0.05; done
"""
DEAF_SIDECAR = """#!/usr/bin/env bash
trap '' TERM
echo $$ >>"$NOTES/sidecar.pids"
while true; do sleep 0.05; done
"""
FAILING_SIDECAR = """#!/usr/bin/env bash
echo $$ >>"$NOTES/sidecar.pids"
exit 9
"""


@dataclass
class Submission:
    """A running script and the directory in which its programs leave notes."""

    process: subprocess.Popen[str]
    notes: Path

    def await_note(self, name: str, lines: int = 0) -> list[str]:
        """The lines of a note as soon as it has that many."""
        give_up = time.monotonic() + 30
        while time.monotonic() < give_up:
            if (self.notes / name).exists():
                found = (self.notes / name).read_text().splitlines()
                if len(found) >= lines:
                    return found
            time.sleep(0.02)
        raise AssertionError(f"no note {name}: {[path.name for path in self.notes.iterdir()]}")

    def let_spark_end(self, code: int) -> int:
        """End the stand-in for spark-submit; answers the script's own exit code."""
        partial = self.notes / "partial"
        partial.write_text(str(code))
        partial.rename(self.notes / "spark.may_end")
        return self.process.wait(timeout=30)

    def sidecar_lives(self) -> bool:
        pid = int(self.await_note("sidecar.pids", 1)[-1])
        return Path(f"/proc/{pid}").exists() if Path("/proc").exists() else _answers(pid)


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


class Submit(Protocol):
    """Starts the script with that sidecar and those arguments."""

    def __call__(self, sidecar: str = SIDECAR, arguments: str = DOCUMENTED) -> Submission: ...


@pytest.fixture
def submit(tmp_path: Path) -> Iterator[Submit]:
    started: list[subprocess.Popen[str]] = []

    def start(sidecar: str = SIDECAR, arguments: str = DOCUMENTED) -> Submission:
        notes = tmp_path / "notes"
        notes.mkdir()
        environment = {
            **os.environ,
            "NOTES": str(notes),
            "SPARK_SUBMIT": program(tmp_path / "spark-submit", SPARK),
            "VARVITE": program(tmp_path / "varvite", sidecar),
            "VARVITE_RESTART_S": "0.1",
            "VARVITE_STOP_S": "1",
        }
        process = subprocess.Popen(
            [SCRIPT, *arguments.split()], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        started.append(process)
        return Submission(process, notes)

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=30)


def test_the_job_gets_the_flag_and_the_sidecar_runs_beside_it(submit: Submit) -> None:
    submission = submit()
    submission.await_note("sidecar.pids", 1)
    spark = submission.await_note("spark.arguments", 10)
    assert submission.await_note("sidecar.arguments", 5) == [
        "materialize", "--storage", "s3://bucket/varvite", "--job", "orders"
    ]  # fmt: skip
    assert "spark.varvite.state.changelog.enabled=true" in spark
    assert "spark.varvite.execution.checkpointing.dir=s3://bucket/varvite" in spark
    assert "spark.varvite.materializer.mode=sidecar" in spark
    assert spark[-5:] == ["--master", "yarn", "--py-files", "varvite.zip", "orders.py"]
    assert submission.sidecar_lives()
    assert submission.let_spark_end(7) == 7
    assert (submission.notes / "sidecar.ended").exists()
    assert not submission.sidecar_lives()


def test_a_signal_ends_the_job_first_and_then_the_sidecar(submit: Submit) -> None:
    submission = submit()
    submission.await_note("spark.runs")
    submission.await_note("sidecar.pids", 1)
    submission.process.send_signal(signal.SIGTERM)
    assert submission.process.wait(timeout=30) == 143
    assert submission.await_note("spark.signal") == ["TERM"]
    assert not submission.sidecar_lives()


def test_a_failing_sidecar_is_started_again_and_does_not_end_the_job(submit: Submit) -> None:
    submission = submit(FAILING_SIDECAR)
    assert len(set(submission.await_note("sidecar.pids", 3))) >= 3
    assert submission.process.poll() is None
    assert submission.let_spark_end(0) == 0


def test_a_sidecar_that_does_not_hear_sigterm_is_killed(submit: Submit) -> None:
    submission = submit(DEAF_SIDECAR)
    submission.await_note("sidecar.pids", 1)
    assert submission.let_spark_end(0) == 0
    assert not submission.sidecar_lives()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("", "--storage is missing"),
        ("--storage s3://b/v -- job.py", "--job is missing"),
        ("--storage s3://b/v --job a", "nothing to submit"),
        ("--storage s3://b/v --job", "has no value"),
        ("--storage s3://b/v --job a --master yarn -- job.py", "unknown argument --master"),
    ],
)
def test_a_wrong_call_starts_nothing(submit: Submit, arguments: str, reason: str) -> None:
    submission = submit(arguments=arguments)
    output, _ = submission.process.communicate(timeout=30)
    assert submission.process.returncode == 2
    assert reason in output
    assert "usage:" in output
    assert list(submission.notes.iterdir()) == []
