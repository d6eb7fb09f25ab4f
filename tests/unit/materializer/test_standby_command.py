"""`varve standby` at the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.committing_job import CommittingJob
from tests.doc_blocks import ROOT, blocks_of, commands_of
from tests.manual_clock import ManualClock
from tests.state_model import BatchChanges
from varve.materializer import standby_command
from varve.materializer.cli import main
from varve.materializer.standby import StandbyLine
from varve.materializer.stop_signal import StopSignal
from varve.storage.local_store import LocalStore
from varve.storage.prefixed_store import PrefixedStore

PAGE = "docs/recovery.md"


@pytest.fixture
def storage(tmp_path: Path) -> str:
    job = CommittingJob(PrefixedStore(LocalStore(str(tmp_path / "storage")), "flights"), ManualClock(), name="flights")
    job.start()
    for total in range(3):
        job.commit(BatchChanges(totals={"a": total, "b": 2}))
    job.close()
    return f"file://{tmp_path}/storage"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["standby", *arguments])


def test_the_command_of_the_page_runs(storage: str, tmp_path: Path) -> None:
    blocks = blocks_of(PAGE, (ROOT / PAGE).read_text())
    [command] = [command for block in blocks if block.language == "console" for command in commands_of(block)]
    given = command.replace("file:///var/lib/varve", storage).replace("/mnt", str(tmp_path / "mnt"))
    name, *arguments = shlex.split(given)
    assert name == "varve"
    done = CliRunner().invoke(main, [*arguments, "--once"])
    assert done.exit_code == 0, done.output
    assert done.output.count("restored") == 2
    for disk in ("disk1", "disk2"):
        assert len(list((tmp_path / "mnt" / disk / "varve").glob("*/*/*/0/CURRENT"))) == 1, "partitions are spread"


def test_a_round_says_what_it_did_as_json(storage: str, tmp_path: Path) -> None:
    for how in ("restored", "current"):
        done = run("flights", "--storage", storage, "--directory", str(tmp_path / "local"), "--once", "--json")
        assert done.exit_code == 0
        lines = [json.loads(line) for line in done.output.splitlines()]
        assert [(line["how"], line["low"], line["high"]) for line in lines] == [(how, 0, 4), (how, 4, 8)]
        assert {line["newest_seq"] - line["seq"] for line in lines} == {1}


def test_a_job_that_is_missing_and_wrong_options_are_told(storage: str, tmp_path: Path) -> None:
    missing = run("other", "--storage", storage, "--once")
    assert (missing.exit_code, "other" in missing.output) == (1, True)
    for option in (["--poll", "soon"], ["--max-unused-age", "x"], ["--max-unused-size", "x"], ["--parallel", "0"]):
        assert run("flights", "--storage", storage, *option).exit_code == 2


def test_what_fails_is_told_and_counts(storage: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("flights", "--storage", storage, "--directory", str(tmp_path / "file" / "below"), "--once")
    assert done.exit_code == 1
    assert "failed" in done.output


def test_the_loop_tells_only_what_changes(capsys: pytest.CaptureFixture[str]) -> None:
    ways = ["restored", "caught-up", "current", "held", "held", "current", "restored", "failed", "failed"]
    stop = StopSignal()

    class Scripted:
        """Gives one line per round."""

        def step(self, stopped: object) -> tuple[StandbyLine, ...]:
            if not ways:
                stop.set()
                return ()
            how = ways.pop(0)
            return (StandbyLine(job="flights", operator="count", low=0, high=4, how=how, newest_seq=9),)

    standby_command._run(Scripted(), stop, 0.0, as_json=True)  # type: ignore[arg-type]
    told = [json.loads(line)["how"] for line in capsys.readouterr().out.splitlines()]
    assert told == ["restored", "held", "current", "restored", "failed"]
