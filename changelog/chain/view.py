"""The view of a commit: tiles, segments, images and line, resolved from the full entry and the path after it.

`resolve` builds the view of a commit from what was read; `advance` takes a view one commit further without reading.
Both end at the same value. A view is a frozen struct of plain values, so it can be sent to tasks.

Invariants: I5 (tile at S, then the segments with seq > S on the line, in order), I7 (`needs_from` covers every chain
entry, segment, image, pack and directly named file that the view refers to), I8 (what does not fit together is
`CorruptDataError` with the entry's name).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

import msgspec

from varvite.changelog.chain.images import joined_images, kept_images, own_images
from varvite.changelog.chain.segment_index import SegmentIndex, counted
from varvite.changelog.chain.tiles import KeyGroupFloor, TileCover, empty_tile, replace_tiles
from varvite.storage.errors import CorruptDataError, InvariantError
from varvite.storage.format import layout
from varvite.storage.format.records import ORIGIN, Commit, ImageRef, Link, ObjectSlice, SegmentRef, Tile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_T = TypeVar("_T")
_M = TypeVar("_M")
_CACHED_MAX: Final = 16
"""Covers, and sets of links, that are cached."""
LINE_MAX: Final = 8192
"""Links of the line that a view keeps. A snapshot or a worker whose commit is older counts as off the line."""


class StoredCommit(NamedTuple):
    """A commit and the place in its object `chain/<seq>` at which the blob begins, in bytes."""

    commit: Commit
    blob_offset: int


class ReplaySegment(NamedTuple):
    """A segment reference, or a run of them, to be replayed for some key groups.

    A mutation in it with seq q and key group g counts iff one of `floors` has `low <= g < high` and `q > seq`.
    """

    ref: SegmentRef
    floors: tuple[KeyGroupFloor, ...]


class LineView(msgspec.Struct, frozen=True, kw_only=True):
    """The state after commit `base`, as names; `LineView(max_parallelism=...)` is the empty beginning."""

    max_parallelism: int
    base: Link = ORIGIN
    full: Link = ORIGIN
    """Newest full entry on the line, `base` included."""
    path: tuple[Link, ...] = ()
    """The commits after `full` up to and with `base`, in order; empty if `base` is full."""
    tiles: tuple[Tile, ...] = ()
    """By operator and key group; they cover every operator exactly."""
    segments: tuple[SegmentRef, ...] = ()
    """Every segment that is newer than a tile it touches. For any one key group this order is replay order."""
    images: tuple[ImageRef, ...] = ()
    """The non-keyed state of every partition that has any; by operator and partition."""
    line: tuple[Link, ...] = ()
    """The commits of the line from the oldest tile's `at` up to and with `base`; at most the newest `LINE_MAX`."""
    needs_from: int = 0
    """Lowest slot of any object of the job named here except snapshots; 0 for the empty beginning."""

    def tiles_for(self, operator: str, low: int, high: int) -> tuple[Tile, ...]:
        """The tiles that intersect key groups `[low, high)`; for an operator that is not in the state, an empty one."""
        tiles = _COVERS.of(self.tiles).over(operator, low, high)
        return tiles or (empty_tile(operator, self.max_parallelism, self.base),)

    def segments_for(self, operator: str, low: int, high: int) -> tuple[ReplaySegment, ...]:
        """The segments that must be replayed over the tiles for key groups `[low, high)`, in order."""
        cover = _COVERS.of(self.tiles)
        touching = (r for r in self.segments if r.operator == operator and r.low < high and low < r.high)
        replay = ((r, cover.floors(operator, max(low, r.low), min(high, r.high), r.seq_last)) for r in touching)
        return tuple(ReplaySegment(ref, floors) for ref, floors in replay if floors)

    def images_for(self, operator: str) -> tuple[ImageRef, ...]:
        """The non-keyed state of the operator's partitions, in order; those that have none are missing."""
        return tuple(image for image in self.images if image.operator == operator)

    def holds(self, link: Link) -> bool:
        """Tell whether this commit, by seq and token, is on the line as far as it is kept; `ORIGIN` always is."""
        return link == ORIGIN or link in _LINKS.of(self.line)


def resolve(base: StoredCommit, full: StoredCommit, path: Sequence[StoredCommit]) -> LineView:
    """The view of `base` from its full entry (itself, if it is full) and the commits between the two, in order.

    Raises `CorruptDataError` if they do not fit together.
    """
    expected = base.commit.full, base.commit.path
    read = full.commit.link, tuple(p.commit.link for p in path)
    if expected != read:
        raise CorruptDataError(
            f"commit {base.commit.seq} is on {expected}, but {read} were read; see `varvite verify JOB --repair`",
            object_name=layout.chain(base.commit.seq),
        )
    view = _from_full(full)
    for stored in [*path, *([] if base.commit.is_full else [base])]:
        view = advance(view, stored)
    return view


def advance(view: LineView, stored: StoredCommit, carried: CarriedOver | None = None) -> LineView:
    """The view of the next commit, whose parent is the view's base; `carried` if it is computed already.

    Raises `CorruptDataError` if the commit does not follow the base.
    """
    commit = stored.commit
    if commit.parent != view.base or (not commit.is_full and (commit.full, commit.path) != (view.full, view.path)):
        raise CorruptDataError(
            f"commit {commit.seq} does not follow commit {view.base.seq}: its parent is {commit.parent.seq}, its full "
            f"entry {commit.full.seq}; see `varvite verify JOB --repair`",
            object_name=layout.chain(commit.seq),
        )
    if commit.is_full:
        return _from_full(stored, carried)
    carried = carried or carry_over(view, commit)
    _COVERS.remember(carried.cover.tiles, carried.cover)
    return LineView(
        max_parallelism=view.max_parallelism,
        base=commit.link,
        full=view.full,
        path=(*view.path, commit.link),
        tiles=carried.cover.tiles,
        segments=carried.segments + own_segments(stored),
        images=joined_images(carried.images, own_images(commit, stored.blob_offset)),
        line=_limited_line((*view.line, commit.link), carried.cover),
        needs_from=carried.needs_from,
    )


class CarriedOver(NamedTuple):
    """Tiles, segments and images of the previous view that the next commit still refers to.

    They do not depend on the place at which the entry's blob begins.
    """

    cover: TileCover
    segments: tuple[SegmentRef, ...]
    images: tuple[ImageRef, ...]
    segment_index: SegmentIndex | None
    """Of `segments`, if it was computed."""
    needs_from: int
    """Of the view after the commit: objects that the batch itself has written are of the commit's own slot."""


def carry_over(
    view: LineView, commit: Commit, planned: TileCover | None = None, index: SegmentIndex | None = None
) -> CarriedOver:
    """Compute what the next commit still refers to.

    Args:
        view: Of the commit's parent.
        commit: The next one.
        planned: The cover that the commit was planned with, if the caller plans it.
        index: Of the view's segments, or of a full entry's log, if the caller has it.

    Raises `CorruptDataError` if tiles and operators do not fit together.
    """
    if commit.is_full:
        return _carried_by_full(commit, planned, index)
    operators = frozenset(o.uid for o in commit.operators)
    cover, segments, needs_from = _COVERS.of(view.tiles), view.segments, view.needs_from
    images = kept_images(view.images, commit)
    is_changed = bool(commit.tiles) or operators != cover.operators()
    if is_changed or _may_lower_needs(view, images):
        index = SegmentIndex.of(segments) if index is None else index
        if is_changed:
            before, cover = cover, _changed_cover(cover, commit, operators) if planned is None else planned
            segments, index = counted(segments, index, before, cover, commit.tiles)
        needs_from = _lowest_slot(view.full.seq, cover.tiles, index, images)
    return CarriedOver(cover, segments, images, index, needs_from)


def _carried_by_full(
    commit: Commit, planned: TileCover | None = None, index: SegmentIndex | None = None
) -> CarriedOver:
    cover = _checked(TileCover(commit.tiles), commit) if planned is None else planned
    index = SegmentIndex.of(commit.log) if index is None else index
    needs_from = _lowest_slot(commit.seq, cover.tiles, index, commit.images)
    return CarriedOver(cover, commit.log, commit.images, index, needs_from)


def cover_of(view: LineView) -> TileCover:
    """The view's tiles, for looking them up by key group."""
    return _COVERS.of(view.tiles)


def own_segments(stored: StoredCommit) -> tuple[SegmentRef, ...]:
    """The segments of the commit's own batch; inline ones are slices of the chain object."""
    commit, name = stored.commit, layout.chain(stored.commit.seq)
    segments: list[SegmentRef] = []
    seq, blob_offset = commit.seq, stored.blob_offset
    for part in commit.parts:  # thousands: no list for each
        if part.uploaded:
            segments += [SegmentRef(part.operator, part.low, part.high, seq, seq, place) for place in part.uploaded]
        inline = part.inline
        if inline is not None:
            place = ObjectSlice(name, blob_offset + inline.offset, inline.length, inline.crc32)
            segments.append(SegmentRef(part.operator, part.low, part.high, seq, seq, place))
    return tuple(segments)


def _from_full(stored: StoredCommit, carried: CarriedOver | None = None) -> LineView:
    commit = stored.commit
    if commit.full != commit.link or commit.path:
        raise CorruptDataError("the entry is not a full one", object_name=layout.chain(commit.seq))
    carried = carried or _carried_by_full(commit)
    return LineView(
        max_parallelism=commit.max_parallelism,
        base=commit.link,
        full=commit.link,
        tiles=carried.cover.tiles,
        segments=carried.segments + own_segments(stored),
        images=joined_images(carried.images, own_images(commit, stored.blob_offset)),
        line=_limited_line((*commit.line, commit.link), carried.cover),
        needs_from=carried.needs_from,
    )


def _changed_cover(cover: TileCover, commit: Commit, operators: frozenset[str]) -> TileCover:
    try:
        changed = replace_tiles(TileCover(t for t in cover.tiles if t.operator in operators), commit.tiles)
    except InvariantError as error:
        raise _corrupt(error, commit) from error
    return _checked(changed, commit)


def _checked(cover: TileCover, commit: Commit) -> TileCover:
    try:
        cover.check(commit.max_parallelism)
    except InvariantError as error:
        raise _corrupt(error, commit) from error
    missing = {o.uid for o in commit.operators} ^ cover.operators()
    if missing:
        raise _corrupt(InvariantError(f"tiles and operators differ: {sorted(missing)}"), commit)
    return cover


def _corrupt(error: InvariantError, commit: Commit) -> CorruptDataError:
    text = f"{error.message}; see `varvite verify JOB --repair`"
    return CorruptDataError(text, object_name=layout.chain(commit.seq), batch=commit.batch, **error.context)


def _limited_line(line: tuple[Link, ...], cover: TileCover) -> tuple[Link, ...]:
    """The line without the commits that are older than every tile, at most `LINE_MAX`."""
    line = line[-LINE_MAX:]
    oldest, first = cover.oldest(), 0
    while first < len(line) and line[first].seq < oldest:
        first += 1
    return line[first:] if first else line


def _may_lower_needs(view: LineView, carried: Sequence[ImageRef]) -> bool:
    """Tell whether an image that is not carried over may be the one that determines `needs_from`."""
    gone = set(view.images).difference(carried) if len(carried) < len(view.images) else ()
    names = (image.data.name for image in gone)
    return any(not layout.is_shared(name) and layout.object_slot(name) <= view.needs_from for name in names)


def _lowest_slot(full_seq: int, tiles: Iterable[Tile], index: SegmentIndex, images: Iterable[ImageRef]) -> int:
    names = {image.data.name for image in images}
    names.update([file.name for tile in tiles if tile.files for file in tile.files])
    # A hold in the other job keeps what is shared with it.
    slots = (layout.object_slot(name) for name in names if not layout.is_shared(name))
    return min({full_seq, index.lowest_slot(), *slots})


class _IdentityCache(Generic[_T, _M]):
    """Least-recently-used cache of values computed from tuples, by the tuple's identity; for any thread.

    Hashing the thousands of values in a tuple would cost more than a commit may.
    """

    def __init__(self, compute: Callable[[tuple[_T, ...]], _M]) -> None:
        self._compute = compute
        self._lock = threading.Lock()
        self._cached: dict[int, tuple[tuple[_T, ...], _M]] = {}
        """Each entry holds its tuple, so no other tuple can have its id; the most recently used is the last."""

    def of(self, values: tuple[_T, ...]) -> _M:
        """The result for these values, computed if it is not cached."""
        with self._lock:
            cached = self._cached.get(id(values))
        result = self._compute(values) if cached is None else cached[1]
        self.remember(values, result)
        return result

    def remember(self, values: tuple[_T, ...], result: _M) -> None:
        """Cache the result for these values, and evict the least recently used one."""
        with self._lock:
            self._cached.pop(id(values), None)
            self._cached[id(values)] = values, result
            if len(self._cached) > _CACHED_MAX:
                del self._cached[next(iter(self._cached))]


_COVERS: Final = _IdentityCache[Tile, TileCover](TileCover)
_LINKS: Final = _IdentityCache[Link, frozenset[Link]](frozenset)
