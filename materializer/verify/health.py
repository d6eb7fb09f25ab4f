"""Health of a job's retained checkpoints: whole, rebuildable from other objects, or lost.

Takes the names of damaged objects from `verify`. Reads entries and descriptors only.

Invariants: I5 (a checkpoint is rebuilt from a base and the log after it: from its own, or from an older base and a
longer log), I8.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from varvite.changelog.chain.reader import newest_commit
from varvite.changelog.chain.retention_bounds import bounds_of
from varvite.changelog.chain.tiles import key_range
from varvite.changelog.retention.pins import Retention, readable_pins
from varvite.changelog.retention.snapshots import SnapshotReader, list_snapshots
from varvite.materializer.verify.alternatives import RetainedCommit, find_way, images_without, ways
from varvite.storage.errors import CorruptDataError, LineageError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.format.records import ORIGIN, Commit, Link

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from varvite.changelog.chain.reader import ChainReader
    from varvite.changelog.chain.view import LineView, StoredCommit
    from varvite.materializer.verify.alternatives import Way
    from varvite.storage.format.layout import SnapshotName
    from varvite.storage.format.records import Entry, ImageRef, OperatorLayout, SnapshotDescriptor, Tile


class RangeHealth(NamedTuple):
    """One operator's key groups `[low, high)` at a checkpoint."""

    operator: str
    key_type: str
    low: int
    high: int
    view: LineView
    """The tiles and segments that the checkpoint itself names."""
    way: Way | None
    """An undamaged way to the state; None if it is lost."""

    @property
    def is_whole(self) -> bool:
        """Is nothing damaged that the checkpoint itself names?"""
        return self.way is not None and self.way.view is self.view

    @property
    def tile(self) -> Tile:
        """The checkpoint's base of these key groups."""
        return self.view.tiles_for(self.operator, self.low, self.high)[0]


@dataclass(frozen=True, slots=True)
class CheckpointHealth:
    """A retained checkpoint."""

    link: Link
    commit: Commit | None
    """None: its entry cannot be read."""
    ranges: tuple[RangeHealth, ...] = ()
    images: tuple[ImageRef, ...] | None = ()
    """Its non-keyed state, in objects that can be read; None if that is lost."""
    has_own_images: bool = True
    """Are these the images that the checkpoint names?"""
    problem: str = ""
    """The reason that all of it is lost; empty if it is not."""

    @property
    def is_whole(self) -> bool:
        """Can it be restored as it is?"""
        return not self.problem and self.has_own_images and all(health.is_whole for health in self.ranges)

    @property
    def is_rebuildable(self) -> bool:
        """Can its state be read, if by another way?"""
        return not self.problem and self.images is not None and all(health.way is not None for health in self.ranges)

    @property
    def lost(self) -> tuple[str, ...]:
        """Lost parts of its state, for people."""
        parts = [self.problem] if self.problem else []
        parts += [f"{health.operator}[{health.low},{health.high})" for health in self.ranges if health.way is None]
        return (*parts, *(["the non-keyed state"] if self.images is None else []))


class Examiner:
    """Examines the checkpoints of one job whose damaged objects are known.

    Args:
        reader: Reader of its chain.
        max_parallelism: Its key groups.
        damaged: Names of objects that are damaged or missing, as the job's entries name them.
    """

    def __init__(self, reader: ChainReader, max_parallelism: int, damaged: Iterable[str]) -> None:
        self._reader = reader
        self._max_parallelism = max_parallelism
        self._damaged = frozenset(damaged)
        self._descriptors: Mapping[SnapshotName, SnapshotDescriptor] = {}

    def checkpoints(self) -> tuple[CheckpointHealth, ...]:
        """Examine all retained checkpoints; the newest first."""
        self._descriptors = dict(self._readable_descriptors())
        line = self._line()
        checkpoints: list[CheckpointHealth] = []
        for index, commit in enumerate(line):
            if isinstance(commit, Link):
                checkpoints.append(CheckpointHealth(commit, None, problem="its entry cannot be read"))
            else:
                checkpoints.append(self._health(commit, [*_without_gap(line[index:])]))
        return tuple(checkpoints)

    def _line(self) -> list[RetainedCommit | Link]:
        """The retained commits of the newest line, the newest first; unreadable ones are links."""
        seqs = self._reader.list_seqs()
        head: Entry | None = None
        line: list[RetainedCommit | Link] = []
        for seq in reversed(seqs):
            head = self._entry(seq)
            if head is not None:
                break
            line.append(Link(seq, ""))
        # A missing entry that is needed is among the damaged objects.
        existing = {layout.chain(seq) for seq in seqs} | self._damaged
        links: set[Link] = {newest_commit(head)} - {ORIGIN}
        retention = None if head is None else Retention(bounds_of(head), readable_pins(self._reader))
        while head is not None and retention is not None and links:
            link = max(links, key=_seq)
            if link.seq < retention.complete_from:
                break
            try:
                stored = self._reader.read_commit(link)
            except (CorruptDataError, LineageError, MissingObjectError):
                line.append(link)
                links = {other for other in links if other.seq < link.seq} or self._before(link.seq)
                continue
            if retention.is_complete(stored.commit):
                line.append(RetainedCommit(stored, self._view(stored)))
            older = {other for other in _older(stored.commit) if layout.chain(other.seq) in existing}
            links = {other for other in links | older if ORIGIN.seq < other.seq < link.seq}
        return line

    def _before(self, seq: int) -> set[Link]:
        """The newest commit that is certainly on the line of commit `seq`, which cannot be read.

        A run's entries have consecutive seqs. So it is the commit right before; of a run's first commit, it is the
        parent of the newest commit at the run's start, since that one may have been executed again.
        """
        before = self._entry(seq - 1)
        if isinstance(before, Commit):
            return {before.link}
        if before is None or before.commit == ORIGIN or before.restore is not None:
            return set()
        try:
            return {self._reader.read_commit(before.commit).commit.parent} - {ORIGIN}
        except (CorruptDataError, LineageError, MissingObjectError):
            return set()

    def _entry(self, seq: int) -> Entry | None:
        try:
            return self._reader.read(seq).entry
        except (CorruptDataError, LineageError, MissingObjectError):
            return None

    def _view(self, stored: StoredCommit) -> LineView | None:
        try:
            return self._reader.load_line(stored.commit.link, self._max_parallelism).view
        except (CorruptDataError, MissingObjectError, LineageError):
            return None

    def _health(self, retained: RetainedCommit, line: Sequence[RetainedCommit]) -> CheckpointHealth:
        commit, view = retained.stored.commit, retained.view
        if view is None:
            return CheckpointHealth(commit.link, commit, problem="an entry that it refers to cannot be read")
        ranges = tuple(
            self._range(operator, low, high, line, view)
            for operator in commit.operators
            for low, high in _ranges(operator, view, self._max_parallelism)
        )
        images = images_without(line, self._damaged)
        has_own = all(ref.data.name not in self._damaged for ref in view.images)
        return CheckpointHealth(commit.link, commit, ranges, images, has_own)

    def _range(
        self, operator: OperatorLayout, low: int, high: int, line: Sequence[RetainedCommit], view: LineView
    ) -> RangeHealth:
        usable = [descriptor for descriptor in self._descriptors.values() if self._has_files(descriptor)]
        candidates = ways(line, operator.uid, usable)
        way = find_way(candidates, operator.uid, low, high, self._has_tile, self._damaged)
        return RangeHealth(operator.uid, operator.key_type, low, high, view, way)

    def _has_tile(self, tile: Tile) -> bool:
        if tile.snapshot is None:
            return all(file.name not in self._damaged for file in tile.files)
        name = layout.SnapshotName(tile.operator, tile.low, tile.high, tile.snapshot)
        descriptor = self._descriptors.get(name)
        return descriptor is not None and descriptor.at == tile.at and self._has_files(descriptor)

    def _has_files(self, snapshot: SnapshotDescriptor) -> bool:
        return snapshot.status == "published" and all(file.name not in self._damaged for file in snapshot.files)

    def _readable_descriptors(self) -> Iterator[tuple[SnapshotName, SnapshotDescriptor]]:
        reader = SnapshotReader(self._reader.store, self._reader.job_id)
        for name in list_snapshots(self._reader.store):
            try:
                yield name, reader.read(name)
            except (CorruptDataError, MissingObjectError):
                continue


def _seq(link: Link) -> int:
    return link.seq


def _older(commit: Commit) -> Iterator[Link]:
    """The older commits of the line that a commit names."""
    yield from (commit.parent, commit.full, *commit.path, *commit.line)


def _without_gap(line: Sequence[RetainedCommit | Link]) -> Iterator[RetainedCommit]:
    """The first commits, up to one that cannot be read or is not the parent of its successor."""
    expected: Link | None = None
    for retained in line:
        if isinstance(retained, Link) or expected not in (None, retained.stored.commit.link):
            return
        yield retained
        expected = retained.stored.commit.parent


def _ranges(operator: OperatorLayout, view: LineView, max_parallelism: int) -> Iterator[tuple[int, int]]:
    """The operator's key groups, divided at bases; where there are none, at partitions."""
    edges = {0, max_parallelism}
    for tile in view.tiles_for(operator.uid, 0, max_parallelism):
        edges |= {tile.low, tile.high}
        if tile.snapshot is None and not tile.files:
            lows = (key_range(p, operator.parallelism, max_parallelism)[0] for p in range(operator.parallelism))
            edges.update(low for low in lows if tile.low < low < tile.high)
    yield from pairwise(sorted(edges))
