"""Restoring a store from what a commit names: tiles first, then the newer segments of the line (I5).

The tiles of all key groups are fetched at the same time, and the log's first segments while they are.

Invariants: I5, I8 (files and segments are verified as they are read), I9 (nothing local is needed), I10
(`DownloadPolicy` holds once for the tiles' files and once for the log).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from varvite.changelog.chain.reader import in_parallel
from varvite.changelog.chain.tiles import KeyGroupFloor
from varvite.changelog.restore.clip import SnapshotSource, open_clipped
from varvite.changelog.restore.files import DOWNLOADS, fetch_snapshots
from varvite.changelog.segments.replay import ReplaySummary, replay
from varvite.changelog.segments.source import SegmentSource
from varvite.changelog.working_stores.rocksdb.options import RocksDBOptions
from varvite.storage.errors import CorruptDataError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.format.records import ORIGIN, SnapshotDescriptor, decode_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from varvite.changelog.chain.reader import ChainReader
    from varvite.changelog.chain.view import LineView, ReplaySegment
    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
    from varvite.storage.format.records import Link, SnapshotFile, Tile
    from varvite.storage.object_stores.contract import ObjectStore
    from varvite.storage.transfer.download import DownloadPolicy


LONG_LOG_BYTES: Final = 128 << 20
"""From here on compaction gives way to the replay of a log; what waits then is compacted while the job runs."""
FILES_EXTRA: Final = 12
STAGES_MAX: Final = 8
"""Materializations that a store may have missed and still catch up from the log."""


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
    *,
    downloads: DownloadPolicy = DOWNLOADS,
    reuse: Sequence[Path] = (),
) -> RocksDBStore:
    """A RocksDB store in `directory` at the view's commit.

    Args:
        view: The commit.
        target: Whose state.
        store: The job's store.
        directory: Must not exist; its parent must, on the same filesystem as `scratch`.
        scratch: For fetched files; the caller removes it.
        options: Memory, disk and threads.
        downloads: How much is fetched at the same time.
        reuse: Directories of older states of these key groups: files of the tiles that they have are not fetched.

    Raises:
        MissingObjectError, CorruptDataError: an object that the commit names is gone or damaged.
        IncompatibleError: the state is of another key type.
    """
    low, high = target.low, target.high
    wanted = view.segments_for(target.operator, low, high)
    options = options or RocksDBOptions()
    log_bytes = sum(segment.ref.data.length for segment in wanted)
    is_long = log_bytes >= LONG_LOG_BYTES and options.level0_files_extra < FILES_EXTRA
    if is_long:
        options = replace(options, level0_files_extra=FILES_EXTRA)
    with SegmentSource.within(downloads, store).ahead(wanted) as segments:
        sources = _fetch_tiles(store, view.tiles_for(target.operator, low, high), scratch, downloads, reuse)
        restored = open_clipped(
            directory,
            sources,
            operator=target.operator,
            key_type=target.key_type,
            low=low,
            high=high,
            options=options,
        )
        try:
            replay(restored, segments, view.base, low=low, high=high)
            if is_long:
                restored.compact_as_usual()
        except BaseException:
            restored.close()
            raise
    return restored


def can_catch_up(view: LineView, target: RestoreTarget, version: Link) -> bool:
    """Whether the view's log has everything after that version, which must be a commit of the view's line."""
    oldest = max(tile.at.seq for tile in view.tiles_for(target.operator, target.low, target.high))
    return view.holds(version) and version.seq >= oldest


def catch_up(
    view: LineView,
    target: RestoreTarget,
    store: ObjectStore,
    state: WorkingStore,
    *,
    downloads: DownloadPolicy = DOWNLOADS,
) -> ReplaySummary:
    """Bring a store at an older commit of the view's line, not older than the tiles, to the view's commit."""
    state.revert()
    source = SegmentSource.within(downloads, store)
    segments = source.read(log_after(view, target, state.version))
    return replay(state, segments, view.base, low=target.low, high=target.high)


def log_after(view: LineView, target: RestoreTarget, version: Link) -> list[ReplaySegment]:
    """The segments that lead from that version, a commit of the view's line not older than the tiles, to the view's."""
    floor = (KeyGroupFloor(target.low, target.high, version.seq),)
    log = view.segments_for(target.operator, target.low, target.high)
    return [segment._replace(floors=floor) for segment in log if segment.ref.seq_last > version.seq]


def stages_to(view: LineView, target: RestoreTarget, version: Link, reader: ChainReader) -> tuple[LineView, ...]:
    """The views through which a store at `version` catches up to the last of them, `view`; none if it cannot.

    A tile that has been adopted since covers the log that the store needs, so `view` does not name it any more. The
    commit that the tile is at, which is on the same line, does, as long as the commit is not collected.
    """
    stages = [view]
    while not can_catch_up(stages[0], target, version):
        tiles = stages[0].tiles_for(target.operator, target.low, target.high)
        newest = max((tile.at for tile in tiles), key=lambda at: at.seq)
        if len(stages) > STAGES_MAX or not version.seq < newest.seq < stages[0].base.seq:
            return ()
        try:
            stages.insert(0, reader.load_line(newest, view.max_parallelism).view)
        except (MissingObjectError, CorruptDataError):  # collected, or of the job that this one's state came from
            return ()
    return tuple(stages)


def tile_files(store: ObjectStore, tile: Tile) -> tuple[SnapshotFile, ...]:
    """The files of a tile's snapshot; none if the tile is empty. Raises as `restore_store`."""
    if tile.snapshot is None:
        return tile.files
    name = layout.snapshot(tile.operator, tile.low, tile.high, tile.snapshot)
    descriptor = decode_record(store.get(name), SnapshotDescriptor, name)
    if descriptor.status != "published" or descriptor.at != tile.at:
        raise CorruptDataError(
            f"the snapshot is of commit {descriptor.at.seq} and {descriptor.status}, the checkpoint expects commit "
            f"{tile.at.seq}; see `varvite verify JOB --repair`",
            object_name=name,
        )
    return descriptor.files


def _fetch_tiles(
    store: ObjectStore, tiles: Sequence[Tile], scratch: Path, downloads: DownloadPolicy, reuse: Sequence[Path]
) -> list[SnapshotSource]:
    """The snapshots of all tiles, in directories below `scratch`."""
    found = in_parallel(lambda tile: tile_files(store, tile), tiles)
    wanted: list[tuple[tuple[SnapshotFile, ...], Path]] = []
    sources: list[SnapshotSource] = []
    for i, (tile, files) in enumerate(zip(tiles, found, strict=True)):
        directory = scratch / f"tile-{i:05d}" if files else None
        if directory is not None:
            wanted.append((files, directory))
        elif tile.at != ORIGIN and tile.snapshot is not None:
            raise CorruptDataError(
                "the snapshot lists no files; see `varvite verify JOB --repair`", operator=tile.operator
            )
        sources.append(SnapshotSource(directory, tile.low, tile.high, tile.at))
    fetch_snapshots(store, wanted, downloads, reuse)
    return sources
