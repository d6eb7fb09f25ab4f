"""Keys as Spark gives them to functions, in each of its three forms."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pytest
from pyspark.sql import Row

from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.types.factory import Types, as_type
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.spark_integration.operators.processors.keys import KeyTuples

TOKYO = ZoneInfo("Asia/Tokyo")
EVENING = datetime(2024, 1, 1, 20, tzinfo=UTC)
FIELDS: dict[str, Any] = {
    "id": "bigint",
    "day": "date",
    "at": "timestamp",
    "clock": "timestamp_ntz",
    "n": "decimal(5,2)",
}
VALUES = (2**53 + 1, date(2024, 1, 1), EVENING, datetime(2024, 1, 1, 12), Decimal("1.50"))  # noqa: DTZ001


@pytest.fixture(autouse=True)
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def keys_of(kind: Any, columns: list[str], *, in_pandas: bool = False) -> tuple[KeyTuples, Any]:
    key_type = as_type(kind)
    store = HashMapStore(operator="op", key_type=key_type.type_string(), low=0, high=8)
    made = KeyTuples(KeyedStateBackend(store, key_type, "op"), columns, in_pandas=in_pandas)
    made.set_zone(TOKYO)
    return made, key_type


COMPOSITE = Types.TUPLE([*FIELDS.values(), Types.ROW_NAMED(list(FIELDS), list(FIELDS.values()))])
COLUMNS = [*FIELDS, "s"]


def test_on_rows_times_are_of_the_session_and_structs_are_dicts() -> None:
    """They were UTC's, and a class of varvite's own."""
    keys, kind = keys_of(COMPOSITE, COLUMNS)
    *plain, struct = keys.of(kind.freeze((*VALUES, VALUES)))
    assert repr(plain[2]) == repr(EVENING.astimezone(TOKYO)), "the next day"
    assert plain == [*VALUES]
    assert type(struct) is dict
    assert struct == dict(zip(FIELDS, VALUES, strict=True))
    assert struct["at"].date() == date(2024, 1, 2)


def test_with_dataframes_times_are_naive_timestamps_of_the_session() -> None:
    keys, kind = keys_of(COMPOSITE, COLUMNS, in_pandas=True)
    *plain, struct = keys.of(kind.freeze((*VALUES, VALUES)))
    assert plain[2:4] == [pd.Timestamp("2024-01-02 05:00"), pd.Timestamp("2024-01-01 12:00")]
    assert (type(plain[2]), plain[2].unit, type(plain[0])) == (pd.Timestamp, "ns", int)
    assert struct == dict(zip(FIELDS, plain, strict=True))


def test_timers_have_local_times_and_rows() -> None:
    keys, kind = keys_of(COMPOSITE, COLUMNS)
    row = keys.row_of(kind.freeze((*VALUES, VALUES)))
    assert (row.at, row.s.at) == (datetime(2024, 1, 1, 15),) * 2  # noqa: DTZ001
    assert isinstance(row.s, Row)
    assert row.s.asDict()["id"] == 2**53 + 1


@pytest.mark.parametrize("in_pandas", [False, True])
@pytest.mark.parametrize("kind", ["bigint", "timestamp", "x int, at timestamp"])
def test_a_null_key_is_none(kind: str, *, in_pandas: bool) -> None:
    keys, key_type = keys_of(kind, ["k"], in_pandas=in_pandas)
    assert keys.of(None) == keys.row_of(None) == (None,)
    several, composite = keys_of(Types.TUPLE([key_type, Types.LONG()]), ["k", "n"], in_pandas=in_pandas)
    assert several.of(composite.freeze((None, 2**53 + 1))) == (None, 2**53 + 1)
    assert several.of(composite.freeze((None, None))) == (None, None)
