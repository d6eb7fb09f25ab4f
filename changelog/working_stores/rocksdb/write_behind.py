"""`WriteBehind`: the values of confirmed batches, before they are written to RocksDB.

Batches that set values as columns (`ColumnChanges`) mostly set many keys that the batches before have set, too.
Encoding and writing each of these rows takes longer than all other work of the state worker on such a batch, and only
the last value of a key matters. So a store holds some of these batches back and writes them together.

Writing them at once would delay every sixteenth batch. So they are sealed, and with each of the following batches,
which are held back themselves, some of their rows are made, by key group. The last rows are written with all of them,
in one write batch. If there is no room for two such generations, they are written at once.

Nothing is lost by it: a directory whose process dies holds an older commit, from which the log brings it forward, as
it does for RocksDB's memtables anyway (I9). Values that are held back count as confirmed: the value tables read them
first, and everything that reads rows from the database has them written before. If that happens, or if batches have few
keys in common, the next `_PAUSE_BATCHES` batches are written at once.

It costs some 250 lines, half the memory of recent values, and a longer replay after a crash on the same host. Together
with `varvite.changelog.keyed.overlays.recent_columns` it saves two thirds of a state worker's CPU where vectorized
functions aggregate 100,000 keys per batch.

Invariants: I5 (the rows are those of the batches one by one; each write is the state at a commit), I10
(`HELD_BATCHES_MAX`, and half the memory of recent values while batches are held back).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rocksdict import WriteBatch

from varvite.changelog.segments.changes import changes_of_cells
from varvite.changelog.segments.column_changes import ColumnChanges
from varvite.changelog.working_stores.rocksdb.metadata import VERSION_KEY
from varvite.changelog.working_stores.rocksdb.tables import remembered_bytes
from varvite.storage.errors import InvariantError, VarviteError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from varvite.changelog.segments.changes import StateChanges
    from varvite.changelog.working_stores.rocksdb.database import Database
    from varvite.changelog.working_stores.rocksdb.metadata import StoreVersion
    from varvite.changelog.working_stores.rocksdb.tables import RocksDBValueTable
    from varvite.storage.format.records import StateSchema

HELD_BATCHES_MAX: Final = 16
"""Batches that are written together."""
SLICES: Final = 8
"""Batches over which that writing is spread. A restart on the same host reads the log of both generations."""
_PAUSE_BATCHES: Final = 15
_ROWS_PER_KEY_MIN: Final = 2
"""Rows of the batches per row of their net effect, below which holding them back costs more than it saves."""


@dataclass(slots=True)
class _Held:
    """The held values of one state."""

    schema: StateSchema
    cells: defaultdict[int, dict[Any, Any]] = field(default_factory=lambda: defaultdict[int, dict[Any, Any]](dict))
    """Key group → key → stored value, or None if it was removed."""
    row_bytes: int = 0
    """Most raw bytes of a row's key and value."""

    def count(self) -> int:
        return sum(map(len, self.cells.values()))

    def size_bytes(self) -> int:
        """Upper estimate of its memory."""
        count = self.count()
        return remembered_bytes(count, count * self.row_bytes)


@dataclass(slots=True)
class _Generation:
    """Batches that are written together."""

    states: dict[str, _Held] = field(default_factory=dict[str, _Held])
    batches: int = 0
    rows: int = 0

    def count(self) -> int:
        """Rows of the batches' net effect."""
        return sum(held.count() for held in self.states.values())

    def size_bytes(self, state: str) -> int:
        return self.states[state].size_bytes() if state in self.states else 0

    def changes(self, key_groups: Collection[int] | None = None) -> list[StateChanges]:
        """The net effect, in these key groups or in all, as that of one batch."""
        changes: list[StateChanges | None] = []
        for held in self.states.values():
            groups = held.cells.keys() if key_groups is None else held.cells.keys() & key_groups
            cells = [(key_group, held.cells[key_group]) for key_group in sorted(groups)]
            changes.append(changes_of_cells(held.schema, cells, removed=True))
        return [change for change in changes if change is not None]

    def key_groups(self) -> list[int]:
        return sorted(set[int]().union(*(held.cells for held in self.states.values())))

    def has_few_rows_per_key(self) -> bool:
        return self.rows < self.count() * _ROWS_PER_KEY_MIN


class Leaving:
    """Batches that are being written: their rows go into `write_batch`, some at a time, in order of key group."""

    def __init__(self, generation: _Generation, version: StoreVersion) -> None:
        self.generation = generation
        self.version = version
        """The version after the last of the batches."""
        self._key_groups = generation.key_groups()
        self._begin()

    def write_to(self, database: Database) -> None:
        """Write all rows, together with the version. Raises as `Database.write`, and then begins again."""
        self.write_batch.put(VERSION_KEY, msgspec.json.encode(self.version))
        try:
            database.write(self.write_batch)
        except VarviteError:
            self._begin()
            raise

    def _begin(self) -> None:
        """Start with an empty write batch: one that was passed to the database is used up, even if that failed."""
        self.parts = self._position = 0
        self.write_batch = WriteBatch(raw_mode=True)

    def next_changes(self) -> list[StateChanges]:
        """The next part, to be added to `write_batch`."""
        begin, count = self._position, -(-len(self._key_groups) // SLICES)
        self._position, self.parts = begin + count, self.parts + 1
        return self.generation.changes(frozenset(self._key_groups[begin : begin + count]))

    @property
    def is_complete(self) -> bool:
        """Is there no next part?"""
        return self._position >= len(self._key_groups)


class WriteBehind:
    """The held batches of one store; empty at first."""

    def __init__(self) -> None:
        self._young = _Generation()
        self._leaving: Leaving | None = None
        self._pause = 0

    def __bool__(self) -> bool:
        """Are batches held back, if only for their version?"""
        return self._young.batches > 0 or self._leaving is not None

    def __len__(self) -> int:
        """Rows that are held back, or fewer: of two generations the larger one counts, as most rows are in both."""
        return max(generation.count() for generation in self._generations())

    @property
    def leaving(self) -> Leaving | None:
        """The batches that are being written."""
        return self._leaving

    def takes(self, changes: Sequence[StateChanges], tables: Mapping[str, RocksDBValueTable]) -> bool:
        """Can a batch with these changes be held back? `tables` are the store's, by name of the state."""
        if self._pause or not (changes or self):
            return False
        return all(_can_wait(change, tables.get(change.schema.name)) for change in changes)

    def add(self, changes: Sequence[StateChanges], tables: Mapping[str, RocksDBValueTable]) -> None:
        """Hold back a batch that `takes` has approved; the tables read its values from now on."""
        young = self._young
        young.batches += 1
        for change in changes:
            if not isinstance(change, ColumnChanges) or change.row_bytes_most is None:
                raise InvariantError(f"changes of state {change.schema.name!r} cannot be held back")
            held = young.states.setdefault(change.schema.name, _Held(change.schema))
            held.row_bytes = max(held.row_bytes, change.row_bytes_most)
            change.batch_keys.put_into(held.cells, change.values)
            young.rows += len(change)
            self._show(tables, change.schema.name)

    @property
    def is_due(self) -> bool:
        """Should the held batches be written before the next batch?"""
        return self._young.batches >= HELD_BATCHES_MAX

    @property
    def is_overdue(self) -> bool:
        """Must a part of them be written now, because it was not done between batches?"""
        if self._leaving is None:
            return self._young.batches > HELD_BATCHES_MAX
        return self._young.batches > self._leaving.parts

    def is_too_much(self, tables: Mapping[str, RocksDBValueTable]) -> bool:
        """Must all of them be written now?"""
        return not self._fits(tables, times=1)

    def may_seal(self, tables: Mapping[str, RocksDBValueTable]) -> bool:
        """May the writing be spread over batches? Nothing else is being written, and all would fit twice."""
        return self._leaving is None and self._fits(tables, times=2)

    def seal(self, version: StoreVersion) -> None:
        """Begin to write the held batches, which are all up to this version."""
        self._leaving, self._young = Leaving(self._young, version), _Generation()

    def changes(self) -> list[StateChanges]:
        """The net effects of the held batches, older first."""
        return [change for generation in self._generations() for change in generation.changes()]

    def left(self, tables: Mapping[str, RocksDBValueTable]) -> None:
        """Forget the batches that were being written: the database has them."""
        written, self._leaving = self._leaving, None
        if written is None:
            return
        if written.generation.has_few_rows_per_key():
            self._pause = _PAUSE_BATCHES
        for name in written.generation.states:
            self._show(tables, name)

    def written(self, tables: Mapping[str, RocksDBValueTable], *, was_needed: bool) -> None:
        """Forget all batches: the database has them.

        Args:
            tables: As in `takes`.
            was_needed: A read of the database waited for it, and would wait again.
        """
        if was_needed or any(generation.has_few_rows_per_key() for generation in self._generations()):
            self._pause = _PAUSE_BATCHES
        names = {name for generation in self._generations() for name in generation.states}
        self._young, self._leaving = _Generation(), None
        for name in names:
            self._show(tables, name)

    def passed(self) -> None:
        """Count a batch that was written without being held back."""
        self._pause = max(0, self._pause - 1)

    def _generations(self) -> tuple[_Generation, ...]:
        """Older first."""
        return (self._young,) if self._leaving is None else (self._leaving.generation, self._young)

    def _fits(self, tables: Mapping[str, RocksDBValueTable], *, times: int) -> bool:
        """Do the held values fit `times` times into the memory of recent values?"""
        names = {name for generation in self._generations() for name in generation.states}
        return all(
            times * sum(generation.size_bytes(name) for generation in self._generations()) <= tables[name].room_bytes
            for name in names
        )

    def _show(self, tables: Mapping[str, RocksDBValueTable], state: str) -> None:
        """Give the state's table its held values."""
        newest_first = reversed(self._generations())
        tables[state].hold(
            *(generation.states[state].cells for generation in newest_first if state in generation.states)
        )


def _can_wait(change: StateChanges, table: RocksDBValueTable | None) -> bool:
    if table is None or not isinstance(change, ColumnChanges) or table.form.schema != change.schema:
        return False
    if change.row_bytes_most is None or table.is_stamped:  # values with time stamps are swept from the database
        return False
    return remembered_bytes(len(change), len(change) * change.row_bytes_most) <= table.room_bytes
