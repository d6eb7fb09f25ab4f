"""Next steps of a driver run, one storage operation per step; between any two steps it may stall for ever.

idle → listed → claimed → owner → ready → uploaded → committed → sunk → ready → … or dead. Every decision is taken by
the product's own functions. The check of COMMIT 4 is left out on purpose: safety must not rest on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.simulation.chain.model_check.world import (
    JOB,
    LAYOUT,
    OPERATOR,
    QUERY,
    Bounds,
    Missing,
    Tables,
    ViolationError,
    World,
    batches_in,
    content_of,
)
from varvite.changelog.chain.retention_bounds import bounds_of
from varvite.changelog.commit import state as chain_state
from varvite.changelog.commit.adopt_decision import decide_adoption, tile_snapshots
from varvite.changelog.commit.base_decision import (
    Adopt,
    ChainProgress,
    RestoreRequest,
    SinkCommit,
    SparkProgress,
    decide_base,
    needs_parent,
)
from varvite.changelog.commit.batch_result import BatchFacts, PartitionResult
from varvite.changelog.commit.plan import CommitPlan, plan_commit
from varvite.changelog.commit.rules import ALL_RULES
from varvite.changelog.commit.start_decision import Own, decide_ownership, plan_fence
from varvite.changelog.commit.state import ChainState
from varvite.materializer.restore.location_content import LocationState, decide_target
from varvite.storage.errors import FencedError, StartError
from varvite.storage.format import layout
from varvite.storage.format.records import ORIGIN, Commit, Fence, InputPosition, SnapshotFile

EMPTY_LOCATION = LocationState(None, frozenset(), frozenset(), is_private=True)
Step = tuple[str, World]
DEAD = ("dead",)


class DriverSteps:
    """The steps of all drivers; answers of the decision functions are remembered by their inputs."""

    def __init__(self, bounds: Bounds, tables: Tables) -> None:
        self._bounds = bounds
        self._tables = tables
        phases = ("idle", "again", "listed", "claimed", "owner", "settled", "ready", "uploaded", "committed", "sunk")
        self._by_phase: dict[str, Any] = {phase: getattr(self, f"_{phase}") for phase in phases}
        self._states: list[ChainState] = []
        self._state_ids: dict[ChainState, int] = {}
        self._fences: dict[int, int] = {}
        self._plans: dict[tuple[Any, ...], tuple[int, int]] = {}
        self._bases: dict[tuple[Any, ...], tuple[str, int]] = {}

    def steps(self, world: World, number: int) -> Iterator[Step]:
        """Steps that driver `number` may take."""
        phase, *data = world.drivers[number]
        if phase != "dead":
            yield from self._by_phase[phase](world, number, *data)

    def _idle(self, world: World, number: int) -> Iterator[Step]:
        yield "a run lists", self._with(world, number, ("listed", self._tables.head(world.chain)))

    def _listed(self, world: World, number: int, head: int) -> Iterator[Step]:
        fence_id = self._fence(head)
        fence = self._tables.entries[fence_id]
        assert isinstance(fence, Fence)
        if fence.seq > self._bounds.slots:
            return
        if world.chain[fence.seq - 1]:
            yield "loses the fence", self._with(world, number, ("again",))
            return
        chain = _put(world.chain, fence.seq, fence_id)
        yield f"a run fences {fence.seq}", self._with(world._replace(chain=chain), number, ("claimed", fence_id))

    def _again(self, world: World, number: int) -> Iterator[Step]:
        yield "lists again", self._with(world, number, ("listed", self._tables.head(world.chain)))

    def _claimed(self, world: World, number: int, fence_id: int) -> Iterator[Step]:
        fence = self._tables.entries[fence_id]
        assert isinstance(fence, Fence)
        above = [self._tables.entries[e] for e in world.chain[fence.seq :] if e]
        try:
            decision = decide_ownership(fence, above, self._bounds.rules)
        except FencedError:
            yield "is fenced at start", self._with(world, number, DEAD)
            return
        if isinstance(decision, Own):
            owner = max(world.owner, fence.epoch)
            yield f"run {fence.epoch} owns", self._with(world._replace(owner=owner), number, ("owner", fence_id))
        else:
            yield "tries again", self._with(world, number, ("again",))

    def _owner(self, world: World, number: int, fence_id: int) -> Iterator[Step]:
        """Spark reads its progress and asks for its first batch; or its location is made from the chain before."""
        if not self._bounds.in_chain:
            yield from self._first_batch(world, number, fence_id)
            return
        try:
            location = self._location(world, fence_id)
        except Missing:
            if world.owner == self._epoch(fence_id):
                raise ViolationError("the owner cannot read what its location is made from (I7)") from None
            yield "cannot make the location", self._with(world, number, DEAD)
            return
        yield (
            f"the location says batch {location}",
            self._with(world._replace(location=location), number, ("settled", fence_id, location)),
        )

    def _settled(self, world: World, number: int, fence_id: int, location: int) -> Iterator[Step]:
        """Spark reads its location, which another run may have changed."""
        if world.location != location:
            yield "Spark begins with another batch", self._with(world, number, DEAD)
        else:
            yield from self._first_batch(world._replace(acked=location), number, fence_id)

    def _epoch(self, fence_id: int) -> int:
        fence = self._tables.entries[fence_id]
        assert isinstance(fence, Fence)
        return fence.epoch

    def _location(self, world: World, fence_id: int) -> int:
        """The batch that the location is to say. Raises `Missing`."""
        fence = self._tables.entries[fence_id]
        assert isinstance(fence, Fence)
        if fence.commit == ORIGIN:
            return 0
        newest = self._tables.stored(world.chain, fence.commit).commit
        parent = self._tables.stored(world.chain, newest.parent).commit if newest.parent != ORIGIN else None
        sink = SinkCommit(*world.sink) if world.sink and self._bounds.sink_tells else None
        noted = newest.link if world.note == newest.seq else None
        target = decide_target(newest, parent, EMPTY_LOCATION, sink=sink, noted=noted)
        assert target is not None
        return target.next_batch

    def _first_batch(self, world: World, number: int, fence_id: int) -> Iterator[Step]:
        fence = self._tables.entries[fence_id]
        assert isinstance(fence, Fence)
        key = (fence_id, world.chain, world.acked, world.sink if self._bounds.sink_tells else None)
        known = self._bases.get(key)
        if known is None:
            known = self._bases[key] = self._base(fence, *key[1:])
        outcome, state_id = known
        if (
            outcome == "error"
            and world.owner == fence.epoch
            and world.rollbacks == 0
            and self._bounds.rules == ALL_RULES
        ):
            raise ViolationError(f"the owner cannot start although nothing happened to Spark: batch {world.acked}")
        if outcome == "error":
            yield "cannot start", self._with(world, number, DEAD)
        elif outcome == "adopt":
            yield f"adopts batch {world.acked}", self._with(world, number, ("sunk", state_id, world.acked))
        else:
            self._check_base(world, state_id)
            yield (
                f"run {fence.epoch} gets batch {world.acked}",
                self._with(world, number, ("ready", state_id, world.acked)),
            )

    def _check_base(self, world: World, state_id: int) -> None:
        """The batch that Spark asks for follows exactly what is in the state that it is to be executed on (I11)."""
        state = self._states[state_id]
        try:
            restored = self._tables.batches(world.chain, world.objects, state.view.base)
        except Missing as error:
            if world.owner > state.epoch:
                return  # a newer run has gone on: this one will lose its slot
            raise ViolationError(f"the base of batch {world.acked} is not complete: {error} (I7)") from error
        if restored != tuple(range(world.acked)):
            raise ViolationError(f"batch {world.acked} is to be executed on a state of batches {restored} (I11)")

    def _base(self, fence: Fence, chain: tuple[int, ...], acked: int, sink: tuple[int, int] | None) -> tuple[str, int]:
        tables = self._tables
        spark = SparkProgress(acked, QUERY, f"h{acked}", f"h{acked - 1}" if acked else None)
        try:
            newest = tables.stored(chain, fence.commit).commit if fence.commit != ORIGIN else None
            parent = None
            if newest is not None and needs_parent(spark, newest) and newest.parent != ORIGIN:
                parent = tables.stored(chain, newest.parent).commit
            progress = ChainProgress(newest, parent, bounds_of(fence))
            restore = None
            if fence.restore is not None:
                chosen = tables.entries[chain[fence.restore - 1]]
                commit = chosen if isinstance(chosen, Commit) else None
                restore = RestoreRequest(fence.restore, commit, fence.chosen_ahead)
            decision = decide_base(spark, progress, SinkCommit(*sink) if sink else None, restore, self._bounds.rules)
            base = decision.commit if isinstance(decision, Adopt) else decision.base
            link = base.link if base else ORIGIN
            retained = self._bounds.policy.retained
            view, commits = tables.view(chain, link), tables.line(chain, link, retained, bounds_of(fence))
        except (StartError, Missing):
            return "error", 0
        state = chain_state.begin(fence, view, commits, self._bounds.policy)
        return ("adopt" if isinstance(decision, Adopt) else "execute"), self._state_id(state)

    def _ready(self, world: World, number: int, state_id: int, batch: int) -> Iterator[Step]:
        """Execute: upload what the commit will name, look for snapshots, plan."""
        if self._states[state_id].slot > self._bounds.slots:
            return
        published = self._published(world.objects) if self._bounds.snapshots else 0
        plan_id = self._plan(state_id, batch, published)
        world = world._replace(objects=world.objects | self._tables.file_bits(plan_id[0]))
        yield (
            f"run {self._states[state_id].epoch} executes batch {batch}",
            self._with(world, number, ("uploaded", *plan_id, batch, state_id)),
        )

    def _uploaded(
        self, world: World, number: int, entry_id: int, next_id: int, batch: int, state_id: int
    ) -> Iterator[Step]:
        seq = self._states[state_id].slot
        if world.chain[seq - 1]:
            yield f"run {self._states[state_id].epoch} loses slot {seq}", self._with(world, number, DEAD)
            return
        state = self._states[state_id]
        if world.owner > state.epoch:
            raise ViolationError(
                f"run {state.epoch} commits batch {batch} at {seq} although run {world.owner} owns (I6)"
            )
        chain = _put(world.chain, seq, entry_id)
        commit = self._tables.entries[entry_id]
        assert isinstance(commit, Commit)
        if self._bounds.in_chain and commit.parent != ORIGIN and not world.written >> commit.parent.seq & 1:
            raise ViolationError(f"commit {seq} follows {commit.parent.seq}, whose rows no sink has got (I1)")
        try:
            restored = self._tables.batches(chain, world.objects, commit.link)
        except Missing as error:
            raise ViolationError(f"commit {seq} names what is gone: {error} (I7)") from error
        if restored != tuple(range(batch + 1)):
            raise ViolationError(f"commit {seq} of batch {batch} restores to batches {restored} (I5, I11)")
        world = world._replace(chain=chain, sent=_put(world.sent, seq, entry_id) if world.sent else ())
        # A sink that tells nothing changes nothing here, so its call needs no step of its own.
        phase = "committed" if self._bounds.sink_tells or self._bounds.in_chain else "sunk"
        yield f"run {state.epoch} commits batch {batch} at {seq}", self._with(world, number, (phase, next_id, batch))

    def _committed(self, world: World, number: int, state_id: int, batch: int) -> Iterator[Step]:
        seq = self._states[state_id].last_seq
        if self._bounds.in_chain:
            world = world._replace(written=world.written | 1 << seq)
        if self._bounds.sink_tells:
            world = world._replace(sink=(batch, seq))
        yield "calls the sink", self._with(world, number, ("sunk", state_id, batch))

    def _sunk(self, world: World, number: int, state_id: int, batch: int) -> Iterator[Step]:
        """Spark writes its commit log; a batch that is there already ends the query. Or the run notes the sink."""
        if self._bounds.in_chain:
            world = world._replace(note=self._states[state_id].last_seq)
            yield "notes the sink", self._with(world, number, ("ready", state_id, batch + 1))
            return
        if world.acked > batch:
            yield "finds the batch acknowledged", self._with(world, number, DEAD)
            return
        world = world._replace(acked=batch + 1)
        yield (
            f"run {self._states[state_id].epoch} acknowledges batch {batch}",
            self._with(world, number, ("ready", state_id, batch + 1)),
        )

    def _published(self, objects: int) -> int:
        found = 0
        for item in self._tables.present(objects):
            if item.record is not None:
                found |= self._tables.bit(item)
        return found

    def _plan(self, state_id: int, batch: int, published: int) -> tuple[int, int]:
        """(entry id, state id after it)."""
        key = (state_id, batch, published)
        known = self._plans.get(key)
        if known is None:
            state = self._states[state_id]
            plan = self._planned(state, batch, published)
            after = state.after(plan.stored, self._bounds.policy, plan.carried_over)
            # The simulated chain keeps no bodies: where a blob begins plays no part in any decision.
            known = self._plans[key] = (self._tables.entry_id(plan.commit), self._state_id(after))
        return known

    def _planned(self, state: ChainState, batch: int, published: int) -> CommitPlan:
        tag = f"e{state.epoch}"
        files, inline = None, b""
        if self._bounds.writes_files:
            name = layout.segment(state.slot, OPERATOR, 0, tag + content_of((*_state_batches(state), batch)), 0)
            files = (SnapshotFile("f", name, 1, 0),)
        else:
            inline = b"%d" % batch
        result = PartitionResult(operator=OPERATOR, partition=0, low=0, high=1, tag=tag, inline=inline, files=files)
        facts = BatchFacts(
            position=InputPosition(offsets=f"h{batch}") if self._bounds.in_chain else None,
            batch=batch,
            query_id=QUERY,
            source_hash=f"h{batch}",
            time_ms=0,
            watermark_ms=None,
            operators=LAYOUT,
            results=(result,),
        )
        descriptors = [item.record for item in self._tables.present(published) if item.record is not None]
        by_number = {d.number: frozenset(f.name for f in d.files) for d in descriptors}
        tile_files = {t: by_number.get(t.number, frozenset()) for t in tile_snapshots(state.view)}
        adoption = decide_adoption(state.view, state.floors, descriptors, tile_files, JOB)
        return plan_commit(state, facts, self._bounds.policy, f"{tag}s{state.slot}", adoption)

    def _fence(self, head: int) -> int:
        known = self._fences.get(head)
        if known is None:
            entry = self._tables.entries[head]
            seq = entry.seq + 1 if entry else 1
            fence = plan_fence(entry, job_id=JOB, token=f"f{seq}", now_ms=0)
            known = self._fences[head] = self._tables.entry_id(fence)
        return known

    def _state_id(self, state: ChainState) -> int:
        known = self._state_ids.get(state)
        if known is None:
            known = self._state_ids[state] = len(self._states)
            self._states.append(state)
        return known

    def _with(self, world: World, number: int, driver: tuple[Any, ...]) -> World:
        # Drivers are alike and their names are made of epochs, so that their order does not matter.
        drivers = world.drivers
        changed = tuple(sorted((*drivers[:number], driver, *drivers[number + 1 :])))
        return World(world[0], world[1], changed, *world[3:])


def _state_batches(state: ChainState) -> tuple[int, ...]:
    files = [f.name for t in state.view.tiles for f in t.files]
    return batches_in(files[0]) if files else ()


def _put(chain: tuple[int, ...], seq: int, entry: int) -> tuple[int, ...]:
    return (*chain[: seq - 1], entry, *chain[seq:])
