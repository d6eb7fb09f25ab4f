"""`TableStore`: the base class of working stores, varvite's in memory and users' own; a subclass only keeps rows.

Everything else that a working store must get right is here: its states and its version, batches that count as a whole
or not at all, accepted key groups, timers, values of older schemas, and snapshots in the format of all stores.

A table holds values of one version of its state's schema. Values of an older version are converted into a table of
their own, and the older table stays until the newer version is confirmed. Timers are kept in memory, about 100 bytes
each.

Invariants: I4, I5 (as `WorkingStore` says), I9 (a store is always made empty and then restored).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from varvite.changelog.schema.history import changes_at, first_version, migrating_conversion, stored_conversion
from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.columns import LIST, MAP, TIMERS, VALUE_LIKE, namespace_type_of, type_of
from varvite.changelog.working_stores.contract import outside
from varvite.changelog.working_stores.memory_timers import MemoryTimerTable
from varvite.changelog.working_stores.rocksdb.bulk import write_table_snapshot
from varvite.changelog.working_stores.rocksdb.registry import StateRegistry
from varvite.changelog.working_stores.table_rows import changes_of, without_expired
from varvite.storage.errors import InvalidRequestError, InvariantError
from varvite.storage.format.records import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from varvite.changelog.segments.batch import BatchTime
    from varvite.changelog.segments.changes import StateChanges
    from varvite.changelog.working_stores.contract import ListTable, MapTable, StateActivity, StoreSize, ValueTable
    from varvite.storage.format.records import Link, StateSchema


@dataclass(frozen=True, kw_only=True)
class StoreTarget:
    """The state that a working store is to hold: the argument of a custom state backend's factory."""

    operator: str
    """The operator's uid."""
    key_type: str
    """Type string of its keys; `varvite.changelog.types.factory.parse_type_string` reads it."""
    low: int
    """First key group, inclusive."""
    high: int
    """Last key group, exclusive."""
    directory: Path
    """On the executor's local disk, for this store alone. It does not exist, its parent does; it is deleted before the
    next store of this state is made."""
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """The backend's options: `CustomStateBackend(..., options=...)`."""


class TableChanges(NamedTuple):
    """Rows to write to one table."""

    table: Any
    """A table of `make_table`."""
    changes: StateChanges
    """Every row counts."""


class _Kept(NamedTuple):
    """A table, and the schema at the version of its values."""

    schema: StateSchema
    table: Any


class TableStore(ABC):
    """A `WorkingStore` of tables; empty and at `ORIGIN` when made.

    Raises:
        InvalidRequestError: `target` names no key groups.
    """

    keeps_wire_forms = False
    _reuses_tables = False
    """Does a table stay when its state gets a newer version that leaves all values as they are?"""

    def __init__(self, target: StoreTarget) -> None:
        if not 0 <= target.low < target.high:
            raise InvalidRequestError(
                f"[{target.low}, {target.high}) is not a range of key groups", operator=target.operator
            )
        self.target = target
        self.key_groups = range(target.low, target.high)
        """The key groups of the store."""
        self._registry = StateRegistry((), target.operator)
        self._kept: dict[str, _Kept] = {}
        self._confirmed: dict[str, _Kept] = {}
        """The tables without the schemas that are registered but not confirmed: `revert` returns to them."""
        self._version = ORIGIN
        self._torn = False
        self._folding = False

    # --- for a subclass to implement ---

    @abstractmethod
    def make_table(self, schema: StateSchema) -> ValueTable | MapTable | ListTable:
        """A new empty table, of the kind of `schema.kind`, which is never that of timers.

        For a state with a new version of its value type there are two for a while: one is filled from the other.
        Reads of a key group outside of the store raise `InvariantError`, as `check_key_group` does.
        """

    @abstractmethod
    def drop_table(self, table: Any) -> None:
        """Drop a table of `make_table` and its rows; it is not used any more."""

    @abstractmethod
    def write(self, rows: Sequence[TableChanges]) -> None:
        """Write all these rows or, if it raises, none; of two rows for one cell the later one counts.

        An APPEND goes to the end of the key's list, whatever was written before it.
        """

    @abstractmethod
    def close(self) -> None:
        """Release files and memory."""

    # --- the working store ---

    def check_key_group(self, key_group: int) -> None:
        """Raise `InvariantError` if the key group is not one of the store's."""
        if key_group not in self.key_groups:
            raise outside(key_group, self.key_groups).with_context(operator=self.target.operator)

    @property
    def version(self) -> Link:
        """The commit whose state this is. Raises `InvariantError` if a batch or a replay was written in part only."""
        self._check_whole()
        return self._version

    @property
    def schemas(self) -> tuple[StateSchema, ...]:
        return self._registry.schemas

    @property
    def changed_ttls(self) -> tuple[StateSchema, ...]:
        return self._registry.changed_ttls

    def value_table(self, schema: StateSchema) -> ValueTable:
        return self._table_of(schema, VALUE_LIKE)

    def map_table(self, schema: StateSchema) -> MapTable:
        return self._table_of(schema, (MAP,))

    def list_table(self, schema: StateSchema) -> ListTable:
        return self._table_of(schema, (LIST,))

    def timer_table(self, schema: StateSchema) -> MemoryTimerTable:
        """The table of a timer state, which is in memory."""
        return self._table_of(schema, (TIMERS,))

    def register(self, schema: StateSchema, migrate: Callable[[Any], Any] | None = None) -> None:
        """Register a state, or a newer version of one: values of an older version are converted now."""
        self._table(schema, migrate)

    def revert(self) -> None:
        if self._registry.revert():
            pending, self._kept = self._kept, dict(self._confirmed)
            self._drop_unused(pending)

    def apply(
        self, changes: Sequence[StateChanges], version: Link, accepts: Callable[[int], bool] | None = None
    ) -> None:
        self._check_whole()
        self.fold([Batch(changes, version.seq, accepts)], version, last=True)

    def fold(self, batches: Sequence[Batch], version: Link, *, last: bool) -> None:
        """Fold batches; what can be wrong with the changes raises before the first is written."""
        if not self._folding:
            self._check_whole()
        if version.seq < self._version.seq:
            raise InvariantError(f"version {version} is below {self._version}", operator=self.target.operator)
        counting = [change for batch in batches for change in self._counting(batch)]
        for change in counting:
            self._table(change.schema)
        newest = {schema.name: schema for schema in self.schemas}
        converted = [changes_at(newest[change.schema.name], change) for change in counting]
        rows = [TableChanges(self._kept[c.schema.name].table, c) for c in converted if c is not None]
        self._torn, self._folding = True, False
        self._write(rows)
        self._folding = not last
        if last:
            self._version, self._torn = version, False
            self._confirm()

    def prepare(self, changes: Sequence[StateChanges], version_seq: int) -> None:
        """Do nothing with the hint; a subclass may use it."""
        del changes, version_seq

    def work_ahead(self) -> None:  # noqa: B027  most stores put nothing off
        """Do nothing; a subclass may have postponed work."""

    def clean_up(self, now: BatchTime, activity: Mapping[str, StateActivity]) -> int:
        """Remove nothing; a subclass may. Expired values are never read anyway."""
        del now, activity
        return 0

    def size_estimate(self) -> StoreSize | None:
        """None: not known; a subclass may know."""
        return None

    def write_snapshot(self, directory: Path, now: BatchTime | None = None) -> None:
        """Write the `items` of all tables; without expired values where the state's TTL has `cleanup_full_snapshot`."""
        self._check_whole()
        write_table_snapshot(
            directory,
            operator=self.target.operator,
            key_type=self.target.key_type,
            low=self.target.low,
            high=self.target.high,
            version=self._version,
            tables=[(schema, without_expired(schema, self._table(schema).items(), now)) for schema in self.schemas],
        )

    def _table_of(self, schema: StateSchema, kinds: Sequence[str]) -> Any:
        table = self._table(schema)
        if schema.kind not in kinds:
            problem = f"state {schema.name!r} is of kind {schema.kind}, not {kinds}"
            raise InvariantError(problem, operator=self.target.operator)
        return table

    def _table(self, schema: StateSchema, migrate: Callable[[Any], Any] | None = None) -> Any:
        newest = self._registry.register(schema).schema
        before = self._kept.get(schema.name)
        if before is not None and before.schema.version == newest.version:
            return before.table
        kept = _Kept(newest, self._new_table(newest)) if before is None else self._converted(before, newest, migrate)
        self._kept[schema.name] = kept
        if before is not None:
            self._drop_unless_in(before, (kept, self._confirmed.get(schema.name)))
        return kept.table

    def _new_table(self, schema: StateSchema) -> Any:
        if schema.kind != TIMERS:
            return self.make_table(schema)
        key_type, namespace_type = type_of(self.target.key_type), namespace_type_of(schema)
        return MemoryTimerTable(self.target.low, self.target.high, key_type, namespace_type)

    def _converted(self, old: _Kept, newest: StateSchema, migrate: Callable[[Any], Any] | None) -> _Kept:
        """The table of a newer version, filled from that of an older one."""
        if migrate is not None:
            convert = migrating_conversion(old.schema, newest, migrate)
        elif old.schema.version < first_version(newest):  # the migration is being replayed: it puts every value again
            return _Kept(newest, self._new_table(newest))
        else:
            convert = stored_conversion(newest, old.schema.version)
        if convert is None and self._reuses_tables:
            return _Kept(newest, old.table)
        kept = _Kept(newest, self._new_table(newest))
        try:
            for changes in changes_of(old.schema, old.table):
                values = changes.values if convert is None else [convert(value) for value in changes.values]
                self._write([TableChanges(kept.table, changes.but(schema=newest, values=values))])
        except BaseException:
            self._drop_unless_in(kept, ())
            raise
        return kept

    def _write(self, rows: Sequence[TableChanges]) -> None:
        self.write([row for row in rows if not isinstance(row.table, MemoryTimerTable)])
        for table, changes in rows:
            if isinstance(table, MemoryTimerTable):
                table.apply(changes)

    def _confirm(self) -> None:
        if not self._registry.is_confirmed:
            self._registry.confirm()
            before, self._confirmed = self._confirmed, dict(self._kept)
            self._drop_unused(before)

    def _drop_unused(self, tables: Mapping[str, _Kept]) -> None:
        for name, kept in tables.items():
            self._drop_unless_in(kept, (self._kept.get(name),))

    def _drop_unless_in(self, kept: _Kept, used: Sequence[_Kept | None]) -> None:
        if kept.schema.kind != TIMERS and all(other is None or other.table is not kept.table for other in used):
            self.drop_table(kept.table)

    def _counting(self, batch: Batch) -> list[StateChanges]:
        """The changes of a batch without the rows that are not accepted."""
        accepts = batch.accepts
        counting = batch.changes if accepts is None else [change.accepted(accepts) for change in batch.changes]
        for change in counting:
            self._check_key_groups(change)
        return list(counting)

    def _check_key_groups(self, change: StateChanges) -> None:
        for key_group, _, _ in change.runs:
            self.check_key_group(key_group)

    def _check_whole(self) -> None:
        if self._torn:
            raise InvariantError(
                "the store holds a part of a batch or of a replay that failed: discard it and restore the state",
                operator=self.target.operator,
            )
