"""Reads the segments that a replay needs: ranged reads, several at once, checked against their references.

Reading is ahead of the replay, and may begin before it: while the snapshot is still being fetched.

Invariants: I2, I5 (a segment must be of the operator, key groups and seqs that its reference says), I8 (CRC of every
slice; a missing object is `MissingObjectError` with its name), I10 (bytes read ahead are bounded).
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.segments.replay import FlooredSegment
from varvite.changelog.segments.segment import decode_segments
from varvite.storage.errors import CorruptDataError
from varvite.storage.transfer.download import PART_BYTES
from varvite.storage.transfer.slice_reader import plan_reads, read_slices

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from concurrent.futures import Future

    from varvite.changelog.chain.view import ReplaySegment
    from varvite.changelog.segments.segment import Segment
    from varvite.storage.format.records import SegmentRef
    from varvite.storage.object_stores.contract import ObjectStore
    from varvite.storage.transfer.download import DownloadPolicy

READ_THREADS: Final = 8
BYTES_AHEAD_MAX: Final = 64 << 20
"""Limit of bytes requested and not yet yielded; a larger read is made alone."""


class SegmentSource:
    """Reads segments of one job from its store.

    Args:
        store: Rooted at `<root>/<job>`.
        threads: Reads at the same time.
        bytes_ahead_max: Limit of bytes requested and not yet yielded.
    """

    def __init__(self, store: ObjectStore, threads: int = READ_THREADS, bytes_ahead_max: int = BYTES_AHEAD_MAX) -> None:
        self._store = store
        self._threads = threads
        self._bytes_ahead_max = bytes_ahead_max

    @classmethod
    def within(cls, policy: DownloadPolicy, store: ObjectStore) -> SegmentSource:
        """A source that keeps the limits of a restore."""
        return cls(store, policy.requests, policy.in_flight_bytes)

    def read(self, log: Sequence[ReplaySegment]) -> Iterator[FlooredSegment]:
        """The segments of these references, in order, with their floors.

        Raises:
            MissingObjectError: an object is gone; names it.
            CorruptDataError: a slice fails its CRC, or is not what the reference says.
            IncompatibleError: written by a newer varvite.
        """
        with self.ahead(log) as segments:
            yield from segments

    @contextmanager
    def ahead(self, log: Sequence[ReplaySegment]) -> Generator[Iterator[FlooredSegment]]:
        """The segments that `read` yields; reading begins at once, as far as the limits allow."""
        with ThreadPoolExecutor(self._threads, "varvite-read") as pool:
            try:
                reads = _Reads(self._store, self._groups(log), pool, self._threads, self._bytes_ahead_max)
                reads.begin()
                yield reads.segments()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _groups(self, log: Sequence[ReplaySegment]) -> deque[tuple[ReplaySegment, ...]]:
        """The segments that share a ranged read."""
        rest = iter(log)
        bytes_max = min(PART_BYTES, self._bytes_ahead_max)
        return deque(
            tuple(islice(rest, len(group))) for group in plan_reads([item.ref.data for item in log], bytes_max)
        )


class _Read(NamedTuple):
    size_bytes: int
    segments: Future[list[FlooredSegment]]


class _Reads:
    """The reads of one replay, in order; some of them run."""

    def __init__(
        self,
        store: ObjectStore,
        waiting: deque[tuple[ReplaySegment, ...]],
        pool: ThreadPoolExecutor,
        at_once: int,
        bytes_max: int,
    ) -> None:
        self._store = store
        self._waiting = waiting
        self._pool = pool
        self._at_once = at_once
        self._bytes_max = bytes_max
        self._running: deque[_Read] = deque()
        self._running_bytes = 0

    def begin(self) -> None:
        """Begin as many reads as the limits allow."""
        while self._waiting and len(self._running) < self._at_once:
            size_bytes = sum(item.ref.data.length for item in self._waiting[0])
            if self._running_bytes and self._running_bytes + size_bytes > self._bytes_max:
                return
            read = self._pool.submit(_read_group, self._store, self._waiting.popleft())
            self._running.append(_Read(size_bytes, read))
            self._running_bytes += size_bytes

    def segments(self) -> Iterator[FlooredSegment]:
        """All segments, in order."""
        while self._running:
            size_bytes, read = self._running.popleft()
            segments = read.result()
            self._running_bytes -= size_bytes
            self.begin()  # its thread is free
            yield from segments


def _read_group(store: ObjectStore, group: Sequence[ReplaySegment]) -> list[FlooredSegment]:
    """Read, verify and open; the rows are decoded by the replay."""
    slices = read_slices(store, [item.ref.data for item in group])
    segments: list[FlooredSegment] = []
    for (ref, floors), (_, data) in zip(group, slices, strict=True):
        for segment in decode_segments(data, ref.data.name, is_verified=True):
            check_reference(segment, ref)
            segments.append(FlooredSegment(segment, floors))
    return segments


def check_reference(segment: Segment, ref: SegmentRef) -> None:
    """Raise `CorruptDataError` unless the segment is what the reference says."""
    header = segment.header
    same = (header.operator, header.low, header.high) == (ref.operator, ref.low, ref.high)
    if not same or not ref.seq_first <= header.seq <= ref.seq_last:
        raise CorruptDataError(
            f"the segment is of operator {header.operator!r}, key groups [{header.low}, {header.high}), seq "
            f"{header.seq}, but is referred to as {ref.operator!r}, [{ref.low}, {ref.high}), seqs {ref.seq_first} to "
            f"{ref.seq_last}; see `varvite verify JOB --repair`",
            object_name=segment.name,
            operator=ref.operator,
        )
