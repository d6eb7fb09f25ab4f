"""Packs: the inline segments of many batches in one object, sorted so that a restore takes few ranged reads. Pure.

A pack is a frame of kind `PACK`. Its header has job id and token. Its blob holds the segments' bytes one after another,
then those of images of non-keyed state. A pack also takes up small packs that were made before it. It is written for
the full entry at one slot, and only that entry may name it (I7).

A segment is self-framed, so one reference can stand for a run of segments. A run never reaches across a segment of
overlapping key groups that is stored elsewhere or has another range. So the order of references stays the order of
replay (I5).
"""

from __future__ import annotations

import zlib
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from varvite.changelog.chain.segment_index import SegmentIndex
from varvite.storage.errors import InvariantError
from varvite.storage.format import layout
from varvite.storage.format.frame import blob_offset, decode_json, frame, frame_pieces, unframe
from varvite.storage.format.records import ImageRef, ObjectSlice, Record, SegmentRef, encode_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

VERSION: Final = 1
_KIND: Final = b"PACK"

JOINED_BYTES_MAX: Final = 2 << 20
"""Limit of the packs that one pack takes up; the driver holds them in memory meanwhile."""
JOINED_FACTOR: Final = 2
"""A pack is taken up if it is at most this many times as large as what the new one holds already."""

_TOGETHER_BYTES_MAX: Final = 64 << 10
"""A run of at most this size is copied in one piece."""

_Range = tuple[str, int, int]
"""Operator and key groups."""


class PackHeader(Record, frozen=True, kw_only=True):
    """The writer of the pack, and its slot."""

    job_id: str
    token: str
    slot: int


class Pack(NamedTuple):
    """A pack to upload under `name` and then to hand to the commit plan of `slot`."""

    slot: int
    name: str
    body: bytes
    """Empty once it is stored."""
    refs: tuple[SegmentRef, ...]
    """A reference per run, with offsets in the whole object."""
    packed: tuple[SegmentRef, ...]
    """The references that `refs` replace."""
    images: tuple[tuple[ImageRef, ImageRef], ...] = ()
    """Images: the reference until now, and the one into the pack."""
    planned_from: Sequence[SegmentRef] = ()
    """The view's segments that it was planned from."""
    replaced: tuple[SegmentRef, ...] = ()
    """These segments with `refs` in place of the packed ones."""
    replaced_index: SegmentIndex | None = None
    """Of `replaced`; computed with the pack, so that the commit does not wait for it."""
    replaced_encoded: bytes = b""
    """`replaced` as `encode_entry` takes it, for the same reason."""
    size_bytes: int = 0
    """Of the object."""


class PackFrame(NamedTuple):
    """An opened pack."""

    header: PackHeader
    blob: memoryview


def is_packable(ref: SegmentRef | ImageRef) -> bool:
    """Tell whether the reference points into a chain entry, whose inline bytes are worth packing."""
    return layout.is_chain(ref.data.name)


def packable_of(refs: Sequence[SegmentRef]) -> list[SegmentRef]:
    """The segments of a view that the next pack takes up: those that are `is_packable`, and small packs before it.

    A reference to an object of an old slot keeps everything since then from being collected, so also the entries whose
    segments are in later packs. Therefore a pack takes up earlier ones, the newest first, as long as each is at most
    `JOINED_FACTOR` times as large as what the pack holds already. So a byte is written only a few times.
    """
    # Thousands, so each pass is a comprehension, and each name is examined once.
    names = [ref.data.name for ref in refs]
    distinct = set(names)
    inline = {name for name in distinct if layout.is_chain(name)}
    packs = {name: 0 for name in distinct if name.startswith(layout.PACKS)}
    inline_bytes = sum([ref.data.length for ref in refs if ref.data.name in inline])
    if packs:
        for ref in refs:
            if ref.data.name in packs:
                packs[ref.data.name] += ref.data.length
    taken = inline | _joined(packs, inline_bytes)
    return [ref for ref, name in zip(refs, names, strict=True) if name in taken]


def _joined(packs: Mapping[str, int], inline_bytes: int) -> frozenset[str]:
    """The packs, of names and sizes in bytes, that a pack of so many inline bytes takes up."""
    names: set[str] = set()
    joined_bytes = 0
    for name, size_bytes in sorted(packs.items(), key=lambda pack: layout.slot_of(pack[0]).slot, reverse=True):
        if size_bytes > JOINED_FACTOR * (inline_bytes + joined_bytes) or joined_bytes + size_bytes > JOINED_BYTES_MAX:
            break
        names.add(name)
        joined_bytes += size_bytes
    return frozenset(names)


def plan_pack(
    segments: Sequence[SegmentRef],
    data: Mapping[SegmentRef, bytes],
    header: PackHeader,
    images: Mapping[ImageRef, bytes] | None = None,
) -> Pack:
    """Pack those of a view's `segments` (all of them, in the view's order) whose bytes are in `data`, and images.

    Raises `InvariantError` if bytes do not match their reference.
    """
    is_packed = [ref in data for ref in segments]
    runs = _runs(segments, is_packed)
    head = msgspec.json.encode(header)
    name, offset = layout.pack(header.slot, header.token), blob_offset(head)
    refs: list[SegmentRef] = []
    copied: list[tuple[ImageRef, ImageRef]] = []

    def pieces() -> Iterator[bytes]:
        nonlocal offset
        for run in runs:
            begin, crc32 = offset, 0
            for piece in _pieces_of(run):
                joined = _joined_bytes(piece, data)
                crc32 = zlib.crc32(joined, crc32)
                offset += len(joined)
                yield joined
            place = ObjectSlice(name, begin, offset - begin, crc32)
            first = run[0]
            refs.append(SegmentRef(first.operator, first.low, first.high, first.seq_first, run[-1].seq_last, place))
        places: dict[ObjectSlice, ObjectSlice] = {}
        for image, body in (images or {}).items():
            if image.data not in places:
                _check(image.data, body, image.operator)
                yield body
                places[image.data] = ObjectSlice(name, offset, len(body), image.data.crc32)
                offset += len(body)
            copied.append((image, msgspec.structs.replace(image, data=places[image.data])))

    body = frame_pieces(_KIND, VERSION, head, pieces())
    replaced = _in_order([ref for ref, is_in in zip(segments, is_packed, strict=True) if not is_in], refs)
    return Pack(
        header.slot,
        name,
        body,
        tuple(refs),
        tuple(compress(segments, is_packed)),
        tuple(copied),
        planned_from=segments,
        replaced=replaced,
        replaced_index=SegmentIndex.of(replaced),
        replaced_encoded=encode_log(replaced),
        size_bytes=len(body),
    )


def encode_pack(header: PackHeader, blob: bytes) -> bytes:
    """The object of a pack."""
    return frame(_KIND, VERSION, msgspec.json.encode(header), blob)


def pack_blob_offset(header: PackHeader) -> int:
    """The place in the object at which the blob begins, in bytes."""
    return blob_offset(msgspec.json.encode(header))


def open_pack(body: bytes | memoryview, name: str) -> PackFrame:
    """Verify a whole pack. Raises `CorruptDataError`, `IncompatibleError`."""
    opened = unframe(_KIND, VERSION, body, name)
    return PackFrame(decode_json(opened.header, PackHeader, "the pack's header", name), opened.blob)


def replace_packed(segments: Sequence[SegmentRef], pack: Pack) -> tuple[SegmentRef, ...]:
    """The segments with the pack's references in place of what it packed, in an order that is replay order.

    A run begins at a seq where nothing unpacked of its key groups follows within the run; what is left unpacked at the
    same seq (uploaded parts) precedes the inline part, and the sort is stable, so it stays in front.
    """
    if segments is pack.planned_from and pack.replaced:
        return pack.replaced
    packed = frozenset(pack.packed)
    return _in_order([ref for ref in segments if ref not in packed], pack.refs)


def _in_order(left: Sequence[SegmentRef], refs: Sequence[SegmentRef]) -> tuple[SegmentRef, ...]:
    """All references in the order of replay."""
    return tuple(sorted([*left, *refs], key=attrgetter("seq_first")))


def replace_packed_images(images: Sequence[ImageRef], pack: Pack) -> tuple[ImageRef, ...]:
    """The images with the pack's references in place of those of what it copied."""
    copies = dict(pack.images)
    return tuple(copies.get(image, image) for image in images)


def _runs(segments: Sequence[SegmentRef], is_packed: Sequence[bool]) -> list[list[SegmentRef]]:
    """Maximal runs of one operator and range of what is packed, in order of operator, range and seq."""
    if not any(is_packed):
        return []
    uids = [ref.operator for ref in segments]
    codes = {uid: code for code, uid in enumerate(sorted(set(uids)))}
    columns = np.array(
        [
            [codes[uid] for uid in uids],
            [ref.low for ref in segments],
            [ref.high for ref in segments],
            [ref.seq_first for ref in segments],
        ],
        np.int64,
    )
    order = np.lexsort(columns[::-1])  # stable
    ranges, packed = columns[:3, order], np.array(is_packed, bool)[order]
    follows = np.zeros(len(order), bool)  # the one before, in its range
    follows[1:] = (ranges[:, 1:] == ranges[:, :-1]).all(axis=0)
    firsts: list[int] = order[~follows].tolist()
    crossing = _crossing({(segments[i].operator, segments[i].low, segments[i].high) for i in firsts})
    if crossing:
        return _uncrossed_runs(segments, is_packed, crossing)
    follows[1:] &= packed[:-1]
    places: list[int] = order[packed].tolist()
    packed_refs = [segments[i] for i in places]
    begins: list[int] = np.flatnonzero(~follows[packed]).tolist()
    ends = [*begins[1:], len(packed_refs)]
    return [packed_refs[begin:end] for begin, end in zip(begins, ends, strict=True)]


def _uncrossed_runs(
    segments: Sequence[SegmentRef], is_packed: Sequence[bool], crossing: Mapping[_Range, Sequence[_Range]]
) -> list[list[SegmentRef]]:
    """The runs where ranges cross: a segment of one range ends the runs of those that it crosses."""
    open_runs: dict[_Range, list[SegmentRef]] = {}
    runs: list[list[SegmentRef]] = []
    for ref, is_in in sorted(zip(segments, is_packed, strict=True), key=lambda pair: pair[0].seq_first):
        key = (ref.operator, ref.low, ref.high)
        for other in crossing.get(key, ()):
            open_runs.pop(other, None)
        if not is_in:
            open_runs.pop(key, None)
            continue
        if key not in open_runs:
            open_runs[key] = []
            runs.append(open_runs[key])
        open_runs[key].append(ref)
    return sorted(runs, key=lambda run: (run[0].operator, run[0].low, run[0].high, run[0].seq_first))


def _crossing(ranges: set[_Range]) -> dict[_Range, list[_Range]]:
    """By range: the other ranges that share a key group with it. Without a change of the parallelism there are none."""
    crossing: dict[_Range, list[_Range]] = {}
    ordered = sorted(ranges)
    for number, first in enumerate(ordered, 1):
        while number < len(ordered) and ordered[number][0] == first[0] and ordered[number][1] < first[2]:
            second = ordered[number]
            if first[1] < second[2]:
                crossing.setdefault(first, []).append(second)
                crossing.setdefault(second, []).append(first)
            number += 1  # noqa: PLW2901  the next one that may cross
    return crossing


def _pieces_of(run: list[SegmentRef]) -> list[list[SegmentRef]]:
    """The pieces in which a run is copied: the whole run if it is small, as thousands are, else segment by segment."""
    if sum([ref.data.length for ref in run]) <= _TOGETHER_BYTES_MAX:
        return [run]
    return [[ref] for ref in run]


def _joined_bytes(run: Sequence[SegmentRef], data: Mapping[SegmentRef, bytes]) -> bytes:
    """The segments of a run, one after another."""
    bodies = [data[ref] for ref in run]
    for ref, body in zip(run, bodies, strict=True):
        _check(ref.data, body, ref.operator)
    return b"".join(bodies)


def _check(place: ObjectSlice, data: bytes, operator: str) -> None:
    if len(data) != place.length or zlib.crc32(data) != place.crc32:
        problem = f"the bytes to pack are not those at {place.offset}"
        raise InvariantError(problem, operator=operator, object_name=place.name)
