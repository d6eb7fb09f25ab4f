"""Replay: folds the segments between a base and a later commit into a working store.

A row counts if its key group is the store's and the segment's seq is above that key group's floor, which is the seq of
the tile that the key group's base came from. Replay is never logged, and its only effect is on the store.

Invariants: I5 (base plus log: every row that counts is applied exactly once, in order for each key group; only the
end has a version), I10 (at most about `FOLD_ROWS` rows of `FOLD_BYTES`, and one segment more, are in memory at once).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.columns import LIST
from varvite.changelog.segments.decoded_changes import DecodedChanges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from varvite.changelog.chain.tiles import KeyGroupFloor
    from varvite.changelog.segments.batch import BatchFolder
    from varvite.changelog.segments.segment import Segment, SegmentHeader
    from varvite.storage.format.records import Link

FOLD_ROWS: Final = 100_000
"""Rows that are gathered before they are written: only the last of several changes of a cell is written."""
FOLD_BYTES: Final = 4 << 20
"""Bytes of the gathered rows' columns: large values are written sooner. The limit is small, so that memory is reused
before it is freed: with 16 MiB a restart with values of 1 KB has twice as many page faults."""


class FlooredSegment(NamedTuple):
    """A segment and its floors: a row of key group g counts iff a floor has `low <= g < high` and a lower `seq`."""

    segment: Segment
    floors: Sequence[KeyGroupFloor]


class ReplaySummary(NamedTuple):
    """The extent of a replay."""

    segments: int
    """Segments with rows that counted."""
    rows: int
    """Rows that counted."""


def replay(
    store: BatchFolder, segments: Iterable[FlooredSegment], version: Link, *, low: int, high: int
) -> ReplaySummary:
    """Bring a store of key groups `[low, high)` to `version`.

    If anything raises, the store may hold a part of the log and must be discarded. It is marked so: `version` raises,
    and a RocksDB directory cannot be opened again.

    Args:
        store: At the state that the floors say.
        segments: In replay order for each key group, as `LineView.segments_for` gives them.
        version: The commit that they lead to.
        low: First key group of the store, inclusive.
        high: Last key group, exclusive.
    """
    log = AcceptedLog(segments, range(low, high), wire_ready=store.keeps_wire_forms)
    pending = PendingFold(store, version)
    for batch in log:
        pending.add(batch)
    store.fold(pending.batches, version, last=True)
    return ReplaySummary(log.segments, log.rows)


class AcceptedLog:
    """The rows of a log that count for a store of these key groups: batches of one piece of one state, in order."""

    def __init__(self, segments: Iterable[FlooredSegment], key_groups: range, *, wire_ready: bool) -> None:
        """See `Segment.pieces` for `wire_ready`."""
        self._read = segments
        self._key_groups = key_groups
        self._wire_ready = wire_ready
        self._positions: dict[tuple[int, int], dict[str, int]] = {}
        self.segments = 0
        """Segments read until now with rows that counted."""
        self.rows = 0
        """Rows that were yielded."""

    def __iter__(self) -> Iterator[Batch]:
        for segment, floors in self._read:
            header = segment.header
            accepted = accepted_key_groups(header, floors, self._key_groups)
            accepts = None if len(accepted) == header.high - header.low else accepted.__contains__
            pieces = segment.pieces(accepts, wire_ready=self._wire_ready, bytes_max=FOLD_BYTES) if accepted else ()
            is_used = False
            for piece in pieces:
                is_used = True
                self.rows += len(piece)
                # The chunks of one attempt may be separate, with segments of other key groups between them.
                is_list = piece.schema.kind == LIST
                counters = self._positions.setdefault((header.seq, header.low), {}) if is_list else None
                yield Batch((piece,), header.seq, positions=counters)
            self.segments += is_used


class PendingFold:
    """Batches on the way to `version` that are folded together."""

    def __init__(self, store: BatchFolder, version: Link) -> None:
        self._store = store
        self._version = version
        self.batches: list[Batch] = []
        """Not folded yet."""
        self._rows = self._bytes = 0

    def add(self, batch: Batch) -> None:
        """Add a batch, and fold if the pending ones are many."""
        self.batches.append(batch)
        self._rows += sum(map(len, batch.changes))
        self._bytes += size_of(batch)
        if self._rows >= FOLD_ROWS or self._bytes >= FOLD_BYTES:
            self.fold()

    def fold(self) -> None:
        """Fold the pending batches."""
        self._store.fold(self.batches, self._version, last=False)
        self.batches, self._rows, self._bytes = [], 0, 0


def size_of(batch: Batch) -> int:
    """Approximate size of its columns, in bytes."""
    return sum(change.size_bytes for change in batch.changes if isinstance(change, DecodedChanges))


def accepted_key_groups(header: SegmentHeader, floors: Sequence[KeyGroupFloor], store: range) -> frozenset[int]:
    """The key groups of the segment that count for a store of the key groups `store`."""
    counting = [
        range(max(floor.low, store.start, header.low), min(floor.high, store.stop, header.high))
        for floor in floors
        if header.seq > floor.seq
    ]
    return frozenset(key_group for key_groups in counting for key_group in key_groups)
