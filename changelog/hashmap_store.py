"""`HashMapStore`: a working store in memory.

Its snapshots are RocksDB snapshots like those of every store, so a job can change its backend at restart, and the
materializer needs to know one format only.

Invariants: I4, I5 (see `WorkingStore`), I9 (there is nothing on disk).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varve.changelog.batch import Batch
from varve.changelog.hashmap_cleanup import HashMapCleanup, without_expired
from varve.changelog.hashmap_tables import HashMapListTable, HashMapMapTable, HashMapTable, HashMapValueTable, outside
from varve.changelog.rocksdb_bulk import write_table_snapshot
from varve.changelog.rocksdb_metadata import StateRegistry
from varve.changelog.stamped_type import STAMP_MIN, Stamped, is_stamped
from varve.changelog.ttl_record import stamped_changes
from varve.storage.errors import InvalidRequestError, InvariantError
from varve.storage.records import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from varve.changelog.batch_time import BatchTime
    from varve.changelog.changes import StateChanges
    from varve.changelog.cleanup import StateActivity
    from varve.changelog.rocksdb_metadata import RegisteredState
    from varve.changelog.working_store import WorkingStore
    from varve.storage.records import Link, StateSchema

_TABLES: dict[str, type[HashMapTable[Any]]] = {
    "value": HashMapValueTable,
    "reducing": HashMapValueTable,
    "aggregating": HashMapValueTable,
    "list": HashMapListTable,
    "map": HashMapMapTable,
}


class HashMapStore:
    """A `WorkingStore` of Python dicts; empty and at `ORIGIN` when made.

    Args:
        operator: The operator's uid.
        key_type: Type string of the keys.
        low, high: The key groups `[low, high)`.
    """

    def __init__(self, *, operator: str, key_type: str, low: int, high: int) -> None:
        if not 0 <= low < high:
            raise InvalidRequestError(f"[{low}, {high}) is not a range of key groups", operator=operator)
        self._operator = operator
        self._key_type = key_type
        self._range = range(low, high)
        self._registry = StateRegistry((), operator)
        self._tables: dict[str, HashMapTable[Any]] = {}
        self._cleanups: dict[str, HashMapCleanup] = {}
        self._version = ORIGIN
        self._torn = False
        self._folding = False

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
    def logged_schemas(self) -> tuple[StateSchema, ...]:
        """See `WorkingStore`."""
        return self._registry.logged

    @property
    def changed_schemas(self) -> tuple[StateSchema, ...]:
        """See `WorkingStore`."""
        return self._registry.changed

    def value_table(self, schema: StateSchema) -> HashMapValueTable:
        """See `WorkingStore`."""
        return self._declared(schema, HashMapValueTable)

    def map_table(self, schema: StateSchema) -> HashMapMapTable:
        """See `WorkingStore`."""
        return self._declared(schema, HashMapMapTable)

    def list_table(self, schema: StateSchema) -> HashMapListTable:
        """See `WorkingStore`."""
        return self._declared(schema, HashMapListTable)

    def apply(
        self, changes: Sequence[StateChanges], version: Link, accepts: Callable[[int], bool] | None = None
    ) -> None:
        """See `WorkingStore`. What can be wrong with the changes is found before the first is applied."""
        self.fold([Batch(changes, version.seq, accepts)], version, last=True)

    def fold(self, batches: Sequence[Batch], version: Link, *, last: bool) -> None:
        """See `WorkingStore`."""
        if not self._folding:
            self._check_whole()
        if version.seq < self._version.seq:
            raise InvariantError(f"version {version} is below {self._version}", operator=self._operator)
        work: list[tuple[HashMapTable[Any], StateChanges, Callable[[int], bool] | None]] = []
        for batch in batches:
            accepted = self._accepted(batch)
            accepts = None if batch.accepts is None else accepted.__contains__
            work.extend((self._table(change.schema, HashMapTable), change, accepts) for change in batch.changes)
        self._torn, self._folding = True, False
        for table, change, accepts in work:
            table.apply(self._in_stored_form(change), accepts)
        self._folding = not last
        if last:
            self._version, self._torn = version, False
            self._registry.applied()

    def prepare(self, changes: Sequence[StateChanges], version_seq: int) -> None:
        """Nothing can be done ahead in memory."""

    def clean_up(self, now: BatchTime, activity: Mapping[str, StateActivity]) -> int:
        """See `WorkingStore`: every access pays for the check of a few values."""
        removed = 0
        for schema in self._registry.schemas:
            done = activity.get(schema.name)
            if done is not None and schema.name in self._tables:
                known = self._cleanups.setdefault(schema.name, HashMapCleanup(self._tables[schema.name]))
                removed += known.run(schema, now, done)
        return removed

    def write_snapshot(self, directory: Path, now: BatchTime | None = None) -> None:
        """See `WorkingStore`; states whose TTL says `cleanup_full_snapshot` are written without what has expired."""
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

    def load_from(self, source: WorkingStore) -> None:
        """Take over the rows of this store's key groups, and the version, from another store.

        Only for an empty store: what it holds already would be mixed with the other's.
        """
        self._check_whole()
        self._torn = True
        for schema in source.schemas:
            table = self._table(schema, HashMapTable)
            load, groups = table.load, table.groups
            for row in _rows(source, schema):
                if row[0] in groups:
                    load(row)
        self._version = source.version
        self._torn = False
        self._registry.applied()

    def close(self) -> None:
        """Release the memory."""
        self._tables.clear()

    def _declared(self, schema: StateSchema, table_type: type[Any]) -> Any:
        """The table of a state that a batch declares."""
        before = self._registry.get(schema.name)
        return self._made(before, self._registry.declare(schema).schema, table_type)

    def _table(self, schema: StateSchema, table_type: type[Any]) -> Any:
        """The table of a state in the log."""
        before = self._registry.get(schema.name)
        return self._made(before, self._registry.register(schema).schema, table_type)

    def _made(self, before: RegisteredState | None, schema: StateSchema, table_type: type[Any]) -> Any:
        """The table of a state, new or in the form that the schema now says."""
        table = self._tables.get(schema.name)
        if table is None:
            made = _TABLES.get(schema.kind)
            if made is None:
                raise InvariantError(f"unknown kind {schema.kind!r} of state {schema.name!r}", operator=self._operator)
            table = self._tables[schema.name] = made(self._range.start, self._range.stop)
        if not isinstance(table, table_type):
            raise InvariantError(f"a table of another kind was asked for than that of state {schema.name!r}")
        if before is not None and before.schema.value_type != schema.value_type:
            # Back to no stamps only if the batch that switched TTL on was dropped: then all stamps are the lowest.
            table.convert(_stamp if is_stamped(schema.value_type) else _unstamp)
        return table

    def _in_stored_form(self, change: StateChanges) -> StateChanges:
        """Rows that were logged before the state had TTL get the stamp that says so."""
        stored = self._registry.get(change.schema.name)
        return change if stored is None else stamped_changes(change, stored.schema)

    def _accepted(self, batch: Batch) -> set[int]:
        """The key groups of the batch that count."""
        present = set[int]().union(*(change.key_groups for change in batch.changes))
        accepts = batch.accepts
        accepted = present if accepts is None else {key_group for key_group in present if accepts(key_group)}
        for key_group in accepted:
            if key_group not in self._range:
                raise outside(key_group, dict.fromkeys(self._range)).with_context(operator=self._operator)
        return accepted

    def _check_whole(self) -> None:
        if self._torn:
            raise InvariantError(
                "the store holds a part of a batch or of a replay that failed: discard it and restore the state",
                operator=self._operator,
            )


def _stamp(value: Any) -> Stamped:
    return STAMP_MIN, value


def _unstamp(value: Stamped) -> Any:
    return value[1]


def _rows(source: WorkingStore, schema: StateSchema) -> Iterable[tuple[Any, ...]]:
    """The rows of a state of any kind."""
    if schema.kind == "map":
        return source.map_table(schema).items()
    if schema.kind == "list":
        return source.list_table(schema).items()
    return source.value_table(schema).items()
