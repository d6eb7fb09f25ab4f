"""Local recovery below Spark: a real chain, copies on disk, a materializer beside them; what is read is counted."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.jobs.materializer_world import World
from tests.jobs.state_model import KEY_GROUPS, KEY_TYPE, OPERATOR, cells
from tests.workers.state_worker_setup import filled
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.restore.local import CopyRange, LocalCopies, LocalRecovery
from varvite.changelog.working_stores.contract import WorkingStore
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.materializer.service.sharing import HEARTBEAT_MS
from varvite.materializer.standby.follower import Standby, StandbyLine
from varvite.materializer.standby.record import read_standbys
from varvite.spark_integration.messages.protocol import OperatorRequest
from varvite.spark_integration.worker.state.base_restore import BaseRestorer, Reached
from varvite.spark_integration.worker.state.local_place import BRIEF_WAIT_S, LOCK_WAIT_S, LocalPlace
from varvite.spark_integration.worker.state.stores import WorkingStores
from varvite.storage.errors import DidNotHappenError
from varvite.storage.format import layout
from varvite.storage.format.records import ORIGIN
from varvite.storage.object_stores.prefixed import PrefixedStore
from varvite.storage.private_directories import TemporaryDirectory

RETAINED = 4


class CountedStore(PrefixedStore):
    """The job's store; knows the snapshot files and log objects that were read."""

    def __init__(self, world: World) -> None:
        super().__init__(world.root, "job")
        self.reads: list[str] = []

    def get(self, name: str) -> bytes:
        self.reads.append(name)
        return super().get(name)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        self.reads.append(name)
        return super().get_range(name, offset, length)

    def files(self) -> list[str]:
        """Snapshot files that were read since the last call."""
        found = [name for name in self.reads if name.startswith(layout.SNAPSHOT_FILES)]
        self.reads.clear()
        return found


class RefusingStore(CountedStore):
    """It can be read only."""

    def put(self, name: str, data: bytes) -> None:
        raise DidNotHappenError("read only", object_name=name)


class Worker:
    """The work of a state worker with the state of all key groups, on a host whose directory outlives it."""

    def __init__(self, world: World, host: Path, backend: str = "rocksdb") -> None:
        self.world = world
        self.request = filled(
            OperatorRequest,
            job_id=world.reader.job_id,
            operator=OPERATOR,
            parallelism=1,
            max_parallelism=KEY_GROUPS,
            backend=backend,
            changelog=True,
            key_type=KEY_TYPE,
        )
        self.host = host
        self.counted = CountedStore(world)
        self.store: WorkingStore | None = None
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        """A new process."""
        self.lives += 1
        self.policy = policy = LocalRecovery(directories=(str(self.host),), flush_interval_ms=0)
        key = CopyRange(self.world.reader.job_id, OPERATOR, 0, KEY_GROUPS)
        self.place = LocalPlace(policy, key, 0, self.world.clock)
        own = self.host.parent / f"{self.host.name}-{self.lives}" / "own"
        self.restorer = BaseRestorer(self.request, 0, KEY_GROUPS, self.counted, own, WorkingStores(), local=self.place)

    def reach(self, *, reads_all: bool = True) -> Reached:
        """Come to the base of the next batch; the state is what it must be there, if it `reads_all` of it."""
        assert self.world.job.run is not None
        link = self.world.job.run.state.view.base
        reached = self.restorer.reach(link, self.store)
        self.store = reached.store
        assert reached.store.version == link
        assert not reads_all or cells(reached.store) == self.world.job.models[link].cells()
        return reached

    def keep_up(self) -> None:
        self.restorer.keep_up(self.store)
        if self.store is not None:
            self.store.work_ahead()

    def end(self) -> None:
        """The process ends in order."""
        if self.store is not None:
            self.store.close()
        self.store = None
        self.restorer.close()

    def come_back(self) -> None:
        self.end()
        self.begin()


@contextmanager
def worlds() -> Iterator[World]:
    with TemporaryDirectory("test") as directory:
        world = World(directory, parallelism=1, policy=CommitPolicy(full_every=5, retained=RETAINED))
        yield world
        world.close()


@pytest.fixture
def world() -> Iterator[World]:
    with worlds() as made:
        yield made


def materialize(world: World) -> None:
    """A snapshot of all but the newest batch, which the next commit adopts."""
    adopted = len(world.job.adopted)
    world.sidecar(place=f"sidecar-{len(world.sidecars)}").fold()
    world.commit()
    assert len(world.job.adopted) == adopted + 1


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_a_worker_that_comes_back_reads_no_snapshot(world: World, backend: str) -> None:
    world.commit(5)
    materialize(world)
    worker = Worker(world, world.directory / "host", backend)
    assert worker.reach().how == "restored"
    assert worker.counted.files()
    world.commit(2)
    assert worker.reach().how == "caught-up"
    for batches in (0, 1, 3):
        worker.come_back()
        world.commit(batches)
        assert worker.reach().how == ("caught-up" if batches or backend == "hashmap" else "current")
        assert worker.counted.files() == []
    worker.end()


def test_a_hashmap_reads_its_local_copy_only_when_it_needs_it(world: World) -> None:
    world.commit(5)
    materialize(world)
    worker = Worker(world, world.directory / "host", "hashmap")
    worker.reach()
    assert worker.counted.files()
    for _ in range(3):
        worker.come_back()
        store = worker.reach(reads_all=False).store
        assert isinstance(store, HashMapStore)
        assert store._source is not None
        assert not store._source.is_complete
        world.commit(2)
        worker.keep_up()
        worker.reach(reads_all=False)
    worker.come_back()
    store = worker.reach(reads_all=False).store
    for _ in range(KEY_GROUPS):
        worker.keep_up()
    assert isinstance(store, HashMapStore)
    assert store._source is None, "all of it is in memory"
    world.commit()
    assert worker.reach().how == "caught-up"
    worker.end()
    assert worker.counted.files() == [], "nothing came from the storage but the log"


def test_state_of_a_batch_that_was_executed_again_is_thrown_away(world: World) -> None:
    world.commit(3)
    materialize(world)
    world.commit(2)
    worker = Worker(world, world.directory / "host")
    worker.reach()
    worker.come_back()
    world.job.start(redo=True)
    world.commit(2)
    assert worker.reach().how == "restored"
    worker.end()


def test_an_older_copy_catches_up_over_the_snapshots_that_it_has_missed(world: World) -> None:
    """The log below the newest tile is there as long as the commit that it was made from is retained."""
    world.commit(3)
    materialize(world)
    worker = Worker(world, world.directory / "host")
    worker.reach()
    worker.end()
    worker.counted.files()
    world.commit()
    materialize(world)
    worker.begin()
    assert worker.reach().how == "caught-up"
    assert worker.counted.files() == []
    worker.end()


@pytest.mark.parametrize("collected", ["the log", "the commit too"])
def test_a_copy_that_is_too_old_is_restored(world: World, collected: str) -> None:
    world.commit(3)
    materialize(world)
    worker = Worker(world, world.directory / "host")
    worker.reach()
    worker.counted.files()
    worker.end()
    sidecar = world.sidecar()
    world.commit(2, upload=True)
    sidecar.fold()
    world.commit()
    if collected == "the log":
        (tile,) = world.job.run.state.view.tiles if world.job.run else ()
        covered = [name for name in world.names(layout.SEGMENTS) if layout.slot_of(name).slot <= tile.at.seq]
        assert covered
        world.store.delete(covered)
    else:
        world.commit(RETAINED + 2)
        sidecar.fold()
    worker.begin()
    assert worker.reach().how == "restored"
    assert worker.counted.files()
    worker.end()


def test_a_copy_that_a_zombie_holds_is_not_touched(world: World) -> None:
    world.commit(3)
    materialize(world)
    zombie = Worker(world, world.directory / "host")
    zombie.reach()
    worker = Worker(world, world.directory / "host")
    assert worker.reach().how == "restored"
    assert worker.place.directory != zombie.place.directory
    world.commit()
    worker.reach()
    zombie.reach()
    worker.end()
    zombie.end()
    third = Worker(world, world.directory / "host")
    world.commit()
    assert third.reach().how == "caught-up"
    assert len(LocalCopies(worker.policy.root(0)).directories(third.place._key)) == 1, "the older copy is removed"
    third.end()


@pytest.mark.parametrize(("brief", "wait_s"), [(True, BRIEF_WAIT_S), (False, LOCK_WAIT_S)])
def test_a_copy_that_somebody_holds_is_waited_for(world: World, brief: bool, wait_s: float) -> None:
    world.commit(3)
    worker = Worker(world, world.directory / "host")
    worker.reach()
    worker.end()
    (held,) = LocalCopies(worker.policy.root(0)).free(worker.place._key)
    held.mark_brief(brief)
    before_s = world.clock.monotonic_s()
    worker.begin()
    assert worker.reach().how == "restored"
    assert wait_s < world.clock.monotonic_s() - before_s < wait_s + 1
    worker.end()
    held.release()


def test_a_damaged_copy_is_restored(world: World) -> None:
    world.commit(3)
    materialize(world)
    worker = Worker(world, world.directory / "host")
    worker.reach()
    worker.end()
    (copy,) = LocalCopies(worker.policy.root(0)).directories(worker.place._key)
    (copy / "CURRENT").write_text("damaged\n")
    worker.begin()
    assert worker.reach().how == "restored"
    worker.end()


def test_a_partition_that_moves_back_catches_up_from_what_its_old_worker_has(world: World) -> None:
    """In memory, if the idle worker still lives; from the directory that it left, if it has ended."""
    world.commit(3)
    materialize(world)
    here, there = (Worker(world, world.directory / host) for host in ("here", "there"))
    here.reach()
    for lives_on in (True, False):
        if not lives_on:
            here.end()
        for worker in (here, there):
            worker.counted.files()
        world.commit(2)
        there.reach()
        world.commit()
        if not lives_on:
            here.begin()
        assert here.reach().how == "caught-up"
        assert here.counted.files() == []
    here.end()
    there.end()


def test_what_was_flushed_is_kept_by_a_crash(world: World) -> None:
    """SIGKILL leaves a directory as it is on the disk: a copy of the files while they are in use."""
    world.commit(3)
    worker = Worker(world, world.directory / "host")
    worker.reach()
    worker.keep_up()
    flushed = worker.place.directory
    crashed = world.directory / "crashed"
    crashed.mkdir()
    for path in flushed.iterdir():
        (crashed / path.name).write_bytes(path.read_bytes())
    store = RocksDBStore.open(crashed, OPERATOR, KEY_TYPE, 0, KEY_GROUPS)
    assert store.version == world.newest().link
    assert cells(store) == world.job.model.cells()
    store.close()
    worker.end()


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_batches_snapshots_restarts_and_moves(seed: int) -> None:
    rng = random.Random(seed)
    with worlds() as world:
        world.rng = rng
        sidecar = world.sidecar()
        world.commit()
        backend = rng.choice(["rocksdb", "hashmap"])
        workers = [
            Worker(world, world.directory / "host-1", backend),
            Worker(world, world.directory / "host-2", backend),
        ]
        seen: set[str] = set()
        is_redone = False
        for _ in range(60):
            worker = rng.choice(workers)
            step = rng.choice(["commit", "commit", "reach", "reach", "keep up", "fold", "come back", "redo"])
            if step == "commit":
                world.commit(rng.randint(1, 3), upload=rng.random() < 0.3)
                is_redone = False
            elif step == "reach":
                seen.add(worker.reach(reads_all=rng.random() < 0.5).how)
            elif step == "keep up":
                worker.keep_up()
            elif step == "fold":
                sidecar.fold()
            elif step == "come back":
                worker.come_back()
            elif step == "redo" and world.job.batch > 1 and not is_redone:
                is_redone = rng.random() < 0.5
                world.job.start(redo=is_redone)
        for worker in workers:
            worker.reach()
            worker.end()
        assert "caught-up" in seen


def standby(world: World, host: Path, followers: int | None = None) -> Standby:
    """Of a host that is called as its directory is."""
    policy = LocalRecovery(directories=(str(host),), flush_interval_ms=0)
    return Standby("job", CountedStore(world), policy, world.clock, host_names=(host.name,), followers=followers)


def told(world: World) -> dict[str, tuple[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]]]:
    """By host: the copies and what is in use, as its standby tells it of the one operator."""
    records = read_standbys(world.store, world.reader.job_id)
    return {one.host: (one.operators[0].copies, one.operators[0].in_use) for one in records if one.operators}


def ways(lines: tuple[StandbyLine, ...]) -> list[str]:
    return [line.how for line in lines]


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_a_worker_takes_the_copy_of_a_standby_over(world: World, backend: str) -> None:
    host = world.directory / "host"
    one = standby(world, host)
    assert ways(one.step()) == []
    world.commit(3)
    materialize(world)
    assert ways(one.step()) == ["restored"]
    assert ways(one.step()) == ["current"]
    world.commit(2)
    assert ways(one.step()) == ["caught-up"]
    worker = Worker(world, host, backend)
    assert worker.reach().how == "caught-up"
    assert worker.counted.files() == []
    world.commit(2)
    (line,) = one.step()
    assert (line.how, line.seq, line.newest_seq) == ("held", None, world.newest().seq)
    worker.reach()
    worker.end()
    assert ways(one.step()) == ["caught-up" if backend == "hashmap" else "current"], "the worker's own copy is newer"
    world.commit()
    worker.begin()
    assert worker.reach().how == "caught-up"
    assert worker.counted.files() == []
    worker.end()


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_a_standby_tells_how_far_its_copies_are_and_what_is_in_use(world: World, backend: str) -> None:
    one = standby(world, world.directory / "host")
    elsewhere = standby(world, world.directory / "elsewhere")
    worker = Worker(world, world.directory / "host", backend)
    worker.store = worker.restorer.reach(ORIGIN, None).store  # the empty state, of which a hash map keeps no copy
    world.commit(3)
    final = world.newest().seq - 1
    for each in (one, elsewhere):
        each.step()
        world.clock.advance(HEARTBEAT_MS / 1000)
        each.step()
    copies = () if backend == "rocksdb" else ((0, 1, final),)
    assert told(world) == {"host": (copies, ((0, 1),)), "elsewhere": (((0, 1, final),), ())}
    worker.end()
    world.clock.advance(HEARTBEAT_MS / 1000)
    one.step()
    assert told(world)["host"] == (((0, 1, final),), ())


def test_one_standby_follows_a_partition_and_another_takes_over_when_it_runs_there(world: World) -> None:
    hosts = {name: world.directory / name for name in ("a", "b", "c")}
    standbys = {name: standby(world, host, followers=1) for name, host in hosts.items()}

    def rounds(count: int = 2) -> dict[str, list[str]]:
        for _ in range(count):
            world.commit()
            found = {name: ways(one.step()) for name, one in standbys.items()}
            world.clock.advance(HEARTBEAT_MS / 1000)
        return {name: how for name, how in found.items() if how}

    world.commit(3)
    materialize(world)
    assert rounds(2) == {}, "they get to know each other"
    (first,) = rounds()
    assert rounds() == {first: ["caught-up"]}
    assert [bool(copies) for _, (copies, _) in sorted(told(world).items())] == [name == first for name in hosts]
    worker = Worker(world, hosts[first])
    assert worker.reach().how == "caught-up"
    (second,) = rounds(3)
    assert second != first
    assert rounds() == {second: ["caught-up"]}
    assert told(world)[first] == ((), ((0, 1),))
    worker.end()


def test_a_standby_that_cannot_tell_goes_on(world: World, caplog: pytest.LogCaptureFixture) -> None:
    one = standby(world, world.directory / "host")
    world.commit(3)
    world.store.put(layout.STANDBYS + "host", b"")
    refusing = RefusingStore(world)
    one._store = refusing
    for how in ("restored", "caught-up"):
        assert ways(one.step()) == [how]
        world.commit()
        world.clock.advance(HEARTBEAT_MS / 1000)
    assert [r.message for r in caplog.records if "cannot be written" in r.message] == [caplog.records[-1].message]


def test_a_standby_follows_a_new_parallelism_and_a_redone_batch(world: World) -> None:
    world.commit(3)
    one = standby(world, world.directory / "host")
    assert ways(one.step()) == ["restored"]
    world.job.start(redo=True)
    world.commit(2)
    assert ways(one.step()) == ["caught-up"], "it does not fold what may be redone"
    world.job.parallelism = 2
    world.job.start()
    world.commit(2)
    assert ways(one.step()) == ["restored", "restored"]


def test_a_standby_says_what_fails_and_tries_again(world: World) -> None:
    world.commit(3)
    materialize(world)
    world.commit()
    (name, *_) = world.names(layout.SNAPSHOT_FILES)
    data = world.store.get(name)
    world.store.delete([name])
    one = standby(world, world.directory / "host")
    (line,) = one.step()
    assert line.how == "failed"
    assert line.error is not None
    assert name in line.error
    world.store.put(name, data)
    assert ways(one.step()) == ["restored"]
