"""The local copy of one range: a RocksDB directory that is brought to a commit by folding the log.

A copy whose version is on the commit's line, and not below the range's tiles, is caught up from the log; any other is
thrown away and restored: tiles, then the log. Folding uses no clock: time in state comes from the log, and what has
expired is told by the time of the commit that is folded up to.

Invariants: I5 (base plus log), I9 (the directory is a cache: it is used again after a restart if its version is on the
line, and may vanish at any time).
"""

from __future__ import annotations

import logging
import shutil
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from varvite.changelog.restore.files import DOWNLOADS
from varvite.changelog.restore.part_replay import replay_by_part
from varvite.changelog.restore.restore import RestoreTarget, log_after, restore_store
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
    from varvite.changelog.working_stores.rocksdb.options import RocksDBOptions
    from varvite.materializer.fold.plan import RangeWork
    from varvite.materializer.resources.workspace import Workspace
    from varvite.storage.clock import Clock
    from varvite.storage.format.records import Link, Tile
    from varvite.storage.object_stores.contract import ObjectStore

_log: Final = logging.getLogger(__name__)


class Folded(NamedTuple):
    """An open local copy at the commit that was asked for."""

    store: RocksDBStore
    mutations: int
    """Mutations folded after `since`."""
    since: Link
    """The version from which the log was folded: the copy's, or the tile's for a new one."""
    restored: bool
    """Whether it was restored from the tiles, not caught up."""
    fetch_s: float
    """Time to restore the tiles."""
    fold_s: float
    """Time to fold the log."""
    parts: tuple[range, ...]
    """The parts of the key groups that no new file spans."""


class FollowerGiven(NamedTuple):
    """What a follower works with."""

    workspace: Workspace
    options: RocksDBOptions
    clock: Clock
    progress: Callable[[float], None]
    """Hears how much of the log has been folded, from 0 to 1."""


@contextmanager
def folded(
    work: RangeWork, view: LineView, now: BatchTime, job_store: ObjectStore, given: FollowerGiven
) -> Generator[Folded]:
    """The range's state after the view's commit, as an open local store; closed again at the end.

    Some of what has expired at `now`, the commit's own time, is removed: no later batch can see it.

    Raises `VarviteError` if the log or the tiles cannot be read; the local copy is then discarded. So it is if what is
    done with it raises `CorruptDataError`.
    """
    result = _Follower(work, view, job_store, given).reach()
    try:
        _sweep(result, now)
        yield result
    except CorruptDataError:
        given.workspace.discard(work.key)
        raise
    finally:
        result.store.close()


def _sweep(fold: Folded, now: BatchTime) -> None:
    """Sweep states with TTL; what was folded bounds the work."""
    mutations = {schema.name: fold.mutations for schema in fold.store.schemas}
    parts = fold.parts if len(fold.parts) > 1 else ()
    fold.store.sweep(now, mutations, lambda record: record.cleanup.when_materialized, parts)


class _Follower:
    """Brings one range's local copy to the view's commit."""

    def __init__(self, work: RangeWork, view: LineView, job_store: ObjectStore, given: FollowerGiven) -> None:
        self._view = view
        self._job_store = job_store
        self._given = given
        self._workspace = given.workspace
        self._key = work.key
        self._base_bytes = work.base_bytes or 0
        target_bytes = file_bytes(self._base_bytes, work.log.size_bytes, given.options.target_file_size_bytes)
        self._options = replace(given.options, target_file_size_bytes=target_bytes)
        self._directory = given.workspace.range_directory(work.key)
        key = work.key
        self._target = RestoreTarget(operator=key.operator, key_type=work.key_type, low=key.low, high=key.high)

    def reach(self) -> Folded:
        try:
            return self._caught_up() or self._restored()
        except BaseException:
            # A part of the log may be in it, or its disk may be damaged: the next try begins anew.
            self._workspace.discard(self._key)
            raise

    def _caught_up(self) -> Folded | None:
        """The copy that is there, brought forward; None if it cannot be used."""
        if not self._directory.exists():
            return None
        store = self._open()
        if store is None:
            return None
        since = store.version
        if not self._is_usable(since):
            _log.info("%s: the local copy is at seq %d, off the line; it is made anew", self._key, since.seq)
            store.close()
            return None
        return self._forward(store, restored=False, fetch_s=0.0)

    def _forward(self, store: RocksDBStore, *, restored: bool, fetch_s: float) -> Folded:
        """Fold the log into a copy that is at a commit of the line; closes it if that fails."""
        since, began_s = store.version, self._given.clock.monotonic_s()
        try:
            parts, summary = self._fold(store)
        except BaseException:
            store.close()
            raise
        fold_s = self._given.clock.monotonic_s() - began_s
        return Folded(store, summary.rows, since, restored, fetch_s, fold_s, parts)

    def _fold(self, store: RocksDBStore) -> tuple[tuple[range, ...], ReplaySummary]:
        """Replay the log into a copy; into which parts it went."""
        since, view, key_groups = store.version, self._view, store.key_groups
        log = log_after(view, self._target, since)
        source = SegmentSource.within(DOWNLOADS, self._job_store)
        distance = max(1, view.base.seq - since.seq)

        def read(begin: float, end: float) -> Iterator[FlooredSegment]:
            for one in source.read(log):
                self._given.progress(begin + (end - begin) * max(0, one.segment.header.seq - since.seq) / distance)
                yield one

        log_bytes = sum(one.ref.data.length for one in log)
        parts = fold_parts(key_groups, view.max_parallelism, log_bytes, self._base_bytes)
        if len(parts) > 1:
            return parts, replay_by_part(store, read, view.base, parts, log_bytes)
        return parts, replay(store, read(0, 1), view.base, low=key_groups.start, high=key_groups.stop)

    def _restored(self) -> Folded:
        """A new copy: the tile first, then the log after it, which is counted."""
        self._workspace.discard(self._key)
        scratch, began_s = self._workspace.scratch("restore", self._key), self._given.clock.monotonic_s()
        base = self._view
        commits = {tile.at for tile in self._tiles()}
        if len(commits) == 1:
            base = msgspec.structs.replace(base, base=commits.pop(), segments=())
        try:
            store = restore_store(base, self._target, self._job_store, self._directory, scratch, self._options)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return self._forward(store, restored=True, fetch_s=self._given.clock.monotonic_s() - began_s)

    def _open(self) -> RocksDBStore | None:
        target, options = self._target, self._options
        try:
            return RocksDBStore.open(
                self._directory, target.operator, target.key_type, target.low, target.high, options
            )
        except VarviteError as error:
            _log.info("%s: the local copy cannot be used and is made anew: %s", self._key, error)
            return None

    def _is_usable(self, version: Link) -> bool:
        return self._view.holds(version) and version.seq >= max(tile.at.seq for tile in self._tiles())

    def _tiles(self) -> tuple[Tile, ...]:
        return self._view.tiles_for(self._target.operator, self._target.low, self._target.high)
