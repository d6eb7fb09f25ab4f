"""Brings a state worker's store to the base of a request: go on, catch up from the log, or restore.

With local recovery on, the state of any backend has a copy on the host that outlives the process (`LocalPlace`), a
RocksDB directory. For the RocksDB backend it is the working store itself; others are filled from it when they begin.

Invariants: I5 (tile, then the newer segments of the line), I9 (local files are used only if their version is a commit
of the line; otherwise they are thrown away), I4 (nor are they used if an attempt left them that was not confirmed).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.restore.copies import newest_copy
from varvite.changelog.restore.restore import ReachedBy, RestoreTarget, catch_up
from varvite.changelog.restore.unconfirmed_mark import UnconfirmedMark
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.spark_integration.messages.worker_figures import NOTHING_READ, LogRead
from varvite.storage.format.records import ORIGIN, Tile

if TYPE_CHECKING:
    from pathlib import Path

    from varvite.changelog.chain.view import LineView
    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.spark_integration.messages.protocol import OperatorRequest
    from varvite.spark_integration.worker.state.local_place import LocalPlace
    from varvite.spark_integration.worker.state.stores import WorkingStores
    from varvite.storage.format.records import ImageRef, Link
    from varvite.storage.object_stores.contract import ObjectStore


@dataclass(frozen=True, slots=True)
class Reached:
    """A store at the base."""

    store: WorkingStore
    how: ReachedBy
    tile: Tile | None
    """Changelog off: the tile of the base, whose files the next checkpoint may name again."""
    log_read: LogRead = NOTHING_READ


class BaseRestorer:
    """Restores one operator's key groups `[low, high)` on this executor."""

    def __init__(
        self,
        request: OperatorRequest,
        low: int,
        high: int,
        objects: ObjectStore,
        directory: Path,
        working_stores: WorkingStores,
        *,
        local: LocalPlace | None = None,
    ) -> None:
        """`local` is where the state outlives the process; None: it is in `directory` and goes with the executor."""
        self._request = request
        self._working_stores = working_stores
        self._local = local
        self._reader = ChainReader(objects, request.job_id)
        self._directory = directory
        self._low, self._high = low, high
        self._sent: LineView | None = None

    def follow(self, request: OperatorRequest, sent: LineView | None = None) -> None:
        """Use the limits of a later request from now on; its `StateSpec` is the same.

        Args:
            request: The request.
            sent: The view that came with it, if one did: asked for this commit, the restorer reads no chain.
        """
        self._request = request
        self._sent = sent

    def reach(self, base: Link, state: WorkingStore | None) -> Reached:
        """A store whose version is `base`: the given one, brought forward, or a new one.

        Raises:
            VarviteError: the base cannot be read; the given store must not be used any more.
        """
        view = self._view(base)
        tile = self._own_tile(view)
        opened = self._open_local(view) if state is None else None
        try:
            how, reached, log_read = self._bring_up(view, state or opened)
        except BaseException:
            if opened is not None:
                opened.close()
            raise
        if isinstance(reached, RocksDBStore) and self._request.backend != "rocksdb":
            shutil.rmtree(self._directory, ignore_errors=True)
            reached = self._working_stores.filled(self._request, self._target(), reached, self._directory)
        return Reached(reached, how, tile, log_read)

    def _view(self, base: Link) -> LineView:
        if self._sent is not None and self._sent.base == base:
            return self._sent
        return self._reader.load_line(base, self._request.max_parallelism).view

    def _bring_up(self, view: LineView, state: WorkingStore | None) -> tuple[ReachedBy, WorkingStore, LogRead]:
        """Bring a state to the view's commit; answers the way, the state at it, and the log that was read."""
        if state is not None:
            if state.version == view.base:
                return ReachedBy.CURRENT, state, NOTHING_READ
            log_read = self._log_after(view, state.version.seq)
            if catch_up(view, self._target(), state, self._reader, self._request.downloads):
                return ReachedBy.CAUGHT_UP, state, log_read
            state.close()
        return ReachedBy.RESTORED, self._restore(view), self._log_after(view, 0)

    @property
    def directory(self) -> Path:
        """Of the working store, where it has one."""
        return self._local.directory if self._local is not None and self._uses_copy() else self._directory

    @property
    def unconfirmed(self) -> UnconfirmedMark:
        """The mark that the working store's directory may hold an attempt that did not win."""
        return UnconfirmedMark(self.directory)

    def images(self, base: Link) -> tuple[ImageRef, ...]:
        """The non-keyed state of all partitions of the operator at `base`. Raises as `reach`."""
        return self._view(base).images_for(self._request.operator)

    def discard_local(self) -> None:
        """Delete the local files; their store must be closed."""
        if self._local is not None:
            self._local.discard()
        shutil.rmtree(self._directory, ignore_errors=True)
        if not self._directory.exists():
            UnconfirmedMark(self._directory).clear()

    def keep_up(self, store: WorkingStore | None) -> None:
        """Keep the local copy up to date; called between requests."""
        if self._local is not None:
            self._local.keep_up(store)

    def close(self) -> None:
        """Give the local copy up; its store must be closed."""
        if self._local is not None:
            self._local.close()

    def _uses_copy(self) -> bool:
        return self._request.backend == "rocksdb"

    def _open_local(self, view: LineView) -> WorkingStore | None:
        """The newest state of the line that is on this host and not in use; None if there is none."""
        if self._local is None:
            return self._working_stores.open_local(self._request, self._target(), self._directory)
        candidates = self._local.candidates()
        try:
            newest = newest_copy(
                candidates,
                view,
                lambda directory: self._working_stores.open_copy(self._request, self._target(), directory),
            )
        except BaseException:
            self._local.close()
            for copy in candidates:
                copy.release()
            raise
        self._local.keep(newest.copy, candidates)
        return newest.state

    def _restore(self, view: LineView) -> WorkingStore:
        source = self._request, self._target(), view, self._reader
        if self._local is None:
            return self._working_stores.restore(*source, self._directory)
        if view.base == ORIGIN and not self._uses_copy():
            self._local.occupy()
            return self._working_stores.restore(*source, self._directory)
        return self._working_stores.restore_rocksdb(*source, self._local.directory, reuse=self._local.reusable())

    def _log_after(self, view: LineView, seq: int) -> LogRead:
        """The log of the own key groups that is newer than their tiles and than `seq`."""
        replayed = view.segments_for(self._request.operator, self._low, self._high)
        sizes = [segment.ref.data.length for segment in replayed if segment.ref.seq_last > seq]
        return LogRead(len(sizes), sum(sizes))

    def _target(self) -> RestoreTarget:
        return RestoreTarget(
            operator=self._request.operator, key_type=self._request.key_type, low=self._low, high=self._high
        )

    def _own_tile(self, view: LineView) -> Tile | None:
        if self._request.changelog:
            return None
        tiles = view.tiles_for(self._request.operator, self._low, self._high)
        exact = [t for t in tiles if (t.low, t.high) == (self._low, self._high) and t.files]
        return exact[0] if exact else None
