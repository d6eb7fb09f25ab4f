"""Values that a state's last batch of columns has set, as the next batch finds them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.jobs.batch_keys import keys_of
from varvite.changelog.keyed.overlays.recent_columns import RecentColumns
from varvite.changelog.row import Row
from varvite.changelog.segments.column_changes import ColumnChanges
from varvite.changelog.types.factory import Types
from varvite.storage.format.records import StateSchema

SCHEMA = StateSchema(name="n", kind="value", value_type=Types.LONG().type_string())


def changes(values: dict[Any, int | None], key_type: str = "string") -> ColumnChanges:
    keys = keys_of(list(values), key_type)
    column: Any = pa.array([values[key] for key in keys.stored], pa.int64())
    return ColumnChanges(SCHEMA, keys, Types.LONG(), column)


def found(recent: RecentColumns, keys: list[Any], key_type: str = "string") -> dict[Any, Any] | None:
    """The keys that are known; None if it is not worth looking."""
    many = keys_of(keys, key_type)
    places = recent.find(many)
    if places is None:
        return None
    known: list[Any] = recent.values.to_pylist()
    return {key: known[place] for key, place in zip(many.stored, places, strict=True) if place >= 0}


@pytest.mark.parametrize(
    ("key_type", "keys"), [("string", [None, "a", "ключ"]), ("bigint", [None, 0, -1]), ("binary", [None, b"", b"\0"])]
)
def test_what_was_set_is_found_removals_and_the_null_key_included(key_type: str, keys: list[Any]) -> None:
    recent = RecentColumns()
    assert found(recent, keys, key_type) is None
    values = dict(zip(keys, [1, None, 3], strict=True))
    recent.remember(changes(values, key_type))
    assert found(recent, keys, key_type) == values
    assert found(recent, [], key_type) is None


def test_only_the_last_batch_counts() -> None:
    recent = RecentColumns()
    recent.remember(changes({"a": 1, "b": 2}))
    recent.remember(changes({"b": 3, "c": 4}))
    assert found(recent, ["a", "b", "c"]) == {"b": 3, "c": 4}
    recent.forget()
    assert found(recent, ["b"]) is None


def test_where_few_keys_are_found_nothing_is_remembered_for_a_while() -> None:
    recent = RecentColumns()
    recent.remember(changes({"a": 1}))
    assert found(recent, ["a", "b"]) == {"a": 1}
    assert found(recent, ["a", "b", "c"]) is None
    batches = 0
    while found(recent, ["a"]) is None:
        recent.remember(changes({"a": 2}))
        batches += 1
    assert batches == 16
    assert found(recent, ["a"]) == {"a": 2}


@pytest.mark.parametrize(("key_type", "keys"), [("double", [0.5]), ("struct<a:bigint,b:bigint>", [Row(a=1, b=2)])])
def test_keys_whose_columns_say_less_than_their_stored_forms_are_left_to_the_table(
    key_type: str, keys: list[Any]
) -> None:
    recent = RecentColumns()
    recent.remember(changes(dict.fromkeys(keys, 1), key_type))
    assert found(recent, keys, key_type) is None
