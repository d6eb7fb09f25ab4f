"""Starting a job from a savepoint or a checkpoint of another job: its state, and what either job does afterwards."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.committing_job import CommittingJob, NumberedTokens, random_batch, restored_cells
from tests.materializer_world import CONFIG, World
from tests.state_model import KEY_GROUPS
from varve.materializer.canonical_savepoint import CanonicalSavepoints
from varve.materializer.state_origin import StateOrigin, find_origin
from varve.storage import layout
from varve.storage.collector import Collector
from varve.storage.errors import (
    CorruptDataError,
    IncompatibleError,
    InvalidRequestError,
    LineageError,
    StateMissingError,
)
from varve.storage.job_run import JobRun
from varve.storage.job_store import JobStore
from varve.storage.local_store import LocalStore
from varve.storage.memory_store import MemoryStore
from varve.storage.savepoints import create_native, delete_savepoint, list_savepoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from varve.storage.records import Commit, Savepoint

TOKENS = NumberedTokens("savepoints")


def native(world: World, commit: Commit | None = None, name: str = "before") -> Savepoint:
    return create_native(
        world.reader, commit or world.newest(), name, job="job", holder="test", clock=world.clock, tokens=TOKENS
    )


def canonical(world: World, commit: Commit | None = None, name: str = "before") -> Savepoint:
    scratch = world.directory / f"canonical-{TOKENS.token()}"
    scratch.mkdir()
    writer = CanonicalSavepoints(world.reader, "job", world.store, scratch, clock=world.clock, tokens=TOKENS)
    return writer.create(commit or world.newest(), name, "test")


def checkpoint(world: World, commit: Commit | None = None, _name: str = "") -> None:
    """Nothing is made: the newest checkpoint is where the other job starts."""


MAKERS: dict[str, Callable[..., Savepoint | None]] = {
    "native": native,
    "canonical": canonical,
    "checkpoint": checkpoint,
}


def origin_of(world: World, savepoint: Savepoint | None) -> StateOrigin:
    commit = world.newest() if savepoint is None else savepoint.commit
    return StateOrigin("there", world.store, commit, savepoint)


class Started:
    """A second job in the world, started from the first one's state."""

    def __init__(
        self,
        world: World,
        origin: StateOrigin,
        *,
        clone: bool = False,
        name: str = "other",
        model: Any = None,
        **job: Any,
    ) -> None:
        self.world = world
        self.store = JobStore(world.root, name)
        self.job = CommittingJob(self.store, world.clock, **{"name": name, "query": "other", **job})
        self.model = model or world.job.models[origin.commit.link]
        self.job.start_from(origin, self.model, clone=clone)
        self._checks = 0

    def check(self) -> None:
        """The newest commit restores to the model."""
        assert self.job.run is not None
        base = self.job.run.state.base
        assert base is not None
        self._checks += 1
        directory = self.world.directory / f"other-{self._checks}-{TOKENS.token()}"
        assert restored_cells(self.store, base.job_id, base.link, directory) == self.job.models[base.link].cells()


def fill(world: World) -> None:
    """Tiles, uploaded and inline segments, and a second parallelism."""
    world.commit(3, upload=True)
    world.commit(3)
    world.sidecar().fold()
    world.commit(2)
    world.commit(2, upload=True, parts=3)
    world.job.parallelism = 3
    world.job.start()
    world.commit(3)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_another_job_goes_on_from_the_state_and_needs_nothing_of_its_source(
    world: World, kind: str, parallelism: int
) -> None:
    fill(world)
    origin = origin_of(world, MAKERS[kind](world))
    other = Started(world, origin, parallelism=parallelism)
    other.check()
    world.commit()
    for name in world.names(""):
        world.store.delete([name])
    for _ in range(7):
        other.job.commit(random_batch(world.rng))
        other.check()
    other.job.start()
    other.job.commit(random_batch(world.rng))
    other.check()


@pytest.mark.parametrize("kind", MAKERS)
def test_the_first_materialization_is_complete_and_the_copy_is_collected(world: World, kind: str) -> None:
    fill(world)
    other = Started(world, origin_of(world, MAKERS[kind](world)), parallelism=2)
    slots = {layout.slot_of(name).slot for area in (layout.SEGMENTS, layout.PACKS) for name in _names(other, area)}
    assert len(slots) == 1, "the copy is below the import's slot alone"
    sidecar = world.sidecar(replace(CONFIG, job="other"), place="of-other")
    for _ in range(3):
        for _ in range(4):
            other.job.commit(random_batch(world.rng))
        assert sidecar.fold()
        other.check()
    other.job.commit(random_batch(world.rng))
    other.job.commit(random_batch(world.rng))
    assert sidecar.poll()
    assert other.job.run is not None
    Collector(other.job.run.reader, world.clock, TOKENS).collect()
    left = {layout.slot_of(name).slot for area in (layout.SEGMENTS, layout.PACKS) for name in _names(other, area)}
    assert not slots & left
    other.check()


def _names(other: Started, prefix: str) -> list[str]:
    return [meta.name for meta in other.store.list(prefix)]


@pytest.mark.parametrize("kind", ["native", "canonical"])
def test_a_savepoint_outlives_the_log_and_goes_when_it_is_deleted(world: World, kind: str) -> None:
    """Only what it names is kept: the job's own log is truncated as ever (I10)."""
    fill(world)
    kept = MAKERS[kind](world)
    assert kept is not None
    sidecar = world.sidecar()
    for _ in range(6):
        world.commit(3, upload=True)
        sidecar.fold()
    world.commit(2)
    Collector(world.reader, world.clock, TOKENS).collect()
    everything = set(world.names(""))
    assert set(kept.objects) <= everything
    below = [s for s in world.reader.list_seqs() if s < world.newest().keep_from and world.reader.find_commit(s)]
    assert {layout.chain(seq) for seq in below} <= set(kept.objects)
    other = Started(world, origin_of(world, kept), parallelism=4)
    other.check()
    delete_savepoint(world.store, "before")
    Collector(world.reader, world.clock, TOKENS).collect()
    world.check()
    world.check_no_garbage()
    assert world.names("savepoint") == []


def test_a_canonical_savepoint_may_be_anywhere(world: World, tmp_path: Path) -> None:
    fill(world)
    target = LocalStore(str(tmp_path / "export"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    heard: list[tuple[int, int]] = []
    writer = CanonicalSavepoints(world.reader, "job", target, scratch, clock=world.clock, tokens=TOKENS)
    savepoint = writer.create(world.newest(), "before", "test", lambda *done: heard.append(done))
    assert heard == [(1, 3), (2, 3), (3, 3)]
    assert world.names("savepoint") == []
    found = find_origin(f"{target.url}/savepoints/before", world.store)
    assert found.savepoint == savepoint
    Started(world, found).check()


def test_a_query_that_goes_on_is_not_started_anew(world: World) -> None:
    """The option may stay set: Spark's checkpoint location tells whether the query has begun."""
    fill(world)
    origin = origin_of(world, native(world))
    other = Started(world, origin)
    before = other.job.run
    assert before is not None
    imported = before.state.base
    other.job.start_from(origin, other.model)
    assert other.job.run is not None
    assert other.job.run.state.base == imported, "no batch has followed: it is not copied again"
    other.job.commit(random_batch(world.rng))
    newest = other.job.run.state.base
    other.job.close()
    fence = _start(other, origin, "other")
    assert (fence.restore, fence.commit) == (None, newest.link if newest else None)


def test_another_state_is_never_replaced(world: World) -> None:
    fill(world)
    other = Started(world, origin_of(world, native(world)))
    other.job.commit(random_batch(world.rng))
    other.job.close()
    world.commit()
    later = origin_of(world, native(world, name="later"))
    with pytest.raises(LineageError, match="state of its own"):
        _start(other, later, None)


def test_a_job_whose_numbers_are_behind_is_refused(world: World) -> None:
    """Tiles and list elements are ordered by seq, so the numbers must go on."""
    fill(world)
    store = JobStore(world.root, "empty")
    job = CommittingJob(store, world.clock, name="empty")
    job.start()
    job.close()
    origin = origin_of(world, native(world))
    with pytest.raises(InvalidRequestError, match="numbers must"):
        job.start_from(origin, world.job.models[origin.commit.link])
    job.close()


def _start(other: Started, origin: StateOrigin, query_id: str | None) -> Any:
    """Only the decision: nothing may be copied."""
    run = JobRun.open(other.store, "other", KEY_GROUPS, other.job.policy, other.world.clock, TOKENS)
    try:
        return run.start_from(origin.commit, query_id, lambda _slot: pytest.fail("copied"))
    finally:
        run.close()


@pytest.mark.parametrize("kind", ["native", "canonical"])
def test_a_job_goes_back_to_its_own_savepoint(world: World, kind: str) -> None:
    """A new query of the same job; what has come since stays readable until it is collected."""
    fill(world)
    kept = MAKERS[kind](world)
    model = world.job.models[world.newest().link]
    sidecar = world.sidecar()
    for _ in range(6):
        world.commit(3)
        sidecar.fold()
    Collector(world.reader, world.clock, TOKENS).collect()
    world.job.query = "second"
    world.job.start_from(origin_of(world, kept), model)
    world.commit(4)
    delete_savepoint(world.store, "before")
    sidecar.fold()
    world.commit(4)
    Collector(world.reader, world.clock, TOKENS).collect()
    world.check()


def test_a_copied_spark_location_goes_on_without_any_choice(world: World) -> None:
    """A clone of job and Spark's checkpoint location together: the same query, batch after batch."""
    fill(world)
    batch = world.job.batch
    other = Started(world, origin_of(world, native(world)))
    other.job.query, other.job.batch = "query", batch
    other.job.start()
    other.job.commit(random_batch(world.rng))
    other.check()


@pytest.mark.parametrize("kind", ["native", "canonical"])
def test_a_damaged_or_missing_object_is_found_before_the_job_has_a_state(world: World, kind: str) -> None:
    fill(world)
    kept = MAKERS[kind](world)
    assert kept is not None
    names = [f.name for f in kept.files] or [n for n in kept.objects if not n.startswith(layout.CHAIN)]
    for name in (names[0], names[-1]):
        data = world.store.get(name)
        for damaged in (data[:-1] + bytes((data[-1] ^ 1,)), data[:-1], None):
            if damaged is None:
                world.store.delete([name])
            else:
                world.store.put(name, damaged)
            with pytest.raises(CorruptDataError) as caught:
                Started(world, origin_of(world, kept))
            assert caught.value.context["object_name"].endswith(name)
        world.store.put(name, data)
    Started(world, origin_of(world, kept)).check()


def test_a_hold_goes_even_if_the_copy_fails_and_its_files_are_collected(world: World) -> None:
    fill(world)
    [name] = world.names(layout.SNAPSHOTS)[:1]
    data = world.store.get(name)
    world.store.delete([name])
    with pytest.raises(CorruptDataError):
        canonical(world)
    assert list_savepoints(world.store) == ()
    world.store.put(name, data)
    orphan = layout.savepoint_file("f" * 32, "flights", "total", 0, 8)
    world.store.put(orphan, b"left by a crash")
    kept = canonical(world)
    assert Collector(world.reader, world.clock, TOKENS).collect().savepoint_files == (orphan,)
    assert {file.name for file in kept.files} <= set(world.names(layout.SAVEPOINT_FILES))


def test_names_are_taken_once_and_of_savepoints_only(world: World) -> None:
    world.commit(2)
    native(world)
    for make in (native, canonical):
        with pytest.raises(InvalidRequestError, match="already"):
            make(world)
    assert world.names(layout.SAVEPOINT_FILES) == []
    with pytest.raises(InvalidRequestError, match="no savepoint"):
        delete_savepoint(world.store, "after")


def test_a_savepoint_that_cannot_be_read_stops_the_collection(world: World) -> None:
    world.commit(4)
    world.store.put(layout.savepoint("broken"), b"broken")
    with pytest.raises(CorruptDataError):
        Collector(world.reader, world.clock, TOKENS).collect()


def test_a_location_names_a_savepoint_a_checkpoint_or_a_job(tmp_path: Path) -> None:
    root = LocalStore(str(tmp_path / "storage"))
    world = World(tmp_path, root)
    world.commit(3)
    native(world)
    newest, at = world.newest(), f"{tmp_path}/storage/job"
    for location in (f"{at}/savepoints/before", f"{at}/chain/{newest.seq}", at, f"file://{at}", "before"):
        found = find_origin(location, world.store)
        assert found.commit.link == newest.link
        assert (found.savepoint is not None) == ("before" in location)
    assert find_origin(f"{at}/chain/{newest.parent.seq}", world.store).commit.link == newest.parent
    with pytest.raises(StateMissingError):
        find_origin(f"{at}/chain/1", world.store)
    for location in (f"{at}/savepoints/after", "after", f"{tmp_path}/nothing", f"{tmp_path}/storage"):
        with pytest.raises(InvalidRequestError):
            find_origin(location, world.store)
    found = find_origin(at, world.store)
    found.check(KEY_GROUPS)
    with pytest.raises(IncompatibleError, match="max-parallelism to 8"):
        found.check(16)
    world.close()


class TestClone:
    """A clone shares its source's objects until the materializer has replaced them."""

    @pytest.mark.parametrize("kind", ["native", "checkpoint"])
    def test_nothing_is_copied_and_the_source_keeps_what_is_shared(self, world: World, kind: str) -> None:
        fill(world)
        kept = MAKERS[kind](world)
        other = Started(world, origin_of(world, kept), clone=True, parallelism=3)
        assert _names(other, layout.SEGMENTS) + _names(other, layout.PACKS) == []
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
