"""The working store on RocksDB: confirmed state of one (operator, partition) (docs/reference/formats/rocksdb.md).

The write-ahead log is off: the changelog is the log. A batch's rows, the registered states and the version go to the
database in one write batch. So a directory that a crash left is a consistent state at some version (`Database`), and
the log brings it forward. Several batches may be held back and written together (`WriteBehind`). Then the database is
behind the store's version, and every read of it except by the value tables has them written first.

Invariants: I4, I5, I8 (the marker of a directory is checked before it is used), I9, I10 (`RocksDBOptions`).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rocksdict import WriteBatch

from varvite.changelog.schema.history import migrating_reader, wire_reader
from varvite.changelog.schema.ttl import record_of
from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.columns import LIST, MAP, TIMERS, VALUE_LIKE, type_of
from varvite.changelog.working_stores.contract import StoreSize
from varvite.changelog.working_stores.rocksdb.batch import (
    PreparedBatch,
    RowBuilder,
    StateVersion,
    cleared_later,
)
from varvite.changelog.working_stores.rocksdb.columns import states_by_column
from varvite.changelog.working_stores.rocksdb.database import Database
from varvite.changelog.working_stores.rocksdb.keys import prefix
from varvite.changelog.working_stores.rocksdb.metadata import (
    MARKER_KEY,
    STATES_KEY,
    VERSION_KEY,
    RegisteredState,
    StoreMarker,
    StoreVersion,
    new_marker,
    read_marker,
    read_states,
    read_version,
)
from varvite.changelog.working_stores.rocksdb.overlap import clusters_of, plan_rewrite
from varvite.changelog.working_stores.rocksdb.registry import StateRegistry
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.state_form import StateForm
from varvite.changelog.working_stores.rocksdb.sweep import SweepWork, sweep_states
from varvite.changelog.working_stores.rocksdb.tables import (
    RecentValues,
    RocksDBListTable,
    RocksDBMapTable,
    RocksDBValueTable,
)
from varvite.changelog.working_stores.rocksdb.timers import RocksDBTimerTable
from varvite.changelog.working_stores.rocksdb.write_behind import WriteBehind
from varvite.storage.errors import (
    IncompatibleError,
    InvalidRequestError,
    InvariantError,
    LocalDataError,
    VarviteError,
)
from varvite.storage.format.records import ORIGIN, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from varvite.changelog.schema.ttl import SweepSettings, TtlRecord
    from varvite.changelog.segments.batch import BatchTime
    from varvite.changelog.segments.changes import StateChanges
    from varvite.changelog.working_stores.contract import StateActivity
    from varvite.storage.format.records import StateSchema


_log: Final = logging.getLogger(__name__)


class RocksDBStore:
    """A `WorkingStore` in a RocksDB directory; made by `open` and `open_existing`."""

    keeps_wire_forms = True

    def __init__(self, database: Database, marker: StoreMarker, options: RocksDBOptions) -> None:
        self._database = database
        self._marker = marker
        self._options = options
        self._registry = StateRegistry(read_states(database), marker.operator)
        self._version = read_version(database)
        self._key_type = type_of(marker.key_type)
        self._forms: dict[StateVersion, StateForm] = {}
        # One table per state as long as its schema stays: each must be updated with every batch.
        self._values: dict[str, RocksDBValueTable] = {}
        self._timers: dict[str, RocksDBTimerTable] = {}
        self._prepared: PreparedBatch | None = None
        self._folding = False
        self._behind = WriteBehind()

    @classmethod
    def open(
        cls,
        directory: Path,
        operator: str,
        key_type: str,
        low: int,
        high: int,
        options: RocksDBOptions | None = None,
    ) -> RocksDBStore:
        """Open the store in `directory`, or make it (its parent must exist).

        Args:
            directory: Used by this store alone.
            operator: The operator's uid.
            key_type: Type string of its keys.
            low: First key group, inclusive.
            high: Last key group, exclusive.
            options: Memory, disk and threads; None for the defaults.

        Raises:
            IncompatibleError: the directory is of another operator, key type or range, of another format, or was left
                in the middle of a restore; remove it and restore.
            CorruptDataError: the directory is damaged; remove it and restore.
            DidNotHappenError: another process has it open.
        """
        if not 0 <= low < high:
            raise InvalidRequestError(f"[{low}, {high}) is not a key-group range", operator=operator)
        options = options or RocksDBOptions()
        database = Database(directory, options, create=True)
        try:
            return cls._opened(database, new_marker(operator, key_type, low, high), options)
        except BaseException:
            database.close()
            raise

    @classmethod
    def open_existing(
        cls, directory: Path, options: RocksDBOptions | None = None, *, read_only: bool = False
    ) -> RocksDBStore:
        """Open a directory of any operator and range, a snapshot's for example.

        Raises as `open`, and `InvalidRequestError` if there is no database.
        """
        options = options or RocksDBOptions()
        database = Database(directory, options, create=False, read_only=read_only)
        try:
            return cls._opened(database, None, options)
        except BaseException:
            database.close()
            raise

    @classmethod
    def _opened(cls, database: Database, expected: StoreMarker | None, options: RocksDBOptions) -> RocksDBStore:
        stored = read_marker(database)
        place = str(database.directory)
        if stored is not None and expected is not None:
            stored.check_equals(expected, place)
        marker = stored or expected
        if marker is None:
            raise LocalDataError("the directory holds no state; remove it", object_name=place)
        store = cls(database, marker, options)
        if stored is None:
            store._write(WriteBatch(raw_mode=True), StoreVersion(at=ORIGIN), marker)
        if not store.is_complete:
            raise IncompatibleError(
                "the directory was left in the middle of a restore; remove it, the state is restored from storage",
                operator=marker.operator,
                object_name=place,
            )
        return store

    @property
    def directory(self) -> Path:
        """The directory of the database."""
        return self._database.directory

    @property
    def operator(self) -> str:
        """The operator's uid."""
        return self._marker.operator

    @property
    def key_type(self) -> str:
        """Type string of the keys."""
        return self._marker.key_type

    @property
    def key_groups(self) -> range:
        """The key groups of the store."""
        return range(self._marker.low, self._marker.high)

    @property
    def version(self) -> Link:
        """The commit whose state this is. Raises `InvariantError` in the middle of a replay: discard the store."""
        if self._folding:
            raise InvariantError("the store holds part of a replay; discard it", operator=self.operator)
        return self._version.at

    @property
    def is_complete(self) -> bool:
        """Are all key groups at `version`? If not, only a replay to `complete_from` makes the store whole."""
        return not self._folding and self._version.at.seq >= self._version.complete_from

    @property
    def schemas(self) -> tuple[StateSchema, ...]:
        return self._registry.schemas

    @property
    def changed_ttls(self) -> tuple[StateSchema, ...]:
        return self._registry.changed_ttls

    @property
    def states(self) -> tuple[RegisteredState, ...]:
        """The states with their ids in keys, in order of registration."""
        return self._registry.states

    def register(self, schema: StateSchema, migrate: Callable[[Any], Any] | None = None) -> None:
        before = self._registry.get(schema.name)
        newest = self._registered_state(schema).schema
        if migrate is not None and before is not None and newest.version != before.schema.version:
            self._new_form(newest, partial(migrating_reader, before.schema, migrate))

    def revert(self) -> None:
        if self._registry.revert():
            self._forms.clear()
            self._values.clear()
            self._timers.clear()
            self._prepared = None

    def value_table(self, schema: StateSchema) -> RocksDBValueTable:
        form = self._registered(schema, VALUE_LIKE)
        table = self._values.get(schema.name)
        if table is None or table.form is not form:
            table = RocksDBValueTable(form, self._database, self._recent_values(), self._write_held)
            self._values[schema.name] = table
        return table

    def map_table(self, schema: StateSchema) -> RocksDBMapTable:
        return RocksDBMapTable(self._registered(schema, (MAP,)), self._database)

    def list_table(self, schema: StateSchema) -> RocksDBListTable:
        return RocksDBListTable(self._registered(schema, (LIST,)), self._database)

    def timer_table(self, schema: StateSchema) -> RocksDBTimerTable:
        form = self._registered(schema, (TIMERS,))
        if schema.name not in self._timers:
            self._timers[schema.name] = RocksDBTimerTable(form, self._database)
        return self._timers[schema.name]

    def apply(
        self, changes: Sequence[StateChanges], version: Link, accepts: Callable[[int], bool] | None = None
    ) -> None:
        batch = Batch(changes, version.seq, accepts)
        if version.seq < self._version.at.seq:
            raise InvariantError(f"version {version} is below {self._version.at}", operator=self.operator)
        prepared, self._prepared = self._prepared, None
        after = msgspec.structs.replace(self._version, at=version)
        if accepts is None and self._holds_back(changes):
            self._behind.add(changes, self._values)
            self._version = after
            if self._behind.is_too_much(self._values):
                self._write_held(was_needed=False)
            elif self._behind.is_overdue:
                self._write_some()
            return
        self._write_held()
        self._behind.passed()
        if prepared is not None and batch.consists_of(prepared.changes, prepared.seq):
            self._put(prepared.write_batch, prepared.builder, after)
        else:
            builder = self._build([batch])
            self._put(builder.write_batch(), builder, after)

    def fold(self, batches: Sequence[Batch], version: Link, *, last: bool) -> None:
        needed = max(version.seq, self._version.complete_from)
        if version.seq < self._version.at.seq or (last and version.seq < needed):
            problem = f"replay to {version} of a store at {self._version.at} that is complete from {needed}"
            raise InvariantError(problem, operator=self.operator)
        self._prepared = None
        self._write_held()
        is_marked, self._folding = self._folding, True
        builder = self._build(batches, remembers=False)
        after = StoreVersion(at=version) if last else StoreVersion(at=self._version.at, complete_from=needed)
        if is_marked and after == self._version:
            self._write_rows(builder.write_batch())
            self._update_tables(builder)
        else:
            self._put(builder.write_batch(), builder, after)
        self._folding = not last

    def prepare(self, changes: Sequence[StateChanges], version_seq: int) -> None:
        """Make the write batch, so that `apply` only has to write it."""
        self._prepared = None
        if self._holds_back(changes):
            return
        if all(self._registry.knows(change.schema) for change in changes):
            builder = self._build([Batch(changes, version_seq)])
            self._prepared = PreparedBatch(tuple(changes), version_seq, builder.write_batch(), builder)

    def work_ahead(self) -> None:
        """Write some of the held rows, and compact some of a snapshot's flushed files."""
        self._write_some()
        self._database.compact_some()

    def flush(self) -> None:
        """Write the memtables to disk: all batches until now then survive a crash of the process."""
        self._write_held()
        self._database.flush()

    def clean_up(self, now: BatchTime, activity: Mapping[str, StateActivity]) -> int:
        """Sweep the states whose TTL has `cleanup_in_rocksdb_compact_filter`."""
        mutations = {name: uses.mutations for name, uses in activity.items()}
        return self.sweep(now, mutations, lambda record: record.cleanup.sweep)

    def sweep(
        self,
        now: BatchTime,
        mutations: Mapping[str, int],
        settings_of: Callable[[TtlRecord], SweepSettings | None],
        parts: Sequence[range] = (),
    ) -> int:
        """Remove values that have expired at `now`, within the bounds of a sweep.

        Args:
            now: The time of the confirmed state.
            mutations: State name → rows that were written since the last sweep, which bounds the work.
            settings_of: The settings of a state's sweep; None: no sweep.
            parts: Parts of the key groups that no file may span (`varvite.changelog.restore.part_replay`); none if
                files may span any.

        Returns:
            The number of removed rows.
        """
        self._write_held()
        works: dict[str, SweepWork] = {}
        for schema in self._registry.confirmed_schemas:
            record, state = record_of(schema), self._registry.get(schema.name)
            settings = None if record is None else settings_of(record)
            if record is not None and settings is not None and state is not None:
                works[schema.name] = SweepWork(
                    prefixes=tuple(prefix(group, state.id) for group in self.key_groups),
                    expired_up_to_ms=record.expired_up_to(now),
                    settings=settings,
                    rows_written=mutations.get(schema.name, 0),
                    now_ms=now.time_ms,
                )
        removed = sweep_states(self._database, works, parts)
        for name, table in self._values.items():
            if removed.get(name):
                table.forget()
        return sum(removed.values())

    def compact(self, ratio: float, size_bytes_min: int) -> bool:
        """Rewrite some of the files if much of them is dead, or if they are many (`plan_rewrite`); False: none were."""
        self.flush()
        clusters = clusters_of(self._database.files())
        plan = plan_rewrite(clusters, ratio, size_bytes_min, self._database.level_size_bytes)
        compacted = [cluster for cluster in clusters if cluster in plan.clusters or cluster.is_free]
        self._database.compact((cluster.first, cluster.last) for cluster in compacted)
        if plan.only_flushed:
            self._database.compact_flushed()
        return bool(plan.clusters) or plan.only_flushed

    def compact_as_usual(self) -> None:
        """End `RocksDBOptions.level0_files_extra`."""
        self._database.compact_as_usual()

    def size_estimate(self) -> StoreSize | None:
        """RocksDB's estimates: its files, without the rows that are still in memory."""
        rows = max(self._database.count_estimate(), len(self._behind))
        return StoreSize(rows, self._database.live_bytes_estimate())

    def write_snapshot(self, directory: Path, now: BatchTime | None = None) -> None:  # noqa: ARG002 - sweeps clean it up
        """Make a RocksDB checkpoint, whose SST files are hard links."""
        if directory.exists():
            raise InvalidRequestError("the snapshot's directory exists already", object_name=str(directory))
        self._write_held()  # before the version: the database never has a version whose rows it lacks
        if not self._registry.is_confirmed:
            self._write(WriteBatch(raw_mode=True), self._version)
        self._database.flush()
        self._database.checkpoint(directory)

    def close(self) -> None:
        try:
            self._write_held()
        except VarviteError as error:
            _log.warning("the local state stays at an older commit, the log has the rest: %s", error)
            self._behind = WriteBehind()
        finally:
            self._database.close()

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Raw rows with `start <= key < end`, in order of key."""
        self._write_held()
        return self._database.scan(start, end)

    def _recent_values(self) -> RecentValues:
        """A cache of decoded values for a new table."""
        memory = self._options.memory
        recent = RecentValues(self._options.recent_values_size_bytes if memory is None else 0)
        if memory is not None:
            memory.share_with(recent)
        return recent

    def _registered(self, schema: StateSchema, kinds: Sequence[str]) -> StateForm:
        if schema.kind not in kinds:
            problem = f"state {schema.name!r} is of kind {schema.kind}, not {kinds}"
            raise InvariantError(problem, operator=self.operator)
        return self._form(self._registered_state(schema).schema)

    def _registered_state(self, schema: StateSchema) -> RegisteredState:
        """Register a state. Held batches are written first, with the states as they were."""
        if self._behind and not self._registry.knows(schema):
            self._write_held()
        return self._registry.register(schema)

    def _form(self, schema: StateSchema) -> StateForm:
        """The form of a state at a version, which is registered if new."""
        form = self._forms.get((schema.name, schema.version))
        if form is None or form.schema != schema:
            form = self._new_form(schema, partial(wire_reader, schema))
        return form

    def _new_form(self, schema: StateSchema, reader_of: Callable[[int], Callable[[bytes], Any]]) -> StateForm:
        state = self._registered_state(schema)
        form = StateForm.of(schema, state.id, self._key_type, self.key_groups, reader_of)
        self._forms[schema.name, schema.version] = form
        return form

    def _build(self, batches: Sequence[Batch], *, remembers: bool = True) -> RowBuilder:
        clears = cleared_later(change for batch in batches for change in batch.changes)
        columns = frozenset[str]() if remembers else states_by_column(batches)
        builder = RowBuilder(self._form, self._database.scan, clears, remembers=remembers, by_column=columns)
        for batch in batches:
            builder.add(batch)
        return builder

    def _holds_back(self, changes: Sequence[StateChanges]) -> bool:
        """Is a batch with these changes written later?"""
        return self._registry.is_confirmed and not self._folding and self._behind.takes(changes, self._values)

    def _write_some(self) -> None:
        """Continue to write held batches, if they are due: make some of their rows; the last ones write all."""
        if self._behind.is_due:
            if not self._behind.may_seal(self._values):
                self._write_held(was_needed=False)
                return
            self._behind.seal(self._version)
        leaving = self._behind.leaving
        if leaving is None:
            return
        builder = self._build([Batch(leaving.next_changes(), leaving.version.at.seq)])
        builder.put_into(leaving.write_batch)
        self._update_tables(builder)  # the table's cache is not used while the batch is held back
        if leaving.is_complete:
            leaving.write_to(self._database)
            self._behind.left(self._values)

    def _write_held(self, *, was_needed: bool = True) -> None:
        """Write the held batches, if any; `was_needed` as in `WriteBehind.written`."""
        if not self._behind:
            return
        builder = self._build([Batch(self._behind.changes(), self._version.at.seq)])
        self._write(builder.write_batch(), self._version)
        self._behind.written(self._values, was_needed=was_needed)
        self._update_tables(builder)

    def _put(self, batch: WriteBatch, built: RowBuilder, version: StoreVersion) -> None:
        """Write a batch and update the tables' caches."""
        self._write(batch, version)
        self._update_tables(built)

    def _update_tables(self, built: RowBuilder) -> None:
        """Update the tables' caches and bounds with the written rows."""
        for (name, schema_version), rows in built.recent.items():
            table = self._values.get(name)
            if table is not None and built.remembers and table.form.schema.version == schema_version:
                table.remember(rows.values, rows.wire_bytes)
            elif table is not None:
                table.forget()
        for name, firsts in built.first_timers.items():
            if (timers := self._timers.get(name)) is not None:
                timers.added(firsts)

    def _write(self, batch: WriteBatch, version: StoreVersion, marker: StoreMarker | None = None) -> None:
        """Write a batch together with the changed metadata."""
        batch.put(VERSION_KEY, msgspec.json.encode(version))
        if marker is not None:
            batch.put(MARKER_KEY, msgspec.json.encode(marker))
        self._write_rows(batch)
        self._version = version

    def _write_rows(self, batch: WriteBatch) -> None:
        """Write a batch, together with the states if they have changed."""
        if not self._registry.is_confirmed:
            batch.put(STATES_KEY, self._registry.encoded())
        self._database.write(batch)
        self._registry.confirm()
