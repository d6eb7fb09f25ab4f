"""The state of the model check, and what is true of it: which state a commit restores to, and what it needs.

A world is a tuple of small values, so that millions can be kept apart by their hash. Entries, chain states and object
names are interned; what the decision functions answer is remembered by the interned inputs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from varvite.changelog.chain.retention_bounds import RetentionBounds
from varvite.changelog.chain.view import LineView, StoredCommit, resolve
from varvite.changelog.commit.rules import ALL_RULES, ProtocolRules
from varvite.changelog.commit.state import RETAINED_MIN, CommitPolicy
from varvite.changelog.retention.collect_decision import NOTHING_KEPT, SavepointNames
from varvite.storage.errors import VarviteError
from varvite.storage.format import layout
from varvite.storage.format.records import ORIGIN, Commit, Entry, Link, OperatorLayout, SnapshotDescriptor

JOB = "j"
OPERATOR = "op"
QUERY = "q"
LAYOUT = (OperatorLayout(uid=OPERATOR, parallelism=1, key_type="long", changelog=True, backend="hashmap"),)


class ViolationError(Exception):
    """An invariant does not hold in some reachable world."""


class Bounds(NamedTuple):
    """Bounds of the search, and events that may happen in it."""

    slots: int
    drivers: int = 3
    writes_files: bool = True
    """Changelog off: each commit names its state as a file under its slot; otherwise inline segments."""
    full_every: int = 1
    snapshots: int = 0
    """Snapshots that the materializer may publish."""
    rollbacks: int = 0
    """Number of times that Spark's progress may be set back, by one or two batches."""
    sink_tells: bool = False
    """True if the sink says what it holds, so that commits are adopted."""
    pins: int = 0
    savepoints: int = 0
    """True if the reader makes a savepoint, whose pin goes once its manifest is there."""
    restores: int = 0
    """Number of times that the operator may set job and Spark back to an older commit (`varvite restore`)."""
    in_chain: bool = False
    """Progress is in the chain alone: Spark's location is made from it, and lost or changed as often as it likes."""
    late: bool = False
    """A commit may have been sent twice: a copy arrives at any time, as often as it likes, if nothing is there."""
    rules: ProtocolRules = ALL_RULES

    @property
    def policy(self) -> CommitPolicy:
        retained = 3 if self.restores else RETAINED_MIN  # going back by one commit is what every run can do
        return CommitPolicy(retained=retained, full_every=self.full_every, path_max=self.full_every)


class World(NamedTuple):
    """One state of everything that is shared or running."""

    chain: tuple[int, ...]
    """Entry id of seq 1, 2, ...; 0: nothing there."""
    objects: int
    """Bit set of object ids: segments, snapshot files, descriptors."""
    drivers: tuple[tuple[Any, ...], ...]
    collector: tuple[Any, ...] = ("idle",)
    materializer: tuple[Any, ...] = ("idle",)
    reader: tuple[Any, ...] = ("idle",)
    acked: int = 0
    """Batches that Spark has acknowledged."""
    sink: tuple[int, int] | None = None
    owner: int = 0
    """Highest epoch of a run that found itself the owner."""
    rollbacks: int = 0
    restores: int = 0
    location: int = 0
    """The batch that Spark's location says is next, if it is made from the chain."""
    note: int = 0
    """Seq of the commit that the note of the sink names; 0: there is none."""
    written: int = 0
    """Bit set of the seqs whose rows a sink has got, if progress is in the chain alone."""
    sent: tuple[int, ...] = ()
    """Entry id of the commit that has taken seq 1, 2, ..., if late copies count; 0: none has."""


class StoredObject(NamedTuple):
    """An object other than a chain entry."""

    name: str
    record: SnapshotDescriptor | None = None


class Missing(Exception):  # noqa: N818  a value of the search, not an error
    """Something that was to be read is not there."""


class Tables:
    """Interned values, and answers that depend on them only."""

    def __init__(self) -> None:
        self.entries: list[Entry | None] = [None]
        self._entry_ids: dict[Entry, int] = {}
        self.objects: list[StoredObject] = []
        self._object_ids: dict[StoredObject, int] = {}
        self.kept: list[SavepointNames] = [NOTHING_KEPT]
        self._kept_ids: dict[SavepointNames, int] = {NOTHING_KEPT: 0}
        self.by_name: dict[str, int] = {}
        self.needed = lru_cache(None)(self._needed)
        self.file_bits = lru_cache(None)(self._file_bits)
        self.chain_bits = lru_cache(None)(self._chain_bits)
        self.descriptor_bits = lru_cache(None)(self._descriptor_bits)
        self.batches = lru_cache(None)(self._batches)

    def entry_id(self, entry: Entry) -> int:
        known = self._entry_ids.get(entry)
        if known is None:
            known = self._entry_ids[entry] = len(self.entries)
            self.entries.append(entry)
        return known

    def kept_id(self, names: SavepointNames) -> int:
        """Checkpoint of a savepoint, as a number."""
        known = self._kept_ids.get(names)
        if known is None:
            known = self._kept_ids[names] = len(self.kept)
            self.kept.append(names)
        return known

    def bit(self, item: StoredObject) -> int:
        """The bit of an object; `by_name` gathers all objects of one name."""
        known = self._object_ids.get(item)
        if known is None:
            known = self._object_ids[item] = len(self.objects)
            self.objects.append(item)
            self.by_name[item.name] = self.by_name.get(item.name, 0) | 1 << known
        return 1 << known

    def _file_bits(self, entry_id: int) -> int:
        """The files that an entry's tiles name."""
        entry = self.entries[entry_id]
        names = [f.name for t in entry.tiles for f in t.files] if isinstance(entry, Commit) else []
        return sum(self.bit(StoredObject(name)) for name in names)

    def without_garbage(self, world: World) -> World:
        """The world without files that nothing names and nobody is about to name: nothing depends on those."""
        named = self.chain_bits(world.chain) | self.descriptor_bits(world.objects)
        for driver in world.drivers:
            if driver[0] == "uploaded":
                named |= self.file_bits(driver[1])
        if world.materializer[0] == "uploaded":
            named |= self.descriptor_bits(world.materializer[1])
        objects = world.objects & named
        return world if objects == world.objects else world._replace(objects=objects)

    def present(self, objects: int) -> list[StoredObject]:
        return [item for number, item in enumerate(self.objects) if objects >> number & 1]

    def stored(self, chain: tuple[int, ...], link: Link) -> StoredCommit:
        """The commit in the chain; raises `Missing`."""
        entry = self.entries[chain[link.seq - 1]]
        if not isinstance(entry, Commit) or entry.link != link:
            raise Missing(f"chain/{link.seq}")
        return StoredCommit(entry, 0)

    def view(self, chain: tuple[int, ...], link: Link) -> LineView:
        """The commit's view, by the real resolution; raises `Missing`."""
        if link == ORIGIN:
            return LineView(max_parallelism=1)
        base = self.stored(chain, link)
        full = self.stored(chain, base.commit.full)
        return resolve(base, full, [self.stored(chain, p) for p in base.commit.path])

    def line(self, chain: tuple[int, ...], link: Link, count: int, cut: RetentionBounds) -> tuple[Commit, ...]:
        """The commits that were read for the view (full, path, base), and before them what a run reads besides.

        So many in all, if they are complete by the cut.
        """
        if link == ORIGIN:
            return ()
        base = self.stored(chain, link).commit
        found = (base,)
        if not base.is_full:
            found = tuple(self.stored(chain, other).commit for other in (base.full, *base.path, link))
        while len(found) < count and found[0].parent != ORIGIN:
            older = self.entries[chain[found[0].parent.seq - 1]]
            if not isinstance(older, Commit) or older.link != found[0].parent or not cut.is_complete(older):
                break
            found = (older, *found)
        return found

    def _chain_bits(self, chain: tuple[int, ...]) -> int:
        bits = 0
        for entry_id in chain:
            bits |= self.file_bits(entry_id)
        return bits

    def _descriptor_bits(self, objects: int) -> int:
        """The descriptors among the objects, and the files that they name."""
        bits = 0
        for item in self.present(objects):
            if item.record is not None:
                bits |= self.bit(item) | sum(self.bit(StoredObject(f.name)) for f in item.record.files)
        return bits

    def _batches(self, chain: tuple[int, ...], objects: int, link: Link) -> tuple[int, ...]:
        """Result of a restore of the commit: the batches whose effect is in the state, in order. Raises `Missing`."""
        view = self.view(chain, link)
        batches: tuple[int, ...] = ()
        for tile in view.tiles_for(OPERATOR, 0, 1) if link != ORIGIN else ():
            names = [f.name for f in tile.files]
            if tile.snapshot is not None:
                names = [f.name for f in self.descriptor(objects, tile.snapshot).files]
            for name in names:
                self.read(objects, name)
                batches = batches_in(name)
        for segment in view.segments_for(OPERATOR, 0, 1) if link != ORIGIN else ():
            if segment.ref.seq_last <= segment.floors[0].seq:
                raise ViolationError("a segment below the floor is replayed")
            commit = self.entries[chain[segment.ref.seq_first - 1]]
            if not isinstance(commit, Commit):
                raise Missing(segment.ref.data.name)
            batches += (commit.batch,)
        return batches

    def _needed(self, chain: tuple[int, ...], objects: int) -> str | None:
        """Object that is missing although the newest commit, or the one it was executed on, needs it; None if nothing
        is (I7).
        """
        newest = self.newest(chain)
        if newest == ORIGIN:
            return None
        for link in (newest, self.stored(chain, newest).commit.parent):
            try:
                self.batches(chain, objects, link)
            except (Missing, VarviteError) as error:
                return f"commit {link.seq} cannot be restored: {error!r}"
        return None

    def head(self, chain: tuple[int, ...]) -> int:
        """Entry id of the head."""
        return next((entry for entry in reversed(chain) if entry), 0)

    def newest(self, chain: tuple[int, ...]) -> Link:
        """The newest commit on the head's line."""
        head = self.entries[self.head(chain)]
        if head is None:
            return ORIGIN
        return head.link if isinstance(head, Commit) else head.commit

    def descriptor(self, objects: int, number: int) -> SnapshotDescriptor:
        name = layout.snapshot(OPERATOR, 0, 1, number)
        item = self.read(objects, name)
        if item.record is None or item.record.status != "published":
            raise Missing(name)
        return item.record

    def read(self, objects: int, name: str) -> StoredObject:
        found = objects & self.by_name.get(name, 0)
        if not found:
            raise Missing(name)
        return self.objects[found.bit_length() - 1]


def batches_in(name: str) -> tuple[int, ...]:
    """The state in a file: the simulated content is written in the file's name."""
    text = name.rsplit("/", 1)[-1].split("~")[1]
    return tuple(int(part) for part in text.split("."))


def content_of(batches: tuple[int, ...]) -> str:
    return "~" + ".".join(map(str, batches)) + "~"


def first(bounds: Bounds) -> World:
    nothing = (0,) * bounds.slots
    drivers = (("idle",),) * bounds.drivers
    return World(chain=nothing, objects=0, drivers=drivers, sent=nothing if bounds.late else ())
