"""How large the bases of a job's ranges are, from the descriptors of their snapshots, each read once."""

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
    """Sizes of the tiles that there are now; for one thread."""

    def __init__(self, store: ObjectStore, job_id: str) -> None:
        """`store` is rooted at `<root>/<job>`."""
        self._store = store
        self._job_id = job_id
        self._known: dict[Tile, int] = {}

    def of(self, tiles: Iterable[Tile]) -> Mapping[Tile, int]:
        """Stored bytes of each tile; those that cannot be read now are left out and tried again the next time."""
        wanted = tuple(tiles)
        found = {tile: self._known[tile] for tile in wanted if tile in self._known}
        for tile in wanted:
            if tile.snapshot is None:
                found[tile] = sum(file.size_bytes for file in tile.files)
        missing = [tile for tile in wanted if tile not in found]
        found.update(self._read(missing) if missing else {})
        self._known = found
        return found

    def _read(self, tiles: list[Tile]) -> dict[Tile, int]:
        names = {SnapshotName(t.operator, t.low, t.high, t.snapshot or 0): t for t in tiles}
        try:
            read = SnapshotReader(self._store, self._job_id).read_all(tuple(names))
        except VarviteError:
            return {}  # whoever materializes the range meets the same trouble and reports it
        return {
            names[SnapshotName(d.operator, d.low, d.high, d.number)]: sum(file.size_bytes for file in d.files)
            for d in read
        }
