"""`TableStore`: which tables it asks a subclass for, and which it lets go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from examples.sqlite_store import SQLiteStore
from varvite.changelog.schema.history import change
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.working_stores.table_store import StoreTarget
from varvite.storage.errors import InvariantError
from varvite.storage.format.records import Link, StateSchema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNTS = StateSchema(name="counts", kind="list", value_type="1:int")
WIDER = change(COUNTS, StateSchema(name="counts", kind="list", value_type="1:decimal(20,2)"), {}, "op", migrates=False)
TEXT = change(COUNTS, StateSchema(name="counts", kind="list", value_type="1:string"), {}, "op", migrates=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    made = SQLiteStore(StoreTarget(operator="op", key_type="1:string", low=0, high=4, directory=tmp_path / "store"))
    made.apply([StateChanges(COUNTS, [0, 0, 3], ["a", "a", "b"], None, None, [1, 2, 3])], Link(1, "t1"))
    yield made
    made.close()


def tables(store: SQLiteStore) -> list[str]:
    return [name for (name,) in store.database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def elements(store: SQLiteStore, schema: StateSchema) -> list[list[Any]]:
    return [found for _, _, found in store.list_table(schema).items()]


def test_the_older_table_goes_when_the_newer_version_is_confirmed(store: SQLiteStore) -> None:
    assert tables(store) == ["state_0"]
    store.register(WIDER.schema)
    assert tables(store) == ["state_0", "state_1"]
    converted = elements(store, WIDER.schema)
    assert [[int(element) for element in found] for found in converted] == [[1, 2], [3]]
    store.apply([StateChanges(COUNTS, [3], ["b"], None, None, [4])], Link(2, "t2"))
    assert tables(store) == ["state_1"]
    assert [int(element) for element in elements(store, WIDER.schema)[1]] == [3, 4], "older changes are converted too"


def test_the_newer_table_goes_when_its_version_is_not_confirmed(store: SQLiteStore) -> None:
    store.register(WIDER.schema)
    store.value_table(StateSchema(name="new", kind="value", value_type="1:long"))
    assert len(tables(store)) == 3
    store.revert()
    assert (tables(store), store.schemas) == (["state_0"], (COUNTS,))
    assert elements(store, COUNTS) == [[1, 2], [3]]


def test_a_migration_that_fails_leaves_the_older_table(store: SQLiteStore) -> None:
    def migrate(value: int) -> str:
        if value == 3:
            raise ValueError("no word for 3")
        return str(value)

    with pytest.raises(ValueError, match="no word"):
        store.register(TEXT.schema, migrate)
    store.revert()
    assert (tables(store), store.version) == (["state_0"], Link(1, "t1"))
    store.register(TEXT.schema, str)
    assert elements(store, TEXT.schema) == [["1", "2"], ["3"]]


def test_states_whose_names_differ_only_in_case_are_different(store: SQLiteStore) -> None:
    upper = StateSchema(name="COUNTS", kind="list", value_type="1:int")
    store.apply([StateChanges(upper, [0], ["a"], None, None, [9])], Link(2, "t2"))
    assert (elements(store, upper), elements(store, COUNTS)) == ([[9]], [[1, 2], [3]])


def test_rows_of_key_groups_that_are_not_accepted_are_left_out_of_every_kind(store: SQLiteStore) -> None:
    timers = StateSchema(name="timers", kind="timers", value_type="1:long", namespace_type="1:string")
    changes = [
        StateChanges(timers, [1, 3], ["a", "b"], bytes([Op.PUT, Op.PUT]), None, [5, 6], ["x", "y"]),
        StateChanges(COUNTS, [1, 9], ["c", "d"], None, None, [7, 8]),
    ]
    store.apply(changes, Link(2, "t2"), lambda key_group: key_group == 1)
    table = store.timer_table(timers)
    assert [(group, *table.form.unpack(packed)) for group, packed in table.items()] == [(1, 5, "a", "x")]
    assert elements(store, COUNTS) == [[1, 2], [7], [3]]
    with pytest.raises(InvariantError, match="key group 9"):
        store.apply(changes, Link(3, "t3"))
    assert store.version == Link(2, "t2")
