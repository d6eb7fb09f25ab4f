"""Keys whose type nobody named: the same key exactly if of the same type and equal, on every working store alike."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row as SparkRow

from tests.jobs.strategies import ZONES
from varvite.changelog.row import Row, make_row, row_class
from varvite.changelog.types.dynamic_key import DynamicKeyType
from varvite.changelog.types.factory import parse_type_string
from varvite.changelog.types.wire import end_of
from varvite.storage.errors import CorruptDataError, InvalidRequestError, VarviteError

KIND = DynamicKeyType()
SIMPLE = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf])
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["1", "True", "1.0"])
    | st.binary(max_size=4)
    | st.dates()
    | st.times()
    | st.datetimes()
    | st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.sampled_from(ZONES))  # noqa: DTZ001 - made aware
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.sampled_from([Decimal(1), Decimal("1.0"), Decimal("-0"), Decimal("1E+2")])
)


def _composites(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    values = st.lists(parts, max_size=3).map(tuple)
    named = st.tuples(parts, parts).map(lambda v: make_row(row_class(("a", "b")), v))
    return values | named | values.map(lambda v: Row(*v))


KEYS = st.recursive(SIMPLE, _composites, max_leaves=5)


def meaning(key: Any) -> Any:
    """A key as plain Python compares it, with its type; what `DynamicKeyType` must agree with."""
    if isinstance(key, Row):
        return "Row", tuple(key.get_field_names() or ()), tuple(meaning(field) for field in key)
    if isinstance(key, tuple):
        return "tuple", tuple(meaning(field) for field in key)
    if isinstance(key, float):
        return "float", "nan" if math.isnan(key) else key
    if isinstance(key, datetime) and key.tzinfo:
        return "instant", key.astimezone(UTC)
    if hasattr(key, "fold"):
        return type(key).__name__, key.replace(fold=0)
    return type(key).__name__, key


@given(KEYS, KEYS)
def test_keys_are_the_same_exactly_if_type_and_value_are(one: Any, other: Any) -> None:
    same = meaning(one) == meaning(other)
    stored = KIND.freeze(one), KIND.freeze(other)
    assert (stored[0] == stored[1]) == same
    assert len(set(stored)) == 1 + (not same), "the hash map's keys"
    assert (KIND.to_wire(stored[0]) == KIND.to_wire(stored[1])) == same, "RocksDB's keys"


@given(KEYS)
def test_a_key_comes_back(key: Any) -> None:
    stored = KIND.freeze(key)
    again = KIND.thaw(KIND.from_wire(KIND.to_wire(stored)))
    assert meaning(again) == meaning(key)
    assert KIND.freeze(again) == stored
    assert KIND.from_arrow(KIND.to_arrow([stored, None])) == [stored, None]


@given(st.lists(KEYS, min_size=1, max_size=3))
def test_wire_forms_put_together_come_apart(keys: list[Any]) -> None:
    wires = [KIND.to_wire(KIND.freeze(key)) for key in keys]
    together, found, start = b"".join(wires), [], 0
    while start < len(together):
        end = end_of(together, start)
        found.append(together[start:end])
        start = end
    assert found == wires


@given(KEYS, st.data())
def test_damaged_keys_are_errors(key: Any, data: st.DataObject) -> None:
    wire = KIND.freeze(key)
    for damaged in (wire[: data.draw(st.integers(0, len(wire) - 1))], wire + b"\xc0"):
        with pytest.raises(CorruptDataError):
            KIND.thaw(damaged)


@given(st.binary(max_size=24))
def test_any_bytes_are_a_key_or_an_error_of_varvite(data: bytes) -> None:
    try:
        KIND.thaw(data)
    except VarviteError:
        return


def test_numbers_text_and_truth_are_four_keys() -> None:
    assert len({KIND.freeze(key) for key in (1, 1.0, True, "1")}) == 4


def test_what_other_libraries_make_of_a_value_is_the_same_key() -> None:
    assert KIND.freeze(np.int32(7)) == KIND.freeze(7)
    assert KIND.freeze(np.float64(0.5)) == KIND.freeze(0.5)
    assert KIND.freeze(np.bool_(True)) == KIND.freeze(True)
    assert KIND.freeze(np.str_("a")) == KIND.freeze("a")
    assert KIND.freeze(SparkRow(a=1)) == KIND.freeze(Row(a=1))
    east = timezone(timedelta(hours=5))
    assert KIND.freeze(datetime(2013, 1, 1, 5, tzinfo=east)) == KIND.freeze(datetime(2013, 1, 1, 0, tzinfo=UTC))


@pytest.mark.parametrize(
    "key",
    [
        pd.Timestamp("2020-01-01 00:00:00.000000001"),
        pd.Timestamp("2020-01-01 00:00:00.000000002", tz="UTC"),
        pd.Timedelta(1, "ns"),
        ("a", pd.Timedelta(-1, "ns")),
    ],
    ids=str,
)
def test_nanoseconds_are_refused_not_dropped(key: Any) -> None:
    """Two keys that differ in nothing else shared their state."""
    with pytest.raises(InvalidRequestError, match="floor it to microseconds"):
        KIND.freeze(key)


EAST, WEST = (timezone(timedelta(hours=hours)) for hours in (5, -5))


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (pd.NaT, "equals nothing"),
        ((1, pd.NaT), "equals nothing"),
        (datetime.max.replace(tzinfo=WEST), "outside the years 1 to 9999"),
        (datetime.min.replace(tzinfo=EAST), "outside the years 1 to 9999"),
        (datetime.min.replace(tzinfo=ZoneInfo("Europe/Berlin")), "outside the years 1 to 9999"),
        (pd.Timestamp(np.datetime64("20000-01-01T00:00:00")), "outside the years 1 to 9999"),
        (pd.Timedelta(np.timedelta64(10**15, "s")), "longer than"),
    ],
)
def test_what_could_not_be_read_again_is_refused_as_a_key(key: Any, message: str) -> None:
    """It was taken, and the batch ended with an error about corrupt state."""
    with pytest.raises(InvalidRequestError, match=message):
        KIND.freeze(key)


@pytest.mark.parametrize(
    "key",
    [
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=EAST),
        timedelta.max,
        timedelta.min,
        pd.Timedelta(np.timedelta64(8 * 10**13, "s")),
    ],
)
def test_the_first_and_the_last_of_each_type_come_back(key: Any) -> None:
    assert KIND.thaw(KIND.freeze(key)) == key


def test_timestamps_of_pandas_to_the_microsecond_are_the_same_keys_as_those_of_python() -> None:
    naive = datetime(2020, 1, 1, 0, 0, 0, 5)  # noqa: DTZ001 - what has no zone
    assert KIND.freeze(pd.Timestamp(naive)) == KIND.freeze(naive)
    assert KIND.freeze(pd.Timestamp(naive, tz="UTC")) == KIND.freeze(naive.replace(tzinfo=UTC))
    assert KIND.freeze(pd.Timedelta(5, "us")) == KIND.freeze(timedelta(microseconds=5))


class Text(str):
    """Shown as something else."""

    __slots__ = ()

    def __str__(self) -> str:
        return "x"


class Data(bytes):
    def __bytes__(self) -> bytes:
        return b"x"


class Real(float):
    __slots__ = ()

    def __float__(self) -> float:
        return 1.0


def test_an_object_of_a_subclass_is_the_key_that_it_equals_not_what_its_methods_say() -> None:
    """All such keys with the same text shared one state."""
    assert [KIND.freeze(Text(text)) for text in "ab"] == [KIND.freeze(text) for text in "ab"]
    assert KIND.freeze(Data(b"a")) == KIND.freeze(b"a")
    assert KIND.freeze(Real(0.5)) == KIND.freeze(0.5)
    assert KIND.freeze(np.bytes_(b"a")) == KIND.freeze(b"a")


class Colour(Enum):
    RED = 1


class Size(IntEnum):
    SMALL = 1


@pytest.mark.parametrize(
    "key", [[1], {"a": 1}, {1}, object(), 1j, (1, [2]), Colour.RED, Size.SMALL, Decimal("nan"), "\ud800"], ids=type
)
def test_what_cannot_be_a_key_is_said_with_the_way_out(key: Any) -> None:
    with pytest.raises(InvalidRequestError, match="pass key_type"):
        KIND.freeze(key)


def test_the_nesting_is_bounded() -> None:
    key: Any = 1
    for _ in range(100):
        key = (key,)
    with pytest.raises(InvalidRequestError, match="nested"):
        KIND.freeze(key)


def test_the_type_string_comes_back() -> None:
    assert parse_type_string(KIND.type_string()) == KIND
