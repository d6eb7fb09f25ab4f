"""The overlay that all value-like states share."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from varvite.changelog.keyed.overlays.base import Overlay
from varvite.changelog.keyed.overlays.recent_columns import RecentColumns
from varvite.changelog.segments.changes import OverSealed, changes_of_cells
from varvite.changelog.working_stores.contract import ValueTable
from varvite.changelog.working_stores.hashmap.tables import HashMapValueTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varvite.changelog.segments.changes import StateChanges
    from varvite.changelog.segments.column_changes import ColumnChanges
    from varvite.storage.format.records import StateSchema


class ValueOverlay(Overlay[ValueTable]):
    """Pending: the stored value, or None if it was removed."""

    __slots__ = ("cells", "columns", "recent", "removed")

    def __init__(self, schema: StateSchema, table: ValueTable) -> None:
        super().__init__(schema, table)
        self.pending = PendingCells(self)
        self.columns: ColumnChanges | None = None
        """The changes of `put_many`, while nothing else is pending."""
        self.cells: dict[int, dict[Any, Any]] | None = table.groups if isinstance(table, HashMapValueTable) else None
        """The cells of a table in memory, which are read without a call; None for other tables."""
        self.removed = False
        """Was anything removed since the last cut?"""
        self.recent = RecentColumns()

    def make_cells(self) -> None:
        """Move the changes in `columns` to `pending`."""
        columns, self.columns = self.columns, None
        if columns is not None:
            columns.batch_keys.put_into(self.pending, columns.values)
            self.removed |= columns.ops is not None

    def remove(self, key_group: int, key: Any) -> None:
        """Remove the value."""
        self.pending[key_group][key] = None
        self.removed = True

    def changes(self) -> StateChanges | None:
        return self.columns or changes_of_cells(self.schema, self.by_key_group(), removed=self.removed)

    def whole(self) -> StateChanges | None:
        sealed = self.sealed
        if sealed is None:
            return self.changes()
        self.make_cells()
        key_groups = sorted(sealed.pending.keys() | self.pending.keys())
        merged = ((group, {**sealed.pending.get(group, {}), **self.pending.get(group, {})}) for group in key_groups)
        return changes_of_cells(self.schema, merged, removed=self.removed or sealed.removed)

    def count_rows(self) -> int:
        return len(self.columns or ()) + sum(map(len, self.pending.values()))

    def cut(self) -> None:
        self.make_cells()
        super().cut()

    def _seal(self) -> None:
        sealed = self._sealed()
        for key_group, cells in self.pending.items():
            sealed.pending[key_group].update(cells)
        sealed.removed |= self.removed
        self.removed = False
        self.pending.clear()
        for key_group, cells in sealed.pending.items():
            self.pending[key_group] = OverSealed(cells)

    def folded(self) -> None:
        if self.columns is not None:
            self.recent.remember(self.columns)
        elif self.sealed is not None or any(self.pending.values()):
            self.recent.forget()
        super().folded()

    def clear(self) -> None:
        super().clear()
        self.columns = None
        self.removed = False

    def keys(self) -> Iterator[tuple[int, Any]]:
        self.make_cells()
        for key_group, key in self.keys_below():
            if key not in self.pending[key_group]:
                yield key_group, key
        for key_group, cells in list(self.pending.items()):
            for key, stored in list(cells.items()):
                if stored is not None:
                    yield key_group, key

    def prefetch(self, key_groups: Sequence[int], keys: Sequence[Any]) -> None:
        if self.read or self.read_before:
            self.table.prefetch(key_groups, keys)


class PendingCells(defaultdict[int, dict[Any, Any]]):
    """`pending` of a value overlay: an access of a single cell makes cells of the overlay's columns first.

    While there are columns this dict is empty, so every such access comes by here, and no other pays for it.
    """

    def __init__(self, overlay: ValueOverlay) -> None:
        super().__init__(dict)
        self._overlay = overlay

    def __missing__(self, key_group: int) -> dict[Any, Any]:
        self._overlay.make_cells()
        return self.setdefault(key_group, {})
