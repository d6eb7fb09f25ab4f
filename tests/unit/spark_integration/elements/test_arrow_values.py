"""Columns whose naive timestamps are of the session's time zone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from varvite.spark_integration.elements.arrow_values import zoned

NAIVE, ZONED = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)


def in_kind(kind: str, leaf: pa.DataType) -> tuple[pa.DataType, Any]:
    """A type around timestamps, and what makes of a timestamp a value of it."""
    kinds: dict[str, tuple[Any, Any]] = {
        "plain": (leaf, lambda t: t),
        "list": (pa.list_(leaf), lambda t: [t, None]),
        "struct": (pa.struct([("i", pa.int32()), ("t", leaf)]), lambda t: {"i": 1, "t": t}),
        "map": (pa.map_(leaf, pa.string()), lambda t: [(t, "x")]),
    }
    return kinds[kind]


@pytest.mark.parametrize("kind", ["plain", "list", "struct", "map"])
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "+02:00"])
def test_naive_timestamps_are_of_the_zone_that_is_said_at_any_depth(kind: str, zone: str) -> None:
    said: Any = pa.scalar(NOON, pa.timestamp("us", tz=zone)).as_py()
    given, make = in_kind(kind, NAIVE)
    wanted, _ = in_kind(kind, ZONED)
    column = pa.array([make(said.replace(tzinfo=None)), None], given)
    assert zoned(column, wanted, zone).cast(wanted).to_pylist() == [make(NOON), None]
    whole = zoned(pa.chunked_array([column.slice(1), column.slice(0, 1)]), wanted, zone).cast(wanted)
    assert whole.to_pylist() == [None, make(NOON)]


@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_columns_without_naive_timestamps_stay_as_they_are(zone: str | None) -> None:
    for given, wanted in ((ZONED, ZONED), (NAIVE, NAIVE), (ZONED, NAIVE), (pa.int64(), ZONED)):
        column = pa.array([None, None], given)
        assert zoned(column, wanted, zone) is column
        nested = pa.array([None], pa.list_(given))
        assert zoned(nested, pa.list_(wanted), zone) is nested


def test_times_that_clocks_show_twice_or_never_are_taken() -> None:
    shown_twice, never = datetime(2024, 11, 3, 1, 30), datetime(2024, 3, 10, 2, 30)  # noqa: DTZ001
    found = zoned(pa.array([shown_twice, never], NAIVE), ZONED, "America/New_York").cast(ZONED).to_pylist()
    assert found == [datetime(2024, 11, 3, 5, 30, tzinfo=UTC), datetime(2024, 3, 10, 7, tzinfo=UTC)]
