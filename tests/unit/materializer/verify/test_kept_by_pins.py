"""Checkpoints that only a pin keeps: `checkpoints` lists them, `restore` goes back to them, so `verify` reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.jobs.chain_job import CountingTokens
from tests.jobs.committing_job import NumberedTokens
from tests.jobs.materializer_world import World
from tests.jobs.started_job import Started, fill, native, origin_of
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.reading.checkpoints import complete_checkpoints
from varvite.changelog.retention.collector import Collector
from varvite.changelog.retention.pins import create_pin
from varvite.changelog.retention.savepoints import objects_of
from varvite.changelog.retention.snapshots import SnapshotReader
from varvite.materializer.commands.repair_report import advice
from varvite.materializer.service.retention import HOLDER
from varvite.materializer.verify.repair import Repair
from varvite.materializer.verify.verifier import Verification, verify
from varvite.storage.format import layout
from varvite.storage.job.record import read_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKENS = NumberedTokens("pins")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two retained checkpoints, and older ones with a log and a base of their own that a pin keeps."""
    world = World(tmp_path, policy=CommitPolicy(retained=2, full_every=3))
    sidecar = world.sidecar()
    world.commit(3, upload=True)
    sidecar.fold()
    world.commit(1)
    create_pin(world.reader, world.newest(), HOLDER, world.clock, TOKENS, for_others=True)
    for _ in range(4):
        world.commit(3, upload=True)
        sidecar.fold()
    world.commit(1)
    Collector(world.reader, world.clock, TOKENS).collect()
    yield world
    world.close()


def check(world: World) -> Verification:
    return verify(world.store, "job", world.clock, CountingTokens(1000))


def needed_by(world: World, seq: int) -> tuple[str, ...]:
    commit = world.reader.find_commit(seq)
    assert commit is not None
    view = world.reader.load_line(commit.link, commit.max_parallelism).view
    return objects_of(view, SnapshotReader(world.store, world.reader.job_id))


def advice_of(world: World, report: Verification) -> list[str]:
    damaged = {problem.object_name for problem in report.problems}
    repair = Repair(world.store, read_job(world.store), damaged, world.clock, CountingTokens(2000))
    return advice(report, repair.checkpoints)


def test_every_object_of_every_complete_checkpoint_is_read(world: World) -> None:
    """Flipped, cut and deleted packs and entries were found by nobody until a restore needed them."""
    complete = complete_checkpoints(world.reader)
    head = world.reader.head()
    assert head is not None
    by_pin = [commit for commit in complete if commit.seq < head.retained_from]
    assert len(by_pin) > 5
    report = check(world)
    assert (report.problems, report.checkpoints) == ([], len(complete))
    names = dict.fromkeys(name for commit in by_pin for name in needed_by(world, commit.seq))
    areas = {name.split("/")[0] for name in names}
    assert {"chain", "seg", "snap", "snapdata"} <= areas
    for area in areas:
        for name in [name for name in names if name.startswith(f"{area}/")][:4]:
            data = world.store.get(name)
            world.store.put(
                name, data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
            )
            assert name in " ".join(str(problem) for problem in check(world).problems), name
            world.store.delete([name])
            assert name in " ".join(str(problem) for problem in check(world).problems), name
            world.store.put(name, data)
    assert check(world).ok


def test_repair_names_the_checkpoints_and_savepoints_that_are_whole_with_the_command(world: World) -> None:
    """It said that nothing could be rebuilt, while all that a pin kept could be restored as it was."""
    complete = complete_checkpoints(world.reader)
    early = complete[-2]
    native(world, early, "before")
    shared = set(needed_by(world, early.seq))
    newer = {name for commit in complete[:3] for name in needed_by(world, commit.seq)} - shared
    world.store.delete([name for name in newer if not name.startswith(layout.CHAIN)])
    report = check(world)
    assert [savepoint.name for savepoint in report.whole_savepoints] == ["before"]
    text = " ".join(advice_of(world, report))
    whole = max(c.seq for c in complete if newer.isdisjoint(needed_by_entries(world, c.seq)))
    assert f"`varvite restore job --checkpoint {whole}`" in text
    assert "`varvite restore job --savepoint before`" in text
    assert "no retained checkpoint can be rebuilt" not in text


def needed_by_entries(world: World, seq: int) -> set[str]:
    """Objects that a checkpoint needs, as far as its descriptors are still there."""
    commit = world.reader.find_commit(seq)
    assert commit is not None
    view = world.reader.load_line(commit.link, commit.max_parallelism).view
    tiles = {layout.snapshot(t.operator, t.low, t.high, t.snapshot) for t in view.tiles if t.snapshot is not None}
    return {ref.data.name for ref in (*view.segments, *view.images)} | tiles


def test_what_a_clone_needs_of_its_source_is_read_with_the_source(tmp_path: Path) -> None:
    world = World(tmp_path)
    fill(world)
    Started(world, origin_of(world, None), clone=True)
    holds = [meta.name for meta in world.store.list(layout.SAVEPOINTS)]
    assert len(holds) == 1
    held = needed_by(world, world.newest().seq)
    world.commit(8, upload=True)
    sidecar = world.sidecar()
    sidecar.fold()
    world.commit(8, upload=True)
    Collector(world.reader, world.clock, TOKENS).collect()
    assert check(world).ok
    kept_by_hold = [name for name in held if name.startswith(layout.SEGMENTS)]
    assert kept_by_hold
    world.store.delete(kept_by_hold[:1])
    assert [problem.object_name for problem in check(world).problems] == kept_by_hold[:1]
    world.store.delete(holds)
    assert check(world).ok, "what nobody needs is no problem"
    world.close()
