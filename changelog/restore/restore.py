"""Two ways to a store at a commit: `restore` makes one, `catch_up` brings an older one of the line forward.

`restore` reads the tiles first and then the newer segments of the line. The tiles of all key groups are fetched at the
same time, and the log's first segments while they are. `catch_up` reads only the log.

Invariants: I5, I8 (files and segments are verified as they are read), I9 (nothing local is needed), I10
(`DownloadPolicy` holds once for the tiles' files and once for the log).
"""

from __future__ import annotations

import logging
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from varvite.changelog.chain.reader import in_parallel
from varvite.changelog.chain.tiles import KeyGroupFloor
from varvite.changelog.restore.clip import SnapshotSource, open_clipped
from varvite.changelog.restore.files import DOWNLOADS, fetch_snapshots
from varvite.changelog.restore.unconfirmed_mark import UnconfirmedMark
from varvite.changelog.segments.replay import replay
from varvite.changelog.segments.source import SegmentSource
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.storage.errors import CorruptDataError, MissingObjectError
from varvite.storage.format import layout
from varvite.storage.format.identity import check_record
from varvite.storage.format.records import ORIGIN, SnapshotDescriptor, decode_record

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from varvite.changelog.chain.reader import ChainReader
    from varvite.changelog.chain.view import LineView, ReplaySegment
    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
    from varvite.storage.format.records import Link, SnapshotFile, Tile
    from varvite.storage.object_stores.contract import ObjectStore
    from varvite.storage.transfer.download import DownloadPolicy


_log: Final = logging.getLogger(__name__)
LONG_LOG_BYTES: Final = 128 << 20
"""A log of at least this size is replayed before anything is compacted; the compaction happens while the job runs."""
FILES_EXTRA: Final = 12
"""Files of level 0, besides the ordinary number, that such a replay may leave."""
STAGES_MAX: Final = 8
"""Adoptions that a store may have missed and still catch up from the log."""


class ReachedBy(StrEnum):
    """The way in which a store came to the commit that a batch is executed on; metrics and messages carry the text."""

    CONFIRMED = "confirmed"
    """The pending changes of the attempt before were folded."""
    CURRENT = "current"
    """The store was at the commit already."""
    CAUGHT_UP = "caught-up"
    """The log brought it forward."""
    RESTORED = "restored"
    """It was made anew from tiles and log."""


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """The state to restore: key groups `[low, high)` of an operator."""

    operator: str
    key_type: str
    """Type string of the keys."""
    low: int
    high: int


def restore(
    view: LineView,
    target: RestoreTarget,
    objects: ObjectStore,
    directory: Path,
    options: RocksDBOptions | None = None,
    *,
    scratch: Path | None = None,
    downloads: DownloadPolicy = DOWNLOADS,
    reuse: Sequence[Path] = (),
) -> RocksDBStore:
    """Make a RocksDB store at the view's commit in `directory`; an older state there is replaced.

    Files of the tiles that the older state, or one in the directories to `reuse`, has are not fetched again.

    Args:
        view: The commit.
        target: The state to restore.
        objects: The job's object store.
        directory: Of the new store; its parent is made if it does not exist.
        options: Memory, disk and threads.
        scratch: For fetched files, on the same filesystem; removed in the end. None: beside `directory`.
        downloads: Limits of what is fetched at the same time.
        reuse: Directories of older states of these key groups.

    Raises:
        MissingObjectError, CorruptDataError: an object that the commit names is gone or damaged.
        IncompatibleError: the state is of another key type.
    """
    stale = directory.with_name(f"{directory.name}.stale")
    with _removed(stale), _removed(scratch or directory.with_name(f"{directory.name}.restore")) as fetched:
        directory.parent.mkdir(parents=True, exist_ok=True)
        if directory.exists():
            directory.rename(stale)
        UnconfirmedMark(directory).clear()
        low, high = target.low, target.high
        log = view.segments_for(target.operator, low, high)
        options, log_bytes = options or RocksDBOptions(), sum(segment.ref.data.length for segment in log)
        is_long = log_bytes >= LONG_LOG_BYTES and options.level0_files_extra < FILES_EXTRA
        with SegmentSource.within(downloads, objects).ahead(log) as segments:
            tiles = view.tiles_for(target.operator, low, high)
            state = open_clipped(
                directory,
                _fetch_tiles(objects, tiles, fetched, downloads, (stale, *reuse)),
                operator=target.operator,
                key_type=target.key_type,
                low=low,
                high=high,
                options=replace(options, level0_files_extra=FILES_EXTRA) if is_long else options,
            )
            try:
                replay(state, segments, view.base, low=low, high=high)
                if is_long:
                    state.compact_as_usual()
            except BaseException:
                state.close()
                raise
    return state


def catch_up(
    view: LineView,
    target: RestoreTarget,
    state: WorkingStore,
    reader: ChainReader,
    downloads: DownloadPolicy = DOWNLOADS,
) -> bool:
    """Bring an older store of the line to the view's commit; False if the log does not reach so far back.

    Raises `VarviteError` if the log cannot be read. After that, and after False, the store must not be used any more.
    """
    stages = stages_to(view, target, state.version, reader)
    try:
        for stage in stages:
            _replay_stage(stage, target, reader.store, state, downloads)
    except MissingObjectError as error:
        if len(stages) == 1:
            raise
        # Below the newest tile the log may be collected at any time.
        _log.info("the local state cannot catch up and is restored: %s", error)
        return False
    return bool(stages)


def can_catch_up(view: LineView, target: RestoreTarget, version: Link) -> bool:
    """Tell whether the version is on the view's line and the view's log has everything after it."""
    oldest = max(tile.at.seq for tile in view.tiles_for(target.operator, target.low, target.high))
    return view.holds(version) and version.seq >= oldest


def log_after(view: LineView, target: RestoreTarget, version: Link) -> list[ReplaySegment]:
    """The segments that lead from that version, a commit of the view's line not older than the tiles, to the view's."""
    floor = (KeyGroupFloor(target.low, target.high, version.seq),)
    log = view.segments_for(target.operator, target.low, target.high)
    return [segment._replace(floors=floor) for segment in log if segment.ref.seq_last > version.seq]


def stages_to(view: LineView, target: RestoreTarget, version: Link, reader: ChainReader) -> tuple[LineView, ...]:
    """The views through which a store at `version` catches up to the last of them, `view`; none if it cannot.

    If a tile was adopted since, `view` no longer names the log below the tile, which the store needs. The commit that
    the tile is at is on the same line and names that log, as long as that commit is not collected.
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


def tile_files(objects: ObjectStore, tile: Tile) -> tuple[SnapshotFile, ...]:
    """The files of a tile's snapshot; none if the tile is empty. Raises as `restore`."""
    if tile.snapshot is None:
        return tile.files
    name = layout.snapshot(tile.operator, tile.low, tile.high, tile.snapshot)
    descriptor = decode_record(objects.get(name), SnapshotDescriptor, name)
    check_record(descriptor, name)
    if descriptor.status != "published" or descriptor.at != tile.at:
        raise CorruptDataError(
            f"the snapshot is of commit {descriptor.at.seq} and {descriptor.status}, the checkpoint expects commit "
            f"{tile.at.seq}; see `varvite verify JOB --repair`",
            object_name=name,
        )
    return descriptor.files


@contextmanager
def _removed(directory: Path) -> Generator[Path]:
    """A directory that does not exist before, and no longer afterwards."""
    shutil.rmtree(directory, ignore_errors=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _replay_stage(
    view: LineView, target: RestoreTarget, objects: ObjectStore, state: WorkingStore, downloads: DownloadPolicy
) -> None:
    """Bring a store at an older commit of the view's line, not older than the tiles, to the view's commit."""
    state.revert()
    segments = SegmentSource.within(downloads, objects).read(log_after(view, target, state.version))
    replay(state, segments, view.base, low=target.low, high=target.high)


def _fetch_tiles(
    objects: ObjectStore, tiles: Sequence[Tile], scratch: Path, downloads: DownloadPolicy, reuse: Sequence[Path]
) -> list[SnapshotSource]:
    """Fetch the snapshots of all tiles into directories below `scratch`."""
    files_of_tiles = in_parallel(lambda tile: tile_files(objects, tile), tiles)
    fetched: list[tuple[tuple[SnapshotFile, ...], Path]] = []
    sources: list[SnapshotSource] = []
    for i, (tile, files) in enumerate(zip(tiles, files_of_tiles, strict=True)):
        directory = scratch / f"tile-{i:05d}" if files else None
        if directory is not None:
            fetched.append((files, directory))
        elif tile.at != ORIGIN and tile.snapshot is not None:
            raise CorruptDataError(
                "the snapshot lists no files; see `varvite verify JOB --repair`", operator=tile.operator
            )
        number = tile.snapshot
        described = "" if number is None else layout.snapshot(tile.operator, tile.low, tile.high, number)
        name = described or (files[0].name if files else "")
        sources.append(SnapshotSource(directory, tile.low, tile.high, tile.at, name))
    fetch_snapshots(objects, fetched, downloads, reuse)
    return sources
