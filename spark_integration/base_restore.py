"""Brings a state worker's store to the base of a request: go on, catch up from the log, or restore (design 5).

Invariants: I5 (tile, then the newer segments of the line), I9 (local files are used only if their version is a commit
of the line; otherwise they are thrown away), I4 (nor are they used if an attempt left them that was not confirmed).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from varve.changelog.restore import RestoreTarget, catch_up
from varve.spark_integration.unconfirmed_mark import UnconfirmedMark
from varve.storage.chain_reader import ChainReader
from varve.storage.records import ORIGIN, Tile

if TYPE_CHECKING:
    from pathlib import Path

    from varve.changelog.working_store import WorkingStore
    from varve.spark_integration.protocol import OperatorRequest
    from varve.spark_integration.working_stores import WorkingStores
    from varve.storage.line_view import LineView
    from varve.storage.object_store import ObjectStore
    from varve.storage.records import ImageRef, Link


@dataclass(frozen=True, slots=True)
class Reached:
    """A store at the base."""

    store: WorkingStore
    how: str
    """current, caught-up or restored."""
    tile: Tile | None
    """Changelog off: the tile of the base, whose files the next checkpoint may name again."""


class BaseRestorer:
    """Restores one operator's key groups `[low, high)` on this executor."""

    def __init__(
        self,
        request: OperatorRequest,
        low: int,
        high: int,
        store: ObjectStore,
        directory: Path,
        stores: WorkingStores,
    ) -> None:
        self._request = request
        self._stores = stores
        self._job_store = store
        self._reader = ChainReader(store, request.job_id)
        self._directory = directory
        self.unconfirmed = UnconfirmedMark(directory)
        """Whether the directory holds what did not win for certain."""
        self._low, self._high = low, high

    def reach(self, base: Link, store: WorkingStore | None) -> Reached:
        """A store whose version is `base`: the given one, brought forward, or a new one.

        Raises:
            VarveError: the base cannot be read; the given store must not be used any more.
        """
        view = self._reader.load_line(base, self._request.max_parallelism).view
        tile = self._own_tile(view)
        if store is None and self.unconfirmed.is_set:
            self.discard_local()
        if store is None:
            store = self._stores.open_local(self._request, self._target(), self._directory)
        if store is not None:
            if store.version == base:
                return Reached(store, "current", tile)
            if self._can_catch_up(store, view):
                catch_up(view, self._target(), self._job_store, store)
                return Reached(store, "caught-up", tile)
            store.close()
        self.discard_local()
        restored = self._stores.restore(self._request, self._target(), view, self._job_store, self._directory)
        return Reached(restored, "restored", tile)

    def images(self, base: Link) -> tuple[ImageRef, ...]:
        """The non-keyed state of all partitions of the operator at `base`. Raises as `reach`."""
        view = self._reader.load_line(base, self._request.max_parallelism).view
        return view.images_for(self._request.operator)

    def discard_local(self) -> None:
        """Delete the local files; their store must be closed."""
        shutil.rmtree(self._directory, ignore_errors=True)
        if not self._directory.exists():
            self.unconfirmed.clear()

    def _target(self) -> RestoreTarget:
        return RestoreTarget(
            operator=self._request.operator, key_type=self._request.key_type, low=self._low, high=self._high
        )

    def _own_tile(self, view: LineView) -> Tile | None:
        if self._request.changelog:
            return None
        tiles = view.tiles_for(self._request.operator, self._low, self._high)
        own = [t for t in tiles if (t.low, t.high) == (self._low, self._high) and t.files]
        return own[0] if own else None

    def _can_catch_up(self, store: WorkingStore, view: LineView) -> bool:
        """Whether the log still has everything after the store's version, and the version is of this line."""
        tiles = view.tiles_for(self._request.operator, self._low, self._high)
        oldest_usable = max(t.at.seq for t in tiles)
        if store.version == ORIGIN:
            return oldest_usable == 0
        return view.holds(store.version) and store.version.seq >= oldest_usable
