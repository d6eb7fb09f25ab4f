"""A job whose log is elsewhere than its snapshots: its whole life, and what needs to know of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tests.jobs.materializer_world import World
from tests.jobs.started_job import MAKERS, Started, fill, origin_of
from varvite.changelog.reading.reader import open_state
from varvite.materializer.commands.cli import main
from varvite.materializer.monitoring.events import JobFailed
from varvite.storage.errors import IncompatibleError, InvalidRequestError
from varvite.storage.format import layout
from varvite.storage.format.records import LogLocation
from varvite.storage.job.log_store import STORAGE_VARIABLE, LogTarget, open_custom_log
from varvite.storage.job.record import read_job
from varvite.storage.job.storage_choice import check_job_storage, new_job_storage
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.encrypted.keys import KEY_VARIABLE
from varvite.storage.object_stores.encrypted.sealed_object import is_sealed
from varvite.storage.object_stores.local.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SQLITE = "examples.sqlite_log:open_log"


def location(kind: str, tmp_path: Path) -> LogLocation:
    if kind == "sqlite":
        return LogLocation(type=SQLITE)
    return LogLocation(type="filesystem", base_path=f"file://{tmp_path}/fast")


@pytest.fixture(params=["filesystem", "sqlite", "encrypted"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world whose job keeps its log elsewhere."""
    monkeypatch.setenv(KEY_VARIABLE, "ab" * 32)
    monkeypatch.setenv(STORAGE_VARIABLE, SQLITE)
    provider = "environment" if request.param == "encrypted" else None
    storage = new_job_storage(provider, location(request.param, tmp_path))
    world = World(tmp_path, LocalStore(tmp_path / "storage"), storage=storage)
    yield world
    world.close()


def raw_log(world: World) -> list[str]:
    """Names of log data in the job's directory, where none is to be."""
    return [m.name for area in ("seg", "pack") for m in world.root.list(f"job/{area}")]


def test_the_log_is_elsewhere_and_all_works_as_ever(world: World) -> None:
    sidecar = world.sidecar()
    for _ in range(3):
        fill(world)
        assert sidecar.fold()
        world.commit(6, images=(b"first", b"second", b""), upload=True)
        sidecar.poll()
        world.check()
    assert world.names(layout.SEGMENTS)
    assert world.names(layout.PACKS)
    assert world.names(layout.SNAPSHOT_FILES)
    everything = world.names("")
    assert everything == sorted(everything)
    assert {name.split("/")[0] for name in everything} >= {"job.json", "chain", "seg", "pack", "snap", "snapdata"}
    assert raw_log(world) == []
    world.check_no_garbage()


@pytest.mark.parametrize("kind", ["native", "canonical", "checkpoint"])
def test_a_job_with_a_log_of_its_own_starts_from_it(world: World, kind: str) -> None:
    fill(world)
    other = Started(world, origin_of(world, MAKERS[kind](world)), storage=world.job.storage)
    other.check()
    assert list(world.root.list("other/seg")) == []
    plain = Started(world, origin_of(world, MAKERS["checkpoint"](world)), name="plain")
    plain.check()
    assert list(world.root.list("plain/seg"))


@pytest.mark.parametrize("alike", [True, False])
def test_it_is_cloned(world: World, *, alike: bool) -> None:
    fill(world)
    world.commit(2, upload=True)
    other = Started(world, origin_of(world, None), clone=True, storage=world.job.storage if alike else None)
    assert other.names(layout.SEGMENTS) == []
    other.check()
    world.sidecar().fold()
    other.check()


def test_tools_find_the_log(world: World) -> None:
    fill(world)
    storage = str(world.directory / "storage")
    for command in (["jobs"], ["checkpoints", "job"], ["describe", "job"], ["verify", "job"], ["sweep"]):
        done = CliRunner().invoke(main, [*command, "--storage", storage, "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout.splitlines()[0])
    assert open_state(storage, "job").checkpoint == world.newest()


def test_verify_finds_what_is_missing_in_the_log(world: World) -> None:
    world.commit(2, upload=True)
    lost = world.names(layout.SEGMENTS)[0]
    world.store.delete([lost])
    done = CliRunner().invoke(main, ["verify", "job", "--storage", str(world.directory / "storage"), "--json"])
    assert done.exit_code == 1
    assert lost in done.output


def test_a_module_that_only_the_storage_names_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write access to the storage must not be enough to have code run."""
    monkeypatch.setenv(STORAGE_VARIABLE, SQLITE)
    world = World(tmp_path, LocalStore(tmp_path / "storage"), storage=new_job_storage(None, LogLocation(type=SQLITE)))
    fill(world)
    monkeypatch.delenv(STORAGE_VARIABLE)
    sidecar = world.sidecar(place="untold")
    assert not sidecar.fold()
    assert {event.error_type for event in sidecar.events.of(JobFailed)} == {"InvalidRequestError"}
    with pytest.raises(InvalidRequestError, match="if you trust that module"):
        open_state(str(tmp_path / "storage"), "job")
    assert JobStore(world.root, "job", log_storage=SQLITE).list(layout.SEGMENTS)
    world.close()


def test_a_job_keeps_its_log_where_it_is(tmp_path: Path) -> None:
    here, there = location("filesystem", tmp_path), LogLocation(type="filesystem", base_path="s3://bucket/log")
    world = World(tmp_path, storage=new_job_storage(None, here))
    record = read_job(world.store)
    check_job_storage(record, encrypted=False)
    check_job_storage(record, encrypted=False, log=here)
    with pytest.raises(IncompatibleError, match="for ever, not at s3://bucket/log"):
        check_job_storage(record, encrypted=False, log=there)
    world.close()


def test_an_encrypted_log_is_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "ab" * 32)
    monkeypatch.setenv(STORAGE_VARIABLE, SQLITE)
    storage = new_job_storage("environment", LogLocation(type=SQLITE))
    world = World(tmp_path, LocalStore(tmp_path / "storage"), storage=storage)
    world.commit(3, upload=True)
    target = LogTarget(read_job(world.store).job_id, "job", f"file://{tmp_path}/storage")
    log = open_custom_log(SQLITE, target)
    assert [is_sealed(log.get(meta.name)) for meta in log.list("")] == [True] * 6
    world.check()
    world.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.such:log", "cannot be imported"),
        ("builtins:dict", "failed"),
        ("builtins:repr", "which is no LogStore: it lacks get"),
    ],
)
def test_a_factory_that_makes_no_log_store_is_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        open_custom_log(name, LogTarget("id", "job", "/x"))
