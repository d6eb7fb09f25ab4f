"""A job is deleted, and perhaps begins anew under its name, while others follow it: they forget the one and follow the
other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.committing_job import CommittingJob
from tests.materializer_world import World
from varve.changelog.local_copies import LocalRecovery
from varve.materializer.standby import Standby
from varve.materializer.standby_record import read_standbys
from varve.storage.errors import LineageError, MissingObjectError

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
