"""Tiles: the snapshots that are the bases of all key groups of all operators. Pure.

Invariants: I5 (the tiles of an operator cover `[0, max_parallelism)` exactly, each key group once; a segment counts for
a key group iff it is newer than that key group's tile).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.storage.errors import InvariantError
from varvite.storage.format.records import Tile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from varvite.storage.format.records import Link


_IN_ORDER: Final = attrgetter("operator", "low")
_NO_TILE: Final = 1 << 62
"""A number above every seq."""


class KeyGroupFloor(NamedTuple):
    """For key groups `[low, high)`, only segments with seq > `seq` count: they are replayed above this floor."""

    low: int
    high: int
    seq: int


def key_range(partition: int, parallelism: int, max_parallelism: int) -> tuple[int, int]:
    """Key groups `[low, high)` of a partition: those with `kg * parallelism // max_parallelism == partition`."""
    low = -(-partition * max_parallelism // parallelism)
    high = -(-(partition + 1) * max_parallelism // parallelism)
    return low, high


class TileCover:
    """The tiles of a line at one commit, looked up by operator and key group. Immutable; `tiles` are in order."""

    __slots__ = ("_by_operator", "_lows", "_oldest", "tiles")

    def __init__(self, tiles: Iterable[Tile]) -> None:
        ordered = tuple(sorted(tiles, key=_IN_ORDER))
        # The same tuple if it is in order: unchanged tiles are then recognized without comparing them.
        self.tiles: tuple[Tile, ...] = tiles if isinstance(tiles, tuple) and tiles == ordered else ordered
        self._by_operator = {o: tuple(group) for o, group in groupby(self.tiles, key=attrgetter("operator"))}
        self._lows = {o: [t.low for t in group] for o, group in self._by_operator.items()}
        self._oldest: int | None = None

    def operators(self) -> frozenset[str]:
        """The operators that have tiles."""
        return frozenset(self._by_operator)

    def has(self, tile: Tile) -> bool:
        """Tell whether this tile, the same object, is one of them."""
        return any(held is tile for held in self.over(tile.operator, tile.low, tile.high))

    def over(self, operator: str, low: int, high: int) -> tuple[Tile, ...]:
        """The tiles that intersect key groups `[low, high)`, in order."""
        lows = self._lows.get(operator)
        if lows is None or low >= high:
            return ()
        tiles, first = self._by_operator[operator], max(0, bisect_right(lows, low) - 1)
        if tiles[first].low == low and tiles[first].high == high:  # nearly always, and thousands are looked up
            return (tiles[first],)
        near = tiles[first : bisect_right(lows, high - 1)]
        return tuple(t for t in near if t.low < high and low < t.high)

    def with_same_ranges(self, changed: Sequence[Tile]) -> TileCover | None:
        """The cover with these tiles, if each replaces one of exactly its key groups; None if not.

        Few of thousands change, and then they need not be sorted again.
        """
        after: dict[str, list[Tile]] = {}
        for tile in changed:
            lows, before = self._lows.get(tile.operator, ()), self._by_operator.get(tile.operator, ())
            tiles = after.setdefault(tile.operator, list(before))
            at = bisect_left(lows, tile.low)
            is_first = at < len(lows) and tiles[at] is before[at]
            if not is_first or (before[at].low, before[at].high) != (tile.low, tile.high):
                return None
            tiles[at] = tile
        cover = object.__new__(TileCover)
        cover._by_operator = self._by_operator | {uid: tuple(tiles) for uid, tiles in after.items()}
        cover._lows, cover._oldest = self._lows, None
        groups = cover._by_operator
        is_single = len(groups) == 1  # each pass over thousands of tiles counts
        cover.tiles = next(iter(groups.values())) if is_single else tuple(chain.from_iterable(groups.values()))
        return cover

    def has_ranges_of(self, other: TileCover) -> bool:
        """Tell whether it is known, without comparing, that both have tiles of the same key groups."""
        return self._lows is other._lows

    def floors(self, operator: str, low: int, high: int, newer_than: int) -> tuple[KeyGroupFloor, ...]:
        """The ranges within `[low, high)` whose tile is older than seq `newer_than`, each with its tile's seq."""
        return tuple(
            KeyGroupFloor(max(low, t.low), min(high, t.high), t.at.seq)
            for t in self.over(operator, low, high)
            if t.at.seq < newer_than
        )

    def oldest(self) -> int:
        """The lowest `at` seq of all tiles; 0 without tiles."""
        if self._oldest is None:
            self._oldest = min([t.at.seq for t in self.tiles], default=0)
        return self._oldest

    def oldest_over(self, operator: str, low: int, high: int) -> int:
        """The lowest `at` seq of the tiles that intersect `[low, high)`; a number above every seq if there is none."""
        return min((t.at.seq for t in self.over(operator, low, high)), default=_NO_TILE)

    def check(self, max_parallelism: int) -> None:
        """Raise `InvariantError` unless each operator's tiles cover `[0, max_parallelism)` exactly."""
        for operator, tiles in self._by_operator.items():
            position = 0
            for tile in tiles:
                if tile.low != position or tile.high <= tile.low:
                    raise InvariantError(
                        f"the tiles do not cover the key groups once each: {tile.low}-{tile.high} follows {position}",
                        operator=operator,
                    )
                position = tile.high
            if position != max_parallelism:
                raise InvariantError(
                    f"the tiles cover key groups 0-{position} of 0-{max_parallelism}", operator=operator
                )


def replace_tiles(cover: TileCover, changed: Sequence[Tile]) -> TileCover:
    """The cover after a commit that changed these tiles.

    A tile that lies wholly in the changed key groups is replaced. One that lies partly in them is an `InvariantError`,
    because a snapshot is named by its whole range.
    """
    if not changed:
        return cover
    same = cover.with_same_ranges(changed)
    if same is not None:
        return same
    new = TileCover(changed)
    old = {(t.operator, t.low): t for c in new.tiles for t in cover.over(c.operator, c.low, c.high)}
    for tile in old.values():
        _check_replaced(tile, new)
    return TileCover([*(t for t in cover.tiles if (t.operator, t.low) not in old), *changed])


def _check_replaced(tile: Tile, new: TileCover) -> None:
    changed = new.over(tile.operator, tile.low, tile.high)
    covered = sum(min(tile.high, c.high) - max(tile.low, c.low) for c in changed)
    if covered != tile.high - tile.low:
        raise InvariantError(
            f"new tiles replace only part of the tile {tile.low}-{tile.high}; change all of its key groups together",
            operator=tile.operator,
        )


def empty_tile(operator: str, max_parallelism: int, at: Link) -> Tile:
    """The empty state of a whole operator after commit `at`: neither snapshot nor files."""
    return Tile(operator=operator, low=0, high=max_parallelism, at=at)
