"""A commit's view, cut into the slices that the tasks of one operator need, to be sent with the first batch of a run.

Without it every task of that batch reads and decodes the same entries of the chain: the newest full one and the path
after it, each with the references of all partitions. The driver has the view already.

Invariants: I5 (for its key groups a slice answers `tiles_for`, `segments_for`, `images_for` and `holds` as the view).
"""

from __future__ import annotations

from typing import Final

import msgspec

from varvite.changelog.chain.tiles import key_range
from varvite.changelog.chain.view import LineView
from varvite.storage.format.inspection import inspected
from varvite.storage.format.records import ImageRef, Link, SegmentRef, Tile


class _Slice(msgspec.Struct, frozen=True, array_like=True):
    """Tiles and segments that touch the key groups of one partition."""

    tiles: tuple[Tile, ...]
    segments: tuple[SegmentRef, ...]


_ENCODE: Final = msgspec.msgpack.encode
_SLICE: Final = msgspec.msgpack.Decoder(inspected(_Slice))
_LINE: Final = msgspec.msgpack.Decoder(inspected(tuple[Link, ...]))


class ViewSlices(msgspec.Struct, frozen=True, kw_only=True):
    """The view of commit `base` for the tasks of one operator. What all need is there once; the rest by partition."""

    max_parallelism: int
    base: Link
    full: Link
    needs_from: int
    images: tuple[ImageRef, ...]
    """The non-keyed state of all of the operator's partitions: a run's first batch redistributes it."""
    line: bytes
    """The view's line, encoded: thousands of links of which only tasks with local copies need any."""
    slices: dict[int, bytes]
    """Partition → its encoded slice. A task gets no other one."""

    def only(self, partition: int) -> ViewSlices:
        """The same for the task of one partition."""
        return msgspec.structs.replace(self, slices={partition: self.slices[partition]})

    def view(self, partition: int) -> LineView:
        """The view of the base, for questions about the partition's key groups."""
        part = _SLICE.decode(self.slices[partition])
        return LineView(
            max_parallelism=self.max_parallelism,
            base=self.base,
            full=self.full,
            tiles=part.tiles,
            segments=part.segments,
            images=self.images,
            line=_LINE.decode(self.line),
            needs_from=self.needs_from,
        )


def slices_of(view: LineView, operator: str, parallelism: int) -> ViewSlices:
    """The slices of a view for the tasks of an operator with so many partitions."""
    ranges = (key_range(partition, parallelism, view.max_parallelism) for partition in range(parallelism))
    return ViewSlices(
        max_parallelism=view.max_parallelism,
        base=view.base,
        full=view.full,
        needs_from=view.needs_from,
        images=view.images_for(operator),
        line=_ENCODE(view.line),
        slices={partition: _slice(view, operator, low, high) for partition, (low, high) in enumerate(ranges)},
    )


def _slice(view: LineView, operator: str, low: int, high: int) -> bytes:
    segments = tuple(segment.ref for segment in view.segments_for(operator, low, high))
    return _ENCODE(_Slice(view.tiles_for(operator, low, high), segments))
