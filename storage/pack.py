"""Packs: the inline segments of many batches in one object, sorted so that a restore takes few ranged reads; pure.

A pack is a frame of kind `PACK` (header: job id and token, blob: the segments' bytes one after another, then those of
images of non-keyed state). It is
written for the full entry at one slot, and only that entry may name it (I7). A segment is self-framed, so one
reference can stand for a run of segments; a run never reaches across a segment of overlapping key groups that is
stored elsewhere or has another range, so that the order of references stays the order of replay (I5).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from varve.storage import layout
from varve.storage.errors import CorruptDataError, InvariantError
from varve.storage.frame import blob_offset, frame, unframe
from varve.storage.records import ImageRef, ObjectSlice, Record, SegmentRef

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION: Final = 1
_KIND: Final = b"PACK"


class PackHeader(Record, frozen=True, kw_only=True):
    """Who wrote the pack, and for which slot."""

    job_id: str
    token: str
    slot: int


class Pack(NamedTuple):
    """A pack to upload under `name` and then to hand to the commit plan of `slot`."""

    slot: int
    name: str
    body: bytes
    refs: tuple[SegmentRef, ...]
    """One per run, with offsets in the whole object."""
    packed: frozenset[SegmentRef]
    """The references that `refs` replace."""
    images: tuple[tuple[ImageRef, ImageRef], ...] = ()
    """Images: the reference until now, and the one into the pack."""


class PackFrame(NamedTuple):
    """An opened pack."""

    header: PackHeader
    blob: memoryview


def is_packable(ref: SegmentRef | ImageRef) -> bool:
    """Whether the reference points into a chain entry: what stands there is worth packing."""
    return ref.data.name.startswith(layout.CHAIN)


def plan_pack(
    segments: Sequence[SegmentRef],
    data: Mapping[SegmentRef, bytes],
    header: PackHeader,
    images: Mapping[ImageRef, bytes] | None = None,
) -> Pack:
    """Pack those of a view's `segments` (all of them, in the view's order) whose bytes are in `data`, and images.

    Raises `InvariantError` if bytes do not match their reference.
    """
    runs = _runs(segments, data)
    name, offset = layout.pack(header.slot, header.token), pack_blob_offset(header)
    refs: list[SegmentRef] = []
    blobs: list[bytes] = []
    for run in runs:
        blob = b"".join(_checked(ref.data, data[ref], ref.operator) for ref in run)
        place = ObjectSlice(name, offset, len(blob), zlib.crc32(blob))
        first = run[0]
        refs.append(SegmentRef(first.operator, first.low, first.high, first.seq_first, run[-1].seq_last, place))
        blobs.append(blob)
        offset += len(blob)
    packed = frozenset(ref for run in runs for ref in run)
    copied: list[tuple[ImageRef, ImageRef]] = []
    places: dict[ObjectSlice, ObjectSlice] = {}
    for image, body in (images or {}).items():
        if image.data not in places:
            blobs.append(_checked(image.data, body, image.operator))
            places[image.data] = ObjectSlice(name, offset, len(body), image.data.crc32)
            offset += len(body)
        copied.append((image, msgspec.structs.replace(image, data=places[image.data])))
    body = encode_pack(header, b"".join(blobs))
    return Pack(header.slot, name, body, tuple(refs), packed, tuple(copied))


def encode_pack(header: PackHeader, blob: bytes) -> bytes:
    """The object of a pack."""
    return frame(_KIND, VERSION, msgspec.json.encode(header), blob)


def pack_blob_offset(header: PackHeader) -> int:
    """Where in the object the blob begins."""
    return blob_offset(msgspec.json.encode(header))


def open_pack(body: bytes | memoryview, name: str) -> PackFrame:
    """Verify a whole pack. Raises `CorruptDataError`, `IncompatibleError`."""
    opened = unframe(_KIND, VERSION, body, name)
    try:
        return PackFrame(msgspec.json.decode(opened.header, type=PackHeader), opened.blob)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CorruptDataError(f"the pack's header does not parse: {error}", object_name=name) from error


def replace_packed(segments: Sequence[SegmentRef], pack: Pack) -> tuple[SegmentRef, ...]:
    """The segments with the pack's references in place of what it packed, in an order that is replay order.

    A run begins at a seq where nothing unpacked of its key groups follows within the run; what is left unpacked at the
    same seq (uploaded parts) precedes the inline part, and the sort is stable, so it stays in front.
    """
    left = [ref for ref in segments if ref not in pack.packed]
    return tuple(sorted([*left, *pack.refs], key=lambda ref: ref.seq_first))


def replace_packed_images(images: Sequence[ImageRef], pack: Pack) -> tuple[ImageRef, ...]:
    """The images with the pack's references in place of those of what it copied."""
    copies = dict(pack.images)
    return tuple(copies.get(image, image) for image in images)


def _runs(segments: Sequence[SegmentRef], data: Mapping[SegmentRef, bytes]) -> list[list[SegmentRef]]:
    """Maximal runs of one operator and range, in order of operator, range and seq."""
    open_runs: dict[tuple[str, int, int], list[SegmentRef]] = {}
    runs: list[list[SegmentRef]] = []
    for ref in sorted(segments, key=lambda r: r.seq_first):
        key = (ref.operator, ref.low, ref.high)
        packs = ref in data
        for other in [k for k in open_runs if _overlap(k, key) and (k != key or not packs)]:
            del open_runs[other]
        if not packs:
            continue
        if key not in open_runs:
            open_runs[key] = []
            runs.append(open_runs[key])
        open_runs[key].append(ref)
    return sorted(runs, key=lambda run: (run[0].operator, run[0].low, run[0].high, run[0].seq_first))


def _overlap(a: tuple[str, int, int], b: tuple[str, int, int]) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def _checked(place: ObjectSlice, data: bytes, operator: str) -> bytes:
    if len(data) != place.length or zlib.crc32(data) != place.crc32:
        problem = f"the bytes to pack are not those at {place.offset}"
        raise InvariantError(problem, operator=operator, object_name=place.name)
    return data
