"""A clone of a job, which shares its objects; and starts from another state that are killed at any write."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.jobs.committing_job import random_batch
from tests.jobs.materializer_world import CONFIG, IDLE, World
from tests.jobs.started_job import MAKERS, TOKENS, Started, canonical, fill, origin_of
from varvite.changelog.retention.collector import Collector
from varvite.changelog.retention.savepoints import create_native, delete_savepoint, list_savepoints
from varvite.materializer.restore.origin import StateOrigin
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format import layout
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class TestClone:
    """A clone shares its source's objects until the materializer has replaced them."""

    @pytest.mark.parametrize("kind", ["native", "checkpoint"])
    def test_nothing_is_copied_and_the_source_keeps_what_is_shared(self, world: World, kind: str) -> None:
        fill(world)
        kept = MAKERS[kind](world)
        other = Started(world, origin_of(world, kept), clone=True, parallelism=3)
        assert other.names(layout.SEGMENTS) + other.names(layout.PACKS) == []
        if kept is not None:
            delete_savepoint(world.store, "before")
        self._go_on(world)
        other.check()
        assert len(list_savepoints(world.store)) == 1

    def test_the_hold_goes_when_nothing_is_shared_any_more(self, world: World) -> None:
        fill(world)
        other = Started(world, origin_of(world, None), clone=True, parallelism=2)
        sidecar = world.sidecar(replace(CONFIG, job="other"), place="of-other")
        held = []
        for _ in range(4):
            for _ in range(4):
                other.job.commit(random_batch(world.rng))
            assert sidecar.fold()
            other.check()
            held.append(len(list_savepoints(world.store)))
        assert held[0] == 1
        assert held[-1] == 0
        self._go_on(world)
        world.check_no_garbage()
        for name in world.names(""):
            world.store.delete([name])
        other.check()
        other.job.start()
        other.check()

    def test_a_savepoint_of_the_clone_keeps_the_hold(self, world: World) -> None:
        fill(world)
        other = Started(world, origin_of(world, None), clone=True)
        assert other.job.run is not None
        base = other.job.run.state.base
        assert base is not None
        kept = create_native(
            other.job.run.reader, base, "first", job="other", holder="test", clock=world.clock, tokens=TOKENS
        )
        sidecar = world.sidecar(replace(CONFIG, job="other"), place="of-other")
        for _ in range(4):
            for _ in range(4):
                other.job.commit(random_batch(world.rng))
            sidecar.fold()
        self._go_on(world)
        assert len(list_savepoints(world.store)) == 1
        third = Started(world, StateOrigin("there", other.store, kept.commit, kept), name="third", model=other.model)
        third.check()
        delete_savepoint(other.store, "first")
        for _ in range(3):
            other.job.commit(random_batch(world.rng))
        sidecar.fold()
        assert list_savepoints(world.store) == ()
        third.check()

    def test_a_clone_of_a_clone_keeps_both_holds(self, world: World) -> None:
        fill(world)
        other = Started(world, origin_of(world, None), clone=True)
        assert other.job.run is not None
        base = other.job.run.state.base
        assert base is not None
        third = Started(
            world, StateOrigin("there", other.store, base, None), name="third", model=other.model, clone=True
        )
        sidecar = world.sidecar(replace(CONFIG, job="other"), place="of-other")
        for _ in range(4):
            for _ in range(4):
                other.job.commit(random_batch(world.rng))
            sidecar.fold()
        self._go_on(world)
        third.check()
        assert [len(list_savepoints(store)) for store in (world.store, other.store)] == [1, 1]

    def test_a_hold_is_kept_until_a_batch_has_followed_the_start(self, world: World) -> None:
        """A start may be done again from a later checkpoint: what is held for it is shared by the next entry only."""
        world.job.commit(IDLE)
        other = Started(world, origin_of(world, None), clone=True)
        assert other.job.run is not None
        collector = Collector(other.job.run.reader, world.clock, TOKENS)
        assert collector.collect().shares
        for _ in range(10):
            other.job.commit(random_batch(world.rng))
        assert not collector.collect().shares

    def test_only_a_checkpoint_or_native_savepoint_beside_the_job_can_be_cloned(self, world: World) -> None:
        fill(world)
        store = JobStore(world.root, "other")
        elsewhere = JobStore(world.root, "deeper/other")
        assert origin_of(world, None).job_beside(store) == "job"
        for origin, own in (
            (origin_of(world, None), world.store),
            (origin_of(world, None), elsewhere),
            (origin_of(world, canonical(world)), store),
        ):
            with pytest.raises(InvalidRequestError, match="cannot be cloned"):
                origin.job_beside(own)

    def test_what_is_shared_can_be_read_and_nothing_else(self, world: World) -> None:
        world.commit()
        store = JobStore(world.root, "other")
        name = layout.shared("job", layout.JOB)
        assert layout.shared("third", name) == name
        assert store.get(name) == world.store.get(layout.JOB)
        for change in (store.put, store.put_if_absent):
            with pytest.raises(InvalidRequestError):
                change(name, b"")
        with pytest.raises(InvalidRequestError):
            store.delete([name])
        with pytest.raises(InvalidRequestError):
            store.get("../../job.json")

    @staticmethod
    def _go_on(world: World) -> None:
        """The source replaces all of its state and collects."""
        sidecar = world.sidecar()
        for _ in range(5):
            world.commit(3, upload=True)
            sidecar.fold()
        world.commit(2)
        Collector(world.reader, world.clock, TOKENS).collect()
        world.check()


class Killed(BaseException):
    """The process is gone: no handler runs an operation any more."""


class MortalStore(MemoryStore):
    """Every write after the `lives`-th kills the process, and nothing works until it is started again."""

    lives: float = math.inf
    dead = False

    def put(self, name: str, data: bytes) -> None:
        self._write()
        super().put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._write()
        return super().put_if_absent(name, data)

    def put_file(self, name: str, path: Path) -> None:
        self._write()
        super().put_file(name, path)

    def delete(self, names: Iterable[str]) -> None:
        self._write()
        super().delete(names)

    def _write(self) -> None:
        self.lives -= 1
        self.dead = self.dead or self.lives < 0
        if self.dead:
            raise Killed


@pytest.mark.long
@pytest.mark.parametrize("kind", ["checkpoint", "clone", "canonical"])
def test_a_start_that_is_killed_at_any_write_is_done_again(tmp_path: Path, kind: str) -> None:
    """Neither job ever misses anything, whatever was left behind; nor if a canonical savepoint is made (I7, I11)."""
    root = MortalStore()
    world = World(tmp_path, root)
    fill(world)
    savepoint = canonical(world, name="kept") if kind == "canonical" else None
    origin = origin_of(world, savepoint)
    before = {meta.name: root.get(meta.name) for meta in root.list("")}
    deaths = 0
    while True:
        root.delete([meta.name for meta in root.list("")])
        for name, data in before.items():
            root.put(name, data)
        root.lives, root.dead = deaths, False
        try:
            if kind == "canonical":
                canonical(world)
            Started(world, origin, clone=kind == "clone")
            died = False
        except Killed:
            died = True
        root.lives, root.dead = math.inf, False
        Collector(world.reader, world.clock, TOKENS).collect()
        world.check()
        Started(world, origin, clone=kind == "clone", runs=1).check()  # with other tokens than the dead run's
        if not died:
            break
        deaths += 2 if kind == "canonical" else 1
    assert deaths > 3
    world.close()
