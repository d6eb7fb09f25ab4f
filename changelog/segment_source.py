"""Reading the segments that a replay needs: ranged reads, several at once, checked against what refers to them.

Invariants: I2, I5 (a segment must be of the operator, key groups and seqs that its reference says), I8 (CRC of every
slice; a missing object is `MissingObjectError` with its name), I10 (bytes read ahead are bounded).
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from varve.changelog.replay import FlooredSegment
from varve.changelog.segment import decode_segments
from varve.storage.errors import CorruptDataError
from varve.storage.slice_reader import plan_reads, read_slices

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from varve.changelog.segment import Segment
    from varve.storage.line_view import ReplaySegment
    from varve.storage.object_store import ObjectStore
    from varve.storage.records import ObjectSlice, SegmentRef

READ_THREADS: Final = 8
BYTES_AHEAD_MAX: Final = 64 << 20
"""Bytes requested and not yet given out; one larger read goes alone."""


class SegmentSource:
    """Reads segments of one job from its store.

    Args:
        store: Rooted at `<root>/<job>`.
        threads: Reads at the same time.
        bytes_ahead_max: Bytes requested and not yet given out.
    """

    def __init__(self, store: ObjectStore, threads: int = READ_THREADS, bytes_ahead_max: int = BYTES_AHEAD_MAX) -> None:
        self._store = store
        self._threads = threads
        self._bytes_ahead_max = bytes_ahead_max

    def read(self, wanted: Sequence[ReplaySegment]) -> Iterator[FlooredSegment]:
        """The segments of these references, in order, with their floors.

        Raises:
            MissingObjectError: an object is gone; names it.
            CorruptDataError: a slice fails its CRC, or is not what the reference says.
            IncompatibleError: written by a newer varve.
        """
        slices = self._slices([one.ref.data for one in wanted])
        for one, data in zip(wanted, slices, strict=True):
            for segment in decode_segments(data, one.ref.data.name):
                check_reference(segment, one.ref)
                yield FlooredSegment(segment, one.floors)

    def _slices(self, wanted: Sequence[ObjectSlice]) -> Iterator[memoryview]:
        """The bytes of the slices, in order, read ahead within the limits."""
        waiting = deque(plan_reads(wanted))
        running: deque[tuple[int, Future[list[memoryview]]]] = deque()
        ahead_bytes = 0
        with ThreadPoolExecutor(self._threads, "varve-read") as pool:
            try:
                while waiting or running:
                    while waiting and len(running) < self._threads:
                        size_bytes = sum(one.length for one in waiting[0])
                        if running and ahead_bytes + size_bytes > self._bytes_ahead_max:
                            break
                        running.append((size_bytes, pool.submit(self._read_group, waiting.popleft())))
                        ahead_bytes += size_bytes
                    size_bytes, read = running.popleft()
                    yield from read.result()
                    ahead_bytes -= size_bytes
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _read_group(self, group: Sequence[ObjectSlice]) -> list[memoryview]:
        return [one.data for one in read_slices(self._store, group)]


def check_reference(segment: Segment, ref: SegmentRef) -> None:
    """Raises `CorruptDataError` unless the segment is what the reference says."""
    header = segment.header
    same = (header.operator, header.low, header.high) == (ref.operator, ref.low, ref.high)
    if not same or not ref.seq_first <= header.seq <= ref.seq_last:
        raise CorruptDataError(
            f"the segment is of operator {header.operator!r}, key groups [{header.low}, {header.high}), seq "
            f"{header.seq}, but is referred to as {ref.operator!r}, [{ref.low}, {ref.high}), seqs {ref.seq_first} to "
            f"{ref.seq_last}; restore an older checkpoint",
            object_name=segment.name,
            operator=ref.operator,
        )
