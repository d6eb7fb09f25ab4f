"""Replay part by part: the key groups are divided, so that no SST file that a replay flushes spans two parts.

Such files can be rewritten a part at a time (`varvite.changelog.working_stores.rocksdb.overlap`): the next snapshot
shares the files of all other parts with the one before. The log is read once if its rows fit into memory. A longer one
is read several times, for some of the parts each time, because each time that the memory is full a file per part is
flushed.

Invariants: I5 (as `varvite.changelog.segments.replay`; parts have no key in common, so their order does not matter),
I10 (at most about `HELD_BYTES` of rows, and one segment more, are in memory at once).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from varvite.changelog.segments.batch import BatchFolder
from varvite.changelog.segments.decoded_changes import DecodedChanges
from varvite.changelog.segments.replay import AcceptedLog, PendingFold, ReplaySummary, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from varvite.changelog.segments.batch import Batch
    from varvite.changelog.segments.replay import FlooredSegment
    from varvite.storage.format.records import Link, StateSchema

HELD_BYTES: Final = 64 << 20
"""Limit of decoded rows, in bytes, that are held until they are written by part."""
LOG_BYTES_AT_ONCE: Final = HELD_BYTES
"""Stored bytes of log whose rows are expected to fit."""


class FileFolder(BatchFolder, Protocol):
    """A store with files."""

    def register(self, schema: StateSchema) -> None:
        """Register a version of a state, as `fold` would do."""
        ...

    def flush(self) -> None:
        """Write what was folded since the last flush to a file."""
        ...


def replay_by_part(
    store: FileFolder,
    read: Callable[[float, float], Iterable[FlooredSegment]],
    version: Link,
    parts: Sequence[range],
    log_bytes: int,
) -> ReplaySummary:
    """Bring a store of these key groups to `version`; otherwise as `replay`.

    Args:
        store: At the state that the floors say.
        read: Reads the log once. Its arguments are the share of the whole work, as begin and end between 0 and 1.
        version: The commit that it leads to.
        parts: Of the store's key groups, ascending, without gaps.
        log_bytes: Stored bytes of the log.
    """
    _write_metadata(store, version)
    passes = min(len(parts), max(1, -(-log_bytes // LOG_BYTES_AT_ONCE)))
    segments = rows = 0
    for i in range(passes):
        of_pass = parts[len(parts) * i // passes : len(parts) * (i + 1) // passes]
        key_groups = range(of_pass[0].start, of_pass[-1].stop)
        log = AcceptedLog(read(i / passes, (i + 1) / passes), key_groups, wire_ready=store.keeps_wire_forms)
        _fold_parts(store, log, version, of_pass)
        segments = max(segments, log.segments)
        rows += log.rows
    store.fold((), version, last=True)
    store.flush()
    return ReplaySummary(segments, rows)


def _fold_parts(store: FileFolder, log: Iterable[Batch], version: Link, parts: Sequence[range]) -> None:
    lows = [part.start for part in parts]
    held: list[list[Batch]] = [[] for _ in parts]
    held_bytes = 0
    for batch in log:
        [change] = batch.changes
        if isinstance(change, DecodedChanges):
            for part, share in change.by_part(lows):
                held[part].append(batch._replace(changes=(share,)))
        else:
            held[0].append(batch)  # no rows: a new version of a state
        held_bytes += size_of(batch)
        if held_bytes >= HELD_BYTES:
            _write(store, held, version)
            held_bytes = 0
    _write(store, held, version)


def _write(store: FileFolder, held: Sequence[list[Batch]], version: Link) -> None:
    """Fold the held batches, into a file for each part that has any."""
    for batches in held:
        for batch in batches:
            store.register(batch.changes[0].schema)
    _write_metadata(store, version)
    for batches in held:
        if batches:
            pending = PendingFold(store, version)
            for batch in batches:
                pending.add(batch)
            pending.fold()
            store.flush()
            batches.clear()


def _write_metadata(store: FileFolder, version: Link) -> None:
    """Write the mark of a replay and new states to a file without rows, which would span parts."""
    store.fold((), version, last=False)
    store.flush()
