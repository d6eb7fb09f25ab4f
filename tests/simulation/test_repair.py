"""Damage of every kind of object of a job: what is rebuilt is what the model says, and what is lost is said."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.jobs.committing_job import NumberedTokens
from tests.jobs.materializer_world import World
from tests.jobs.state_model import OPERATOR
from varvite.changelog.commit.state import CommitPolicy
from varvite.materializer.commands.cli import main
from varvite.materializer.commands.repair_report import advice
from varvite.materializer.savepoints.canonical import CanonicalSavepoints
from varvite.materializer.service.job import AWAITED_COMMITS_MAX
from varvite.materializer.verify.repair import Repair, newest_rebuildable
from varvite.materializer.verify.verifier import Verification, verify
from varvite.storage.errors import InvalidRequestError, VarviteError
from varvite.storage.format import layout
from varvite.storage.format.records import Commit, Fence
from varvite.storage.job.record import read_job
from varvite.storage.object_stores.local.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from varvite.materializer.verify.health import CheckpointHealth

POLICY = CommitPolicy(retained=8, full_every=3)
HOW = ("flipped", "truncated", "gone")


NAMES = ("job", OPERATOR)
"""Of a job that is named like its operator, names of objects below the operator look like those from the root on."""


@pytest.fixture(params=NAMES)
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """Retained checkpoints before and after an adoption, packs, uploaded and inline segments, images, a candidate."""
    made = World(tmp_path, policy=POLICY, name=request.param)
    fill(made)
    yield made
    made.close()


def fill(world: World) -> None:
    world.commit(2)
    world.sidecar().fold()
    world.commit(2)
    world.commit(1, upload=True)
    world.sidecar(place="second").fold()
    world.commit(2)
    world.commit(2, upload=True)
    world.commit(2)
    newest = world.newest()
    assert not newest.is_full


def damage(world: World, name: str, how: str) -> None:
    data = bytearray(world.store.get(name))
    if how == "gone":
        world.store.delete([name])
        return
    if how == "truncated":
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2] ^= 1
    world.store.put(name, bytes(data))


def examined(world: World) -> tuple[Verification, Repair]:
    found = verify(world.store, world.job.name, world.clock, NumberedTokens("verify"))
    damaged = {problem.object_name for problem in found.problems}
    return found, Repair(world.store, read_job(world.store), damaged, world.clock, NumberedTokens(f"repair-{damaged}"))


def restart(world: World, target: CheckpointHealth, repair: Repair) -> None:
    """Write the entry and start a new run of the same query, whose next batch is the one after the checkpoint."""
    assert target.commit is not None
    fence = repair.write_entry(target)
    assert fence.restore is not None
    entry = world.reader.find_commit(fence.restore)
    assert entry is not None
    world.job.models[entry.link] = copy.deepcopy(world.job.models[target.link])
    world.job.batch = target.commit.batch + 1
    world.job.start()
    world.check_commit(entry.link)
    world.commit(2)
    world.check()
    assert examined(world)[1].checkpoints[0].is_whole


def objects_of(world: World) -> list[str]:
    """One of each kind that the newest checkpoint needs, and some that only older ones do."""
    newest = world.newest()
    view = world.reader.load_line(newest.link, newest.max_parallelism).view
    names = {ref.data.name for ref in view.segments} | {layout.chain(newest.full.seq), layout.chain(newest.parent.seq)}
    names.discard(layout.chain(newest.seq))
    for tile in view.tiles:
        assert tile.snapshot is not None
        name = layout.SnapshotName(tile.operator, tile.low, tile.high, tile.snapshot)
        names.add(layout.snapshot(*name))
        names |= {file.name for file in world.descriptor(name).files}
    return sorted(names)


def test_a_sound_job_needs_no_repair(world: World) -> None:
    found, repair = examined(world)
    assert found.problems == []
    assert not repair.is_needed
    assert len(repair.checkpoints) == POLICY.retained
    assert all(one.is_whole for one in repair.checkpoints)


def test_whatever_can_be_rebuilt_is_what_the_model_says(tmp_path: Path) -> None:
    """Some objects of each kind, one after the other; the job is stopped, and goes on from what was rebuilt."""
    names = objects_of(_made(tmp_path / "first"))
    areas = [layout.CHAIN, layout.SEGMENTS, layout.PACKS, layout.SNAPSHOTS, layout.SNAPSHOT_FILES]
    some = [[name for name in names if name.startswith(area)] for area in areas]
    assert all(some)
    states: list[str] = []
    for number, name in enumerate(name for of_area in some for name in (of_area[0], of_area[-1])):
        world = _made(tmp_path / f"{number}")
        damage(world, name, HOW[number % len(HOW)])
        found, repair = examined(world)
        assert name in {problem.object_name for problem in found.problems}
        assert not all(one.is_whole for one in repair.checkpoints)
        assert advice(found, repair.checkpoints)
        target = newest_rebuildable(repair.checkpoints)
        if target is None:
            states.append("lost")
            assert "no retained checkpoint can be rebuilt" in advice(found, repair.checkpoints)[0]
            world.close()
            continue
        states.append("whole" if target.is_whole else "rebuilt")
        if target is not repair.checkpoints[0]:
            assert repair.checkpoints[0].lost, name
        restart(world, target, repair)
        world.close()
    assert {"whole", "rebuilt"} <= set(states)


def _made(directory: Path) -> World:
    directory.mkdir()
    world = World(directory, policy=POLICY)
    fill(world)
    return world


@pytest.mark.parametrize("area", [layout.SNAPSHOTS, layout.SNAPSHOT_FILES])
@pytest.mark.parametrize("how", HOW)
def test_a_running_job_adopts_a_snapshot_that_replaces_a_damaged_base(world: World, area: str, how: str) -> None:
    newest = world.newest()
    tile = world.reader.load_line(newest.link, newest.max_parallelism).view.tiles[0]
    assert tile.snapshot is not None
    name = layout.SnapshotName(tile.operator, tile.low, tile.high, tile.snapshot)
    broken = layout.snapshot(*name)
    if area == layout.SNAPSHOT_FILES:
        broken = max(world.descriptor(name).files, key=lambda file: file.size_bytes).name
    damage(world, broken, how)
    found, repair = examined(world)
    assert repair.is_needed
    assert not repair.checkpoints[0].is_whole
    assert "can be rebuilt without loss" in advice(found, repair.checkpoints)[0]
    published = repair.publish_snapshots()
    assert [(one.low, one.high) for one in published] == [(tile.low, tile.high)]
    adopted = len(world.job.adopted)
    world.commit(2)
    assert len(world.job.adopted) > adopted
    world.check()
    _, after = examined(world)
    assert after.checkpoints[0].is_whole


def test_a_pack_that_is_gone_is_read_from_the_segments_that_it_was_made_of(world: World) -> None:
    pack = next(name for name in objects_of(world) if name.startswith(layout.PACKS))
    damage(world, pack, "gone")
    _, repair = examined(world)
    newest = repair.checkpoints[0]
    assert newest.is_rebuildable
    assert not newest.is_whole
    restart(world, newest, repair)


def test_an_entry_that_was_damaged_before_the_next_start_is_written_again(world: World) -> None:
    """The damaged one was named once more, as if the job had been repaired."""
    newest = world.newest()
    tile = world.reader.load_line(newest.link, newest.max_parallelism).view.tiles[0]
    damage(world, layout.snapshot(tile.operator, tile.low, tile.high, tile.snapshot or 0), "gone")
    _, repair = examined(world)
    target = repair.checkpoints[0]
    assert target.is_rebuildable
    fence = repair.write_entry(target)
    first = world.reader.find_commit(fence.restore or 0)
    assert first is not None
    damage(world, first.tiles[0].files[0].name, "gone")
    _, repair = examined(world)
    assert repair.is_needed
    again = newest_rebuildable(repair.checkpoints)
    assert again is not None
    assert again.link == newest.link, "what was rebuilt before, and not the damaged copy"
    restart(world, again, repair)


def test_what_is_lost_is_said_and_never_written(tmp_path: Path) -> None:
    """The only base is gone, and the log before it as well."""
    world = World(tmp_path, policy=CommitPolicy(retained=2, full_every=1))
    world.commit(3)
    sidecar = world.sidecar()
    sidecar.fold()
    world.commit(4)
    sidecar.fold()
    for name in world.names(layout.SNAPSHOT_FILES):
        damage(world, name, "gone")
    found, repair = examined(world)
    assert newest_rebuildable(repair.checkpoints) is None
    assert "no retained checkpoint can be rebuilt" in advice(found, repair.checkpoints)[0]
    before = {meta.name: world.store.get(meta.name) for meta in world.store.list("")}
    with pytest.raises(InvalidRequestError, match="lost"):
        repair.write_entry(repair.checkpoints[0])
    with pytest.raises(VarviteError):
        repair.publish_snapshots()
    assert {meta.name: world.store.get(meta.name) for meta in world.store.list("")} == before
    world.close()


def test_a_damaged_head_is_named_and_nothing_is_put_behind_it(world: World) -> None:
    newest = world.newest()
    damage(world, layout.chain(newest.seq), "flipped")
    found, repair = examined(world)
    assert [one.link.seq for one in repair.checkpoints[:2]] == [newest.seq, newest.parent.seq]
    assert repair.checkpoints[0].problem
    target = newest_rebuildable(repair.checkpoints)
    assert target is not None
    assert target.link == newest.parent
    assert any("move it" in text for text in advice(found, repair.checkpoints))
    with pytest.raises(VarviteError):
        repair.write_entry(target)
    world.store.delete([layout.chain(newest.seq)])
    _, repair = examined(world)
    assert repair.checkpoints[0].is_whole


def test_a_damaged_candidate_does_not_stop_adoption(world: World) -> None:
    """It is passed over by the driver and by the materializer, whose next snapshot has a higher number."""
    sidecar = world.sidecar(place="third")
    sidecar.fold()
    candidates = world.names(layout.SNAPSHOTS)
    floors = {(f.operator, f.low, f.high): f.number for f in world.newest().floors}
    above = [n for n in candidates if layout.snapshot_name(n).number > floors.get(layout.snapshot_name(n)[:3], 0)]
    assert above
    damage(world, above[0], "flipped")
    adopted = len(world.job.adopted)
    world.commit(1)
    assert len(world.job.adopted) == adopted + (len(above) > 1), "the other range is not stopped"
    world.commit(AWAITED_COMMITS_MAX)
    assert sidecar.fold()
    world.commit(2)
    tiles = world.reader.load_line(world.newest().link, world.newest().max_parallelism).view.tiles
    damaged = layout.snapshot_name(above[0])
    [tile] = [tile for tile in tiles if (tile.operator, tile.low, tile.high) == damaged[:3]]
    assert tile.snapshot is not None
    assert tile.snapshot > damaged.number
    world.check()


def test_a_damaged_savepoint_is_found_and_its_checkpoint_is_named(world: World) -> None:
    scratch = world.directory / "scratch"
    scratch.mkdir()
    newest = world.newest()
    assert isinstance(newest, Commit)
    tokens = NumberedTokens("savepoint")
    CanonicalSavepoints(world.reader, "job", world.store, scratch, clock=world.clock, tokens=tokens).create(
        newest, "kept", "test"
    )
    assert examined(world)[0].problems == []
    name = world.names(layout.SAVEPOINT_FILES)[0]
    damage(world, name, "flipped")
    found, repair = examined(world)
    assert name in {problem.object_name for problem in found.problems}
    assert [one.name for one in found.damaged_savepoints] == ["kept"]
    assert not repair.is_needed
    text = advice(found, repair.checkpoints)[-1]
    assert f"--checkpoint {newest.seq}" in text


class TestCommand:
    """`varvite verify --repair`, over a storage on disk."""

    @pytest.fixture(params=NAMES)
    def site(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
        (tmp_path / "local").mkdir()
        site = World(tmp_path / "local", LocalStore(str(tmp_path / "storage")), policy=POLICY, name=request.param)
        fill(site)
        yield site
        site.close()

    @staticmethod
    def run(tmp_path: Path, *options: str) -> Any:
        return CliRunner().invoke(main, ["verify", *options, "--storage", str(tmp_path / "storage")])

    def test_the_plan_changes_nothing_and_the_repair_brings_the_state_back(self, site: World, tmp_path: Path) -> None:
        newest = site.newest()
        tile = site.reader.load_line(newest.link, newest.max_parallelism).view.tiles[0]
        damage(site, layout.snapshot(tile.operator, tile.low, tile.high, tile.snapshot or 0), "flipped")
        before = {meta.name: site.store.get(meta.name) for meta in site.store.list("")}
        done = self.run(tmp_path, site.job.name, "--repair", "--json")
        assert done.exit_code == 1, done.output
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        health = [line for line in lines if "state" in line]
        assert [line["seq"] for line in health] == sorted((line["seq"] for line in health), reverse=True)
        assert health[0]["state"] == "rebuildable"
        assert [line["done"] for line in lines if "action" in line].count(True) == 0
        assert {meta.name: site.store.get(meta.name) for meta in site.store.list("")} == before
        assert "rebuildable" in self.run(tmp_path, site.job.name, "--repair").output
        done = self.run(tmp_path, site.job.name, "--repair", "--apply", "--json")
        assert any(json.loads(line).get("done") for line in done.stdout.splitlines())
        site.commit(2)
        site.check()
        site.job.close()
        done = self.run(tmp_path, site.job.name, "--repair", "--apply", "--stopped", "--json")
        assert "the newest checkpoint is whole" in done.output
        assert not any(json.loads(line).get("done") for line in done.stdout.splitlines())

    def test_a_stopped_job_is_given_an_entry(self, site: World, tmp_path: Path) -> None:
        newest, reader = site.newest(), site.reader
        site.job.close()
        tile = reader.load_line(newest.link, newest.max_parallelism).view.tiles[0]
        damage(site, layout.snapshot(tile.operator, tile.low, tile.high, tile.snapshot or 0), "gone")
        done = self.run(tmp_path, site.job.name, "--repair", "--apply", "--stopped")
        assert "has the state of checkpoint" in " ".join(done.output.split())
        head = reader.head()
        assert isinstance(head, Fence)
        assert head.restore is not None
        entry = reader.find_commit(head.restore)
        assert entry is not None
        site.job.models[entry.link] = copy.deepcopy(site.job.models[newest.link])
        site.job.start()
        site.commit(2)
        site.check()

    @pytest.mark.parametrize("damages_a_savepoint", [False, True])
    def test_a_repair_that_is_not_needed_is_told(
        self, site: World, tmp_path: Path, *, damages_a_savepoint: bool
    ) -> None:
        """With `--checkpoint` the next start would not go on from that one, and the exit code was 0 in a sound job."""
        if damages_a_savepoint:
            scratch = site.directory / "scratch"
            scratch.mkdir()
            made = CanonicalSavepoints(
                site.reader, "job", site.store, scratch, clock=site.clock, tokens=NumberedTokens("s")
            )
            made.create(site.newest(), "kept", "test")
            damage(site, site.names(layout.SAVEPOINT_FILES)[0], "flipped")
        site.job.close()
        before = {meta.name: site.store.get(meta.name) for meta in site.store.list("")}
        for options in (["--apply"], ["--apply", "--stopped"]):
            done = self.run(tmp_path, site.job.name, "--repair", *options, "--json")
            assert done.exit_code == damages_a_savepoint
            told = [json.loads(line) for line in done.stdout.splitlines()][-1]
            assert told["action"] == "nothing was repaired: nothing that the newest checkpoint needs is damaged"
            assert told["done"] is False
        done = self.run(tmp_path, site.job.name, "--repair", "--apply", "--stopped", "--checkpoint", "3")
        assert done.exit_code == 1
        assert f"varvite restore {site.job.name} --checkpoint 3" in done.output
        assert {meta.name: site.store.get(meta.name) for meta in site.store.list("")} == before

    @pytest.mark.parametrize(
        "options", [("job", "--apply"), ("--repair", "--apply"), ("job", "--repair", "--checkpoint", "3")]
    )
    def test_options_without_a_sense_are_refused(self, tmp_path: Path, options: tuple[str, ...]) -> None:
        done = self.run(tmp_path, *options)
        assert done.exit_code == 1
        assert "--repair" in done.output or "JOB" in done.output or "--stopped" in done.output
