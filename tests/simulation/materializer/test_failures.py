"""Failures beside and below a materializer: they harm neither the job nor the state, and ends well."""

from __future__ import annotations

import itertools
import random
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.jobs.committing_job import NumberedTokens
from tests.jobs.materializer_world import CONFIG, IDLE, INTERVAL_MS, World
from tests.jobs.state_model import KEY_TYPE, OPERATOR, BatchChanges, Model
from tests.stores.faulty import Faults, FaultyStore
from tests.stores.manual_clock import ManualClock
from varvite.changelog.retention.collector import Collector
from varvite.changelog.retention.snapshots import list_snapshots, publish
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.materializer.monitoring.events import Failed, JobFailed
from varvite.storage.format import layout
from varvite.storage.object_stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.jobs.materializer_world import Sidecar
    from varvite.storage.object_stores.contract import ObjectStore


def held_up(world: World, meanwhile: Callable[[], None]) -> Sidecar:
    """A materializer; this is done just before it publishes for the first time."""
    waiting = [meanwhile]

    def hold(operation: str, name: str, phase: str) -> None:
        if waiting and operation == "put_if_absent" and phase == "before" and name.startswith("job/snap/"):
            waiting.pop()()

    return world.sidecar(root=FaultyStore(world.root, random.Random(1), Faults(), clock=world.clock, crash_hook=hold))


def test_a_slow_materializer_loses_its_number_and_looks_again(world: World) -> None:
    world.commit(4)
    published: dict[str, bytes] = {}

    def overtake() -> None:
        assert world.sidecar(place="fast").fold()
        world.commit()
        assert len(world.job.adopted) == 1
        published.update({name: world.store.get(name) for name in world.names(layout.SNAPSHOTS)})

    slow = held_up(world, overtake)
    assert slow.fold(), "losing a race is not a failure"
    assert slow.materialized == []
    assert {name: world.store.get(name) for name in world.names(layout.SNAPSHOTS)} == published
    world.check()
    world.commit(2)
    assert slow.fold()
    world.commit(2)
    world.check()


def test_an_upload_that_was_given_up_is_not_published(world: World) -> None:
    """A collector takes the number of an upload that lasts too long; the uploader notices and begins again."""
    world.commit(4)

    def give_up() -> None:
        world.clock.advance(100)
        collector = Collector(world.reader, world.clock, NumberedTokens("collector"), upload_grace_s=50)
        assert len(collector.collect().aborted) == 1

    slow = held_up(world, give_up)
    assert not slow.fold()
    assert "grace" in slow.events.of(Failed)[0].error
    assert slow.fold()
    assert sorted((e.low, e.snapshot) for e in slow.materialized) == [(0, 2), (4, 1)]
    world.commit(2)
    assert len(world.job.adopted) == 1
    world.check()
    slow.fold()
    world.check_no_garbage()


def test_a_snapshot_built_on_a_base_that_was_replaced_meanwhile_is_never_adopted(world: World) -> None:
    """Somebody publishes on the tile that he saw long ago; his state is that of other batches than the line's."""
    world.commit(4)
    sidecar = world.sidecar()
    sidecar.fold()
    world.commit()
    world.commit(2)
    old = world.descriptor(list_snapshots(world.store)[0])
    late = msgspec.structs.replace(old, number=2, token="late", at=world.newest().parent)
    assert publish(world.store, late, world.clock).won
    world.commit(2)
    assert len(world.job.adopted) == 1
    world.check()
    sidecar.fold()
    assert [(e.low, e.snapshot) for e in sidecar.materialized[2:]] == [(0, 3), (4, 2)]
    world.commit(3)
    assert [t.snapshot for t in world.job.adopted[1].tiles] == [3, 2]
    world.check()
    sidecar.fold()
    world.commit()
    sidecar.fold()
    world.check()
    assert layout.snapshot(old.operator, old.low, old.high, 2) not in world.names(layout.SNAPSHOTS)


def test_what_is_published_of_an_operator_that_was_removed_meanwhile_is_collected(world: World) -> None:
    """No commit could take it, and its floor never rose, so that it stayed for ever."""
    world.commit(6)

    def use(uid: str) -> None:
        """Give the operator up that there was, and begin with this one."""
        world.job.uid, world.job.dropped = uid, frozenset({OPERATOR, "other"} - {uid})
        world.job.start()
        world.job.model = Model()
        world.commit(2)

    slow = held_up(world, lambda: use("other"))
    assert slow.fold()
    published = {(event.low, event.high): event.snapshot for event in slow.materialized}
    assert len(published) == len(world.names(f"{layout.SNAPSHOTS}{OPERATOR}/")) == 2
    world.commit(20)
    Collector(world.reader, world.clock, world.job.tokens, upload_grace_s=86_400).collect()
    for area in (layout.SNAPSHOTS, layout.SNAPSHOT_FILES):
        assert world.names(f"{area}{OPERATOR}/") == []
    floors = {(f.low, f.high): f.number for f in world.newest().floors if f.operator == OPERATOR}
    assert floors == published, "they stay in the entries"
    use(OPERATOR)
    assert slow.fold()
    own = [event for event in slow.materialized[2:] if event.operator == OPERATOR]
    assert {(event.low, event.high): event.snapshot for event in own} == {key: n + 1 for key, n in floors.items()}
    world.commit(2)
    assert {t.snapshot for t in world.job.adopted[-1].tiles} == {event.snapshot for event in own}
    world.check()


def test_a_base_file_that_is_gone_is_uploaded_anew(world: World) -> None:
    """The local copy still has it, so the next base is whole again."""
    world.job.commit(BatchChanges(totals={f"key {i}": i for i in range(4000)}))
    world.commit(2)
    sidecar = world.sidecar()
    sidecar.fold()
    world.commit(2)
    lost = max(world.store.list(layout.SNAPSHOT_FILES), key=lambda meta: meta.size_bytes)
    world.store.delete([lost.name])
    world.commit(2)
    sidecar.fold()
    assert sum(e.uploaded_bytes for e in sidecar.materialized[2:]) >= lost.size_bytes
    world.commit(2)
    world.check()


@pytest.mark.parametrize("damage", ["garbage", "truncated", "other operator"])
def test_a_local_copy_that_cannot_be_used_is_made_anew(world: World, damage: str) -> None:
    world.commit(4)
    first = world.sidecar()
    first.fold()
    first.die()
    world.commit(3)
    directories = sorted((world.directory / "work/0/ranges").glob("*/*/*"))
    assert len(directories) == 2
    for directory in directories:
        if damage == "other operator":
            shutil.rmtree(directory)
            RocksDBStore.open(directory, "other", KEY_TYPE, 0, 4).close()
        for file in directory.glob("MANIFEST-*" if damage == "truncated" else "*.sst"):
            data = file.read_bytes()
            file.write_bytes(data[: len(data) // 2] if damage == "truncated" else b"x" * len(data))
    again = world.sidecar()
    for _ in range(2):  # damage in the rows is met while folding or writing; the next try starts clean
        again.fold()
    world.commit(2)
    assert len(world.job.adopted) == 2
    world.check()


@pytest.mark.parametrize("changes", ["rows", "idle"])
def test_a_local_copy_that_lost_bits_does_not_become_the_base(world: World, changes: str) -> None:
    """RocksDB finds it where it reads or compacts, and a snapshot without new rows is made without either."""
    world.job.commit(BatchChanges(totals={f"key {i}": i for i in range(4000)}))
    world.commit(2)
    config = replace(CONFIG, log_batches=3)
    first = world.sidecar(config)
    first.fold()
    world.job.commit(IDLE)
    first.fold()
    first.die()
    damaged = 0
    for file in (world.directory / "work/0/ranges").glob("*/*/*/*.sst"):
        data = bytearray(file.read_bytes())
        if len(data) > 10_000:
            damaged += 1
            data[len(data) // 3] ^= 1
            file.write_bytes(bytes(data))
    assert damaged == 2
    for _ in range(5):
        world.job.commit(IDLE) if changes == "idle" else world.commit()
    again = world.sidecar(config)
    assert not again.poll()
    assert {e.error_type for e in again.events.of(Failed)} == {"LocalDataError"}
    assert again.fold()
    world.commit(2)
    assert len(world.job.adopted) == 3
    world.check()


def test_a_local_copy_off_the_line_is_made_anew(world: World) -> None:
    """The storage is brought back from a copy: what was committed since is not on the line any more."""
    world.commit(4)
    kept = {meta.name: world.store.get(meta.name) for meta in world.store.list("")}
    models, batch = dict(world.job.models), world.job.batch
    world.commit(3)
    sidecar = world.sidecar()
    sidecar.fold()
    sidecar.die()
    world.job.close()
    world.store.delete([meta.name for meta in world.store.list("")])
    for name, data in kept.items():
        world.store.put(name, data)
    world.job.models, world.job.batch = models, batch
    world.rng = random.Random(8)
    world.job.start()
    world.commit(4)
    again = world.sidecar()
    assert again.fold()
    world.commit(2)
    assert world.job.adopted
    world.check()


def test_a_damaged_segment_is_named_and_tried_again_with_pauses(world: World) -> None:
    world.commit(2)
    world.job.commit(BatchChanges(totals={"N1": 1}), upload=True)
    world.commit(2)
    name = world.names(layout.SEGMENTS)[0]
    whole = world.store.get(name)
    world.store.put(name, whole[:-1] + bytes([whole[-1] ^ 1]))
    sidecar = world.sidecar()
    assert not sidecar.fold()
    failed = sidecar.events.of(Failed)
    assert [(e.error_type, e.object_name, e.failures) for e in failed] == [("CorruptDataError", name, 1)]
    assert len(sidecar.materialized) == 1, "the other range is not stopped"
    world.clock.advance(INTERVAL_MS / 1_000)
    polls = 0
    while len(sidecar.events.of(Failed)) < 6:
        polls += 1
        world.clock.advance(1)
        sidecar.poll()
    assert polls >= 1 + 2 + 4 + 8 + 16 - 4, "each pause is longer than the one before"
    assert [e.failing for e in sidecar.events.of(Failed)] == [False, False, False, True, True, True]
    world.store.put(name, whole)
    world.clock.advance(600)
    assert sidecar.poll()
    assert len(sidecar.materialized) == 2
    world.commit()
    world.check()


def test_a_chain_that_cannot_be_read_is_reported_and_does_not_loop(world: World) -> None:
    world.commit(3)
    name = layout.chain(world.newest().seq)
    whole = world.store.get(name)
    world.store.put(name, whole[:-1])
    sidecar = world.sidecar()
    for _ in range(20):
        world.clock.advance(1)
        assert not sidecar.poll()
    failed = sidecar.events.of(JobFailed)
    assert {(e.error_type, e.object_name) for e in failed} == {("CorruptDataError", name)}
    assert len(failed) <= 6
    world.store.put(name, whole)
    assert sidecar.fold()
    assert len(sidecar.materialized) == 2


def test_a_failed_materialization_is_followed_by_a_good_one(world: World) -> None:
    world.commit(5)
    faulty = FaultyStore(world.root, random.Random(1), Faults(), clock=world.clock)
    sidecar = world.sidecar(root=faulty)
    sidecar.poll()
    faulty.faults = Faults(before=1.0)
    assert not sidecar.fold()
    assert sidecar.materialized == []
    faulty.faults = Faults()
    assert sidecar.fold()
    assert len(sidecar.materialized) == 2
    world.commit(2)
    world.check()


@pytest.mark.parametrize("seed", range(4))
def test_faults_of_the_storage_only_make_the_log_longer(tmp_path: Path, seed: int) -> None:
    """Errors, lost replies and torn calls, one in eight operations, while the job goes on."""
    world = World(tmp_path)
    faults = Faults(before=0.05, after=0.05, torn=0.02)
    faulty = FaultyStore(world.root, random.Random(seed), faults, clock=world.clock)
    sidecar = world.sidecar(root=faulty)
    for _ in range(8):
        world.commit(2)
        sidecar.fold()
        world.check()
    faulty.faults = Faults()
    sidecar.fold()
    world.commit(2)
    assert world.job.adopted
    sidecar.fold()
    world.commit(2)
    sidecar.fold()
    world.check()
    world.close()


def test_being_asked_to_stop_ends_a_step_and_harms_nothing(world: World) -> None:
    world.commit(5)
    calls: list[str] = []

    def stop_there(operation: str, name: str, phase: str) -> None:
        calls.append(operation)
        if len(calls) == stop_at[0]:
            sidecar.stop.set()

    for at in (1, 5, 9, 15, 21, 30):
        stop_at, calls[:] = [at], []
        hooked = FaultyStore(world.root, random.Random(1), Faults(), clock=world.clock, crash_hook=stop_there)
        sidecar = world.sidecar(root=hooked, place=f"work-{at}")
        assert not sidecar.fold()
        assert len(calls) < at + 12, "it goes on after it was asked to stop"
        assert sidecar.events.of(Failed) == []
        sidecar.die()
        world.check()
    assert world.sidecar().fold()
    world.commit()
    world.check()


class Crash(BaseException):
    """The process dies here."""


class Prepared:
    """A storage with a base, a log to fold and garbage to collect, and a local copy; as often as one likes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        world = World(directory / "prepared", parallelism=1)
        world.commit(3, upload=True)
        first = world.sidecar()
        first.fold()
        world.commit(2)
        first.die()
        world.commit(2, upload=True)
        world.close()
        self._world = world
        self._objects = {meta.name: world.root.get(meta.name) for meta in world.root.list("")}
        self._copies = 0

    def world(self) -> World:
        """A copy of it, with a new driver run."""
        self._copies += 1
        directory = self._directory / f"copy-{self._copies}"
        shutil.copytree(self._directory / "prepared" / "work", directory / "work")
        root = MemoryStore(clock=ManualClock())
        for name, data in self._objects.items():
            root.put(name, data)
        job = self._world.job
        return World(directory, root, parallelism=1, batch=job.batch, models=dict(job.models))


@pytest.mark.long
def test_a_crash_at_any_effect_harms_nothing(tmp_path: Path) -> None:
    """Before and after every call to the storage in a fold, an upload, a publication and a collection."""
    prepared = Prepared(tmp_path)
    effects = _effects(prepared.world())
    assert {"put_file", "put_if_absent", "delete", "get_range", "list"} <= {operation for operation, *_ in effects}
    writes = {"put", "put_if_absent", "delete", "put_file"}
    # To die after a read is to die before the next effect.
    for number in (i for i, (operation, _, phase) in enumerate(effects) if operation in writes or phase == "before"):
        world = prepared.world()
        victim = world.sidecar(root=_dying(world, number))
        with pytest.raises(Crash):
            victim.fold()
        victim.die()
        world.check()
        again = world.sidecar(replace(CONFIG, grace_ms=0))
        assert again.fold()
        world.commit(2)
        assert len(world.job.adopted) == 1, effects[number]
        world.clock.advance(1)
        again.fold()
        world.check()
        world.check_no_garbage()
        world.close()


def _dying(world: World, number: int) -> ObjectStore:
    """The storage; the process dies at that effect, counted from 0."""
    count = itertools.count()

    def die(_operation: str, _name: str, _phase: str) -> None:
        if next(count) == number:
            raise Crash

    return FaultyStore(world.root, random.Random(1), Faults(), clock=world.clock, crash_hook=die)


def _effects(world: World) -> list[tuple[str, str, str]]:
    """All effects of one pass over the world."""
    found: list[tuple[str, str, str]] = []

    def note(operation: str, name: str, phase: str) -> None:
        found.append((operation, name, phase))

    root = FaultyStore(world.root, random.Random(1), Faults(), clock=world.clock, crash_hook=note)
    assert world.sidecar(root=root).fold()
    world.close()
    return found
