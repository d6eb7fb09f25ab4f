"""`WriteBehind`: what confirmed batches have set, before it is written to RocksDB.

Batches that set values as columns (`ColumnChanges`) mostly set many keys that the batches before have set, too. To
encode and write each of these rows takes longer than all else that the state worker does with such a batch, and of a
key only the last value matters. So a store holds some of these batches back and writes them together.

Nothing is lost by it: a directory whose process dies holds an older commit, from which the log brings it forward, as
it does for what was in RocksDB's memtables anyway (I9). What is held back counts as confirmed: the value tables look
here first, and whatever reads rows from the database itself has them written before. If that happens, or if batches
turn out to have few keys in common, the next `_PAUSE_BATCHES` batches are written at once.

Invariants: I5 (what is written in the end is what the batches give one by one), I10 (`HELD_BATCHES_MAX`, and the memory
of values of recent batches, of which this takes a half while there is any).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from varve.changelog.changes import changes_of_cells
from varve.changelog.column_changes import ColumnChanges
from varve.changelog.rocksdb_tables import remembered_bytes
from varve.storage.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varve.changelog.changes import StateChanges
    from varve.changelog.rocksdb_tables import RocksDBValueTable
    from varve.storage.records import StateSchema

HELD_BATCHES_MAX: Final = 16
"""Batches that are written together. A restart on the same host reads so many from the log."""
_PAUSE_BATCHES: Final = 15
_ROWS_PER_KEY_MIN: Final = 2
"""Rows of the batches for each row that is left of them, below which holding them back costs more than it saves."""


@dataclass(slots=True)
class _Held:
    """What is held back of one state."""

    schema: StateSchema
    cells: defaultdict[int, dict[Any, Any]] = field(default_factory=lambda: defaultdict[int, dict[Any, Any]](dict))
    """Key group → key → stored value, or None if it was removed."""
    row_bytes: int = 0
    """No row's key and value have more, raw."""

    def count(self) -> int:
        return sum(map(len, self.cells.values()))

    def size_bytes(self) -> int:
        """About the memory that it takes, or more."""
        count = self.count()
        return remembered_bytes(count, count * self.row_bytes)


class WriteBehind:
    """See the module. Of one store; empty at first."""

    def __init__(self) -> None:
        self._states: dict[str, _Held] = {}
        self._batches = 0
        self._rows = 0
        self._pause = 0

    def __bool__(self) -> bool:
        """Whether batches are held back, if only for their version."""
        return self._batches > 0

    def __len__(self) -> int:
        """Rows that are held back."""
        return sum(held.count() for held in self._states.values())

    def takes(self, changes: Sequence[StateChanges], tables: Mapping[str, RocksDBValueTable]) -> bool:
        """Whether a batch with these changes is to be held back, given the store's tables by name of the state."""
        if self._pause or not (changes or self):
            return False
        return all(_can_wait(change, tables.get(change.schema.name)) for change in changes)

    def add(self, changes: Sequence[StateChanges], tables: Mapping[str, RocksDBValueTable]) -> None:
        """Hold back a batch that `takes` has approved; the tables read it from here from now on."""
        self._batches += 1
        for change in changes:
            if not isinstance(change, ColumnChanges) or change.row_bytes_most is None:
                raise InvariantError(f"changes of state {change.schema.name!r} cannot be held back")
            held = self._states.setdefault(change.schema.name, _Held(change.schema))
            held.row_bytes = max(held.row_bytes, change.row_bytes_most)
            change.batch_keys.put_into(held.cells, change.values)
            self._rows += len(change)
            tables[change.schema.name].hold(held.cells)

    @property
    def is_due(self) -> bool:
        """Whether what is held back had better be written before the next batch comes."""
        return self._batches >= HELD_BATCHES_MAX

    def is_too_much(self, tables: Mapping[str, RocksDBValueTable]) -> bool:
        """Whether what is held back must be written now."""
        if self._batches > HELD_BATCHES_MAX:
            return True
        return any(held.size_bytes() > tables[name].room_bytes for name, held in self._states.items())

    def changes(self) -> list[StateChanges]:
        """What is held back, as the net effect of one batch."""
        states = self._states.values()
        found = [changes_of_cells(held.schema, sorted(held.cells.items()), removed=True) for held in states]
        return [change for change in found if change is not None]

    def written(self, tables: Mapping[str, RocksDBValueTable], *, asked: bool) -> None:
        """The database has it now.

        Args:
            tables: As in `takes`.
            asked: Somebody needed it there, and would wait for it again.
        """
        if asked or self._rows < len(self) * _ROWS_PER_KEY_MIN:
            self._pause = _PAUSE_BATCHES
        for name in self._states:
            tables[name].release()
        self._states.clear()
        self._batches = self._rows = 0

    def passed(self) -> None:
        """A batch was written without being held back."""
        self._pause = max(0, self._pause - 1)


def _can_wait(change: StateChanges, table: RocksDBValueTable | None) -> bool:
    if table is None or not isinstance(change, ColumnChanges) or table.form.schema != change.schema:
        return False
    if change.row_bytes_most is None or table.is_stamped:  # what has time stamps is swept from the database
        return False
    return remembered_bytes(len(change), len(change) * change.row_bytes_most) <= table.room_bytes
