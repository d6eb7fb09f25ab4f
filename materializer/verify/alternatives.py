"""Other ways to read the state of a commit: from the base of an older commit of its line, and the log since; pure.

The objects that a commit names are the shortest way to its state, not the only one. As long as an older commit of the
line is retained, so are its base, its log, and every commit since with its own segments; together they give the same
state. A published snapshot of a commit of the line is a base as well, adopted or not. So a damaged object is
dispensable if another way does not need it.

Invariants: I5 (a way is a base and all newer segments of the line, in order), I7 (nothing but retained objects).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from varvite.changelog.chain.tiles import TileCover, empty_tile, replace_tiles
from varvite.changelog.chain.view import LineView, own_segments
from varvite.storage.errors import InvariantError
from varvite.storage.format.records import ORIGIN, ImageRef, Link, Tile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from varvite.changelog.chain.view import StoredCommit
    from varvite.storage.format.records import Commit, SegmentRef, SnapshotDescriptor


class RetainedCommit(NamedTuple):
    """A commit of the line whose entry can be read, and its view."""

    stored: StoredCommit
    view: LineView | None
    """None: an entry that the view needs cannot be read."""


class Way(NamedTuple):
    """A way to the state of one operator's key groups."""

    since: Link
    """The commit whose base it begins with; `ORIGIN` for the empty state."""
    view: LineView
    """The tiles and segments to read; `base` is the commit whose state they give."""


def ways(line: Sequence[RetainedCommit], operator: str, snapshots: Iterable[SnapshotDescriptor] = ()) -> Iterator[Way]:
    """All ways to the state of an operator at the first commit of `line`, the shortest first.

    Args:
        line: Commits without a gap, the newest first, as far back as they can be read.
        operator: Its uid.
        snapshots: Published snapshots that can be read.
    """
    target = line[0].view
    if target is None:
        return
    candidates = tuple(snapshots)
    newer: list[StoredCommit] = []
    for stored, view in line:
        if not any(layout.uid == operator for layout in stored.commit.operators):
            return  # it has no older state: an operator whose uid comes back begins anew
        if view is not None:
            longer = msgspec.structs.replace(target, tiles=view.tiles, segments=_log(view, newer))
            way = Way(stored.commit.link, longer if newer else target)
            yield from _with_snapshots(way, operator, candidates)
        if not _is_logged(stored.commit, operator):
            return  # its base holds changes that are in no log
        newer.append(stored)
    first = line[-1].stored.commit
    if first.parent == ORIGIN and first.source is None:
        empty = LineView(max_parallelism=target.max_parallelism)
        tiles = (empty_tile(operator, target.max_parallelism, ORIGIN),)
        log = _log(empty, newer)
        yield from _with_snapshots(
            Way(ORIGIN, msgspec.structs.replace(target, tiles=tiles, segments=log)), operator, candidates
        )


def find_way(
    candidates: Iterable[Way],
    operator: str,
    low: int,
    high: int,
    has_tile: Callable[[Tile], bool],
    damaged: frozenset[str],
) -> Way | None:
    """The first way that gives key groups `[low, high)` and needs nothing damaged.

    Args:
        candidates: Ways to the operator's state, in order.
        operator: Its uid.
        low: First key group, inclusive.
        high: Last key group, exclusive.
        has_tile: True for a base that can be read.
        damaged: Names of objects that cannot be read.
    """
    for way in candidates:
        tiles = way.view.tiles_for(operator, low, high)
        segments = way.view.segments_for(operator, low, high)
        if all(map(has_tile, tiles)) and not any(segment.ref.data.name in damaged for segment in segments):
            return way
    return None


def images_without(line: Sequence[RetainedCommit], damaged: frozenset[str]) -> tuple[ImageRef, ...] | None:
    """The non-keyed state at the first commit of `line`, in objects that are not damaged; None if some is lost.

    A pack copies images, so the same image may be in several places.
    """
    places: dict[tuple[str, int, int, int], ImageRef] = {}
    for ref in (ref for _, view in line if view is not None for ref in view.images):
        if ref.data.name not in damaged:
            places.setdefault(_identity(ref), ref)
    images = line[0].view.images if line[0].view is not None else ()
    undamaged = tuple(places[_identity(ref)] for ref in images if _identity(ref) in places)
    return undamaged if len(undamaged) == len(images) else None


def _identity(ref: ImageRef) -> tuple[str, int, int, int]:
    return ref.operator, ref.partition, ref.parallelism, ref.seq


def _log(view: LineView, newer: Sequence[StoredCommit]) -> tuple[SegmentRef, ...]:
    """The log of a view and of the commits after it, the newest first."""
    return view.segments + tuple(ref for stored in reversed(newer) for ref in own_segments(stored))


def _is_logged(commit: Commit, operator: str) -> bool:
    return commit.source is None and any(layout.uid == operator and layout.changelog for layout in commit.operators)


def _with_snapshots(way: Way, operator: str, snapshots: Sequence[SnapshotDescriptor]) -> Iterator[Way]:
    """The way, and the one that begins with newer snapshots instead of its base."""
    yield way
    cover = TileCover(tile for tile in way.view.tiles if tile.operator == operator)
    changed = False
    for snapshot in sorted(snapshots, key=lambda s: s.at.seq):
        tiles = cover.over(operator, snapshot.low, snapshot.high)
        fits = snapshot.operator == operator and snapshot.status == "published" and way.view.holds(snapshot.at)
        if not fits or not tiles or any(tile.at.seq >= snapshot.at.seq for tile in tiles):
            continue
        try:
            cover = replace_tiles(cover, [_tile(snapshot)])
        except InvariantError:
            continue  # a part of a base cannot be replaced
        changed = True
    if changed:
        yield Way(way.since, msgspec.structs.replace(way.view, tiles=cover.tiles))


def _tile(snapshot: SnapshotDescriptor) -> Tile:
    return Tile(
        operator=snapshot.operator,
        low=snapshot.low,
        high=snapshot.high,
        at=snapshot.at,
        snapshot=snapshot.number,
    )
