"""Segments of many partitions in one object: one request instead of one for each partition. Pure.

Segments may be too large together for the chain's entry, and too small to be worth an object each. They come to the
driver in the summaries all the same. The driver stores them, and images of non-keyed state, as one object of the slot
before the entry, which then names slices of it. The object is a pack (kind `PACK`) that holds one batch.

Invariants: I1 (it is durable before the entry that names it is put), I7 (only `chain/<slot>` may name it first), I10.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from varvite.changelog.commit.batch_result import INLINE_BYTES_MAX, PartitionResult, inline_total
from varvite.changelog.commit.pack import PackHeader, encode_pack, pack_blob_offset
from varvite.storage.format import layout
from varvite.storage.format.records import ObjectSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GATHERED_BYTES_MAX: Final = 64 << 20
"""Limit of all segments in the summaries of one batch: the driver holds them in memory."""
SEGMENT_BYTES_MAX: Final = 1 << 20
"""A larger segment is an object of its own, which its worker uploads while others still run."""


class Gathered(NamedTuple):
    """An object to upload under `name` before the commit of `results`."""

    name: str
    body: bytes
    results: tuple[PartitionResult, ...]
    """With slices of the object instead of inline bytes."""


def share_bytes(tasks: int, inline_max_bytes: int, gathered_max_bytes: int) -> int:
    """The largest segment, with its image, that one of `tasks` partitions of all operators may send to the driver.

    Args:
        tasks: Number of the partitions of all operators.
        inline_max_bytes: Limit of what the entry may hold of all of them together.
        gathered_max_bytes: Limit of a gathered object; 0: nothing is gathered.
    """
    tasks = max(1, tasks)
    return max(inline_max_bytes // tasks, min(gathered_max_bytes // tasks, SEGMENT_BYTES_MAX))


def gather(
    results: Sequence[PartitionResult],
    *,
    slot: int,
    job_id: str,
    token: Callable[[], str],
    inline_max_bytes: int = INLINE_BYTES_MAX,
) -> Gathered | None:
    """Move inline segments and images into an object of the slot; None if they fit into the entry.

    Args:
        results: Of the whole batch.
        slot: Of the entry that will name the object.
        job_id: The job's.
        token: Makes a fresh one, for the object's name.
        inline_max_bytes: Limit of what the entry may hold.
    """
    if inline_total(results) <= inline_max_bytes:
        return None
    head = PackHeader(job_id=job_id, token=token(), slot=slot)
    pieces: list[bytes] = []
    places: dict[bytes, ObjectSlice] = {}
    name, offset = layout.gathered(slot, head.token), pack_blob_offset(head)

    def add(data: bytes) -> ObjectSlice:
        nonlocal offset
        place = ObjectSlice(name, offset, len(data), zlib.crc32(data))
        pieces.append(data)
        offset += len(data)
        return place

    def moved(result: PartitionResult) -> PartitionResult:
        uploaded, image = result.uploaded, result.image_uploaded
        if result.inline:
            uploaded = (*uploaded, add(result.inline))
        if result.image:  # equal images of all partitions, of broadcast state
            image = places.get(result.image) or places.setdefault(result.image, add(result.image))
        return msgspec.structs.replace(result, inline=b"", uploaded=uploaded, image=b"", image_uploaded=image)

    # In the order of the entry's partitions, so that a restore finds neighbouring partitions side by side.
    ordered = sorted(results, key=lambda r: (r.operator, r.partition))
    moved_results = tuple(moved(result) for result in ordered)
    return Gathered(name, encode_pack(head, b"".join(pieces)), moved_results)
