from __future__ import annotations

import pytest

from varvite.changelog.chain.tiles import KeyGroupFloor, TileCover, empty_tile, replace_tiles
from varvite.storage.errors import InvariantError
from varvite.storage.format.records import Link, Tile


def tile(low: int, high: int, seq: int = 0, operator: str = "op") -> Tile:
    return Tile(operator=operator, low=low, high=high, at=Link(seq, f"t{seq}"), snapshot=seq or None)


HALVES = TileCover([tile(4, 8, 5), tile(0, 4, 3)])


def test_tiles_are_found_by_key_group() -> None:
    assert HALVES.over("op", 0, 8) == (tile(0, 4, 3), tile(4, 8, 5))
    assert HALVES.over("op", 3, 4) == (tile(0, 4, 3),)
    assert HALVES.over("op", 4, 5) == (tile(4, 8, 5),)
    assert HALVES.over("op", 4, 4) == HALVES.over("other", 0, 8) == ()


@pytest.mark.parametrize(
    ("newer_than", "expected"),
    [
        (6, (KeyGroupFloor(2, 4, 3), KeyGroupFloor(4, 6, 5))),
        (5, (KeyGroupFloor(2, 4, 3),)),
        (3, ()),
    ],
)
def test_only_tiles_older_than_a_segment_let_it_count(newer_than: int, expected: tuple[KeyGroupFloor, ...]) -> None:
    assert HALVES.floors("op", 2, 6, newer_than) == expected


@pytest.mark.parametrize(
    "tiles",
    [
        [tile(0, 4)],
        [tile(4, 8)],
        [tile(0, 4), tile(5, 8)],
        [tile(0, 5), tile(4, 8)],
        [tile(0, 8), tile(0, 8, 1)],
        [tile(0, 8), tile(8, 8)],
        [tile(0, 9)],
        [tile(0, 8), tile(0, 4, operator="second")],
    ],
)
def test_key_groups_without_a_tile_or_with_two_are_an_error(tiles: list[Tile]) -> None:
    with pytest.raises(InvariantError):
        TileCover(tiles).check(8)


def test_an_exact_cover_is_right() -> None:
    HALVES.check(8)
    TileCover([empty_tile("op", 8, Link(0, "")), tile(0, 1, 1, "b"), tile(1, 8, 2, "b")]).check(8)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param([tile(0, 4, 7)], [tile(0, 4, 7), tile(4, 8, 5)], id="same range"),
        pytest.param([tile(0, 8, 7)], [tile(0, 8, 7)], id="several by one"),
        pytest.param([tile(0, 2, 7), tile(2, 4, 8)], [tile(0, 2, 7), tile(2, 4, 8), tile(4, 8, 5)], id="one by two"),
        pytest.param([tile(0, 3, 7), tile(3, 8, 8)], [tile(0, 3, 7), tile(3, 8, 8)], id="other borders, all together"),
        pytest.param([], [tile(0, 4, 3), tile(4, 8, 5)], id="nothing"),
    ],
)
def test_whole_tiles_are_replaced(changed: list[Tile], expected: list[Tile]) -> None:
    replaced = replace_tiles(HALVES, changed)
    assert list(replaced.tiles) == expected
    replaced.check(8)


def test_tiles_of_the_same_key_groups_take_the_places_of_those_before() -> None:
    before = TileCover([*HALVES.tiles, tile(0, 8, 2, "second"), tile(0, 1, 2, "third"), tile(1, 8, 2, "third")])
    changed = [tile(1, 8, 9, "third"), tile(4, 8, 9), tile(0, 8, 9, "second")]
    after = replace_tiles(before, changed)
    assert after.tiles == TileCover([tile(0, 4, 3), tile(0, 1, 2, "third"), *changed]).tiles
    assert all(after.has(one) for one in changed)
    assert not any(before.has(one) for one in changed)
    assert after.over("third", 0, 8) == (tile(0, 1, 2, "third"), tile(1, 8, 9, "third"))
    assert before.tiles[0] is after.tiles[0]


def test_a_range_that_is_changed_twice_is_an_error() -> None:
    with pytest.raises(InvariantError):
        replace_tiles(HALVES, [tile(0, 4, 7), tile(0, 4, 8)]).check(8)


@pytest.mark.parametrize("changed", [[tile(0, 3, 7)], [tile(2, 6, 7)], [tile(0, 4, 7), tile(4, 7, 7)]])
def test_part_of_a_tile_cannot_be_replaced(changed: list[Tile]) -> None:
    """A snapshot is named by its whole range, so what is left of it would have no name."""
    with pytest.raises(InvariantError, match="part of the tile"):
        replace_tiles(HALVES, changed)


def test_the_oldest_tile_counts() -> None:
    assert (HALVES.oldest(), TileCover([]).oldest()) == (3, 0)


def test_the_oldest_tile_is_found_again_after_a_change_of_the_same_ranges() -> None:
    assert (HALVES.oldest(), HALVES.oldest()) == (3, 3)
    changed = replace_tiles(HALVES, [tile(0, 4, 9)])
    assert (changed.oldest(), HALVES.oldest()) == (5, 3)


def test_a_cover_has_the_ranges_of_another_if_just_tiles_of_the_same_ones_changed() -> None:
    several = TileCover([tile(0, 4), tile(4, 8), tile(0, 8, operator="other")])
    changed = replace_tiles(several, [tile(4, 8, 7), tile(0, 8, 2, "other")])
    assert changed.tiles == (tile(0, 4), tile(4, 8, 7), tile(0, 8, 2, "other"))
    assert changed.has_ranges_of(several)
    assert not replace_tiles(several, [tile(0, 8, 7)]).has_ranges_of(several)
    assert not TileCover(several.tiles).has_ranges_of(several), "then it is not known"
