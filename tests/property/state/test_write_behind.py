"""A RocksDB store that holds batches back equals a dict, and so does what a killed process leaves, at its version."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.jobs.batch_keys import keys_of
from tests.jobs.keyed_job import MAX_PARALLELISM
from tests.stores.working_stores import OPERATOR
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.segments.column_changes import ColumnChanges
from varvite.changelog.types.factory import Types, parse_type_string
from varvite.changelog.working_stores.rocksdb import write_behind as rocksdb_write_behind
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.format.records import ORIGIN, Link, StateSchema
from varvite.storage.private_directories import TemporaryDirectory

ALL_KEYS = [None, "a", "ab", "b", "ключ"]
LONG, STRING = Types.LONG().type_string(), Types.STRING().type_string()
FIRST = StateSchema(name="first", kind="value", value_type=LONG)
SECOND = StateSchema(name="second", kind="value", value_type=LONG)
VALUES = st.dictionaries(st.sampled_from(ALL_KEYS), st.none() | st.integers(-9, 9))

Values = dict[Any, int | None]


def group_of(key: Any) -> int:
    return keys_of([key]).key_groups[0]


class Machine(RuleBasedStateMachine):
    """Small limits, so that all that writes what is held back happens often."""

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        directory = self.resources.enter_context(TemporaryDirectory("test"))
        self.resources.enter_context(patch.object(rocksdb_write_behind, "HELD_BATCHES_MAX", 4))
        self.resources.enter_context(patch.object(rocksdb_write_behind, "_PAUSE_BATCHES", 1))
        self.resources.enter_context(patch.object(rocksdb_write_behind, "SLICES", 3))
        self.directory, self.copy = directory / "db", directory / "copy"
        self.states: dict[str, Values] = {"first": {}, "second": {}}
        self.at: dict[int, dict[str, Values]] = {0: {"first": {}, "second": {}}}
        """Seq → the states."""
        self.seq = 0
        self.store = self._opened(5000)

    def _opened(self, room_bytes: int) -> RocksDBStore:
        options = RocksDBOptions(recent_values_size_bytes=room_bytes)
        return RocksDBStore.open(self.directory, OPERATOR, STRING, 0, MAX_PARALLELISM, options)

    @rule(first=VALUES, second=st.none() | VALUES, is_prepared=st.booleans())
    def columns(self, first: Values, second: Values | None, is_prepared: bool) -> None:
        changes = [self._columns(FIRST, first)]
        if second is not None:
            changes.append(self._columns(SECOND, second))
        if is_prepared:
            self.store.work_ahead()
            self.store.prepare(changes, self.seq + 1)
        self._apply(changes, {"first": first, "second": second or {}})

    @rule(first=st.integers(0, 7), batches=st.integers(4, 9))
    def many_columns(self, first: int, batches: int) -> None:
        """Batches of the same keys, each prepared: what comes before them begins to be written."""
        for n in range(batches):
            values: Values = dict.fromkeys(ALL_KEYS[n % 2 :: 1 + n % 3], first + n)
            self.columns(first=values, second=None, is_prepared=True)

    @rule(values=VALUES)
    def rows(self, values: Values) -> None:
        keys = sorted(values, key=group_of)
        ops = bytes([Op.DELETE if values[key] is None else Op.PUT for key in keys])
        held = [values[key] for key in keys]
        self._apply([StateChanges(FIRST, list(map(group_of, keys)), keys, ops, None, held)], {"first": values})

    @rule()
    def nothing(self) -> None:
        self._apply([], {})

    @rule(keys=st.lists(st.sampled_from(ALL_KEYS)), many=st.booleans(), ahead=st.booleans())
    def read(self, keys: list[Any], many: bool, ahead: bool) -> None:
        for schema in (FIRST, SECOND):
            table = self.store.value_table(schema)
            ordered = sorted(keys, key=group_of)
            groups = list(map(group_of, ordered))
            if ahead:
                table.prefetch(groups, ordered)
            found = table.get_many(groups, ordered) if many else list(map(table.get, groups, ordered))
            assert found == [self.states[schema.name].get(key) for key in ordered]

    @rule()
    def read_all(self) -> None:
        assert _contents(self.store) == _present(self.states)

    @rule(room_bytes=st.sampled_from([0, 700, 2000, 5000, 1 << 20]))
    def open_again(self, room_bytes: int) -> None:
        self.store.close()
        self.store = self._opened(room_bytes)

    @rule()
    def snapshot(self) -> None:
        shutil.rmtree(self.copy, ignore_errors=True)
        self.store.write_snapshot(self.copy)
        assert self._left_in(self.copy) == (self.seq, _present(self.states))

    @rule()
    def kill(self) -> None:
        """The database holds at most what a process that ends now may leave."""
        shutil.rmtree(self.copy, ignore_errors=True)
        self.store._database.checkpoint(self.copy)  # type: ignore[reportPrivateUsage]
        seq, states = self._left_in(self.copy)
        assert states == _present(self.at[seq])

    @invariant()
    def the_version_is_that_of_the_last_batch(self) -> None:
        assert self.store.version == (_link(self.seq) if self.seq else ORIGIN)

    def teardown(self) -> None:
        self.read_all()
        self.store.close()
        self.resources.close()

    def _columns(self, schema: StateSchema, values: Values) -> ColumnChanges:
        keys = keys_of(list(values))
        column: Any = pa.array([values[key] for key in keys.stored], pa.int64())
        self.store.value_table(schema)
        return ColumnChanges(schema, keys, parse_type_string(LONG), column)

    def _apply(self, changes: list[Any], values: dict[str, Values]) -> None:
        self.seq += 1
        self.store.apply(changes, _link(self.seq))
        self.states = {name: {**held, **values.get(name, {})} for name, held in self.states.items()}
        self.at[self.seq] = self.states

    def _left_in(self, directory: Any) -> tuple[int, dict[str, Values]]:
        opened = RocksDBStore.open_existing(directory)
        try:
            return opened.version.seq, _contents(opened)
        finally:
            opened.close()


def _link(seq: int) -> Link:
    return Link(seq, f"{seq:032x}")


def _contents(store: RocksDBStore) -> dict[str, Values]:
    known = {schema.name for schema in store.schemas}
    return {
        schema.name: {key: value for _, key, value in store.value_table(schema).items()} if schema.name in known else {}
        for schema in (FIRST, SECOND)
    }


def _present(states: dict[str, Values]) -> dict[str, Values]:
    return {name: {k: v for k, v in values.items() if v is not None} for name, values in states.items()}


TestWriteBehind = Machine.TestCase
TestWriteBehind.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
