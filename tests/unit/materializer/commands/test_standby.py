"""`varvite standby` at the command line."""

from __future__ import annotations

import json
import shlex
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.jobs.committing_job import CommittingJob
from tests.jobs.state_model import BatchChanges
from tests.stores.manual_clock import ManualClock
from tests.tidy.pages.doc_blocks import ROOT, blocks_of, commands_of
from varvite.materializer.commands import standby as standby_command
from varvite.materializer.commands.cli import main
from varvite.materializer.resources.stop_signal import StopSignal
from varvite.materializer.service.sharing import HEARTBEAT_MS
from varvite.materializer.standby.follower import Standby, StandbyLine
from varvite.materializer.standby.record import decode_standby
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.prefixed import PrefixedStore

PAGE = "docs/operate/recovery.md"


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


def page_command(number: int, storage: str, tmp_path: Path) -> list[str]:
    """The arguments of a command of the page, over this storage and other directories."""
    blocks = [block for block in blocks_of(PAGE, (ROOT / PAGE).read_text()) if block.language == "console"]
    command = [command for block in blocks for command in commands_of(block)][number]
    given = command.replace("file:///var/lib/varvite", storage).replace("/mnt", str(tmp_path / "mnt"))
    name, *arguments = shlex.split(given)
    assert name == "varvite"
    return arguments


def test_the_command_of_the_page_runs(storage: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [*page_command(0, storage, tmp_path), "--once"])
    assert done.exit_code == 0, done.output
    assert done.output.count("restored") == 2
    for disk in ("disk1", "disk2"):
        assert len(list((tmp_path / "mnt" / disk / "varvite").glob("varvite-local-state-*/*/*/*/0/CURRENT"))) == 1, (
            "partitions are spread"
        )


def test_the_command_with_followers_runs(storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr(standby_command, "SystemClock", lambda: clock)

    def rounds(one: Standby, *_: object, **__: object) -> None:
        found = [one.step()]
        while not found[-1]:
            clock.sleep(HEARTBEAT_MS / 1000)
            found.append(one.step())
        assert [line.how for line in found[-1]] == ["restored", "restored"]
        clock.sleep(HEARTBEAT_MS / 1000)
        one.step()

    monkeypatch.setattr(standby_command, "_run", rounds)
    done = CliRunner().invoke(main, page_command(1, storage, tmp_path), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (record,) = (tmp_path / "storage" / "flights" / "standbys").iterdir()
    told = decode_standby(record.read_bytes(), f"standbys/{record.name}")
    assert (told.host, told.names) == ("node-7", ("node-7",))
    ((first, end, _),) = told.operators[0].copies
    assert (first, end, told.operators[0].in_use) == (0, 2, ())


def test_a_round_says_what_it_did_as_json(storage: str, tmp_path: Path) -> None:
    for how in ("restored", "current"):
        done = run("flights", "--storage", storage, "--directory", str(tmp_path / "local"), "--once", "--json")
        assert done.exit_code == 0
        lines = [json.loads(line) for line in done.output.splitlines()]
        assert [(line["how"], line["low"], line["high"]) for line in lines] == [(how, 0, 4), (how, 4, 8)]
        assert {line["newest_seq"] - line["seq"] for line in lines} == {1}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_one_round_says_that_there_is_nothing_to_bring_up_yet(tmp_path: Path, form: list[str]) -> None:
    """The newest checkpoint may be executed again; a job that has made just one gave no line, and no word as JSON."""
    job = CommittingJob(PrefixedStore(LocalStore(str(tmp_path / "storage")), "flights"), ManualClock(), name="flights")
    job.start()
    job.commit(BatchChanges(totals={"a": 1}))
    job.close()
    storage, local = f"file://{tmp_path}/storage", str(tmp_path / "local")
    done = run("flights", "--storage", storage, "--directory", local, "--once", *form)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "job flights has no operator in a final checkpoint" in done.stderr


def test_a_job_that_is_missing_and_wrong_options_are_told(storage: str, tmp_path: Path) -> None:
    missing = run("other", "--storage", storage, "--once")
    assert (missing.exit_code, "other" in missing.output) == (1, True)
    for option in (["--poll", "soon"], ["--max-unused-age", "x"], ["--max-unused-size", "x"], ["--parallel", "0"]):
        assert run("flights", "--storage", storage, *option).exit_code == 2
    assert run("flights", "--storage", storage, "--poll", "0", "--once").exit_code == 2


def test_followers_need_standbys_that_go_on_and_a_name(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("flights", "--storage", storage, "--followers", "2", "--once").exit_code == 2
    assert run("flights", "--storage", storage, "--followers", "0").exit_code == 2
    monkeypatch.setattr(standby_command, "host_names", lambda: ())
    assert run("flights", "--storage", storage, "--followers", "2").exit_code == 2


def test_one_round_tells_nobody_of_its_copies(storage: str, tmp_path: Path) -> None:
    done = run("flights", "--storage", storage, "--directory", str(tmp_path / "local"), "--once", "--host", "here")
    assert done.exit_code == 0
    assert not list((tmp_path / "storage" / "flights").glob("standbys/*"))


def test_a_host_has_names_by_which_others_can_mean_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node-7")
    monkeypatch.setattr(socket, "getfqdn", lambda: "localhost")
    addresses = ["127.0.1.1", "10.0.0.7", "::1"]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (a, 0)) for a in addresses])
    found = standby_command.host_names()
    assert found[:2] == ("node-7", "10.0.0.7")
    assert not any(name == "localhost" or name.startswith("127.") or ":" in name for name in found)


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
