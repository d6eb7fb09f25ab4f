"""`varvite jobs`, `checkpoints`, `sweep` over a real job on local disk."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.jobs.committing_job import CommittingJob, NumberedTokens, random_batch
from tests.jobs.materializer_world import World
from tests.stores.manual_clock import ManualClock
from varvite.changelog.chain.reader import READ_THREADS
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.retention.pins import create_pin
from varvite.materializer.commands import inspect as inspect_commands
from varvite.materializer.commands.cli import main
from varvite.storage.format import layout
from varvite.storage.job.listing import OpenJob, open_job
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varvite.storage.object_stores.contract import ObjectStore


@pytest.fixture
def job(tmp_path: Path) -> Iterator[CommittingJob]:
    job = CommittingJob(PrefixedStore(LocalStore(str(tmp_path)), "flights"), ManualClock(), name="flights")
    job.start()
    rng = random.Random(1)
    for _ in range(7):
        job.commit(random_batch(rng), upload=True)
    yield job
    job.close()


def run(*arguments: str, code: int = 0) -> list[Any]:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_jobs_shows_the_newest_checkpoint_and_the_log(job: CommittingJob, tmp_path: Path) -> None:
    assert job.run is not None
    PrefixedStore(LocalStore(str(tmp_path)), "other").put("not-a-job.json", b"")
    [line] = run("jobs", "--storage", str(tmp_path), "--json")
    assert (line["job"], line["job_id"], line["batch"], line["seq"]) == ("flights", job.run.record.job_id, 6, 8)
    assert line["operators"] == ["flights"]
    assert line["log_segments"] >= 7
    assert line["log_bytes"] == sum(meta.size_bytes for meta in job.store.list(layout.SEGMENTS))


@pytest.mark.parametrize("command", ["jobs", "sweep"])
def test_jobs_are_read_side_by_side(
    job: CommittingJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """One after the other, 2,000 jobs on S3 take some ten minutes: each costs 8 or 24 requests."""
    for n in range(1, READ_THREADS):
        other = PrefixedStore(LocalStore(str(tmp_path)), f"other-{n}")
        for meta in job.store.list(""):
            other.put(meta.name, job.store.get(meta.name))
    all_at_once = threading.Barrier(READ_THREADS, timeout=10)

    def meeting(root: ObjectStore, name: str) -> OpenJob:
        all_at_once.wait()
        return open_job(root, name)

    monkeypatch.setattr(inspect_commands, "open_job", meeting)
    lines = run(command, "--storage", str(tmp_path), "--json")
    assert [line["job"] for line in lines] == ["flights", *(f"other-{n}" for n in range(1, READ_THREADS))]


def test_checkpoints_walks_the_line_from_the_newest(job: CommittingJob, tmp_path: Path) -> None:
    job.start(redo=True)
    job.commit(random_batch(random.Random(2)))
    lines = run("checkpoints", "flights", "--storage", str(tmp_path), "--json", "--limit", "3")
    assert [(line["seq"], line["batch"]) for line in lines] == [(10, 6), (7, 5), (6, 4)]
    assert len(run("checkpoints", "flights", "--storage", str(tmp_path), "--json")) == 7


def test_sweep_deletes_what_an_attempt_left_and_dry_run_does_not(job: CommittingJob, tmp_path: Path) -> None:
    orphan = layout.segment(4, "flights", 0, "f" * 32, 0)
    job.store.put(orphan, b"left by a crashed attempt")
    [dry] = run("sweep", "--storage", str(tmp_path), "--dry-run", "--json")
    assert (dry["segments"], dry["names"], dry["size_bytes"]) == (1, [orphan], 25)
    assert orphan in [meta.name for meta in job.store.list(layout.SEGMENTS)]
    for wide in ((), ("--wide",)):
        done = CliRunner().invoke(main, ["sweep", "--storage", str(tmp_path), "--dry-run", *wide])
        assert "25 B" in done.output
        assert (orphan in done.output) == bool(wide)
    [swept] = run("sweep", "--storage", str(tmp_path), "--job", "flights", "--json")
    assert swept["segments"] == 1
    assert orphan not in [meta.name for meta in job.store.list(layout.SEGMENTS)]
    assert swept["names"] == [orphan]
    [again] = run("sweep", "--storage", str(tmp_path), "--json")
    assert again["segments"] == 0


def test_tables_are_shown_to_people(job: CommittingJob, tmp_path: Path) -> None:
    for arguments in (["jobs"], ["checkpoints", "flights"], ["sweep", "--dry-run"]):
        done = CliRunner().invoke(main, [*arguments, "--storage", str(tmp_path)])
        assert done.exit_code == 0, done.output
        assert "seq" in done.output or "entries" in done.output
    assert "KiB" in CliRunner().invoke(main, ["jobs", "--storage", str(tmp_path)]).output


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["checkpoints", "nobody", "--storage", str(tmp_path)])
    assert done.exit_code == 1
    assert "there is no job 'nobody'" in done.output
    assert "Traceback" not in done.output
    run("jobs", "--storage", "s4://bucket", code=1)
    assert "nothing found" in CliRunner().invoke(main, ["jobs", "--storage", str(tmp_path)]).output


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--storage", "memory://x"],
        ["--storage", "x", "--conf", "spark.varvite.materializer.nonsense=1"],
        ["--storage", "x", "--storage-option", "novalue"],
        ["--storage", "x", "--storage-option", "config_kwargs={read_timeout"],
        ["--conf", "spark.varvite.state.checkpoints.dir=x", "--conf", "spark.varvite.storage.option.a=[1"],
        ["--storage", "x", "--poll", "0 s"],
    ],
)
def test_wrong_options_of_materialize_end_with_2(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("varvite.materializer.commands.cli.stop_on_signals", lambda _stop: None)
    monkeypatch.setattr("varvite.materializer.commands.cli.end_late", lambda _stop, _grace_s: None)
    done = CliRunner().invoke(main, ["materialize", "--once", *arguments])
    assert done.exit_code == 2, done.output
    assert "Error" in done.output


def test_options_may_come_from_the_environment_and_from_spark_properties(
    job: CommittingJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("varvite.materializer.commands.cli.stop_on_signals", lambda _stop: None)
    monkeypatch.setattr("varvite.materializer.commands.cli.end_late", lambda _stop, _grace_s: None)
    monkeypatch.setenv("VARVITE_MATERIALIZE_JOB", "flights")
    work = tmp_path / "work"
    conf = [
        f"spark.varvite.execution.checkpointing.dir={tmp_path}",
        f"spark.varvite.materializer.working-directory={work}",
    ]
    options = [item for pair in conf for item in ("--conf", pair)]
    done = CliRunner().invoke(main, ["materialize", "--once", "--json", *options])
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()][:2] == ["materialized", "materialized"]
    assert list(work.glob("varvite-materializer-*/0/ranges"))


def test_storage_options_are_read_alike_and_add_up_wherever_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr("varvite.materializer.commands.cli.stop_on_signals", lambda _stop: None)
    monkeypatch.setattr("varvite.materializer.commands.cli.end_late", lambda _stop, _grace_s: None)
    monkeypatch.setattr(
        "varvite.materializer.commands.cli.run_materializer", lambda config, *_, **__: not given.append(config)
    )
    conf = ("use_ssl=False", "key=1", 'config_kwargs={"read_timeout": 5}')
    arguments = [item for pair in conf for item in ("--conf", f"spark.varvite.storage.option.{pair}")]
    arguments += ["--storage-option", "key=2", "--storage-option", "anon=True", "--storage-option", "roles=[1]"]
    done = CliRunner().invoke(main, ["materialize", "--storage", str(tmp_path), *arguments])
    assert done.exit_code == 0, done.output
    expected = {"use_ssl": False, "key": "2", "config_kwargs": {"read_timeout": 5}, "anon": True, "roles": [1]}
    assert given[0].storage_options == expected


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk here that is always full")
def test_a_status_file_on_a_full_disk_stops_nothing(
    job: CommittingJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    del job
    monkeypatch.setattr("varvite.materializer.commands.cli.stop_on_signals", lambda _stop: None)
    monkeypatch.setattr("varvite.materializer.commands.cli.end_late", lambda _stop, _grace_s: None)
    options = ["--storage", str(tmp_path), "--working-directory", str(tmp_path / "work"), "--status-file", "/dev/full"]
    done = CliRunner().invoke(main, ["materialize", "--once", "--json", *options])
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()][:2] == ["materialized", "materialized"]
    assert [record.levelname for record in caplog.records if "No space left" in record.getMessage()] == ["WARNING"]


def test_checkpoints_that_cannot_be_read_any_more_are_told_from_those_that_can(tmp_path: Path) -> None:
    """Commits of the log are listed, but what they need may be deleted; errors name those that are complete."""
    world = World(tmp_path / "local", LocalStore(str(tmp_path)))
    world.commit(4)
    world.sidecar().fold()
    world.commit(6)
    world.close()
    lines = run("checkpoints", "job", "--storage", str(tmp_path), "--json")
    complete = [line["seq"] for line in lines if line["complete"]]
    gone = [line["seq"] for line in lines if not line["complete"]]
    assert complete
    assert gone
    assert min(complete) > max(gone)
    for seq in (*complete, *gone, 99):
        arguments = ["describe", "job", "--checkpoint", str(seq), "--storage", str(tmp_path)]
        done = CliRunner().invoke(main, arguments)
        assert (done.exit_code == 0) == (seq in complete), done.output
        if seq not in complete:
            assert f"seq {complete[0]} " in done.output
            assert all(f"seq {other} " not in done.output for other in gone)


def test_a_pin_makes_no_older_checkpoint_complete(tmp_path: Path) -> None:
    """They were called complete if they needed no older log than the pinned one, although their bases might be gone."""
    world = World(tmp_path / "local", LocalStore(str(tmp_path)), policy=CommitPolicy(full_every=1))
    world.job.parallelism = 1
    world.job.start()
    for _ in range(5):
        world.commit()
        world.sidecar().fold()
    world.job.parallelism = 2
    world.job.start()
    world.commit(6, adopt=False)
    tokens = NumberedTokens("retention")
    pin = create_pin(world.reader, world.newest(), "retention by time", world.clock, tokens, for_others=True)
    world.commit(3, adopt=False)
    world.close()
    at = ["--storage", str(tmp_path)]
    complete = [line["seq"] for line in run("checkpoints", "job", *at, "--json") if line["complete"]]
    assert min(complete) == pin.commit.seq
    assert pin.needs_from < pin.commit.seq
    refused = run("restore", "job", "--checkpoint", str(pin.commit.seq - 1), "--dry-run", "--json", *at, code=1)
    assert refused == []
    for seq in complete:
        assert run("restore", "job", "--checkpoint", str(seq), "--dry-run", "--json", *at)
        assert run("savepoint", "create", "job", f"s{seq}", "--checkpoint", str(seq), "--json", *at)


def test_a_damaged_head_points_to_the_repair(job: CommittingJob, tmp_path: Path) -> None:
    """Going back to an older checkpoint is no help: the head is read for that, too."""
    assert job.run is not None
    head = job.run.reader.head()
    assert head is not None
    name = layout.chain(head.seq)
    job.store.put(name, job.store.get(name)[:-1] + b"x")
    for arguments in (["checkpoints", "flights"], ["restore", "flights", "--batch", "1"]):
        done = CliRunner().invoke(main, [*arguments, "--storage", str(tmp_path)])
        assert done.exit_code == 1
        assert "varvite verify JOB --repair" in done.output


def test_a_damaged_checkpoint_does_not_hide_the_newer_ones(job: CommittingJob, tmp_path: Path) -> None:
    """One that nobody needs any more was enough, and the list is where one looks for what can be gone back to."""
    name = layout.chain(4)
    job.store.put(name, job.store.get(name)[:-1] + b"x")
    done = CliRunner().invoke(main, ["checkpoints", "flights", "--storage", str(tmp_path), "--json"])
    assert done.exit_code == 1
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == [8, 7, 6, 5]
    assert json.loads(done.stderr)["context"] == {"job": "flights", "object_name": name}
    assert len(run("checkpoints", "flights", "--storage", str(tmp_path), "--json", "--limit", "4")) == 4


def test_files_of_somebody_else_among_the_objects_change_nothing(job: CommittingJob, tmp_path: Path) -> None:
    areas = (
        layout.CHAIN,
        layout.SEGMENTS,
        layout.SNAPSHOTS,
        layout.SNAPSHOT_FILES,
        layout.SAVEPOINT_FILES,
        layout.PINS,
    )
    foreign = [f"{area}README.md" for area in (*areas, layout.SAVEPOINTS, layout.MEMBERS, layout.REQUESTS)]
    for name in [*foreign, f"{layout.chain(8)}.bak"]:
        job.store.put(name, b"somebody's")
    [line] = run("jobs", "--storage", str(tmp_path), "--json")
    assert line["seq"] == 8
    [swept] = run("sweep", "--storage", str(tmp_path), "--json")
    assert swept["savepoint_files"] == 0
    assert run("pins", "list", "flights", "--storage", str(tmp_path), "--json") == []
    assert run("savepoint", "list", "flights", "--storage", str(tmp_path), "--json") == []
    assert run("state", "flights", "--count", "--storage", str(tmp_path), "--json")
    assert run("verify", "flights", "--storage", str(tmp_path), "--json")[0]["problems"] == 0
    assert {job.store.get(name) for name in foreign} == {b"somebody's"}


@pytest.mark.parametrize("uid", ["count[/day]", "op [red]x", "[/]", "back\\"])
def test_what_looks_like_markup_in_a_name_is_shown_as_it_is(tmp_path: Path, uid: str) -> None:
    job = CommittingJob(PrefixedStore(LocalStore(str(tmp_path)), "flights"), ManualClock(), name="flights")
    job.uid = uid
    job.start()
    job.commit(random_batch(random.Random(1)))
    for arguments in (["jobs"], ["describe", "flights"], ["state", "flights", "--count"]):
        done = CliRunner().invoke(main, [*arguments, "--storage", str(tmp_path)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert f" {uid} " in done.output
    job.close()
