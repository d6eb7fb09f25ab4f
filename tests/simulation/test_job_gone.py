"""A job is deleted, and perhaps begins anew under its name, while others follow it: they forget the one and follow the
other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.jobs.committing_job import CommittingJob
from tests.jobs.materializer_world import CONFIG, Sidecar, World
from tests.jobs.state_model import KEY_GROUPS, OPERATOR
from varvite.changelog.restore.local import LocalRecovery
from varvite.materializer.service.sharing import HEARTBEAT_MS
from varvite.materializer.standby.follower import Standby
from varvite.materializer.standby.record import read_standbys
from varvite.storage.errors import LineageError, MissingObjectError
from varvite.storage.format import layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, parallelism=1)
    world.commit(3)
    yield world
    world.close()


def delete(world: World) -> None:
    world.job.close()
    world.store.delete(world.names(""))


def begin_anew(world: World) -> None:
    """A job of the same name, with another id."""
    runs = world.job.runs
    world.job = CommittingJob(world.store, world.clock, parallelism=1, runs=runs)
    world.job.start()
    world.commit(4)


def followed(sidecar: Sidecar) -> dict[str, float | None]:
    """The job as monitoring sees it."""
    sample = sidecar.context.metrics.registry.get_sample_value
    of_range = {"job": "job", "operator": OPERATOR, "key_groups": f"0-{KEY_GROUPS - 1}"}
    return {
        "seq": sample("varvite_checkpoint_seq", {"job": "job"}),
        "log": sample("varvite_log_batches", of_range),
        "failing": sample("varvite_failing", of_range),
    }


def copies(sidecar: Sidecar) -> list[str]:
    return sorted(path.parent.parent.name for path in sidecar.workspace.directory.glob("ranges/*/*/*"))


@pytest.mark.parametrize("named", [True, False])
def test_a_materializer_leaves_nothing_of_a_job_that_is_gone(world: World, *, named: bool) -> None:
    """A range that failed made it not ready for ever, and its heartbeats made the directory anew."""
    config = replace(CONFIG, job="job" if named else None, discovery_ms=1, share=True, max_failures_allowed=0)
    sidecar = world.sidecar(config)
    assert sidecar.fold()
    assert (followed(sidecar)["seq"], copies(sidecar)) == (world.newest().seq, [world.reader.job_id])
    world.commit(3, upload=True)
    for name in world.names(layout.SEGMENTS):
        world.store.put(name, b"damaged")
    assert not sidecar.fold()
    assert not sidecar.context.health.ready(sidecar.context.now_ms()).ok
    delete(world)
    for _ in range(3):
        world.clock.advance(HEARTBEAT_MS / 1_000)
        assert sidecar.poll()
    assert followed(sidecar) == {"seq": 0 if named else None, "log": None, "failing": None}
    assert sidecar.context.health.ready(sidecar.context.now_ms()).ok
    assert (world.names(""), copies(sidecar)) == ([], [])
    begin_anew(world)
    assert sidecar.fold()
    assert (followed(sidecar)["seq"], copies(sidecar)) == (world.newest().seq, [world.reader.job_id])


@pytest.mark.parametrize("is_seen", [True, False], ids=["gone for a while", "replaced at once"])
def test_a_materializer_keeps_no_copies_of_a_job_that_is_gone(world: World, *, is_seen: bool) -> None:
    sidecar = world.sidecar(replace(CONFIG, job="job"))
    assert sidecar.fold()
    assert copies(sidecar) == [world.reader.job_id]
    delete(world)
    if is_seen:
        assert sidecar.poll()
        assert copies(sidecar) == []
    begin_anew(world)
    assert sidecar.fold() == is_seen, "the entries of another job are an error the first time"
    assert sidecar.fold()
    assert copies(sidecar) == [world.reader.job_id]


def test_a_job_that_has_lost_its_record_is_not_waited_for_silently(world: World) -> None:
    world.store.delete([layout.JOB])
    sidecar = world.sidecar(replace(CONFIG, job="job"))
    assert not sidecar.poll()
    [reason] = sidecar.context.health.ready(sidecar.context.now_ms()).reasons
    assert "has lost its job.json" in reason


@pytest.mark.parametrize("is_seen", [True, False], ids=["gone for a while", "replaced at once"])
def test_a_standby_follows_the_job_that_has_the_name_of_one_that_is_gone(world: World, *, is_seen: bool) -> None:
    policy = LocalRecovery(directories=(str(world.directory / "host"),), flush_interval_ms=0)
    one = Standby("job", world.store, policy, world.clock, host_names=("host",))
    assert [line.how for line in one.step()] == ["restored"]
    delete(world)
    if is_seen:
        assert one.step() == ()
        with pytest.raises(MissingObjectError):
            one.step()
        assert world.names("") == [], "it tells nobody of a job that is gone"
    begin_anew(world)
    if not is_seen:
        with pytest.raises(LineageError):
            one.step()
    assert [line.how for line in one.step()] == ["restored"]
    [told] = read_standbys(world.store, world.reader.job_id)
    assert told.operators[0].copies == ((0, 1, world.newest().parent.seq),)
