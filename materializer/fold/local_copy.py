"""The local copy of one range: a RocksDB directory that is brought to a commit by folding the log.

A copy whose version is on the commit's line, and not below the range's tiles, is caught up from the log. Any other is
discarded and restored: tiles, then the log. Folding uses no clock: time in state comes from the log, and expiry follows
from the time of the commit that is folded up to.

Invariants: I5 (base plus log), I9 (the directory is a cache: it is used again after a restart if its version is on the
line, and may vanish at any time).
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from varvite.changelog.restore.files import DOWNLOADS
from varvite.changelog.restore.part_replay import replay_by_part
from varvite.changelog.restore.restore import RestoreTarget, log_after, restore
from varvite.changelog.segments.replay import replay
from varvite.changelog.segments.source import SegmentSource
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.materializer.fold.parts import file_bytes, fold_parts
from varvite.storage.errors import CorruptDataError, VarviteError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from varvite.changelog.chain.view import LineView
    from varvite.changelog.segments.batch import BatchTime
    from varvite.changelog.segments.replay import FlooredSegment, ReplaySummary
    from varvite.materializer.fold.context import FoldContext
    from varvite.materializer.fold.plan import RangeWork
    from varvite.storage.format.records import Link, Tile
    from varvite.storage.object_stores.contract import ObjectStore

_log: Final = logging.getLogger(__name__)


class Folded(NamedTuple):
    """An open local copy at the view's commit."""

    store: RocksDBStore
    mutations: int
    """Mutations folded after `since`."""
    since: Link
    """The version from which the log was folded: the copy's, or the tile's for a new one."""
    restored: bool
    """Was it restored from the tiles, not caught up?"""
    fetch_s: float
    """Time to restore the tiles."""
    fold_s: float
    """Time to fold the log."""
    parts: tuple[range, ...]
    """The parts of the key groups that no new file spans."""


@contextmanager
def open_folded_copy(
    work: RangeWork,
    view: LineView,
    now: BatchTime,
    job_store: ObjectStore,
    context: FoldContext,
    on_progress: Callable[[float], None],
) -> Generator[Folded]:
    """Bring the range's local copy to the view's commit and open it; closes it at the end.

    Some of what has expired at `now`, the commit's own time, is removed: no later batch can see it.

    Args:
        work: The range.
        view: The state to reach.
        now: Time and watermark of the view's commit.
        job_store: Rooted at `<root>/<job>`.
        context: Local directory, RocksDB options and clock.
        on_progress: Called with the part of the log that has been folded, from 0 to 1.

    Raises `VarviteError` if the log or the tiles cannot be read. The local copy is then discarded, as it is if the
    body of the `with` statement raises `CorruptDataError`.
    """
    fold = _LocalCopy(work, view, job_store, context, on_progress).reach()
    try:
        _sweep(fold, now)
        yield fold
    except CorruptDataError:
        context.workspace.discard(work.key)
        raise
    finally:
        fold.store.close()


def _sweep(fold: Folded, now: BatchTime) -> None:
    """Sweep states with TTL; the number of folded mutations bounds the work."""
    mutations = {schema.name: fold.mutations for schema in fold.store.schemas}
    parts = fold.parts if len(fold.parts) > 1 else ()
    fold.store.sweep(now, mutations, lambda record: record.cleanup.when_materialized, parts)


class _LocalCopy:
    """One range's local copy, on its way to the view's commit."""

    def __init__(
        self,
        work: RangeWork,
        view: LineView,
        job_store: ObjectStore,
        context: FoldContext,
        on_progress: Callable[[float], None],
    ) -> None:
        self._view = view
        self._job_store = job_store
        self._clock = context.clock
        self._workspace = context.workspace
        self._on_progress = on_progress
        self._key = key = work.key
        self._base_bytes = work.base_bytes or 0
        options = context.config.follower_options
        target_bytes = file_bytes(self._base_bytes, work.log.size_bytes, options.target_file_size_bytes)
        self._options = replace(options, target_file_size_bytes=target_bytes)
        self._directory = self._workspace.range_directory(key)
        self._target = RestoreTarget(operator=key.operator, key_type=work.key_type, low=key.low, high=key.high)

    def reach(self) -> Folded:
        try:
            return self._catch_up() or self._restore()
        except BaseException:
            # A part of the log may be in it, or its disk may be damaged: the next try begins anew.
            self._workspace.discard(self._key)
            raise

    def _catch_up(self) -> Folded | None:
        """Bring the existing copy forward; None if it cannot be used."""
        if not self._directory.exists():
            return None
        store = self._open()
        if store is None:
            return None
        since = store.version
        if not self._is_usable(since):
            _log.info("%s: the local copy is at seq %d, off the line; restoring it", self._key, since.seq)
            store.close()
            return None
        return self._forward(store, restored=False, fetch_s=0.0)

    def _forward(self, store: RocksDBStore, *, restored: bool, fetch_s: float) -> Folded:
        """Fold the log into a copy that is at a commit of the line; closes it if that fails."""
        since, began_s = store.version, self._clock.monotonic_s()
        try:
            parts, summary = self._fold(store)
        except BaseException:
            store.close()
            raise
        fold_s = self._clock.monotonic_s() - began_s
        return Folded(store, summary.rows, since, restored, fetch_s, fold_s, parts)

    def _fold(self, store: RocksDBStore) -> tuple[tuple[range, ...], ReplaySummary]:
        """Replay the log into a copy; returns the parts of the key groups that it was folded by."""
        since, view, key_groups = store.version, self._view, store.key_groups
        log = log_after(view, self._target, since)
        source = SegmentSource.within(DOWNLOADS, self._job_store)
        distance = max(1, view.base.seq - since.seq)

        def read(begin: float, end: float) -> Iterator[FlooredSegment]:
            for floored in source.read(log):
                folded = max(0, floored.segment.header.seq - since.seq) / distance
                self._on_progress(begin + (end - begin) * folded)
                yield floored

        log_bytes = sum(segment.ref.data.length for segment in log)
        parts = fold_parts(key_groups, view.max_parallelism, log_bytes, self._base_bytes)
        if len(parts) > 1:
            return parts, replay_by_part(store, read, view.base, parts, log_bytes)
        return parts, replay(store, read(0, 1), view.base, low=key_groups.start, high=key_groups.stop)

    def _restore(self) -> Folded:
        """Make a new copy: the tile first, then the log after it, which is counted."""
        self._workspace.discard(self._key)
        scratch, began_s = self._workspace.scratch("restore", self._key), self._clock.monotonic_s()
        base = self._view
        commits = {tile.at for tile in self._tiles()}
        if len(commits) == 1:
            base = msgspec.structs.replace(base, base=commits.pop(), segments=())
        store = restore(base, self._target, self._job_store, self._directory, self._options, scratch=scratch)
        return self._forward(store, restored=True, fetch_s=self._clock.monotonic_s() - began_s)

    def _open(self) -> RocksDBStore | None:
        target, options = self._target, self._options
        try:
            return RocksDBStore.open(
                self._directory, target.operator, target.key_type, target.low, target.high, options
            )
        except VarviteError as error:
            _log.info("%s: the local copy cannot be used; restoring it: %s", self._key, error)
            return None

    def _is_usable(self, version: Link) -> bool:
        return self._view.holds(version) and version.seq >= max(tile.at.seq for tile in self._tiles())

    def _tiles(self) -> tuple[Tile, ...]:
        return self._view.tiles_for(self._target.operator, self._target.low, self._target.high)
