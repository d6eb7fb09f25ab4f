"""Sizes of the bases of a job's ranges, from the descriptors of their snapshots, each read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varvite.changelog.retention.snapshots import SnapshotReader
from varvite.storage.errors import VarviteError
from varvite.storage.format.layout import SnapshotName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varvite.storage.format.records import Tile
    from varvite.storage.object_stores.contract import ObjectStore


class BaseSizes:
    """Sizes of the newest commit's tiles; for one thread."""

    def __init__(self, store: ObjectStore, job_id: str) -> None:
        """`store` is rooted at `<root>/<job>`."""
        self._store = store
        self._job_id = job_id
        self._sizes: dict[Tile, int] = {}

    def of(self, tiles: Iterable[Tile]) -> Mapping[Tile, int]:
        """Stored bytes of each tile; a tile that cannot be read is left out, and retried by the next call."""
        tiles = tuple(tiles)
        sizes = {tile: self._sizes[tile] for tile in tiles if tile in self._sizes}
        for tile in tiles:
            if tile.snapshot is None:
                sizes[tile] = sum(file.size_bytes for file in tile.files)
        missing = [tile for tile in tiles if tile not in sizes]
        sizes.update(self._read(missing) if missing else {})
        self._sizes = sizes
        return sizes

    def _read(self, tiles: list[Tile]) -> dict[Tile, int]:
        names = {SnapshotName(t.operator, t.low, t.high, t.snapshot or 0): t for t in tiles}
        try:
            descriptors = SnapshotReader(self._store, self._job_id).read_all(tuple(names))
        except VarviteError:
            return {}  # the materialization of the range meets the same error and reports it
        return {
            names[SnapshotName(d.operator, d.low, d.high, d.number)]: sum(file.size_bytes for file in d.files)
            for d in descriptors
        }
