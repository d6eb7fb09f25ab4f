"""Everybody who works on a job's chain, as actors that a seeded scheduler stops at every storage operation.

Drivers, materializers and collectors are the product's own code over a store with faults; only what they compute is
simulated: the state of a key group is the list of mutations that were applied to it.
"""

from __future__ import annotations

import json
import random
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.jobs.chain_job import MAX_PARALLELISM, OPERATOR, CountingTokens, layout_of, ranges
from tests.stores.faulty import Faults, FaultyStore
from tests.stores.manual_clock import ManualClock
from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.chain.view import LineView
from varvite.changelog.commit.adopt_decision import decide_adoption
from varvite.changelog.commit.base_decision import Adopt, SinkCommit, SparkProgress
from varvite.changelog.commit.batch_result import BatchFacts, PartitionResult, entry_time
from varvite.changelog.commit.ownership import ChainOwner
from varvite.changelog.commit.pack import Pack, PackHeader, plan_pack
from varvite.changelog.commit.plan import CommitPlan, plan_commit
from varvite.changelog.commit.state import ChainState, CommitPolicy
from varvite.changelog.retention.collector import Collector
from varvite.changelog.retention.snapshots import SnapshotReader, list_snapshots, next_number, publish
from varvite.storage.errors import CorruptDataError, InvariantError, StartError, VarviteError
from varvite.storage.format import layout
from varvite.storage.format.layout import SnapshotName
from varvite.storage.format.records import ORIGIN, Link, ObjectSlice, SnapshotDescriptor, SnapshotFile
from varvite.storage.job.record import open_or_create_job
from varvite.storage.object_stores.contract import ObjectStore
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.transfer.slice_reader import read_slice, read_slices

History = tuple[tuple[int, int], ...]
"""(batch, number) of the mutations of a key group, in order."""
State = dict[int, History]


class Killed(BaseException):
    """The actor's process is gone."""


class Actor:
    """One process: runs until it ends, fails or is killed; `step` lets it go on to its next storage operation."""

    def __init__(self, name: str, body: Callable[[Actor], None]) -> None:
        self.name = name
        self.stalled_until = 0
        self.operation = ""
        """The operation that comes next."""
        self.failure: BaseException | None = None
        self.is_over = False
        self._killed = False
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(body,), name=name, daemon=True)
        self._thread.start()

    def pause(self, operation: str = "") -> None:
        """Called by the actor's store before each operation."""
        self.operation = operation
        self._stopped.release()
        self._go.acquire()
        if self._killed:
            raise Killed

    def step(self) -> None:
        self._go.release()
        self._stopped.acquire()

    def kill(self) -> None:
        self._killed = True
        while not self.is_over:
            self.step()
        self._thread.join()

    def _run(self, body: Callable[[Actor], None]) -> None:
        self._go.acquire()
        try:
            if not self._killed:
                body(self)
        except BaseException as error:  # noqa: BLE001  what it means is for the test's own thread to say
            self.failure = error
        self.is_over = True
        self._stopped.release()


class PausingStore:
    """Stops its actor before every operation."""

    def __init__(self, inner: ObjectStore, actor: Actor) -> None:
        self._inner = inner
        self._actor = actor

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._inner, method)

        def paused(*args: Any, **kwargs: Any) -> Any:
            self._actor.pause(method)
            return call(*args, **kwargs)

        return paused


class Spark:
    """Spark's progress, the sink's, and what every commit's state should be."""

    def __init__(self) -> None:
        self.acked = 0
        self.sink: SinkCommit | None = None
        self.states: dict[Link, State] = {ORIGIN: dict.fromkeys(range(MAX_PARALLELISM), ())}
        self.owners: list[int] = []
        self.late_sinks: dict[int, int] = {}

    def source_hash(self, batch: int) -> str:
        return f"h{batch}"

    def progress(self) -> SparkProgress:
        previous = self.source_hash(self.acked - 1) if self.acked else None
        return SparkProgress(self.acked, "q", self.source_hash(self.acked), previous)

    def call_sink(self, epoch: int, batch: int, seq: int) -> None:
        if max(self.owners) > epoch:
            self.late_sinks[epoch] = self.late_sinks.get(epoch, 0) + 1
            assert self.late_sinks[epoch] == 1, f"run {epoch} called the sink twice after it was fenced (I6)"
        self.sink = SinkCommit(batch, seq)

    def check_batches(self, state: State, batch: int) -> None:
        for kg, history in state.items():
            batches = [b for b, _ in history]
            assert batches == sorted(batches), f"key group {kg} has batches {batches} (I5)"
            assert set(batches) <= set(range(batch)), f"key group {kg} of batch {batch} has {batches} (I11)"
            assert len(set(history)) == len(history), f"key group {kg} has {history} twice (I3)"


class World:
    """The store, the clock, and who works on them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.disk = MemoryStore(clock=self.clock)
        self.tokens = CountingTokens()
        self.spark = Spark()
        self.policy = CommitPolicy(
            retained=self.random.randint(2, 3), full_every=self.random.randint(1, 4), path_max=self.random.randint(4, 8)
        )
        self.faults = Faults(before=0.01, after=0.01, torn=0.01, delay=0.05, delay_max_s=4.0)
        self.sink_tells = self.random.random() < 0.5
        self.files_share = self.random.choice([0.0, 0.1, 0.9])
        """Share of batches that write files as with the changelog off; much lets truncation follow closely."""
        self.job = open_or_create_job(
            self.disk, name="job", max_parallelism=MAX_PARALLELISM, clock=self.clock, tokens=self.tokens
        )

    def store_of(self, actor: Actor) -> ObjectStore:
        rng = random.Random(self.random.random())
        return FaultyStore(PausingStore(self.disk, actor), rng, self.faults, clock=self.clock)  # type: ignore[arg-type]


class DriverRun:
    """One run of the driver: takes over and executes batches until it is fenced, fails or is killed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random.Random(world.random.random())
        self._number = 0

    def __call__(self, actor: Actor) -> None:
        world, spark = self._world, self._world.spark
        self._store = world.store_of(actor)
        reader = ChainReader(self._store, world.job.job_id)
        self._snapshots = SnapshotReader(self._store, world.job.job_id)
        self._chain = ChainOwner(reader, MAX_PARALLELISM, world.clock, world.tokens)
        epoch = self._chain.take_over().epoch
        spark.owners.append(epoch)
        try:
            self._run(epoch)
        except (StartError, CorruptDataError) as error:
            if max(spark.owners) <= epoch:
                raise AssertionError(f"run {epoch} owns the chain and cannot go on: {error}") from error
            raise

    def _run(self, epoch: int) -> None:
        world, spark = self._world, self._world.spark
        batch = spark.acked
        decision = self._chain.choose_base(spark.progress(), spark.sink if world.sink_tells else None)
        state = self._chain.begin(decision, world.policy)
        if isinstance(decision, Adopt):
            assert decision.commit.batch == batch
            self._acknowledge(epoch, batch)
            batch += 1
        while True:
            state = self._execute(state, batch)
            self._acknowledge(epoch, batch)
            batch += 1

    def _execute(self, state: ChainState, batch: int) -> ChainState:
        world, spark = self._world, self._world.spark
        restored = restore(self._store, self._snapshots, state.view)
        assert restored == spark.states[state.view.base], f"batch {batch}: the base is not what was committed (I5)"
        spark.check_batches(restored, batch)
        plan = self._plan(state, batch)
        sent_s = self._chain.append(plan)
        assert max(spark.owners) == state.epoch, f"run {state.epoch} committed after it was fenced (I6)"
        self._chain.still_owner(sent_s)
        spark.call_sink(state.epoch, batch, plan.commit.seq)
        self._chain.still_owner(sent_s)
        return state.after(plan.stored, world.policy, plan.carried_over)

    def _plan(self, state: ChainState, batch: int) -> CommitPlan:
        world = self._world
        made = dict(world.spark.states[state.view.base])
        writes_files = self._random.random() < self._world.files_share
        parallelism = self._random.choice([1, 2, 3])
        results = tuple(
            self._result(state, batch, partition, key_groups, made, writes_files=writes_files)
            for partition, key_groups in enumerate(ranges(parallelism))
        )
        facts = BatchFacts(
            batch=batch,
            query_id="q",
            source_hash=world.spark.source_hash(batch),
            time_ms=entry_time(state.base, world.clock.now_ms()),
            watermark_ms=None,
            operators=(layout_of(parallelism),),
            results=results,
        )
        candidates = self._snapshots.candidates(state.floors)
        files = self._snapshots.tile_files(state.view)
        at_once = 1 + state.slot % 4
        adoption = decide_adoption(state.view, state.floors, candidates, files, state.job_id, at_once)
        plan = plan_commit(state, facts, world.policy, world.tokens.token(), adoption, self._pack(state))
        # Known before it is durable: whoever reads the commit may compare its state at once.
        world.spark.states[plan.commit.link] = made
        return plan

    def _result(
        self,
        state: ChainState,
        batch: int,
        partition: int,
        key_groups: tuple[int, int],
        made: State,
        *,
        writes_files: bool,
    ) -> PartitionResult:
        low, high = key_groups
        tag = self._world.tokens.token()
        fields: dict[str, Any] = {
            "operator": OPERATOR, "partition": partition, "low": low, "high": high, "tag": tag
        }  # fmt: skip
        parts: list[bytes] = []
        for _ in range(self._random.choice([0, 1, 1, 2])):
            self._number += 1
            mutation = (batch, self._number)
            made.update({kg: (*made[kg], mutation) for kg in range(low, high)})
            parts.append(json.dumps([state.slot, low, high, [mutation]]).encode() + b"\n")
        if writes_files:
            content = json.dumps({kg: made[kg] for kg in range(low, high)}).encode()
            name = layout.segment(state.slot, OPERATOR, partition, tag, 0)
            self._store.put(name, content)
            return PartitionResult(**fields, files=(SnapshotFile("f", name, len(content), zlib.crc32(content)),))
        inline = parts.pop() if parts and self._random.random() < 0.6 else b""
        uploaded: list[ObjectSlice] = []
        for index, part in enumerate(parts):
            name = layout.segment(state.slot, OPERATOR, partition, tag, index)
            self._store.put(name, part)
            uploaded.append(ObjectSlice(name, 0, len(part), zlib.crc32(part)))
        return PartitionResult(**fields, inline=inline, uploaded=tuple(uploaded))

    def _pack(self, state: ChainState) -> Pack | None:
        refs = state.packable()
        if not refs or not state.is_full_due(self._world.policy) or self._random.random() < 0.2:
            return None
        data = {ref: read_slice(self._store, ref.data) for ref in refs}
        header = PackHeader(job_id=state.job_id, token=self._world.tokens.token(), slot=state.slot)
        pack = plan_pack(state.view.segments, data, header)
        self._store.put(pack.name, pack.body)
        return pack

    def _acknowledge(self, epoch: int, batch: int) -> None:
        spark = self._world.spark
        if spark.acked > batch:
            raise InvariantError(f"Spark ends run {epoch}: another query acknowledged batch {batch}")
        assert spark.acked == batch
        spark.acked = batch + 1


def restore(store: ObjectStore, snapshots: SnapshotReader, view: LineView) -> State:
    """The state as a worker restores it."""
    state: State = {}
    for tile in view.tiles_for(OPERATOR, 0, MAX_PARALLELISM):
        files = tile.files
        if tile.snapshot is not None:
            files = snapshots.read(SnapshotName(tile.operator, tile.low, tile.high, tile.snapshot)).files
        content: State = {}
        for file in files:
            whole = read_slice(store, ObjectSlice(file.name, 0, file.size_bytes, file.crc32))
            for kg, history in json.loads(whole).items():
                content[int(kg)] = content.get(int(kg), ()) + _history(history)
        state.update({kg: content.get(kg, ()) for kg in range(tile.low, tile.high)})
    segments = view.segments_for(OPERATOR, 0, MAX_PARALLELISM)
    for segment, found in zip(segments, read_slices(store, [s.ref.data for s in segments]), strict=True):
        for line in bytes(found.data).splitlines():
            seq, low, high, mutations = json.loads(line)
            for floor in segment.floors:
                for kg in range(max(low, floor.low), min(high, floor.high)):
                    if seq > floor.seq:
                        state[kg] += _history(mutations)
    return state


def _history(mutations: Iterable[Sequence[int]]) -> History:
    return tuple((batch, number) for batch, number in mutations)


class MaterializerRun:
    """Folds tiles up to a commit of the head's line, shares the tile's files and uploads what is new."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random.Random(world.random.random())

    def __call__(self, actor: Actor) -> None:
        store = self._world.store_of(actor)
        while True:
            actor.pause()
            try:
                self._materialize(store)
            except VarviteError:
                continue  # it was overtaken by a collector, or the storage failed: begin again

    def _materialize(self, store: ObjectStore) -> None:
        world = self._world
        reader, snapshots = ChainReader(store, world.job.job_id), SnapshotReader(store, world.job.job_id)
        head = reader.head()
        if head is None or (newest := getattr(head, "commit", None) or head.link) == ORIGIN:
            return
        view = reader.load_line(newest, MAX_PARALLELISM).view
        tile = self._random.choice(view.tiles)
        newer = [link for link in view.line if link.seq > tile.at.seq]
        if not newer:
            return
        at = self._random.choice([newer[-1], self._random.choice(newer)])
        cuts = [(tile.low, tile.high)]
        if self._random.random() < 0.2 and tile.high - tile.low > 1:
            cuts = [(tile.low, tile.low + 1), (tile.low + 1, tile.high)]
        base_files: tuple[SnapshotFile, ...] = ()
        if tile.snapshot is not None and len(cuts) == 1:
            base_files = snapshots.read(SnapshotName(OPERATOR, tile.low, tile.high, tile.snapshot)).files
        for low, high in cuts:
            self._publish(store, head.floors, (low, high), at, tile.at, base_files)

    def _publish(
        self,
        store: ObjectStore,
        floors: Any,
        key_groups: tuple[int, int],
        at: Link,
        base: Link,
        base_files: tuple[SnapshotFile, ...],
    ) -> None:
        world, (low, high) = self._world, key_groups
        number = next_number(floors, list_snapshots(store), SnapshotName(OPERATOR, low, high, 0))
        before, after = world.spark.states[base], world.spark.states[at]
        kept = len(base_files) > 0
        new = {kg: after[kg][len(before[kg]) if kept else 0 :] for kg in range(low, high)}
        content, uid = json.dumps(new).encode(), world.tokens.token()
        name = layout.snapshot_file(OPERATOR, low, high, number, uid, "new.sst")
        store.put(name, content)
        file = SnapshotFile(f"{number}.sst", name, len(content), zlib.crc32(content))
        made = SnapshotDescriptor(
            status="published", job_id=world.job.job_id, token=world.tokens.token(), uid=uid, operator=OPERATOR,
            low=low, high=high, number=number, at=at, base=base, files=(*base_files, file), created_ms=0,
        )  # fmt: skip
        publish(store, made, world.clock)


class CollectorRun:
    """Collects again and again; its grace for uploads is so short that it gives up what is still being uploaded."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __call__(self, actor: Actor) -> None:
        world = self._world
        store = world.store_of(actor)
        while True:
            collector = Collector(ChainReader(store, world.job.job_id), world.clock, world.tokens, upload_grace_s=5.0)
            try:
                while True:
                    actor.pause()
                    collector.collect()
            except VarviteError:
                continue
