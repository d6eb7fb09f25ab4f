"""`varvite savepoint` over a real job on local disk."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest
from click.testing import CliRunner

from tests.jobs.committing_job import CommittingJob, NumberedTokens, random_batch
from tests.stores.manual_clock import ManualClock
from varvite.changelog.retention.collector import Collector
from varvite.changelog.retention.savepoints import create_native
from varvite.materializer.commands.cli import main
from varvite.materializer.restore.origin import find_origin
from varvite.storage.errors import CorruptDataError
from varvite.storage.format import layout
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def job(tmp_path: Path) -> Iterator[CommittingJob]:
    job = CommittingJob(PrefixedStore(LocalStore(str(tmp_path)), "flights"), ManualClock(), name="flights")
    job.start()
    rng = random.Random(1)
    for _ in range(5):
        job.commit(random_batch(rng), upload=True)
    yield job
    job.close()


def run(directory: Path, *arguments: str, code: int = 0) -> list[Any]:
    done = CliRunner().invoke(main, ["savepoint", *arguments, "--storage", str(directory), "--json"])
    assert done.exit_code == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def at(target: Path, *arguments: str, code: int = 0) -> list[Any]:
    """A command over savepoints that are not in the job."""
    done = CliRunner().invoke(main, [*arguments, "--at", str(target), "--json"])
    assert done.exit_code == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_savepoints_are_made_listed_described_and_deleted(job: CommittingJob, tmp_path: Path) -> None:
    [native] = run(tmp_path, "create", "flights", "a")
    [copy] = run(tmp_path, "create", "flights", "b", "--format", "canonical")
    [older] = run(tmp_path, "create", "flights", "c", "--checkpoint", "5")
    assert [(s["format"], s["seq"], s["batch"]) for s in (native, copy, older)] == [
        ("native", 6, 4), ("canonical", 6, 4), ("native", 5, 3),
    ]  # fmt: skip
    assert run(tmp_path, "list", "flights") == [native, copy, older]
    [described] = run(tmp_path, "describe", "flights", "b")
    rows = {state["state"]: state["rows"] for state in described["states"]}
    assert rows == {name: len(_rows(job, described, name)) for name in rows}
    assert sum(rows.values()) > 0
    assert sorted(described["objects"]) == sorted(file for s in described["states"] for file in s["files"])
    [of_native] = run(tmp_path, "describe", "flights", "a")
    assert layout.chain(6) in of_native["objects"]
    for name in "abc":
        assert [line["name"] for line in run(tmp_path, "delete", "flights", name)] == [name]
    assert run(tmp_path, "list", "flights") == []
    assert job.store.list("savepoint") == []


def _rows(job: CommittingJob, described: Any, state: str) -> list[Any]:
    [files] = [line["files"] for line in described["states"] if line["state"] == state]
    tables = [pyarrow.parquet.read_table(f"{job.store.url.removeprefix('file://')}/{name}") for name in files]
    return [row for table in tables for row in table.to_pylist()]


def test_a_canonical_savepoint_goes_where_it_is_told(job: CommittingJob, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    [made] = run(tmp_path, "create", "flights", "a", "--format", "canonical", "--to", str(target))
    assert run(tmp_path, "list", "flights") == []
    found = find_origin(f"{target}/savepoints/a", job.store)
    assert found.commit.seq == made["seq"]
    assert at(target, "savepoint", "list", "flights") == [made]
    assert at(target, "savepoint", "list", "other") == []
    [described] = at(target, "savepoint", "describe", "flights", "a")
    assert {state["value_type"] for state in described["states"]} == {"long", "string"}
    done = CliRunner().invoke(main, ["savepoint", "describe", "flights", "a", "--at", str(target)])
    assert all(file in done.output for state in described["states"] for file in state["files"]), "it lists the files"
    at(target, "savepoint", "describe", "other", "a", code=1)
    at(target, "savepoint", "delete", "other", "a", code=1)
    [whole] = at(target, "verify", "flights")
    assert (whole["savepoint"], whole["problem"], whole["files"]) == ("a", None, len(described["objects"]))
    damaged = target / described["objects"][0]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    [found_damaged] = at(target, "verify", "flights", code=1)
    assert found_damaged["object_name"].endswith(described["objects"][0])
    assert at(target, "savepoint", "delete", "flights", "a") == [made]
    assert not damaged.exists()
    assert at(target, "savepoint", "list", "flights") == []
    run_nowhere = CliRunner().invoke(main, ["savepoint", "list", "flights"])
    assert "--at" in run_nowhere.output


def test_a_place_without_the_savepoints_is_no_place_where_all_is_well(job: CommittingJob, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    for arguments in (["verify", "flights"], ["savepoint", "list", "flights"], ["savepoint", "delete", "flights", "a"]):
        at(target, *arguments, code=1)
    assert not target.exists()
    [made] = run(tmp_path, "create", "flights", "b", "--format", "canonical", "--to", str(target))
    at(target, "verify", "other", code=1)
    (target / layout.savepoint("a")).write_bytes(b"damaged")
    unreadable, whole = at(target, "verify", "flights", code=1)
    assert (unreadable["savepoint"], unreadable["seq"], unreadable["object_name"]) == ("a", None, layout.savepoint("a"))
    assert (whole["savepoint"], whole["seq"], whole["problem"]) == ("b", made["seq"], None)


def test_what_is_wrong_is_said_and_nothing_is_made(job: CommittingJob, tmp_path: Path) -> None:
    run(tmp_path, "create", "flights", "a")
    for arguments in (
        ["create", "flights", "a"],
        ["create", "flights", "latest"],
        ["create", "flights", "12"],
        ["create", "flights", "b", "--checkpoint", "1"],
        ["create", "flights", "b", "--to", "elsewhere"],
        ["create", "nobody", "b"],
        ["describe", "flights", "b"],
        ["delete", "flights", "b"],
    ):
        run(tmp_path, *arguments, code=1)
    assert [line["name"] for line in run(tmp_path, "list", "flights")] == ["a"]
    assert len(job.store.list("savepoint")) == 1
    assert job.store.list(layout.PINS) == []


def test_a_hold_that_was_left_is_shown_and_can_be_deleted(job: CommittingJob, tmp_path: Path) -> None:
    assert job.run is not None
    commit = job.run.state.base
    assert commit is not None
    name = layout.hold_name("f" * 32)
    create_native(
        job.run.reader, commit, name, job="flights", holder="start of job other", clock=job.clock,
        tokens=NumberedTokens("hold"),
    )  # fmt: skip
    [line] = run(tmp_path, "list", "flights")
    assert (line["name"], line["format"], line["holder"]) == (name, "hold", "start of job other")
    run(tmp_path, "delete", "flights", name)
    assert run(tmp_path, "list", "flights") == []


def test_tables_are_shown_to_people(job: CommittingJob, tmp_path: Path) -> None:
    for arguments in (["create", "flights", "a"], ["list", "flights"], ["describe", "flights", "a"]):
        done = CliRunner().invoke(main, ["savepoint", *arguments, "--storage", str(tmp_path)])
        assert done.exit_code == 0, done.output
        assert "native" in done.output
    assert "by_name" in done.output
    assert job.run is not None


def test_a_damaged_savepoint_is_listed_and_can_be_deleted(job: CommittingJob, tmp_path: Path) -> None:
    [whole] = run(tmp_path, "create", "flights", "whole")
    run(tmp_path, "create", "flights", "copy", "--format", "canonical")
    job.store.put(layout.savepoint("copy"), b"damaged")
    assert job.run is not None
    collector = Collector(job.run.reader, job.clock, NumberedTokens("collector"))
    with pytest.raises(CorruptDataError, match="varvite savepoint delete JOB copy --damaged"):
        collector.collect()
    damaged, listed = run(tmp_path, "list", "flights", code=1)
    assert listed == whole
    assert (damaged["name"], damaged["seq"]) == ("copy", None)
    assert "cannot be read" in damaged["error"]
    verified = CliRunner().invoke(main, ["verify", "flights", "--repair", "--storage", str(tmp_path), "--json"])
    actions = [json.loads(line).get("action", "") for line in verified.stdout.splitlines()]
    assert any("varvite savepoint delete flights copy --damaged" in action for action in actions)
    assert not any("goes with" in action for action in actions)
    run(tmp_path, "delete", "flights", "copy", code=1)
    run(tmp_path, "delete", "flights", "nothing", "--damaged", code=1)
    assert [line["name"] for line in run(tmp_path, "delete", "flights", "copy", "--damaged")] == ["copy"]
    assert run(tmp_path, "list", "flights") == [whole]
    assert collector.collect().savepoint_files
    assert job.store.list(layout.SAVEPOINT_FILES) == []


def test_swapped_savepoints_are_refused_by_every_reader(job: CommittingJob, tmp_path: Path) -> None:
    """A start, `state` and `diff` took another savepoint's state without a word, `delete` deleted the other one."""
    run(tmp_path, "create", "flights", "early", "--checkpoint", "5")
    run(tmp_path, "create", "flights", "late")
    early, late = (layout.savepoint(name) for name in ("early", "late"))
    swapped = {early: job.store.get(late), late: job.store.get(early)}
    for name, data in swapped.items():
        job.store.put(name, data)
    for arguments in (
        ("savepoint", "describe", "flights", "early"),
        ("savepoint", "delete", "flights", "early"),
        ("describe", "flights", "--checkpoint", "savepoint:early"),
        ("state", "flights", "--checkpoint", "savepoint:early"),
        ("diff", "flights", "--from", "savepoint:early"),
        ("sweep", "--job", "flights"),
    ):
        done = CliRunner().invoke(main, [*arguments, "--storage", str(tmp_path)])
        assert done.exit_code == 1, arguments
        assert f"the object says that it is {late}" in done.output, arguments
    assert [line["error"] is None for line in run(tmp_path, "list", "flights", code=1)] == [False, False]
    done = CliRunner().invoke(main, ["verify", "flights", "--storage", str(tmp_path), "--json"])
    problems = [line for line in map(json.loads, done.stdout.splitlines()) if line.get("problem")]
    assert (done.exit_code, [line["object_name"] for line in problems]) == (1, [early, late])
    with pytest.raises(CorruptDataError, match="copied or moved"):
        find_origin("early", job.store)
    for name, data in swapped.items():
        assert job.store.get(name) == data  # nothing was deleted
    CliRunner().invoke(main, ["savepoint", "delete", "flights", "early", "--damaged", "--storage", str(tmp_path)])
    assert [meta.name for meta in job.store.list(layout.SAVEPOINTS)] == [late]
