"""`HashMapStore`: a working store in memory, the `TableStore` whose tables are Python dicts.

Beyond `TableStore` it folds ahead of the confirmation (`prepare`), loads key groups lazily from a restored RocksDB
store (`load_later`), and removes expired values after accesses (`clean_up`).

Invariants: I4, I5 (as `WorkingStore` says), I9 (there is nothing on disk).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.columns import TIMERS
from varvite.changelog.working_stores.contract import StoreSize
from varvite.changelog.working_stores.hashmap.cleanup import HashMapCleanup
from varvite.changelog.working_stores.hashmap.lazy_groups import GroupSource
from varvite.changelog.working_stores.hashmap.tables import (
    Displaced,
    HashMapListTable,
    HashMapMapTable,
    HashMapTable,
    HashMapValueTable,
)
from varvite.changelog.working_stores.table_rows import table_of
from varvite.changelog.working_stores.table_store import StoreTarget, TableStore
from varvite.storage.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from varvite.changelog.segments.batch import BatchTime
    from varvite.changelog.segments.changes import StateChanges
    from varvite.changelog.working_stores.contract import StateActivity
    from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
    from varvite.changelog.working_stores.table_store import TableChanges
    from varvite.storage.format.records import Link, StateSchema

_TABLES: dict[str, type[HashMapTable[Any]]] = {
    "value": HashMapValueTable,
    "reducing": HashMapValueTable,
    "aggregating": HashMapValueTable,
    "list": HashMapListTable,
    "map": HashMapMapTable,
}


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Changes of which some are in the tables before they are confirmed, and what undoes those."""

    changes: tuple[StateChanges, ...]
    seq: int
    rest: tuple[StateChanges, ...]
    """Those that are not in the tables yet."""
    displaced: list[Displaced]

    def undo(self) -> None:
        """Restore the tables."""
        for displaced in reversed(self.displaced):
            displaced.undo()


class HashMapStore(TableStore):
    """A `WorkingStore` of Python dicts; empty and at `ORIGIN` when made.

    Args:
        operator: The operator's uid.
        key_type: Type string of the keys.
        low, high: The key groups `[low, high)`.

    Raises:
        InvalidRequestError: the range of key groups is empty.
    """

    _reuses_tables = True

    def __init__(self, *, operator: str, key_type: str, low: int, high: int) -> None:
        no_files = Path("/dev/null")
        super().__init__(StoreTarget(operator=operator, key_type=key_type, low=low, high=high, directory=no_files))
        self._cleanups: dict[HashMapTable[Any], HashMapCleanup] = {}
        self._ahead: _Ahead | None = None
        self._source: GroupSource | None = None

    def make_table(self, schema: StateSchema) -> HashMapTable[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        table_type = _TABLES.get(schema.kind)
        if table_type is None:
            problem = f"unknown kind {schema.kind!r} of state {schema.name!r}"
            raise InvariantError(problem, operator=self.target.operator)
        return table_type(self.target.low, self.target.high)

    def drop_table(self, table: HashMapTable[Any]) -> None:
        self._cleanups.pop(table, None)

    def write(self, rows: Sequence[TableChanges]) -> None:
        """Write the rows. If it raises, some may be written: the store is torn then, and is discarded."""
        for table, changes in rows:
            table.apply(changes)

    def apply(
        self, changes: Sequence[StateChanges], version: Link, accepts: Callable[[int], bool] | None = None
    ) -> None:
        """Write what `prepare` has not written yet, if these are the prepared changes; else all."""
        batch, ahead = Batch(changes, version.seq, accepts), self._ahead
        if ahead is not None and batch.consists_of(ahead.changes, ahead.seq):
            self._ahead = None
            batch = Batch(ahead.rest, version.seq)
        self.fold([batch], version, last=True)

    def fold(self, batches: Sequence[Batch], version: Link, *, last: bool) -> None:
        self._undo_ahead()
        self._load_touched(change for batch in batches for change in batch.changes)
        super().fold(batches, version, last=last)

    def prepare(self, changes: Sequence[StateChanges], version_seq: int) -> None:
        """Write the changes of every state whose table can undo them, and keep what they displace until `apply`."""
        self._undo_ahead()
        self._check_whole()
        self._load_touched(changes)
        rest: list[StateChanges] = []
        displaced: list[Displaced] = []
        self._torn = True
        for change in changes:
            table, before = self._existing_table(change.schema), None
            if table is not None and self._registry.knows(change.schema):
                self._check_key_groups(change)
                before = table.displaced(change)
            if table is None or before is None:
                rest.append(change)
            else:
                displaced += before
                table.apply(change)
        self._torn = False
        self._ahead = _Ahead(tuple(changes), version_seq, tuple(rest), displaced)

    def work_ahead(self) -> None:
        """Load some of the key groups that are not in memory yet."""
        if self._source is not None:
            self._source.load_some()
            if self._source.is_complete:
                self._release_source()

    def clean_up(self, now: BatchTime, activity: Mapping[str, StateActivity]) -> int:
        """Check a few values per access, as `cleanup_incrementally` says."""
        self._undo_ahead()
        self._check_whole()
        removed = 0
        for schema in self._registry.confirmed_schemas:
            uses, table = activity.get(schema.name), self._existing_table(schema)
            if uses is not None and table is not None:
                cleanup = self._cleanups.get(table)
                if cleanup is None:
                    cleanup = self._cleanups[table] = HashMapCleanup(table)
                removed += cleanup.run(schema, now, uses)
        return removed

    def size_estimate(self) -> StoreSize | None:
        """Rows only: the size of Python objects is not known."""
        not_loaded = self._source.rows_left() if self._source is not None else 0
        return StoreSize(not_loaded + sum(kept.table.count() for kept in self._kept.values()), None)

    def load_later(self, source: RocksDBStore, release: Callable[[], None]) -> None:
        """Take over the version and the rows of a store of the same key groups: timers now, other rows lazily.

        A key group is loaded at its first access, and some with each `work_ahead`. Only for an empty store.

        Args:
            source: Must not change.
            release: Called once all is loaded, or this store is closed: closes the source.
        """
        self._undo_ahead()
        self._check_whole()
        group_source = GroupSource(source, len(self.key_groups), release)
        self._torn = True
        for schema in source.schemas:
            table = self._table(schema)
            if schema.kind == TIMERS:
                for row in source.timer_table(schema).items():
                    table.load(row)
            else:
                group_source.add(table.load_later(table_of(source, schema).group_items))
        self._source, self._version = group_source, source.version
        self._torn = False
        self._confirm()

    def revert(self) -> None:
        self._undo_ahead()
        super().revert()

    def close(self) -> None:
        self._ahead = None
        self._kept.clear()
        self._confirmed.clear()
        self._release_source()

    def _table(self, schema: StateSchema, migrate: Callable[[Any], Any] | None = None) -> Any:
        """Every access to a table begins here: it must not show prepared changes."""
        self._undo_ahead()
        return super()._table(schema, migrate)

    def _existing_table(self, schema: StateSchema) -> HashMapTable[Any] | None:
        """The table of a state that is no state of timers."""
        kept = self._kept.get(schema.name)
        return None if kept is None or schema.kind == TIMERS else kept.table

    def _load_touched(self, changes: Iterable[StateChanges]) -> None:
        """Load the key groups of these changes: if they cannot be read, nothing is torn yet."""
        if self._source is None:
            return
        for change in changes:
            table = self._existing_table(change.schema)
            if table is not None:
                for key_group in {key_group for key_group, _, _ in change.runs}.intersection(self.key_groups):
                    table.group(key_group)

    def _release_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _undo_ahead(self) -> None:
        """Undo what `prepare` wrote: it was not confirmed."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.undo()
