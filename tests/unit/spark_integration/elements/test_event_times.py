"""Event times of columns of timestamps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from varvite.spark_integration.elements.row_values import event_times_ms


@pytest.mark.parametrize(("unit", "per_ms"), [("us", 1000), ("ns", 1_000_000)])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_event_times_are_rounded_down_also_before_1970(unit: Any, per_ms: int, zone: str | None) -> None:
    """Found as rows of the last millisecond before 1970 in a window that begins in 1970."""
    given = [-per_ms - 1, -per_ms, -1, None, 0, 1, per_ms - 1, per_ms, 5 * per_ms + 1]
    column = pa.array(given, pa.int64()).cast(pa.timestamp(unit, tz=zone))
    assert event_times_ms(column).to_pylist() == [None if t is None else t // per_ms for t in given]
    assert event_times_ms(column.slice(7)).to_pylist() == [1, 5]
    assert event_times_ms(column.slice(0, 0)).to_pylist() == event_times_ms(column.slice(3, 1))[:0].to_pylist() == []
    assert event_times_ms(column.slice(3, 1)).to_pylist() == [None]


def test_milliseconds_are_left_as_they_are() -> None:
    column = pa.array([-1, None, 1], pa.int64())
    assert event_times_ms(column) is column
    for unit in ("s", "ms"):
        assert event_times_ms(pa.array([-1, 1], pa.timestamp(unit))).to_pylist() == (
            [-1, 1] if unit == "ms" else [-1000, 1000]
        )


def test_the_event_time_of_a_window_is_its_end() -> None:
    """As in Spark, also where the column is a part of a larger one, and for a window that is null."""
    kind = pa.struct([pa.field("start", pa.timestamp("us", "UTC")), pa.field("end", pa.timestamp("us", "UTC"))])
    windows = pa.array(
        [{"start": 0, "end": 60_000_000}, None, {"start": -1, "end": None}, {"start": 5, "end": -1}], kind
    )
    assert event_times_ms(windows).to_pylist() == [60_000, None, None, -1]
    assert event_times_ms(windows.slice(1)).to_pylist() == [None, None, -1]
