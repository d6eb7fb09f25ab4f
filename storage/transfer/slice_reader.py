"""Reads slices of objects: verified, and with one ranged read for adjacent slices.

Invariants: I8 (every slice is checked against its CRC), I10 (one read is at most `READ_BYTES_MAX`).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.storage.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from varvite.storage.format.records import ObjectSlice
    from varvite.storage.object_stores.contract import ObjectStore

READ_BYTES_MAX: Final = 32 << 20
"""Neighbouring slices are joined into reads of up to this many bytes; a single larger slice is read whole."""
GAP_BYTES_MAX: Final = 64 << 10
"""Slices this far apart in one object still share a read."""


class SliceData(NamedTuple):
    """A slice and its verified bytes."""

    slice: ObjectSlice
    data: memoryview


def read_slice(store: ObjectStore, piece: ObjectSlice) -> bytes:
    """Read one slice.

    Raises `MissingObjectError` if the object is gone, `CorruptDataError` if it is too short or the CRC differs.
    """
    data = store.get_range(piece.name, piece.offset, piece.length) if piece.length else b""
    _verify(piece, data)
    return data


def read_slices(store: ObjectStore, slices: Iterable[ObjectSlice]) -> Iterator[SliceData]:
    """Read many slices, in their order; errors as `read_slice`."""
    for group in plan_reads(tuple(slices)):
        start = min(s.offset for s in group)
        end = max(s.offset + s.length for s in group)
        data = memoryview(store.get_range(group[0].name, start, end - start)) if end > start else memoryview(b"")
        for piece in group:
            part = data[piece.offset - start : piece.offset - start + piece.length]
            _verify(piece, part)
            yield SliceData(piece, part)


def plan_reads(slices: Sequence[ObjectSlice], bytes_max: int | None = None) -> list[tuple[ObjectSlice, ...]]:
    """Group adjacent slices, each group for one ranged read. The order of slices is kept.

    A group has at most `bytes_max` (None: `READ_BYTES_MAX`), unless it is a single slice.
    """
    limit = READ_BYTES_MAX if bytes_max is None else min(bytes_max, READ_BYTES_MAX)
    groups: list[list[ObjectSlice]] = []
    for piece in slices:
        if groups and _fits_into(groups[-1], piece, limit):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return [tuple(group) for group in groups]


def _fits_into(group: Sequence[ObjectSlice], piece: ObjectSlice, bytes_max: int) -> bool:
    last, first = group[-1], group[0]
    gap = piece.offset - (last.offset + last.length)
    total = piece.offset + piece.length - first.offset
    return piece.name == last.name and 0 <= gap <= GAP_BYTES_MAX and total <= bytes_max


def _verify(piece: ObjectSlice, data: bytes | memoryview) -> None:
    if len(data) != piece.length or zlib.crc32(data) != piece.crc32:
        raise CorruptDataError(
            f"bytes {piece.offset}-{piece.offset + piece.length} do not match their checksum; see "
            "`varvite verify JOB --repair`",
            object_name=piece.name,
        )
