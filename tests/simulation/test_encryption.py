"""An encrypted job's whole life: log, snapshots, collection, savepoints, clones and tools."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tests.jobs.materializer_world import CONFIG, IDLE, World
from tests.jobs.started_job import MAKERS, Started, fill, origin_of
from varvite.changelog.reading.reader import open_state
from varvite.materializer.commands.cli import main
from varvite.materializer.monitoring.events import JobFailed
from varvite.storage.errors import InvalidRequestError, MissingKeyError
from varvite.storage.job.storage_choice import new_job_storage
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.encrypted.keys import KEY_VARIABLE
from varvite.storage.object_stores.encrypted.sealed_object import is_sealed
from varvite.storage.object_stores.local.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from varvite.storage.object_stores.contract import ObjectStore

KEY, OTHER = "ab" * 32, "cd" * 32


@pytest.fixture
def encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world whose job is encrypted, on disk."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    world = World(tmp_path, LocalStore(tmp_path / "storage"), storage=new_job_storage("environment"))
    yield world
    world.close()


def check_all_sealed(root: ObjectStore) -> None:
    found = {m.name for m in root.list("") if not m.name.endswith("/job.json")}
    assert found
    assert [name for name in found if not is_sealed(root.get(name))] == []


def test_an_encrypted_job_is_materialized_collected_and_restored(encrypted: World) -> None:
    sidecar = encrypted.sidecar()
    for _ in range(3):
        fill(encrypted)
        assert sidecar.fold()
        encrypted.commit(6, images=(b"first", b"second", b""))
        sidecar.poll()
        encrypted.check()
    assert encrypted.names("snapdata/")
    encrypted.job.start(redo=True)
    encrypted.commit(2)
    sidecar.poll()
    encrypted.check()
    encrypted.check_no_garbage()
    check_all_sealed(encrypted.root)


@pytest.mark.parametrize("kind", ["native", "canonical", "checkpoint"])
@pytest.mark.parametrize("stays_encrypted", [True, False])
def test_a_job_starts_from_an_encrypted_state(encrypted: World, kind: str, *, stays_encrypted: bool) -> None:
    fill(encrypted)
    storage = encrypted.job.storage if stays_encrypted else None
    other = Started(encrypted, origin_of(encrypted, MAKERS[kind](encrypted)), storage=storage)
    other.check()
    if stays_encrypted:
        check_all_sealed(encrypted.root)
    else:
        assert [n for n in other.names("seg/") if is_sealed(encrypted.root.get(f"other/{n}"))] == []


@pytest.mark.parametrize("stays_encrypted", [True, False])
def test_an_encrypted_job_is_cloned(encrypted: World, *, stays_encrypted: bool) -> None:
    fill(encrypted)
    storage = encrypted.job.storage if stays_encrypted else None
    other = Started(encrypted, origin_of(encrypted, None), clone=True, storage=storage)
    assert other.names("seg/") == []
    other.check()
    encrypted.sidecar().fold()
    other.check()


def test_an_encrypted_job_is_not_cloned_from_a_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    world = World(tmp_path, LocalStore(tmp_path / "storage"))
    fill(world)
    origin, target = origin_of(world, None), JobStore(world.root, "other")
    assert origin.source_of_clone(target, is_encrypted=False) == "job"
    with pytest.raises(InvalidRequestError, match="cannot share its objects; use the claim mode NO_CLAIM"):
        origin.source_of_clone(target, is_encrypted=True)
    world.close()


def test_a_retired_key_is_not_needed_once_everything_was_replaced(
    encrypted: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is the same in each snapshot was never written anew, so the key of its time was needed for ever."""
    fill(encrypted)
    assert encrypted.sidecar().fold()
    old = {name for name in encrypted.names("snapdata/") if name.endswith("rocksdict-config.json")}
    assert old
    for keys in (f"{OTHER},{KEY}", OTHER):
        monkeypatch.setenv(KEY_VARIABLE, keys)
        encrypted.job.store = encrypted.store = JobStore(encrypted.root, "job")
        sidecar = encrypted.sidecar(place=keys)
        encrypted.job.start()
        for _ in range(2):
            encrypted.commit(12)
            assert sidecar.fold()
            sidecar.poll()
        encrypted.check()
        assert old.isdisjoint(encrypted.names("snapdata/"))
    done = CliRunner().invoke(main, ["verify", "job", "--storage", str(encrypted.directory / "storage")])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("log_batches", [1000, 1])
def test_a_rotation_completes_in_a_job_whose_state_does_not_change(
    encrypted: World, monkeypatch: pytest.MonkeyPatch, log_batches: int
) -> None:
    """`--once` passes over ranges without changes for `log-batches` batches; docs/operate/security.md says how to fold
    them.
    """
    fill(encrypted)

    def idle(count: int) -> None:
        for _ in range(count):
            encrypted.clock.advance(1)
            encrypted.wait_for_pack()
            encrypted.job.commit(IDLE)

    settling = encrypted.sidecar()
    for _ in range(3):
        assert settling.fold()
        idle(3)
    assert len(settling.materialized) == 4, "the third round had nothing to do"
    monkeypatch.setenv(KEY_VARIABLE, f"{OTHER},{KEY}")
    encrypted.job.store = encrypted.store = JobStore(encrypted.root, "job")
    encrypted.job.start()
    idle(3)
    sidecar = encrypted.sidecar(replace(CONFIG, log_batches=log_batches), place="rotating")
    for _ in range(3):
        assert sidecar.fold()
        idle(12)
    assert sidecar.fold()
    monkeypatch.setenv(KEY_VARIABLE, OTHER)
    done = CliRunner().invoke(main, ["verify", "job", "--storage", str(encrypted.directory / "storage")])
    assert done.exit_code == (log_batches > 1), done.output


def test_tools_need_the_key_and_say_so(encrypted: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(encrypted)
    encrypted.commit(2)
    storage = str(encrypted.directory / "storage")
    commands = (["jobs"], ["checkpoints", "job"], ["describe", "job"], ["verify", "job"], ["sweep", "--dry-run"])
    for command in commands:
        done = CliRunner().invoke(main, [*command, "--storage", storage, "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout.splitlines()[0])
    assert open_state(storage, "job").checkpoint == encrypted.newest()
    monkeypatch.setenv(KEY_VARIABLE, OTHER)
    for command in commands:
        done = CliRunner().invoke(main, [*command, "--storage", storage])
        assert done.exit_code == 1
        assert "is encrypted with the key" in done.output
    monkeypatch.delenv(KEY_VARIABLE)
    with pytest.raises(MissingKeyError):
        open_state(storage, "job")


def test_a_materializer_without_the_key_reports_it_and_harms_nothing(
    encrypted: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(encrypted)
    encrypted.wait_for_pack()
    before = encrypted.names("")
    monkeypatch.delenv(KEY_VARIABLE)
    sidecar = encrypted.sidecar(place="without")
    assert not sidecar.fold()
    assert {event.error_type for event in sidecar.events.of(JobFailed)} == {"MissingKeyError"}
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    assert encrypted.names("") == before
    encrypted.check()


def test_a_copy_elsewhere_is_in_the_open_only_if_that_is_asked_for(encrypted: World, tmp_path: Path) -> None:
    """The job's encryption ends with the job: nobody could read another place's objects with its keys."""
    fill(encrypted)
    target = LocalStore(tmp_path / "elsewhere")
    place = ["--format", "canonical", "--to", str(tmp_path / "elsewhere"), "--storage", str(tmp_path / "storage")]
    command = ["savepoint", "create", encrypted.job.name, "copy", *place]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 1
    assert "--unencrypted" in refused.output
    assert target.list("") == []
    assert CliRunner().invoke(main, [*command, "--unencrypted"]).exit_code == 0
    found = [target.get(m.name) for m in target.list("savepointdata/")]
    assert found
    assert not any(is_sealed(data) for data in found)
    useless = CliRunner().invoke(main, [*command[:4], "--unencrypted", *place[-2:]])
    assert useless.exit_code == 1
    assert list(encrypted.names("savepoint")) == []
