"""A job that is started again and again with another parallelism, a materializer between."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.jobs.materializer_world import World
from tests.jobs.state_model import KEY_GROUPS, KEY_TYPE, OPERATOR, cells
from tests.workers.state_worker_setup import filled
from varvite.spark_integration.messages.protocol import OperatorRequest
from varvite.spark_integration.worker.state.base_restore import BaseRestorer
from varvite.spark_integration.worker.state.stores import WorkingStores
from varvite.storage.format import layout
from varvite.storage.private_directories import TemporaryDirectory

if TYPE_CHECKING:
    from varvite.changelog.chain.view import LineView
    from varvite.changelog.working_stores.contract import WorkingStore

SEQUENCE = (2, 3, 8, 1)


@pytest.mark.parametrize("seed", range(4))
def test_2_3_8_and_1_partitions_over_one_state(seed: int) -> None:
    """With any number of batches, materializations and restarts at each parallelism, on both backends."""
    rng = random.Random(seed)
    with TemporaryDirectory("test") as directory:
        world = World(directory, started=False, parallelism=SEQUENCE[0])
        world.rng = rng
        sidecar = None
        for parallelism in SEQUENCE:
            world.job.parallelism = parallelism
            for _ in range(rng.randint(1, 2)):
                _start(world)
                world.commit(rng.randint(1, 4), upload=rng.random() < 0.3)
                sidecar = sidecar or world.sidecar()
                if rng.random() < 0.7:
                    sidecar.fold()
                    world.commit()
                _check(world, directory / f"at-{world.newest().seq}")
        world.close()


def test_a_new_parallelism_rewrites_nothing(tmp_path: Path) -> None:
    """The start writes a fence and no more; tiles stay until the materializer has something new to fold."""
    world = World(tmp_path, parallelism=2)
    sidecar = world.sidecar()
    world.commit(4)
    sidecar.fold()
    world.commit()
    for step, parallelism in enumerate((3, 8, 1, 2)):
        tiles = _view(world).tiles
        world.job.parallelism = parallelism
        _start(world)
        world.commit(adopt=False)
        assert _view(world).tiles == tiles
        _check(world, tmp_path / f"step-{step}")
    world.close()


def test_a_log_without_a_base_is_replayed_into_the_store_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only files of a base need a RocksDB store that is thrown away."""
    copies: list[object] = []
    restore_rocksdb = WorkingStores.restore_rocksdb
    monkeypatch.setattr(
        WorkingStores,
        "restore_rocksdb",
        lambda *given, **named: (copies.append(given), restore_rocksdb(*given, **named))[1],
    )
    world = World(tmp_path, parallelism=2)
    world.commit(5)
    _check(world, tmp_path / "log")
    assert len(copies) == 2, "those of the RocksDB backend"
    world.sidecar().fold()
    world.commit()
    _check(world, tmp_path / "base")
    assert len(copies) == 6
    world.close()


def _start(world: World) -> None:
    """A new run, which writes a fence and nothing else, but for a pack of the log's newest segments."""
    before = set(world.names(""))
    world.job.start()
    assert world.job.run is not None
    written = {name for name in world.names("") if name not in before and not name.startswith(layout.PACKS)}
    assert written - {layout.JOB} == {layout.chain(world.job.run.fence.seq)}


def _view(world: World) -> LineView:
    return world.reader.load_line(world.newest().link, KEY_GROUPS).view


def _check(world: World, directory: Path) -> None:
    """Every partition restores to its part of the model, on each backend."""
    view = _view(world)
    for backend in ("rocksdb", "hashmap"):
        for low, high in world.job.ranges:
            own = directory / f"{backend}-{low}" / "store"
            store = _restored(world, view, backend, (low, high), own)
            assert cells(store) == world.job.models[view.base].cells(low, high)
            store.close()


def _restored(world: World, view: LineView, backend: str, span: tuple[int, int], directory: Path) -> WorkingStore:
    request = filled(
        OperatorRequest,
        job_id=world.reader.job_id,
        operator=OPERATOR,
        parallelism=world.job.parallelism,
        max_parallelism=KEY_GROUPS,
        backend=backend,
        changelog=True,
        key_type=KEY_TYPE,
    )
    restorer = BaseRestorer(request, *span, world.store, directory, WorkingStores())
    reached = restorer.reach(view.base, None)
    assert reached.how == "restored"
    assert reached.store.version == view.base
    return reached.store
