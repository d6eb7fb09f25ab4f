"""ADOPT: the snapshots that the driver adopts with its next commit (`docs/internals/commit-protocol.md#adopt`). Pure.

A snapshot of this job may replace tiles if `adoption_rules.is_adoptable` says so, and if it replaces whole tiles: its
range is one tile's, or exactly that of several; or several snapshots together cover exactly one tile (after the
parallelism grew). Nothing is clipped, because a snapshot is named by its whole range.

Floors also rise past numbers that can no longer be adopted on this line, so that the collector may delete them. Of
thousands of snapshots that are published together one commit takes some, those of the oldest tiles first. Those that
it leaves are then older than any that are published later for the ranges that it took, so no range waits for ever.

Invariants: I5, I7, I10 (`ADOPTED_MAX`; the log of every range becomes shorter in turn).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.chain.view import cover_of
from varvite.changelog.commit.adoption_rules import is_adoptable
from varvite.changelog.commit.plan import Adoption
from varvite.storage.format.layout import SnapshotName
from varvite.storage.format.records import RANGE_OF, SnapshotFloor, Tile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from varvite.changelog.chain.tiles import TileCover
    from varvite.changelog.chain.view import LineView
    from varvite.storage.format.records import SnapshotDescriptor


TileSnapshot = SnapshotName
"""The snapshot that a tile names."""
ADOPTED_MAX: Final = 128
"""Snapshots that one commit adopts; it may exceed this to complete the last group that it decides about."""


_FEW_BITS: Final = 3
"""If candidates are at most an eighth of the floors, each candidate's floor is looked up by bisection."""


class _Choice(NamedTuple):
    snapshots: tuple[SnapshotDescriptor, ...]
    replaced: tuple[Tile, ...]


class _Group(NamedTuple):
    """Snapshots that share tiles: they exclude or need one another, so they are decided together."""

    base_seq: int
    looked_at: list[SnapshotDescriptor]
    """The possible ones, and others of the same ranges or that are not possible at all."""
    possible: list[SnapshotDescriptor]


def tile_snapshots(view: LineView) -> tuple[SnapshotName, ...]:
    """The snapshots that the view's tiles name. The decision needs their descriptors."""
    return tuple(SnapshotName(t.operator, t.low, t.high, t.snapshot) for t in view.tiles if t.snapshot is not None)


def decide_adoption(
    view: LineView,
    floors: Sequence[SnapshotFloor],
    candidates: Iterable[SnapshotDescriptor],
    tile_files: Mapping[SnapshotName, frozenset[str]],
    job_id: str,
    adopted_max: int = ADOPTED_MAX,
) -> Adoption:
    """Choose among the published snapshots, the newest for each range.

    Args:
        view: Of the base that the next batch is executed on.
        floors: The chain's, in order of their ranges.
        candidates: Descriptors whose number is above their range's floor, in any order.
        tile_files: Object names that the descriptors of `tile_snapshots(view)` name; one that is left out shares none.
        job_id: This job's.
        adopted_max: Once so many are adopted, the rest is left for later commits. They decide about it first, because
            the tiles that it replaces are older.

    Returns:
        New tiles, and the floors to raise.
    """
    of_job = [c for c in candidates if c.job_id == job_id]
    floor_of = _floors_of(of_job, floors)
    new = [c for c in of_job if c.number > floor_of.get(RANGE_OF(c), 0)]
    cover = cover_of(view)

    def files_of(tile: Tile) -> frozenset[str]:
        return tile_files.get(SnapshotName(tile.operator, tile.low, tile.high, tile.snapshot or 0), frozenset())

    def is_possible(c: SnapshotDescriptor) -> bool:
        replaced, floor = cover.over(c.operator, c.low, c.high), floor_of.get(RANGE_OF(c), 0)
        return is_adoptable(c, replaced, floor=floor, is_on_line=view.holds, files_of=files_of)

    taken: list[SnapshotDescriptor] = []
    looked_at: list[SnapshotDescriptor] = []
    for group in _groups(new, cover, is_possible):
        looked_at += group.looked_at
        taken += _best(group.possible, cover)
        if len(taken) >= adopted_max:
            looked_at += _of_ranges(looked_at, new, group.base_seq)
            break
    tiles = (_tile(d) for d in taken)
    return Adoption(tuple(sorted(tiles, key=lambda t: (t.operator, t.low))), _raised_floors(looked_at, taken, cover))


def _floors_of(
    candidates: Sequence[SnapshotDescriptor], floors: Sequence[SnapshotFloor]
) -> dict[tuple[str, int, int], int]:
    """The floors of at least these ranges; ranges without a floor are missing."""
    if len(candidates) > len(floors) >> _FEW_BITS:
        return {(floor.operator, floor.low, floor.high): floor.number for floor in floors}
    places = ((c, bisect_left(floors, RANGE_OF(c), key=RANGE_OF)) for c in candidates)
    matching = (floors[place] for c, place in places if place < len(floors) and RANGE_OF(floors[place]) == RANGE_OF(c))
    return {RANGE_OF(floor): floor.number for floor in matching}


def _tile(d: SnapshotDescriptor) -> Tile:
    return Tile(operator=d.operator, low=d.low, high=d.high, at=d.at, snapshot=d.number)


def _groups(
    new: Sequence[SnapshotDescriptor], cover: TileCover, is_possible: Callable[[SnapshotDescriptor], bool]
) -> Iterator[_Group]:
    """The groups, those of the oldest tiles first, then by operator and range; computed lazily.

    A possible snapshot was built on exactly the tiles that it replaces. So all snapshots of a group have one base, and
    the lowest base belongs to the oldest tiles. Snapshots that can no longer be adopted are mostly older still.
    """
    by_base: dict[int, list[SnapshotDescriptor]] = defaultdict(list)
    for c in new:
        by_base[c.base.seq].append(c)
    for base_seq in sorted(by_base):
        group, operator, reach = _Group(base_seq, [], []), "", 0
        for c in sorted(by_base[base_seq], key=RANGE_OF):
            if c.operator != operator or c.low >= reach:
                if group.looked_at:
                    yield group
                group, operator, reach = _Group(base_seq, [], []), c.operator, c.low + 1
            group.looked_at.append(c)
            if is_possible(c):
                group.possible.append(c)
                reach = max(reach, cover.over(c.operator, c.low, c.high)[-1].high)
        yield group


def _of_ranges(
    looked_at: Sequence[SnapshotDescriptor], new: Sequence[SnapshotDescriptor], base_seq: int
) -> list[SnapshotDescriptor]:
    """The snapshots above the base whose ranges were looked at: all numbers of a range have one floor."""
    ranges, lows = {RANGE_OF(c) for c in looked_at}, {c.low for c in looked_at}  # of thousands few have such a low
    return [c for c in new if c.low in lows and c.base.seq > base_seq and RANGE_OF(c) in ranges]


def _best(possible: Sequence[SnapshotDescriptor], cover: TileCover) -> list[SnapshotDescriptor]:
    """The snapshots to adopt of a group; none if they cover only parts of tiles."""
    if not possible:
        return []
    taken: list[SnapshotDescriptor] = []
    replaced: set[Tile] = set()
    for choice in sorted(_choices(possible, cover), key=_merit, reverse=True):
        if replaced.isdisjoint(choice.replaced):
            taken += choice.snapshots
            replaced.update(choice.replaced)
    return taken


def _choices(possible: Sequence[SnapshotDescriptor], cover: TileCover) -> list[_Choice]:
    """All ways to replace whole tiles: one snapshot for one or several tiles, or several for one tile."""
    choices: list[_Choice] = []
    parts: dict[Tile, list[SnapshotDescriptor]] = defaultdict(list)
    for d in possible:
        tiles = cover.over(d.operator, d.low, d.high)
        if (tiles[0].low, tiles[-1].high) == (d.low, d.high):
            choices.append(_Choice((d,), tiles))
        elif len(tiles) == 1:
            parts[tiles[0]].append(d)
    for tile, snapshots in parts.items():
        tiling = _tiling(snapshots, tile.low, tile.high)
        if tiling:
            choices.append(_Choice(tiling, (tile,)))
    return choices


def _tiling(snapshots: Sequence[SnapshotDescriptor], low: int, high: int) -> tuple[SnapshotDescriptor, ...]:
    """Snapshots that cover `[low, high)` exactly, at each place the newest that fits; empty if there is no such set."""
    follows: dict[int, SnapshotDescriptor] = {}
    for d in sorted(snapshots, key=lambda s: (-s.low, s.at.seq, s.number)):
        if d.high == high or d.high in follows:
            follows[d.low] = d
    tiling: list[SnapshotDescriptor] = []
    while low in follows:
        tiling.append(follows[low])
        low = follows[low].high
    return tuple(tiling) if low == high else ()


def _merit(choice: _Choice) -> tuple[int, int, int]:
    """Sort key: the newest first, then the one that replaces more tiles, then the higher number."""
    return min(d.at.seq for d in choice.snapshots), len(choice.replaced), max(d.number for d in choice.snapshots)


def _raised_floors(
    new: Sequence[SnapshotDescriptor], taken: Sequence[SnapshotDescriptor], cover: TileCover
) -> tuple[SnapshotFloor, ...]:
    """Per range: the adopted number, or a higher one if all numbers up to it are hopeless."""
    by_range: dict[tuple[str, int, int], list[SnapshotDescriptor]] = defaultdict(list)
    for d in new:
        by_range[d.operator, d.low, d.high].append(d)
    taken_numbers = {(d.operator, d.low, d.high): d.number for d in sorted(taken, key=lambda s: s.number)}
    floors: list[SnapshotFloor] = []
    for key, snapshots in sorted(by_range.items()):
        number = taken_numbers.get(key, 0)
        for d in sorted(snapshots, key=lambda s: s.number):
            if d.number > number and not _is_hopeless(d, cover):
                break
            number = max(number, d.number)
        if number:
            floors.append(SnapshotFloor(*key, number))
    return tuple(floors)


def _is_hopeless(d: SnapshotDescriptor, cover: TileCover) -> bool:
    """Tell whether a snapshot can never be adopted on this line.

    It was given up, its operator is gone, or the line has replaced the tile that it was built on.
    """
    tiles = cover.over(d.operator, d.low, d.high)
    return d.status == "aborted" or not tiles or any(t.at.seq > d.base.seq for t in tiles)
