"""Restoring a store from what a commit names: tiles first, then the newer segments of the line (I5).

Invariants: I5, I8 (files and segments are verified as they are read), I9 (nothing local is needed).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.changelog.replay import ReplaySummary, replay
from varve.changelog.segment_source import SegmentSource
from varve.changelog.snapshot_clip import SnapshotSource, open_clipped
from varve.changelog.snapshot_files import fetch_snapshot
from varve.storage import layout
from varve.storage.errors import CorruptDataError
from varve.storage.records import ORIGIN, SnapshotDescriptor, decode_record
from varve.storage.tile_cover import KeyGroupFloor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from varve.changelog.replay import FlooredSegment
    from varve.changelog.rocksdb_options import RocksDBOptions
    from varve.changelog.rocksdb_store import RocksDBStore
    from varve.changelog.working_store import WorkingStore
    from varve.storage.line_view import LineView
    from varve.storage.object_store import ObjectStore
    from varve.storage.records import SnapshotFile, Tile


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """Which state: key groups `[low, high)` of an operator."""

    operator: str
    key_type: str
    """Type string of the keys."""
    low: int
    high: int


def restore_store(
    view: LineView,
    target: RestoreTarget,
    store: ObjectStore,
    directory: Path,
    scratch: Path,
    options: RocksDBOptions | None = None,
) -> RocksDBStore:
    """A RocksDB store in `directory` at the view's commit.

    Args:
        view: The commit.
        target: Whose state.
        store: The job's store.
        directory: Must not exist; its parent must, on the same filesystem as `scratch`.
        scratch: For fetched files; the caller removes it.
        options: Memory, disk and threads.

    Raises:
        MissingObjectError, CorruptDataError: an object that the commit names is gone or damaged.
        IncompatibleError: the state is of another key type.
    """
    sources = [
        SnapshotSource(_fetch(store, tile, scratch / f"tile-{i:05d}"), tile.low, tile.high, tile.at)
        for i, tile in enumerate(view.tiles_for(target.operator, target.low, target.high))
    ]
    restored = open_clipped(
        directory,
        sources,
        operator=target.operator,
        key_type=target.key_type,
        low=target.low,
        high=target.high,
        options=options,
    )
    try:
        replay_log(view, target, store, restored)
    except BaseException:
        restored.close()
        raise
    return restored


def replay_log(view: LineView, target: RestoreTarget, store: ObjectStore, state: WorkingStore) -> ReplaySummary:
    """Bring a store at the view's tiles to the view's commit."""
    segments = view.segments_for(target.operator, target.low, target.high)
    source = SegmentSource(store)
    return replay(state, source.read(segments), view.base, low=target.low, high=target.high)


def catch_up(
    view: LineView,
    target: RestoreTarget,
    store: ObjectStore,
    state: WorkingStore,
    seen: Callable[[int], None] | None = None,
) -> ReplaySummary:
    """Bring a store at an older commit of the view's line, not older than the tiles, to the view's commit.

    `seen` hears the seq of every segment that was read, in replay order.
    """
    state.revert()
    at = state.version.seq
    floor = (KeyGroupFloor(target.low, target.high, at),)
    newer = [s for s in view.segments_for(target.operator, target.low, target.high) if s.ref.seq_last > at]
    source = SegmentSource(store)
    wanted = [segment._replace(floors=floor) for segment in newer]
    segments = source.read(wanted)
    if seen is not None:
        segments = _watched(segments, seen)
    return replay(state, segments, view.base, low=target.low, high=target.high)


def _watched(segments: Iterator[FlooredSegment], seen: Callable[[int], None]) -> Iterator[FlooredSegment]:
    for one in segments:
        seen(one.segment.header.seq)
        yield one


def tile_files(store: ObjectStore, tile: Tile) -> tuple[SnapshotFile, ...]:
    """The files of a tile's snapshot; none if the tile is empty. Raises as `restore_store`."""
    if tile.snapshot is None:
        return tile.files
    name = layout.snapshot(tile.operator, tile.low, tile.high, tile.snapshot)
    descriptor = decode_record(store.get(name), SnapshotDescriptor, name)
    if descriptor.status != "published" or descriptor.at != tile.at:
        raise CorruptDataError(
            f"the snapshot is of commit {descriptor.at.seq} and {descriptor.status}, the checkpoint expects commit "
            f"{tile.at.seq}; restore an older checkpoint",
            object_name=name,
        )
    return descriptor.files


def _fetch(store: ObjectStore, tile: Tile, directory: Path) -> Path | None:
    files = tile_files(store, tile)
    if not files:
        if tile.at != ORIGIN and tile.snapshot is not None:
            raise CorruptDataError("the snapshot lists no files; restore an older checkpoint", operator=tile.operator)
        return None
    fetch_snapshot(store, files, directory)
    return directory
