"""Reading slices of objects: verified, and with one ranged read for slices that lie side by side.

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


def read_slice(store: ObjectStore, wanted: ObjectSlice) -> bytes:
    """The bytes of one slice.

    Raises `MissingObjectError` if the object is gone, `CorruptDataError` if it is too short or the CRC differs.
    """
    data = store.get_range(wanted.name, wanted.offset, wanted.length) if wanted.length else b""
    _verify(wanted, data)
    return data


def read_slices(store: ObjectStore, wanted: Iterable[ObjectSlice]) -> Iterator[SliceData]:
    """The bytes of many slices, in the order asked for as far as they lie apart; errors as `read_slice`."""
    for group in plan_reads(tuple(wanted)):
        start = min(s.offset for s in group)
        end = max(s.offset + s.length for s in group)
        data = memoryview(store.get_range(group[0].name, start, end - start)) if end > start else memoryview(b"")
        for one in group:
            part = data[one.offset - start : one.offset - start + one.length]
            _verify(one, part)
            yield SliceData(one, part)


def plan_reads(wanted: Sequence[ObjectSlice], bytes_max: int | None = None) -> list[tuple[ObjectSlice, ...]]:
    """Group neighbours in the order given: each group is one ranged read. The order of slices is kept.

    A group has at most `bytes_max` (None: `READ_BYTES_MAX`), unless it is a single slice.
    """
    limit = READ_BYTES_MAX if bytes_max is None else min(bytes_max, READ_BYTES_MAX)
    groups: list[list[ObjectSlice]] = []
    for one in wanted:
        if groups and _joins(groups[-1], one, limit):
            groups[-1].append(one)
        else:
            groups.append([one])
    return [tuple(g) for g in groups]


def _joins(group: Sequence[ObjectSlice], one: ObjectSlice, bytes_max: int) -> bool:
    last, first = group[-1], group[0]
    gap = one.offset - (last.offset + last.length)
    total = one.offset + one.length - first.offset
    return one.name == last.name and 0 <= gap <= GAP_BYTES_MAX and total <= bytes_max


def _verify(wanted: ObjectSlice, data: bytes | memoryview) -> None:
    if len(data) != wanted.length or zlib.crc32(data) != wanted.crc32:
        raise CorruptDataError(
            f"bytes {wanted.offset}-{wanted.offset + wanted.length} do not match their checksum; see "
            "`varvite verify JOB --repair`",
            object_name=wanted.name,
        )
