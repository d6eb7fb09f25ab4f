"""`HashMapStore`: a working store in memory.

Its snapshots are RocksDB snapshots like those of every store, so a job can change its backend at restart, and the
materializer needs to know one format only.

All values in memory are of the newest version of their state's schema: a table is converted when the state gets a new
version, and older changes are when they are replayed.

Invariants: I4, I5 (see `WorkingStore`), I9 (there is nothing on disk).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from varvite.changelog.schema.history import changes_at, first_version, migrating_conversion, stored_conversion
from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.columns import TIMERS, namespace_type_of, type_of
from varvite.changelog.working_stores.contract import StoreSize
from varvite.changelog.working_stores.hashmap.cleanup import HashMapCleanup, without_expired
from varvite.changelog.working_stores.hashmap.lazy_groups import GroupSource
from varvite.changelog.working_stores.hashmap.tables import (
    Displaced,
    HashMapListTable,
    HashMapMapTable,
    HashMapTable,
    HashMapValueTable,
    outside,
)
from varvite.changelog.working_stores.hashmap.timers import HashMapTimerTable
from varvite.changelog.working_stores.rocksdb.bulk import write_table_snapshot
from varvite.changelog.working_stores.rocksdb.registry import StateRegistry
from varvite.changelog.working_stores.table_rows import table_of
from varvite.storage.errors import InvalidRequestError, InvariantError
from varvite.storage.format.records import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from varvite.changelog.segments.batch import BatchTime
    from varvite.changelog.segments.changes import StateChanges
    from varvite.changelog.working_stores.contract import StateActivity
    from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
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
    """Changes of which some are in the tables already, and how to take them back."""

    changes: tuple[StateChanges, ...]
    seq: int
    rest: tuple[StateChanges, ...]
    """Those that are not in the tables yet."""
    displaced: list[Displaced]

    def take_back(self) -> None:
        """Let the tables be as they were."""
        for displaced in reversed(self.displaced):
            displaced.take_back()


class HashMapStore:
    """A `WorkingStore` of Python dicts; empty and at `ORIGIN` when made.

    Args:
        operator: The operator's uid.
        key_type: Type string of the keys.
        low, high: The key groups `[low, high)`.
    """

    keeps_wire_forms = False

    def __init__(self, *, operator: str, key_type: str, low: int, high: int) -> None:
        if not 0 <= low < high:
            raise InvalidRequestError(f"[{low}, {high}) is not a range of key groups", operator=operator)
        self._operator = operator
        self._key_type = key_type
        self._range = range(low, high)
        self._registry = StateRegistry((), operator)
        self._tables: dict[str, HashMapTable[Any]] = {}
        self._cleanups: dict[str, HashMapCleanup] = {}
        self._unconverted: dict[str, HashMapTable[Any]] = {}
        """State name → its table as confirmed, before the schema version that is registered but not confirmed."""
        self._version = ORIGIN
        self._torn = False
        self._folding = False
        self._ahead: _Ahead | None = None
        self._source: GroupSource | None = None

    @property
    def version(self) -> Link:
        """The commit whose state this is. Raises `InvariantError` if the state is a part of a batch or of a replay."""
        self._check_whole()
        return self._version

    @property
    def schemas(self) -> tuple[StateSchema, ...]:
        """The states, in order of registration."""
        return self._registry.schemas

    @property
    def changed_ttls(self) -> tuple[StateSchema, ...]:
        """See `WorkingStore`."""
        return self._registry.changed_ttls

    def value_table(self, schema: StateSchema) -> HashMapValueTable:
        """See `WorkingStore`."""
        self._take_back()
        return self._table(schema, HashMapValueTable)

    def map_table(self, schema: StateSchema) -> HashMapMapTable:
        """See `WorkingStore`."""
        self._take_back()
        return self._table(schema, HashMapMapTable)

    def list_table(self, schema: StateSchema) -> HashMapListTable:
        """See `WorkingStore`."""
        self._take_back()
        return self._table(schema, HashMapListTable)

    def timer_table(self, schema: StateSchema) -> HashMapTimerTable:
        """See `WorkingStore`."""
        self._take_back()
        return self._table(schema, HashMapTimerTable)

    def apply(
        self, changes: Sequence[StateChanges], version: Link, accepts: Callable[[int], bool] | None = None
    ) -> None:
        """See `WorkingStore`. What can be wrong with the changes is found before the first is applied."""
        batch, ahead = Batch(changes, version.seq, accepts), self._ahead
        if ahead is not None and batch.consists_of(ahead.changes, ahead.seq):
            self._ahead = None
            batch = Batch(ahead.rest, version.seq)
        self.fold([batch], version, last=True)

    def fold(self, batches: Sequence[Batch], version: Link, *, last: bool) -> None:
        """See `WorkingStore`."""
        self._take_back()
        if not self._folding:
            self._check_whole()
        if version.seq < self._version.seq:
            raise InvariantError(f"version {version} is below {self._version}", operator=self._operator)
        work: list[tuple[StateChanges, Callable[[int], bool] | None]] = []
        for batch in batches:
            accepted = self._accepted(batch)
            accepts = None if batch.accepts is None else accepted.__contains__
            work.extend((change, accepts) for change in batch.changes)
        for change, _ in work:
            self._table(change.schema, HashMapTable)
        newest = {schema.name: schema for schema in self._registry.schemas}
        self._load_touched([change for change, _ in work])
        self._torn, self._folding = True, False
        for change, accepts in work:
            counting = changes_at(newest[change.schema.name], change)
            if counting is not None:
                self._tables[change.schema.name].apply(counting, accepts)
        self._folding = not last
        if last:
            self._version, self._torn = version, False
            self._confirm()

    def prepare(self, changes: Sequence[StateChanges], version_seq: int) -> None:
        """See `WorkingStore`. States that can say what the changes displace take them now and keep that."""
        self._take_back()
        self._check_whole()
        self._load_touched(changes)
        tables = [self._tables.get(change.schema.name) for change in changes]
        rest: list[StateChanges] = []
        displaced: list[Displaced] = []
        self._torn = True
        for table, change in zip(tables, changes, strict=True):
            if table is None or change.schema not in self._registry.schemas:
                rest.append(change)
                continue
            self._accepted(Batch([change], version_seq))
            before = table.displaced(change)
            if before is None:
                rest.append(change)
            else:
                displaced += before
                table.apply(change, None)
        self._torn = False
        self._ahead = _Ahead(tuple(changes), version_seq, tuple(rest), displaced)

    def work_ahead(self) -> None:
        """See `WorkingStore`: takes over some of what is to be loaded."""
        if self._source is not None:
            self._source.load_some()
            if self._source.is_complete:
                self._release_source()

    def clean_up(self, now: BatchTime, activity: Mapping[str, StateActivity]) -> int:
        """See `WorkingStore`: every access pays for the check of a few values."""
        self._take_back()
        self._check_whole()
        removed = 0
        for schema in self._registry.confirmed_schemas:
            done, table = activity.get(schema.name), self._tables.get(schema.name)
            if done is not None and table is not None:
                known = self._cleanups.get(schema.name)
                if known is None or known.table is not table:
                    known = self._cleanups[schema.name] = HashMapCleanup(table)
                removed += known.run(schema, now, done)
        return removed

    def size_estimate(self) -> StoreSize | None:
        """See `WorkingStore`; only counts, because sizes of Python objects are not known."""
        left = self._source.rows_left() if self._source is not None else 0
        return StoreSize(left + sum(table.count() for table in self._tables.values()), None)

    def write_snapshot(self, directory: Path, now: BatchTime | None = None) -> None:
        """See `WorkingStore`; states whose TTL says `cleanup_full_snapshot` are written without what has expired."""
        self._take_back()
        self._check_whole()
        write_table_snapshot(
            directory,
            operator=self._operator,
            key_type=self._key_type,
            low=self._range.start,
            high=self._range.stop,
            version=self._version,
            tables=[
                (schema, without_expired(schema, self._tables[schema.name].items(), now))
                for schema in self._registry.schemas
            ],
        )

    def load_later(self, source: RocksDBStore, release: Callable[[], None]) -> None:
        """Take over the version of a store of the same key groups, and its rows: timers now, others when asked for.

        Some are also taken over whenever nobody waits. Only for an empty store.

        Args:
            source: Must not change.
            release: Called when nothing is left to be taken over, or this store is closed: closes the source.
        """
        self._take_back()
        self._check_whole()
        later = GroupSource(source, len(self._range), release)
        self._torn = True
        for schema in source.schemas:
            table = self._table(schema, HashMapTable)
            if schema.kind == TIMERS:
                for row in source.timer_table(schema).items():
                    table.load(row)
            else:
                later.add(table.load_later(table_of(source, schema).group_items))
        self._source, self._version = later, source.version
        self._torn = False
        self._confirm()

    def register(self, schema: StateSchema, migrate: Callable[[Any], Any] | None = None) -> None:
        """See `WorkingStore`."""
        self._take_back()
        self._table(schema, HashMapTable, migrate)

    def revert(self) -> None:
        """See `WorkingStore`."""
        self._take_back()
        if self._registry.revert():
            known = {schema.name for schema in self._registry.schemas}
            tables = {**self._tables, **self._unconverted}
            self._tables = {name: table for name, table in tables.items() if name in known}
            self._unconverted.clear()

    def close(self) -> None:
        """Release the memory."""
        self._ahead = None
        self._tables.clear()
        self._release_source()

    def _load_touched(self, changes: Sequence[StateChanges]) -> None:
        """Have the key groups of these changes in memory: if they cannot be read, nothing is torn yet."""
        if self._source is None:
            return
        for change in changes:
            table = self._tables.get(change.schema.name)
            if table is not None:
                for key_group in {key_group for key_group, _, _ in change.runs}.intersection(self._range):
                    table.group(key_group)

    def _release_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _take_back(self) -> None:
        """Undo what `prepare` did: it was not confirmed."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.take_back()

    def _table(self, schema: StateSchema, table_type: type[Any], migrate: Callable[[Any], Any] | None = None) -> Any:
        before = self._registry.get(schema.name)
        newest = self._registry.register(schema).schema
        table = self._tables.get(schema.name)
        if table is not None and before is not None and before.schema.version != newest.version:
            converted = _at_version(table, before.schema, newest, migrate)
            if converted is not table:
                self._unconverted.setdefault(schema.name, table)
                table = self._tables[schema.name] = converted
        if table is None:
            table = self._tables[schema.name] = self._new_table(schema)
        if not isinstance(table, table_type):
            raise InvariantError(f"a table of another kind was asked for than that of state {schema.name!r}")
        return table

    def _new_table(self, schema: StateSchema) -> HashMapTable[Any]:
        low, high = self._range.start, self._range.stop
        if schema.kind == TIMERS:
            return HashMapTimerTable(low, high, type_of(self._key_type), namespace_type_of(schema))
        made = _TABLES.get(schema.kind)
        if made is None:
            raise InvariantError(f"unknown kind {schema.kind!r} of state {schema.name!r}", operator=self._operator)
        return made(low, high)

    def _confirm(self) -> None:
        self._registry.confirm()
        self._unconverted.clear()

    def _accepted(self, batch: Batch) -> set[int]:
        """The key groups of the batch that count."""
        present = {key_group for change in batch.changes for key_group, _, _ in change.runs}
        accepts = batch.accepts
        accepted = present if accepts is None else {key_group for key_group in present if accepts(key_group)}
        for key_group in accepted:
            if key_group not in self._range:
                raise outside(key_group, self._range).with_context(operator=self._operator)
        return accepted

    def _check_whole(self) -> None:
        if self._torn:
            raise InvariantError(
                "the store holds a part of a batch or of a replay that failed: discard it and restore the state",
                operator=self._operator,
            )


def _at_version(
    table: HashMapTable[Any], before: StateSchema, newest: StateSchema, migrate: Callable[[Any], Any] | None
) -> HashMapTable[Any]:
    """A table of the newest version; the same one if its values stay as they are.

    A migration whose function is not here is being replayed: it puts every value again, so none is kept.
    """
    if migrate is not None:
        return table.converted(migrating_conversion(before, newest, migrate))
    if before.version < first_version(newest):
        return table.emptied()
    convert = stored_conversion(newest, before.version)
    return table if convert is None else table.converted(convert)
