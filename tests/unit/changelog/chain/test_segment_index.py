"""Segments in columns: the same answers as looking at one after another, for every way in which ranges can lie."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from varvite.changelog.chain.segment_index import SegmentIndex, counted
from varvite.changelog.chain.tiles import TileCover, replace_tiles
from varvite.storage.format import layout
from varvite.storage.format.records import Link, ObjectSlice, SegmentRef, Tile


def tile(low: int, high: int, seq: int, operator: str = "op") -> Tile:
    return Tile(operator=operator, low=low, high=high, at=Link(seq, "t"))


def segment(operator: str, low: int, high: int, seq: int, name: str = layout.chain(1)) -> SegmentRef:
    return SegmentRef(operator, low, high, 1, seq, ObjectSlice(name, 0, 1, 0))


def kept(segments: tuple[SegmentRef, ...], cover: TileCover, changed: Sequence[Tile]) -> tuple[SegmentRef, ...]:
    return counted(segments, SegmentIndex.of(segments), BEFORE, cover, changed).segments


def by_definition(cover: TileCover, segments: Iterable[SegmentRef]) -> tuple[SegmentRef, ...]:
    """One after another."""
    return tuple(s for s in segments if cover.floors(s.operator, s.low, s.high, s.seq_last))


BEFORE = TileCover([tile(0, 4, 2), tile(4, 8, 5), tile(0, 8, 1, "b")])
RANGES = [(low, high) for low in range(8) for high in range(low + 1, 9)]
SEQS = (1, 2, 4, 5, 6, 7, 8)
COUNTED = by_definition(BEFORE, (segment(o, low, high, q) for q in SEQS for low, high in RANGES for o in ("op", "b")))


@pytest.mark.parametrize(
    "changed",
    [
        [tile(0, 4, 6)],
        [tile(4, 8, 7)],
        [tile(0, 2, 4), tile(2, 4, 8)],
        [tile(0, 8, 8), tile(0, 8, 7, "b")],
        [tile(0, 8, 8, "b")],
        [tile(0, 8, 9), tile(0, 8, 9, "b")],
    ],
)
def test_segments_that_counted_are_counted_again_where_tiles_changed(changed: list[Tile]) -> None:
    cover = replace_tiles(BEFORE, changed)
    found = kept(COUNTED, cover, changed)
    assert found == by_definition(cover, COUNTED)
    assert len(found) < len(COUNTED)


def test_if_nothing_is_dropped_the_very_tuple_comes_back() -> None:
    newer = [tile(0, 4, 3)]  # no segment is of seq 3
    assert kept(COUNTED, replace_tiles(BEFORE, newer), newer) is COUNTED


def test_what_touches_no_changed_tile_is_not_looked_at() -> None:
    old = (segment("op", 0, 4, 1),)
    assert kept(old, replace_tiles(BEFORE, [tile(4, 8, 9)]), [tile(4, 8, 9)]) is old


def test_segments_of_an_operator_that_is_gone_are_dropped() -> None:
    cover = TileCover([t for t in BEFORE.tiles if t.operator == "op"])
    found = kept(COUNTED, cover, ())
    assert {s.operator for s in found} == {"op"}
    assert found == by_definition(cover, COUNTED)


def test_no_segments_have_an_index() -> None:
    index = SegmentIndex.of(())
    assert kept((), BEFORE, BEFORE.tiles) == ()
    assert index.inline_bytes() == 0
    assert index.count_commits() == 0
    assert index.lowest_slot() > 1 << 60
    assert index.extended([]) is index


def test_an_index_that_is_extended_and_cut_is_that_of_what_is_left() -> None:
    rows = [segment("b", 0, 8, 2), *COUNTED[:40], segment("c", 3, 5, 4), segment("op", 1, 2, 9)]
    index = SegmentIndex.of(rows[:7]).extended(rows[7:30]).extended(rows[30:])
    changed = [tile(0, 8, 8), tile(0, 8, 9, "c")]
    cover = TileCover([*changed, tile(0, 8, 1, "b")])
    counting = index.still_counting(cover, changed)
    assert counting.tolist() == SegmentIndex.of(rows).still_counting(cover, changed).tolist()
    left = tuple(row for row, counts in zip(rows, counting, strict=True) if counts)
    assert left == by_definition(cover, rows)
    assert index.only(counting).inline_bytes() == len(left)
    assert index.only(counting).still_counting(cover, cover.tiles).all()
    assert index.only(counting).count_commits() == len({s.seq_last for s in left})
    none = index.only(counting & False)
    assert none.still_counting(cover, changed).tolist() == []


def test_slots_are_those_of_the_jobs_own_objects() -> None:
    own = [segment("op", 0, 8, 9, layout.chain(9)), segment("op", 0, 8, 7, layout.segment(7, "op", 0, "tag", 0))]
    shared = segment("op", 0, 8, 1, f"../other/{layout.chain(1)}")
    assert layout.is_shared(shared.data.name)
    assert SegmentIndex.of([*own, shared]).lowest_slot() == 7
    assert SegmentIndex.of([shared]).lowest_slot() > 1 << 60
    assert SegmentIndex.of([*own, shared]).count_commits() == 3


def test_inline_are_the_slices_of_the_jobs_own_chain_entries() -> None:
    own, shared = layout.chain(9), f"../other/{layout.chain(9)}"
    names = [own, layout.segment(9, "op", 0, "tag", 0), layout.pack(9, "tag"), shared, own]
    rows = [SegmentRef("op", 0, 8, 9, 9, ObjectSlice(name, 0, 10 + n, 0)) for n, name in enumerate(names)]
    assert SegmentIndex.of(rows).inline.tolist() == [10, 0, 0, 0, 14]
    assert SegmentIndex.of(rows[:2]).extended(rows[2:]).inline_bytes() == 24
