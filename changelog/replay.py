"""Replay: from a base to a later commit, by folding the segments in between into a working store.

A row counts if its key group is the store's and the segment's seq is above that key group's floor, which is the seq of
the tile that the key group's base came from. Replay is never logged. It is pure but for the store it fills.

Invariants: I5 (base plus log: every row that counts is applied exactly once, in order for each key group; only the
end has a version), I10 (at most about `FOLD_ROWS` rows of `FOLD_BYTES`, and one segment more, are in memory at once).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from varve.changelog.batch import Batch
from varve.changelog.segment_columns import LIST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from varve.changelog.batch import BatchFolder
    from varve.changelog.changes import StateChanges
    from varve.changelog.segment import Segment, SegmentHeader
    from varve.storage.records import Link
    from varve.storage.tile_cover import KeyGroupFloor

FOLD_ROWS: Final = 100_000
"""Rows that are gathered before they are written: of several changes of a cell only the last is."""
FOLD_BYTES: Final = 16 << 20
"""Stored bytes of these rows: large values are written sooner."""


class FlooredSegment(NamedTuple):
    """A segment and what of it counts: a row of key group g iff a floor has `low <= g < high` and `seq` below."""

    segment: Segment
    floors: Sequence[KeyGroupFloor]


class ReplaySummary(NamedTuple):
    """What a replay did."""

    segments: int
    """Segments of which something counted."""
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
    positions: dict[tuple[int, int], dict[str, int]] = {}
    pending: list[Batch] = []
    used = rows = pending_rows = pending_bytes = 0
    for segment, floors in segments:
        header = segment.header
        accepted = accepted_key_groups(header, floors, range(low, high))
        accepts_all = len(accepted) == header.high - header.low
        accepts = None if accepts_all else accepted.__contains__
        changes = segment.changes(accepts, wire_ready=store.keeps_wire_forms) if accepted else []
        if not changes:
            continue
        # The parts of one attempt may come apart, between them segments of other key groups.
        counters = positions.setdefault((header.seq, header.low), {})
        pending.append(Batch(changes, header.seq, positions=counters if _has_lists(changes) else None))
        used += 1
        added = sum(len(change) for change in changes)
        rows += added
        pending_rows += added
        pending_bytes += header.stored_bytes
        if pending_rows >= FOLD_ROWS or pending_bytes >= FOLD_BYTES:
            store.fold(pending, version, last=False)
            pending, pending_rows, pending_bytes = [], 0, 0
    store.fold(pending, version, last=True)
    return ReplaySummary(used, rows)


def accepted_key_groups(header: SegmentHeader, floors: Sequence[KeyGroupFloor], own: range) -> frozenset[int]:
    """The key groups of the segment that count for a store of the key groups `own`."""
    counting = [
        range(max(floor.low, own.start, header.low), min(floor.high, own.stop, header.high))
        for floor in floors
        if header.seq > floor.seq
    ]
    return frozenset(key_group for part in counting for key_group in part)


def _has_lists(changes: Sequence[StateChanges]) -> bool:
    return any(change.schema.kind == LIST for change in changes)
