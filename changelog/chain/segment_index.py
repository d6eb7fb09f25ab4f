"""The numbers of a line's segments as columns, so that thousands of segments are compared in one numpy call.

With thousands of partitions a line has tens of thousands of segments, of which a commit that adopts a snapshot drops a
few. A driver keeps the columns from commit to commit; other callers compute them.

Invariants: I5 (a segment counts iff it is newer than some tile that it touches), I7 (`lowest_slot` covers every object
of the job).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from varvite.storage.format import layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varvite.changelog.chain.tiles import TileCover
    from varvite.storage.format.records import SegmentRef, Tile

Numbers: TypeAlias = np.ndarray[Any, Any]
_SHARED: Final = (1 << 63) - 1
"""Stands for the slot of another job's object, which a hold in that job keeps."""
_KEY_GROUP_BITS: Final = 20
"""More bits than a key group needs."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentIndex:
    """One element per segment in each column, in the segments' order; the columns must not be changed."""

    operators: tuple[str, ...]
    codes: Numbers
    """Positions in `operators`."""
    lows: Numbers
    highs: Numbers
    seqs: Numbers
    """`seq_last`."""
    slots: Numbers
    """Slots of the objects."""
    inline: Numbers
    """Bytes of those that are slices of a chain entry, which a pack takes up; 0 of all others."""

    @staticmethod
    def of(segments: Sequence[SegmentRef]) -> SegmentIndex:
        """The columns of these segments."""
        # Thousands: numpy takes lists of attributes in less time than iterators, and what is equal is not looked up.
        uids = [segment.operator for segment in segments]
        names = [segment.data.name for segment in segments]
        operators = tuple(dict.fromkeys(uids))
        codes = {uid: code for code, uid in enumerate(operators)}
        slots = {name: _slot(name) for name in set(names)}
        is_inline = {name: layout.is_chain(name) for name in slots}
        lengths = np.array([segment.data.length for segment in segments], np.int64)
        return SegmentIndex(
            operators,
            _looked_up(codes, uids).astype(np.int32),
            np.array([segment.low for segment in segments], np.int32),
            np.array([segment.high for segment in segments], np.int32),
            np.array([segment.seq_last for segment in segments], np.int64),
            _looked_up(slots, names),
            lengths * _looked_up(is_inline, names),
        )

    def extended(self, segments: Sequence[SegmentRef]) -> SegmentIndex:
        """The index with these segments appended."""
        if not segments:
            return self
        more = SegmentIndex.of(segments)
        operators = tuple(dict.fromkeys(self.operators + more.operators))
        codes = np.array([operators.index(uid) for uid in more.operators], np.int32)[more.codes]
        pairs = zip(self.columns(), (codes, *more.columns()[1:]), strict=True)
        return SegmentIndex(operators, *map(np.concatenate, pairs))

    def only(self, counting: Numbers) -> SegmentIndex:
        """The index of the segments for which `counting` is true."""
        return SegmentIndex(self.operators, *(column[counting] for column in self.columns()))

    def still_counting(self, cover: TileCover, changed: Sequence[Tile]) -> Numbers:
        """Booleans: whether each segment counts, if all counted before the cover's `changed` tiles came.

        Segments of an operator without tiles do not count.
        """
        positions = np.flatnonzero(self._touched(cover, changed))
        counting = np.ones(len(self.codes), bool)
        counting[positions] = self.seqs[positions] > self._oldest(cover, positions)
        return counting

    def lowest_slot(self) -> int:
        """The lowest slot of an object of this job; above every slot if there is none."""
        return int(self.slots.min(initial=_SHARED))

    def count_commits(self) -> int:
        """Number of the commits, or packed runs of commits, whose segments a restore replays."""
        return len(np.unique(self.seqs))

    def inline_bytes(self) -> int:
        """Bytes of the segments that are slices of chain entries."""
        return int(self.inline.sum())

    def columns(self) -> tuple[Numbers, ...]:
        """All columns, in the order of the fields."""
        return self.codes, self.lows, self.highs, self.seqs, self.slots, self.inline

    def _touched(self, cover: TileCover, changed: Sequence[Tile]) -> Numbers:
        """Booleans: whether each segment touches a changed tile, or its operator has no tiles."""
        touched = np.zeros(len(self.codes), bool)
        with_tiles, with_changes = cover.operators(), {tile.operator for tile in changed}
        for code, uid in enumerate(self.operators):
            of_operator = self.codes == code
            if uid not in with_tiles:
                touched[of_operator] = True
            elif uid in with_changes:
                below = _changed_below(int(self.highs.max(initial=0)), [t for t in changed if t.operator == uid])
                touched[of_operator] = below[self.lows[of_operator]] != below[self.highs[of_operator]]
        return touched

    def _oldest(self, cover: TileCover, positions: Numbers) -> Numbers:
        """The lowest `at` seq of the tiles that each of these segments touches."""
        codes, lows, highs = (column[positions].astype(np.int64) for column in (self.codes, self.lows, self.highs))
        ranges = (codes << 2 * _KEY_GROUP_BITS) | (lows << _KEY_GROUP_BITS) | highs
        _, first, place = np.unique(ranges, return_index=True, return_inverse=True)
        distinct: list[list[int]] = np.stack([codes, lows, highs], axis=1)[first].tolist()
        oldest = [cover.oldest_over(self.operators[code], low, high) for code, low, high in distinct]
        return np.array(oldest, np.int64)[place]


class Counted(NamedTuple):
    """The segments that count, of some others."""

    segments: tuple[SegmentRef, ...]
    """The same tuple as before, if all count."""
    segment_index: SegmentIndex
    """Of `segments`."""


def counted(
    segments: tuple[SegmentRef, ...],
    index: SegmentIndex,
    before: TileCover,
    cover: TileCover,
    changed: Sequence[Tile],
) -> Counted:
    """Select the segments that count under `cover`, of segments that all counted under the cover `before`.

    Args:
        segments: In order.
        index: Of the segments.
        before: The cover until now.
        cover: The new one.
        changed: Its tiles that are not in `before`.
    """
    is_same = cover.operators() == before.operators()
    counting = index.still_counting(cover, changed if is_same else cover.tiles)
    if counting.all():
        return Counted(segments, index)
    return Counted(tuple(compress(segments, counting.tolist())), index.only(counting))


def _looked_up(values: Mapping[str, int], keys: Sequence[str]) -> Numbers:
    """The value of each key."""
    if len(values) == 1:
        return np.full(len(keys), values[keys[0]], np.int64)
    return np.array([values[key] for key in keys], np.int64)


def _slot(name: str) -> int:
    return _SHARED if layout.is_shared(name) else layout.object_slot(name)


def _changed_below(high: int, changed: Sequence[Tile]) -> Numbers:
    """The number of changed key groups below each, up to `high` at least: two look-ups show whether a range has any."""
    is_changed = np.zeros(1 + max(high, *(tile.high for tile in changed)), np.int32)
    for tile in changed:
        is_changed[tile.low + 1 : tile.high + 1] = 1
    return np.cumsum(is_changed)
