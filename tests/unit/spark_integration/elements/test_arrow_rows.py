"""Rows that a function yields, as columns of the declared types, and what does not fit them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from varvite.spark_integration.elements.arrow_rows import RowReader, RowWriter
from varvite.storage.errors import InvalidRequestError

MOMENT = pa.timestamp("us", tz="UTC")
WINTER, SUMMER = datetime(2026, 1, 2, 3), datetime(2026, 7, 2, 3)  # noqa: DTZ001 - the wall clock of some place


def written(arrow_type: pa.DataType, *values: Any) -> pa.Array:
    return RowWriter(pa.schema([pa.field("n", arrow_type)]), "op").columns([(value,) for value in values])[0]


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("value", [1.5, Decimal("1.5"), -0.25, float("nan"), True, "1", 1 << 63])
@pytest.mark.parametrize("arrow_type", [pa.int64(), pa.int32(), pa.int8()])
def test_what_is_no_whole_number_does_not_become_one(value: Any, arrow_type: pa.DataType) -> None:
    """Fractions were cut off without a word."""
    with pytest.raises(InvalidRequestError, match="'n' is declared"):
        written(arrow_type, 7, value)
    with pytest.raises(InvalidRequestError, match="'n' is declared"):
        written(arrow_type, value)


def test_whole_numbers_of_any_type_are_taken() -> None:
    assert written(pa.int32(), 1, None, 2.0).to_pylist() == [1, None, 2]
    assert written(pa.int64(), Decimal(3), -4).to_pylist() == [3, -4]
    assert written(pa.int8(), None, None).to_pylist() == [None, None]
    assert written(pa.int64(), (1 << 63) - 1, -(1 << 63)).to_pylist() == [(1 << 63) - 1, -(1 << 63)]


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize(
    ("arrow_type", "value"),
    [
        (MOMENT, WINTER),
        (pa.list_(MOMENT), [WINTER, None]),
        (pa.struct([("at", MOMENT), ("n", pa.int64())]), (WINTER, 1)),
        (pa.map_(pa.string(), pa.list_(MOMENT)), {"a": [SUMMER], "b": None}),
    ],
    ids=["plain", "array", "struct", "map"],
)
def test_a_naive_datetime_is_local_time_however_deep_it_lies(arrow_type: pa.DataType, value: Any) -> None:
    """In an array, a struct or a map it was taken for UTC: what a function read and yielded again came out shifted."""
    batch = pa.RecordBatch.from_arrays([written(arrow_type, value, None)], names=["n"])
    assert [row[0] for row in RowReader(batch.schema, ["n"]).rows(batch)] == [value, None]


@pytest.mark.usefixtures("in_new_york")
def test_a_datetime_with_a_zone_is_that_moment_however_deep_it_lies() -> None:
    moment = datetime(2026, 1, 2, 3, tzinfo=UTC)
    assert written(pa.list_(MOMENT), [moment]).to_pylist() == [[moment]]
    assert written(pa.struct([("at", MOMENT)]), {"at": moment}, {}).to_pylist() == [{"at": moment}, {"at": None}]


@pytest.mark.parametrize(
    ("arrow_type", "value"),
    [(MOMENT, 5), (pa.struct([("x", pa.int64()), ("y", pa.int64())]), (1,)), (pa.map_(pa.string(), pa.int64()), 3)],
    ids=["timestamp", "struct", "map"],
)
def test_a_value_of_another_type_is_named(arrow_type: pa.DataType, value: Any) -> None:
    """It failed the task as an error of the state worker's."""
    with pytest.raises(InvalidRequestError, match=r"'n' is declared .*, but the function yielded"):
        written(arrow_type, None, value)


def test_what_is_no_row_is_named_after_rows_too() -> None:
    writer = RowWriter(pa.schema([("k", pa.string()), ("n", pa.int64())]), "op")
    with pytest.raises(InvalidRequestError, match="yielded None, expected 2 columns"):
        writer.columns([("a", 1), None])


def test_rows_of_columns_are_pysparks() -> None:
    """Names count in `in`, not in `==`, other than in PyFlink's rows."""
    kind = pa.schema([("k", pa.string()), ("s", pa.struct([("x", pa.int64())]))])
    (row,) = RowReader(kind, ["k", "s"]).rows(pa.record_batch([["a"], [{"x": 1}]], kind))
    own = Row(k="a", s=Row(x=1))
    for one in (row, own):
        assert ("k" in one, "a" in one, "x" in one.s) == (True, False, True)
        assert one == own == ("a", (1,))
        assert hash(one) == hash(own)
        assert one.asDict(recursive=True) == {"k": "a", "s": {"x": 1}}
        with pytest.raises(TypeError, match="item assignment"):
            one[0] = "b"
