"""Steps of everybody but the drivers: the collector, the materializer, a reader with a pin, and who runs Spark.

The collector reads its head, then the pins, then the savepoints, then the rest, and deletes one object per step, so
that it may stall with any part of an old plan in its hands. A second collector that never stalls does a whole run in
one step; where there are snapshots also while the first one stalls, for only what that does about them looks at what is
there now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.simulation.chain.model_check.world import (
    JOB,
    OPERATOR,
    Bounds,
    Missing,
    StoredObject,
    Tables,
    World,
    content_of,
)
from varvite.changelog.chain.reader import EntryKind
from varvite.changelog.chain.retention_bounds import Retained, RetentionBounds, bounds_of
from varvite.changelog.commit.start_decision import plan_fence
from varvite.changelog.retention.collect_decision import (
    SavepointNames,
    UploadGroup,
    collect_chain,
    collect_slots,
    collect_snapshots,
    may_delete_upload,
    named_snapshots,
    names_of,
    retained_seqs,
    suspect_seqs,
)
from varvite.changelog.retention.savepoints import objects_of
from varvite.changelog.retention.snapshots import next_number
from varvite.storage.format import layout
from varvite.storage.format.records import ORIGIN, Commit, Link, Pin, SnapshotDescriptor, SnapshotFile, Tile
from varvite.storage.object_stores.contract import ObjectMeta

Step = tuple[str, World]
ROLLBACK_BATCHES = (1, 2)
PINNED = ("pinned", "holding", "saving")
"""Phases of the reader in which its pin is there."""
COMPLETE = ("holding", "saving", "saved")
"""Phases in which what it chose must be complete."""


class CollectorSteps:
    """Idle → read the head → read the pins → one deletion per step."""

    def __init__(self, bounds: Bounds, tables: Tables) -> None:
        self._bounds = bounds
        self._tables = tables
        self._plans: dict[tuple[Any, ...], tuple[tuple[int, ...], int, tuple[UploadGroup, ...]]] = {}

    def steps(self, world: World) -> Iterator[Step]:
        phase, *data = world.collector
        yield from getattr(self, f"_{phase}")(world, *data)
        head = self._tables.head(world.chain)
        if head and (phase == "idle" or self._bounds.snapshots):
            whole = self._delete_all(world, *self._plan(world, head, self._cut(head, world), _kept(world)))
            if whole != world:
                yield "another collector runs", whole

    def _idle(self, world: World) -> Iterator[Step]:
        head = self._tables.head(world.chain)
        if head:
            yield "collector reads the head", world._replace(collector=("head", head))

    def _head(self, world: World, head: int) -> Iterator[Step]:
        cut = self._cut(head, world)
        if not self._bounds.pins and not self._bounds.savepoints:
            yield from self._pins(world, head, cut)
        else:
            yield "collector lists the pins", world._replace(collector=("pins", head, cut))

    def _pins(self, world: World, head: int, cut: int) -> Iterator[Step]:
        if not self._bounds.savepoints:
            yield from self._kept(world, head, cut, 0)
        else:
            yield "collector lists the savepoints", world._replace(collector=("kept", head, cut, _kept(world)))

    def _kept(self, world: World, head: int, cut: RetentionBounds, kept: int) -> Iterator[Step]:
        plan = self._plan(world, head, cut, kept)
        after = ("doomed", *plan) if any(plan) else ("idle",)
        yield f"collector decides on cut {cut}", world._replace(collector=after)

    def _doomed(
        self, world: World, seqs: tuple[int, ...], objects: int, given_up: tuple[UploadGroup, ...]
    ) -> Iterator[Step]:
        """Entries one by one, then the objects, then abandoned uploads."""
        if seqs:
            chain = _emptied(world.chain, seqs[:1])
            rest = ("doomed", seqs[1:], objects, given_up) if seqs[1:] or objects or given_up else ("idle",)
            yield f"collector deletes chain/{seqs[0]}", world._replace(chain=chain, collector=rest)
        elif objects:
            rest = ("doomed", (), 0, given_up) if given_up else ("idle",)
            yield "collector deletes objects", world._replace(objects=world.objects & ~objects, collector=rest)
        else:
            rest = ("doomed", (), 0, given_up[1:]) if given_up[1:] else ("idle",)
            yield "collector gives an upload up", self._give_up(world, given_up[0])._replace(collector=rest)

    def _delete_all(
        self, world: World, seqs: tuple[int, ...], objects: int, given_up: tuple[UploadGroup, ...]
    ) -> World:
        world = world._replace(chain=_emptied(world.chain, seqs), objects=world.objects & ~objects)
        for group in given_up:
            world = self._give_up(world, group)
        return world

    def _cut(self, head_id: int, world: World) -> RetentionBounds:
        head = self._tables.entries[head_id]
        assert head is not None
        pins = [_pin(world.reader[1])] if world.reader[0] in PINNED else []
        return bounds_of(head, pins)

    def _plan(
        self, world: World, head_id: int, cut: RetentionBounds, kept: int
    ) -> tuple[tuple[int, ...], int, tuple[UploadGroup, ...]]:
        key = (world.chain, world.objects, head_id, cut, kept)
        known = self._plans.get(key)
        if known is None:
            known = self._plans[key] = self._decide(world, head_id, cut, self._tables.kept[kept])
        return known

    def _decide(
        self, world: World, head_id: int, cut: RetentionBounds, kept: SavepointNames
    ) -> tuple[tuple[int, ...], int, tuple[UploadGroup, ...]]:
        tables, head = self._tables, self._tables.entries[head_id]
        assert head is not None
        entries = {seq: tables.entries[e] for seq, e in enumerate(world.chain, 1) if e}
        kinds: dict[int, EntryKind] = {
            seq: "commit" if isinstance(entries[seq], Commit) else "fence"
            for seq in suspect_seqs(entries, head, cut.keep_from, kept)
        }
        seqs = tuple(layout.chain_seq(name) for name in collect_chain(kinds, self._bounds.rules))
        retained = {
            seq: names_of(e) for seq in retained_seqs(entries, head, cut.keep_from) if (e := entries[seq]) is not None
        }
        present = tables.present(world.objects)
        slots = collect_slots(
            [item.name for item in present if item.name.startswith(layout.SEGMENTS)],
            head.seq,
            cut.keep_from,
            retained,
            kept,
        )
        named = kept.snapshots | named_snapshots(retained, cut)
        descriptors = {layout.snapshot_name(item.name): item.record for item in present if item.record is not None}
        files = [ObjectMeta(i.name, 1, 0.0) for i in present if i.name.startswith(layout.SNAPSHOT_FILES)]
        # Every upload counts as old: safety must not rest on its age.
        plan = collect_snapshots(head.floors, named, descriptors, files, stale_before_s=1.0)
        doomed = 0
        for name in (*slots, *plan.descriptors, *plan.files):
            doomed |= tables.by_name[name] & world.objects
        return seqs, doomed, plan.abandoned

    def _give_up(self, world: World, group: UploadGroup) -> World:
        """Claim the number as aborted; what the claim meets is read from the world as it is now."""
        name = layout.snapshot(*group.snapshot)
        found = self._tables.by_name.get(name, 0) & world.objects
        holder = self._tables.read(world.objects, name).record if found else None
        if not found:
            mark = SnapshotDescriptor(
                status="aborted", job_id=JOB, token="a", uid="a", operator=OPERATOR, low=0, high=1,
                number=group.snapshot.number, created_ms=0,
            )  # fmt: skip
            world = world._replace(objects=world.objects | self._tables.bit(StoredObject(name, mark)))
        head = self._tables.entries[self._tables.head(world.chain)]
        assert head is not None
        if may_delete_upload(group, not found, holder, head.floors):
            doomed = 0
            for file in group.files:
                doomed |= self._tables.by_name[file]
            world = world._replace(objects=world.objects & ~doomed)
        return world


class MaterializerSteps:
    """Idle → folded and uploaded → published; it may stall before it publishes."""

    def __init__(self, bounds: Bounds, tables: Tables) -> None:
        self._bounds = bounds
        self._tables = tables
        self._folds: dict[tuple[Any, ...], list[tuple[str, int, int]]] = {}

    def steps(self, world: World) -> Iterator[Step]:
        phase, *data = world.materializer
        if self._bounds.snapshots:
            yield from getattr(self, f"_{phase}")(world, *data)

    def _idle(self, world: World) -> Iterator[Step]:
        """Fold the newest commit, or the one it was executed on."""
        key = (world.chain, world.objects)
        known = self._folds.get(key)
        if known is None:
            known = self._folds[key] = list(self._fold(world))
        for label, objects, descriptor in known:
            yield label, world._replace(objects=objects, materializer=("uploaded", descriptor))

    def _fold(self, world: World) -> Iterator[tuple[str, int, int]]:
        tables, newest = self._tables, self._tables.newest(world.chain)
        head = tables.entries[tables.head(world.chain)]
        if newest == ORIGIN or head is None:
            return
        tile = tables.view(world.chain, newest).tiles[0]
        for link in (newest, tables.stored(world.chain, newest).commit.parent):
            listed = [layout.snapshot_name(i.name) for i in tables.present(world.objects) if i.record is not None]
            number = next_number(head.floors, listed, layout.SnapshotName(OPERATOR, 0, 1, 0))
            if link.seq <= tile.at.seq or number > self._bounds.snapshots:
                continue
            batches = tables.batches(world.chain, world.objects, link)
            name = layout.snapshot_file(OPERATOR, 0, 1, number, "m", f"{link.seq}{content_of(batches)}")
            files = (*self._shared(world.objects, tile), SnapshotFile("f", name, 1, 0))
            made = SnapshotDescriptor(
                status="published", job_id=JOB, token="m", uid="m", operator=OPERATOR, low=0, high=1, number=number,
                at=link, base=tile.at, files=files, created_ms=0,
            )  # fmt: skip
            objects = world.objects | tables.bit(StoredObject(name))
            descriptor = tables.bit(StoredObject(layout.snapshot(OPERATOR, 0, 1, number), made))
            yield f"snapshot {number} of {link.seq} is uploaded", objects, descriptor

    def _shared(self, objects: int, tile: Tile) -> tuple[SnapshotFile, ...]:
        """The file that the tile's snapshot brought, if it is there. The state is that of a snapshot's last file."""
        if tile.snapshot is None:
            return ()
        try:
            shared = self._tables.descriptor(objects, tile.snapshot).files[-1]
            self._tables.read(objects, shared.name)
        except Missing:
            return ()
        return (shared,)

    def _uploaded(self, world: World, descriptor: int) -> Iterator[Step]:
        name = self._tables.objects[descriptor.bit_length() - 1].name
        if self._tables.by_name[name] & world.objects:
            yield "the snapshot's number is taken", world._replace(materializer=("idle",))
        else:
            yield (
                "the snapshot is published",
                world._replace(objects=world.objects | descriptor, materializer=("idle",)),
            )


class ReaderSteps:
    """A reader chooses a commit, pins it, checks the head, reads, lets go.

    If it makes a savepoint: it writes the manifest, lets go of the pin, and deletes the savepoint at some time.
    """

    def __init__(self, bounds: Bounds, tables: Tables) -> None:
        self._bounds = bounds
        self._tables = tables

    def steps(self, world: World) -> Iterator[Step]:
        phase, *data = world.reader
        if self._bounds.pins or self._bounds.savepoints:
            yield from getattr(self, f"_{phase}")(world, *data)

    def _idle(self, world: World) -> Iterator[Step]:
        newest = self._tables.newest(world.chain)
        if newest != ORIGIN:
            chosen = self._tables.stored(world.chain, newest).commit
            yield f"reader chooses {newest.seq}", world._replace(reader=("chosen", (newest, chosen.needs_from)))

    def _chosen(self, world: World, wanted: tuple[Link, int]) -> Iterator[Step]:
        yield "reader writes its pin", world._replace(reader=("pinned", wanted))

    def _pinned(self, world: World, wanted: tuple[Link, int]) -> Iterator[Step]:
        head = self._tables.entries[self._tables.head(world.chain)]
        assert head is not None
        link, needs_from = wanted
        is_complete = bounds_of(head).is_complete(Retained(link.seq, needs_from))
        after = ("holding", wanted) if is_complete else ("done",)
        yield "reader checks the head", world._replace(reader=after)

    def _holding(self, world: World, wanted: tuple[Link, int]) -> Iterator[Step]:
        if self._bounds.savepoints:
            kept = self._tables.kept_id(self._names(world, wanted[0]))
            yield "reader writes the manifest", world._replace(reader=("saving", wanted, kept))
        else:
            yield "reader lets go", world._replace(reader=("done",))

    def _names(self, world: World, link: Link) -> SavepointNames:
        view = self._tables.view(world.chain, link)
        return SavepointNames(frozenset(objects_of(view, _Descriptors(self._tables, world.objects))))

    def _saving(self, world: World, wanted: tuple[Link, int], kept: int) -> Iterator[Step]:
        yield "reader removes its pin", world._replace(reader=("saved", wanted, kept))

    def _saved(self, world: World, _wanted: tuple[Link, int], _kept: int) -> Iterator[Step]:
        yield "reader deletes the savepoint", world._replace(reader=("done",))

    def _done(self, world: World) -> Iterator[Step]:
        yield from ()


class OperatorSteps:
    """The operator stops the job, chooses an older commit ahead, and sets Spark back to it (`varvite restore`)."""

    def __init__(self, bounds: Bounds, tables: Tables) -> None:
        self._bounds = bounds
        self._tables = tables

    def steps(self, world: World) -> Iterator[Step]:
        head = self._tables.entries[self._tables.head(world.chain)]
        if world.restores >= self._bounds.restores or head is None or head.seq >= self._bounds.slots:
            return
        for chosen in self._complete(world, bounds_of(head)):
            fence = plan_fence(
                head, job_id=JOB, token=f"f{head.seq + 1}", now_ms=0, restore=chosen.seq, chosen_ahead=True
            )
            chain = (*world.chain[: fence.seq - 1], self._tables.entry_id(fence), *world.chain[fence.seq :])
            drivers = tuple(sorted(d if d == ("idle",) else ("dead",) for d in world.drivers))
            after = world._replace(chain=chain, drivers=drivers, acked=chosen.batch + 1, owner=fence.epoch)
            yield f"the operator goes back to {chosen.seq}", after._replace(restores=world.restores + 1)

    def _complete(self, world: World, cut: RetentionBounds) -> Iterator[Commit]:
        """The acknowledged commits on the head's line that are complete."""
        link = self._tables.newest(world.chain)
        while link.seq >= max(cut.keep_from, 1):
            commit = self._tables.stored(world.chain, link).commit
            if not cut.is_complete(commit):
                return
            if commit.batch < world.acked:
                yield commit
            link = commit.parent


def spark_steps(world: World, bounds: Bounds) -> Iterator[Step]:
    """Somebody sets Spark's checkpoint location back; or it is a cache, and it or the note of the sink is lost."""
    if bounds.in_chain:
        if world.note:
            yield "the note of the sink is lost", world._replace(note=0)
        if world.location:
            yield "Spark's location is lost", world._replace(location=0)
        return
    if world.rollbacks < bounds.rollbacks:
        for count in ROLLBACK_BATCHES:
            if world.acked >= count:
                yield (
                    f"Spark is set back by {count}",
                    world._replace(acked=world.acked - count, rollbacks=world.rollbacks + 1),
                )


def late_steps(world: World) -> Iterator[Step]:
    """A request that sends a commit's entry once more arrives where the entry was collected."""
    for number, entry_id in enumerate(world.sent):
        if entry_id and not world.chain[number]:
            chain = (*world.chain[:number], entry_id, *world.chain[number + 1 :])
            yield f"a late copy of {number + 1} arrives", world._replace(chain=chain)


def check_pinned(world: World, tables: Tables) -> str | None:
    """Object that a reader with a pin misses; None if it has all."""
    if world.reader[0] not in COMPLETE:
        return None
    try:
        tables.batches(world.chain, world.objects, world.reader[1][0])
    except Missing as error:
        return f"pinned commit {world.reader[1][0].seq} misses {error}"
    return None


class _Descriptors:
    """Content of the simulated objects as a `SnapshotReader` reads it."""

    def __init__(self, tables: Tables, objects: int) -> None:
        self._tables = tables
        self._objects = objects

    def read(self, name: layout.SnapshotName) -> SnapshotDescriptor:
        return self._tables.descriptor(self._objects, name.number)


def _kept(world: World) -> int:
    return world.reader[2] if world.reader[0] in ("saving", "saved") else 0


def _pin(wanted: tuple[Link, int]) -> Pin:
    return Pin(token="p", holder="reader", needs_from=wanted[1], commit=wanted[0], created_ms=0)


def _emptied(chain: tuple[int, ...], seqs: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(0 if seq in seqs else entry for seq, entry in enumerate(chain, 1))
