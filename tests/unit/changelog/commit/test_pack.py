from __future__ import annotations

import zlib

import pytest

from varvite.changelog.commit.pack import (
    JOINED_BYTES_MAX,
    Pack,
    PackHeader,
    is_packable,
    open_pack,
    packable_of,
    plan_pack,
    replace_packed,
)
from varvite.storage.errors import CorruptDataError, InvariantError
from varvite.storage.format import layout
from varvite.storage.format.records import ObjectSlice, SegmentRef

HEADER = PackHeader(job_id="j", token="tok", slot=20)
Run = tuple[int, int, int, int, bytes]


def inline(seq: int, low: int, high: int, data: bytes | None = None, operator: str = "op") -> SegmentRef:
    text = f"{seq}:{low};".encode() if data is None else data
    return SegmentRef(operator, low, high, seq, seq, ObjectSlice(layout.chain(seq), 9, len(text), zlib.crc32(text)))


def uploaded(seq: int, low: int, high: int) -> SegmentRef:
    return SegmentRef("op", low, high, seq, seq, ObjectSlice(layout.segment(seq, "op", 0, "t", 0), 0, 5, 1))


def data_of(refs: list[SegmentRef]) -> dict[SegmentRef, bytes]:
    return {r: f"{r.seq_first}:{r.low};".encode() for r in refs if is_packable(r)}


def pack(refs: list[SegmentRef]) -> Pack:
    return plan_pack(refs, data_of(refs), HEADER)


def runs(packed: Pack) -> list[Run]:
    return [
        (r.low, r.high, r.seq_first, r.seq_last, packed.body[r.data.offset : r.data.offset + r.data.length])
        for r in packed.refs
    ]


def test_segments_are_sorted_by_range_and_runs_become_one_reference() -> None:
    packed = pack([inline(2, 0, 4), inline(2, 4, 8), inline(3, 0, 4), inline(5, 0, 4), inline(5, 4, 8)])
    assert runs(packed) == [(0, 4, 2, 5, b"2:0;3:0;5:0;"), (4, 8, 2, 5, b"2:4;5:4;")]
    assert packed.name == layout.pack(20, "tok")
    assert bytes(open_pack(packed.body, "p").blob) == b"2:0;3:0;5:0;2:4;5:4;"


def test_operators_stay_apart() -> None:
    refs = [inline(2, 0, 8, operator="b"), inline(2, 0, 8, operator="a"), inline(3, 0, 8, operator="b")]
    packed = pack(refs)
    assert [(r.operator, r.seq_first, r.seq_last) for r in packed.refs] == [("a", 2, 2), ("b", 2, 3)]


def test_a_run_ends_where_the_parallelism_changed() -> None:
    """Else the segment of the other layout would be replayed before or after the whole run."""
    packed = pack([inline(2, 0, 8), inline(3, 0, 4), inline(3, 4, 8), inline(4, 0, 8)])
    assert [r[:4] for r in runs(packed)] == [(0, 4, 3, 3), (0, 8, 2, 2), (0, 8, 4, 4), (4, 8, 3, 3)]


def test_a_run_ends_at_an_uploaded_segment_of_its_key_groups() -> None:
    refs = [inline(2, 0, 4), inline(2, 4, 8), uploaded(3, 0, 4), inline(3, 0, 4), inline(4, 0, 4), inline(4, 4, 8)]
    packed = pack(refs)
    assert [r[:4] for r in runs(packed)] == [(0, 4, 2, 2), (0, 4, 3, 4), (4, 8, 2, 4)]
    replaced = [(r.low, r.seq_first, r.seq_last, is_packable(r)) for r in replace_packed(refs, packed)]
    assert replaced == [(0, 2, 2, False), (4, 2, 4, False), (0, 3, 3, False), (0, 3, 4, False)]
    assert replace_packed(refs, packed)[2] == uploaded(3, 0, 4)


def packed_before(slot: int, low: int, high: int, size_bytes: int, shared: bool = False) -> SegmentRef:
    name = layout.pack(slot, "t")
    place = ObjectSlice(layout.shared("other", name) if shared else name, 0, size_bytes, 1)
    return SegmentRef("op", low, high, slot - 2, slot - 1, place)


def test_a_pack_takes_up_the_packs_before_it_that_are_small() -> None:
    new = [inline(18, 0, 4, b"x" * 50), inline(19, 4, 8, b"x" * 50)]
    old, older = packed_before(10, 0, 4, 150), packed_before(5, 0, 4, 500)
    elsewhere = uploaded(12, 0, 4)
    assert packable_of([old, elsewhere, *new]) == [old, *new]
    assert packable_of([older, old, *new]) == [older, old, *new], "500 bytes are at most twice 100 + 150"
    assert packable_of([packed_before(5, 0, 4, 501), old, *new]) == [old, *new]
    assert packable_of([packed_before(5, 0, 4, 1), packed_before(10, 0, 4, 201), *new]) == new, "newest first"
    halves = [packed_before(10, 0, 4, 150), packed_before(10, 4, 8, 150)]
    assert packable_of([*halves, *new]) == new, "all of a pack, or nothing"
    assert packable_of([old]) == [], "without anything new there is no pack"


def test_a_pack_that_is_large_or_of_another_job_stays() -> None:
    new = [inline(19, 0, 4, b"x" * JOINED_BYTES_MAX)]
    limit = packed_before(10, 0, 4, JOINED_BYTES_MAX)
    assert packable_of([limit, *new]) == [limit, *new]
    assert packable_of([packed_before(5, 0, 4, 1), limit, *new]) == [limit, *new]
    assert packable_of([packed_before(10, 0, 4, JOINED_BYTES_MAX + 1), *new]) == new
    assert packable_of([packed_before(10, 0, 4, 1, shared=True), *new]) == new


def test_what_is_not_in_memory_stays_where_it_is() -> None:
    refs = [inline(2, 0, 8), inline(3, 0, 8), inline(4, 0, 8)]
    packed = plan_pack(refs, data_of([refs[0], refs[2]]), HEADER)
    assert [r[:4] for r in runs(packed)] == [(0, 8, 2, 2), (0, 8, 4, 4)]
    assert replace_packed(refs, packed) == (packed.refs[0], refs[1], packed.refs[1])


def test_bytes_that_do_not_match_their_reference_are_refused() -> None:
    with pytest.raises(InvariantError):
        plan_pack([inline(2, 0, 8)], {inline(2, 0, 8): b"2:0:"}, HEADER)


def test_a_damaged_pack_is_found() -> None:
    body = bytearray(pack([inline(2, 0, 8)]).body)
    body[-1] ^= 1
    with pytest.raises(CorruptDataError) as caught:
        open_pack(bytes(body), "pack/x")
    assert caught.value.context["object_name"] == "pack/x"
