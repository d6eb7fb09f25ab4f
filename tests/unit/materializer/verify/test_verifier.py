"""`varvite verify`: a sound job has no problems, and each kind of damage is found and named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.jobs.chain_job import CountingTokens
from tests.jobs.materializer_world import World
from tests.jobs.started_job import Started
from tests.jobs.state_model import OPERATOR, BatchChanges
from tests.workers.raw_image import raw_image
from varvite.changelog.restore.restore import tile_files
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.materializer.commands.cli import main
from varvite.materializer.restore.origin import StateOrigin
from varvite.materializer.verify.verifier import Verification, verify
from varvite.storage.errors import CorruptDataError
from varvite.storage.format import layout
from varvite.storage.object_stores.local.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["job", OPERATOR])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """Tiles, a log after them, and a snapshot that no commit has taken over yet; of a job named like its operator, too.

    Names of objects below an operator look like those from the root of the storage on then.
    """
    (tmp_path / "local").mkdir()
    world = World(tmp_path / "local", LocalStore(str(tmp_path / "storage")), name=request.param)
    world.commit(3, upload=True)
    world.sidecar().fold()
    world.commit(3, upload=True)
    world.commit(2)
    world.sidecar(place="second").fold()
    yield world
    world.close()


def check(world: World) -> Verification:
    return verify(world.store, world.job.name, world.clock, CountingTokens(1000))


def damage(world: World, name: str) -> None:
    """One bit in the middle."""
    data = bytearray(world.store.get(name))
    data[len(data) // 2] ^= 1
    world.store.put(name, bytes(data))


def concerned(world: World) -> set[str]:
    return {problem.object_name for problem in check(world).problems}


def test_a_sound_job_has_no_problems(world: World) -> None:
    found = check(world)
    assert found.problems == []
    assert (found.ok, found.head_seq) == (True, world.newest().seq)
    assert found.checkpoints >= 2
    assert min(found.segments, found.segment_bytes, found.snapshots, found.snapshot_files, found.entries) > 0
    assert found.snapshot_bytes > 0
    assert found.compared == 2, "the snapshots that nobody has taken over yet, of both ranges"
    assert world.names(layout.PINS) == []


def test_swapped_descriptors_of_two_ranges_are_named(world: World) -> None:
    """A restore named a file in its scratch directory instead of the object."""
    view = world.reader.load_line(world.newest().link, world.newest().max_parallelism).view
    tiles = [tile for tile in view.tiles if tile.snapshot is not None]
    names = [layout.snapshot(tile.operator, tile.low, tile.high, tile.snapshot or 0) for tile in tiles[:2]]
    first, second = (world.store.get(name) for name in names)
    world.store.put(names[0], second)
    world.store.put(names[1], first)
    assert set(names) <= concerned(world)
    for tile, name in zip(tiles, names, strict=False):
        with pytest.raises(CorruptDataError, match="copied or moved here") as caught:
            tile_files(world.store, tile)
        assert caught.value.context["object_name"] == name


def test_a_job_without_batches_is_sound(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert check(world).ok
    world.close()


def test_a_job_is_sound_at_every_step_of_its_life(tmp_path: Path) -> None:
    """The same holds with packs, takeovers and collections meanwhile, and after a batch is executed again."""
    world = World(tmp_path, parallelism=3)
    compared = 0
    for step in range(8):
        world.commit(2, upload=bool(step % 2))
        if step % 3 == 1:
            world.sidecar(place=f"work-{step}").fold()
        if step == 4:
            world.job.start(redo=True)
        found = check(world)
        assert found.problems == []
        compared += found.compared
    assert compared > 0
    world.close()


@pytest.mark.parametrize("area", [layout.CHAIN, layout.SEGMENTS, layout.SNAPSHOTS, layout.SNAPSHOT_FILES])
@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_what_is_damaged_or_gone_is_named(world: World, area: str, how: str) -> None:
    newest = world.newest()
    name = [name for name in world.names(area) if area != layout.CHAIN or name != layout.chain(newest.seq)][-1]
    if area == layout.SNAPSHOTS:  # one that a commit names
        tile = world.reader.load_line(newest.link, newest.max_parallelism).view.tiles[0]
        assert tile.snapshot is not None
        name = layout.snapshot(tile.operator, tile.low, tile.high, tile.snapshot)
    if how == "damaged":
        damage(world, name)
    else:
        world.store.delete([name])
    assert name in concerned(world)
    assert world.names(layout.PINS) == []


def test_a_job_is_sound_while_its_log_is_collected(tmp_path: Path) -> None:
    """It said of a checkpoint that was being collected that it is not retained any more, and nothing else."""
    world = World(tmp_path)
    world.commit(5, upload=True)
    world.sidecar().fold()
    world.commit(8)
    cut = world.newest().keep_from
    entries = [name for name in world.names(layout.CHAIN) if name < layout.chain(cut)]
    log = [name for name in world.names(layout.SEGMENTS) if layout.slot_of(name).slot < cut]
    assert min(len(entries), len(log)) > 2
    assert check(world).compared == 2
    for name in (*entries[1:4], log[0]):
        data = world.store.get(name)
        world.store.delete([name])
        assert check(world).problems == []
        world.store.put(name, data)
    world.close()


def test_damaged_pins_and_a_damaged_job_are_named(world: World) -> None:
    world.store.put(layout.pin("0f" * 16), b"nothing")
    assert concerned(world) == {layout.pin("0f" * 16)}
    damage(world, layout.JOB)
    assert concerned(world) == {layout.JOB}


def test_a_snapshot_that_is_whole_but_not_what_the_log_gives_is_found(tmp_path: Path, monkeypatch: Any) -> None:
    """As if the materializer had folded wrongly: all checksums are right."""
    world = World(tmp_path)
    world.job.commit(BatchChanges(totals={"a": 1, "b": 2}))
    world.job.commit(BatchChanges(totals={"a": 5}))
    fold = RocksDBStore.fold

    def forgetful(store: RocksDBStore, batches: Any, version: Any, *, last: bool) -> None:
        kept = [batch._replace(accepts=lambda _: False) for batch in batches]
        fold(store, kept, version, last=last)

    with monkeypatch.context() as patch:
        patch.setattr(RocksDBStore, "fold", forgetful)
        world.sidecar().fold()
    [problem] = check(world).problems
    assert problem.object_name.startswith(layout.SNAPSHOTS)
    assert "differs from its log" in problem.problem
    assert "state 'total'" in problem.problem
    world.close()


def run(tmp_path: Path, *arguments: str) -> Any:
    return CliRunner().invoke(main, ["verify", *arguments, "--storage", str(tmp_path / "storage")])


def test_the_command_reports_and_its_exit_code_tells(world: World, tmp_path: Path) -> None:
    done = run(tmp_path, "--json")
    assert done.exit_code == 0, done.output
    [line] = [json.loads(text) for text in done.stdout.splitlines()]
    assert (line["job"], line["compared"], line["problems"]) == (world.job.name, 2, 0)
    name = world.names(layout.SNAPSHOT_FILES)[-1]
    damage(world, name)
    done = run(tmp_path, world.job.name, "--json")
    assert done.exit_code == 1
    line, *problems = [json.loads(text) for text in done.stdout.splitlines()]
    assert line["problems"] == len(problems)
    assert name in {problem["object_name"] for problem in problems}
    done = run(tmp_path, world.job.name)
    assert (done.exit_code, name in done.output) == (1, True)
    done = run(tmp_path, "nobody")
    assert (done.exit_code, "there is no job 'nobody'" in done.output) == (1, True)
    world.store.delete([layout.JOB])
    done = run(tmp_path, world.job.name)
    assert (done.exit_code, layout.JOB in done.output) == (1, True)


@pytest.mark.parametrize("clone", [False, True])
def test_a_job_that_began_with_another_one_s_state_is_sound(world: World, clone: bool) -> None:
    """Its log before that is of the other job."""
    other = Started(world, StateOrigin("there", world.store, world.newest(), None), clone=clone)
    found = verify(other.store, "other", world.clock, CountingTokens(1000))
    assert found.problems == []
    assert found.segments > 0


def test_a_damaged_image_is_found(world: World) -> None:
    world.commit(images=(raw_image(world.newest().job_id, b"bytes"), b""))
    found = check(world)
    assert (found.problems, found.images) == ([], 1)
    (ref,) = world.reader.load_line(world.newest().link, world.newest().max_parallelism).view.images
    data = bytearray(world.store.get(ref.data.name))
    data[ref.data.offset + ref.data.length // 2] ^= 1
    world.store.put(ref.data.name, bytes(data))
    assert ref.data.name in concerned(world)
