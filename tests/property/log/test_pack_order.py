"""With any pack and any ranges each key group is replayed in the order of before (I5)."""

from __future__ import annotations

import zlib
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from varvite.changelog.commit import pack as pack_module
from varvite.changelog.commit.pack import Pack, PackHeader, plan_pack
from varvite.storage.format import layout
from varvite.storage.format.records import ObjectSlice, SegmentRef

HEADER = PackHeader(job_id="j", token="t", slot=99)
KEY_GROUPS = 8


def segment(seq: int, operator: str, low: int, high: int, name: str) -> tuple[SegmentRef, bytes]:
    data = f"{operator} {name}:{low};".encode()
    place = ObjectSlice(name, 0, len(data), zlib.crc32(data))
    return SegmentRef(operator, low, high, seq, seq, place), data


def replayed(refs: tuple[SegmentRef, ...], operator: str, key_group: int, pack: Pack | None = None) -> list[str]:
    """The names of the segments that touch a key group, in order of replay."""
    found: list[str] = []
    for ref in refs:
        if ref.operator != operator or not ref.low <= key_group < ref.high:
            continue
        if pack is not None and ref.data.name == pack.name:
            body = pack.body[ref.data.offset : ref.data.offset + ref.data.length]
            assert zlib.crc32(body) == ref.data.crc32
            found += body.decode().rstrip(";").split(";")
        else:
            found.append(f"{operator} {ref.data.name}:{ref.low}")
    return found


PARTS = st.lists(st.sampled_from(["packed", "elsewhere", "both", "unchanged"]), min_size=4, max_size=4)
"""Segments that each partition wrote; with both, first what a pack does not take up."""
BATCHES = st.lists(st.dictionaries(st.sampled_from("ab"), st.tuples(st.sampled_from([2, 4, 8]), PARTS)), max_size=12)


@given(BATCHES, st.sampled_from([0, 1 << 10]))
def test_a_pack_changes_no_order_of_replay(batches: list[dict[str, tuple[int, list[str]]]], at_once: int) -> None:
    refs: list[SegmentRef] = []
    data: dict[SegmentRef, bytes] = {}
    for seq, batch in enumerate(batches, 1):
        for operator, (width, parts) in batch.items():
            for low, what in zip(range(0, KEY_GROUPS, width), parts, strict=False):
                if what in {"elsewhere", "both"}:
                    refs.append(segment(seq, operator, low, low + width, f"{layout.SEGMENTS}{seq}/{low}")[0])
                if what in {"packed", "both"}:
                    ref, body = segment(seq, operator, low, low + width, layout.chain(seq))
                    refs.append(ref)
                    data[ref] = body
    with patch.object(pack_module, "_TOGETHER_BYTES_MAX", at_once):
        pack = plan_pack(tuple(refs), data, HEADER)
    assert set(pack.packed) == set(data)
    for operator in "ab":
        for key_group in range(KEY_GROUPS):
            before = replayed(tuple(refs), operator, key_group)
            assert replayed(pack.replaced, operator, key_group, pack) == before
