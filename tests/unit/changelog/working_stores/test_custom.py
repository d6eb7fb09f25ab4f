"""Factories of a user's stores: every way to be wrong is said before it matters; copies are whole."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from examples.sqlite_store import SQLiteStore
from tests.stores.working_stores import KINDS, open_store
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.working_stores.custom import check_factory, copy_store, open_custom_store
from varvite.changelog.working_stores.table_store import StoreTarget
from varvite.storage.errors import InvalidRequestError, InvariantError
from varvite.storage.format.records import Link, StateSchema
from varvite.testing.contracts.working_store import contents

if TYPE_CHECKING:
    from pathlib import Path


def failing(target: StoreTarget) -> Any:
    raise OSError(f"no space for {target.operator}")


def nothing(target: StoreTarget) -> Any:
    return None


def filled(target: StoreTarget) -> Any:
    store = SQLiteStore(target)
    store.apply([], Link(3, "t"))
    return store


class ClosingBadly(SQLiteStore):
    def close(self) -> None:
        super().close()
        raise OSError("closed twice")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.such.module:Store", "cannot be imported"),
        ("examples.sqlite_store:NoSuchStore", "cannot be imported"),
        ("examples.sqlite_store:SUB_KEY_BYTES", "cannot be called"),
    ],
)
def test_a_factory_that_is_none_is_said_by_name(name: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        check_factory(name, {})
    assert name in caught.value.message


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (failing, "no space for check"),
        (nothing, "lacks value_table"),
        (filled, "not empty"),
        (ClosingBadly, "closed twice"),
    ],
)
def test_a_factory_that_makes_no_empty_store_is_refused(
    factory: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.sqlite_store.SQLiteStore", factory)
    with pytest.raises(InvalidRequestError, match=message):
        check_factory("examples.sqlite_store:SQLiteStore", {})


def test_a_good_factory_is_called_with_the_options(tmp_path: Path) -> None:
    check_factory("examples.sqlite_store:SQLiteStore", {"cache-mb": "1"})
    with pytest.raises(InvalidRequestError, match="ValueError"):
        check_factory("examples.sqlite_store:SQLiteStore", {"cache-mb": "much"})
    target = StoreTarget(operator="op", key_type="1:string", low=2, high=4, directory=tmp_path / "store")
    store = open_custom_store("examples.sqlite_store:SQLiteStore", target)
    assert (tmp_path / "store").is_dir()
    store.close()


def test_a_store_without_key_groups_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        SQLiteStore(StoreTarget(operator="op", key_type="1:string", low=2, high=2, directory=tmp_path / "store"))


def test_a_table_store_that_failed_to_write_is_torn(tmp_path: Path) -> None:
    target = StoreTarget(operator="op", key_type="1:string", low=0, high=2, directory=tmp_path / "store")
    store = SQLiteStore(target)
    schema = StateSchema(name="n", kind="value", value_type="1:long")
    store.value_table(schema)
    store.database.execute("DROP TABLE state_0")
    with pytest.raises(sqlite3.OperationalError):
        store.apply([StateChanges(schema, [0], ["a"], None, None, [1])], Link(1, "t"))
    with pytest.raises(InvariantError):
        _ = store.version
    with pytest.raises(InvariantError):
        store.apply([], Link(2, "t"))
    store.close()


@pytest.mark.parametrize("source_kind", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_holds_what_the_source_holds(
    source_kind: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the elements of a list are copied in several parts."""
    monkeypatch.setattr("varvite.changelog.working_stores.table_rows.COPIED_ROWS", 7)
    value = StateSchema(name="value", kind="reducing", value_type="1:long")
    items = StateSchema(name="items", kind="list", value_type="1:string")
    entries = StateSchema(name="entries", kind="map", value_type="1:long", map_key_type="1:string")
    numbers = list(range(30))
    timers = StateSchema(name="timers", kind="timers", value_type="1:long", namespace_type="1:string")
    source = open_store(source_kind, tmp_path / "source")
    changes = [
        StateChanges(value, sorted(n % 8 for n in numbers), [f"k{n}" for n in numbers], None, None, numbers),
        StateChanges(items, [0] * 20 + [3] * 10, ["a"] * 20 + ["b"] * 10, None, None, [str(n) for n in numbers]),
        StateChanges(timers, [2] * 30, ["a", None, "b"] * 10, None, None, numbers, ["x", None] * 15),
        StateChanges(
            entries, [0] * 30, ["a"] * 30, bytes([Op.PUT] * 30), [f"m{n}" for n in numbers], [None, *numbers[1:]]
        ),
    ]
    source.apply(changes, Link(4, "t4"))
    copy = open_store(kind, tmp_path / "copy")
    copy_store(source, copy)
    assert contents(copy) == contents(source)
    assert (copy.version, copy.schemas) == (Link(4, "t4"), source.schemas)
    copy.apply([StateChanges(items, [0], ["a"], None, None, ["last"])], Link(5, "t5"))
    assert copy.list_table(items).elements(0, "a") == [*map(str, range(20)), "last"]
    for store in (source, copy):
        store.close()
