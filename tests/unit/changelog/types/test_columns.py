"""Arrow columns of state values: what is refused, because the row methods refuse it, and what is taken."""

from __future__ import annotations

import math
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from varvite.changelog.types.columns import canonical_column
from varvite.changelog.types.factory import Types, as_type
from varvite.storage.errors import InvalidRequestError

DAY = datetime(2020, 1, 1, 5)  # noqa: DTZ001 - what has no zone


@pytest.mark.parametrize(
    ("kind", "column", "message"),
    [
        (Types.FLOAT(), pa.array([None, 1e300]), r"1e\+300 is too large for 32 bits"),
        (Types.FLOAT(), pa.array([-1e39]).dictionary_encode(), "too large for 32 bits"),
        (Types.TUPLE([Types.FLOAT()]), pa.array([{"f0": 1e39}]), "too large for 32 bits"),
        (Types.SQL_DATE(), pa.array([DAY]), "dates, not timestamps without a zone"),
        (Types.SQL_TIMESTAMP(), pa.array([DAY], pa.timestamp("us", "Europe/Berlin")), "local_timestamp"),
        (Types.SQL_TIMESTAMP(), pa.array([DAY.date()]), "not dates"),
        (Types.INSTANT(), pa.array([DAY]), "assume_timezone"),
        (Types.INSTANT(), pa.array([1]), "not integers"),
        (Types.SQL_TIME(), pa.array([DAY]), "times of day, not timestamps"),
        (Types.BOOLEAN(), pa.array([2]), "booleans, not integers"),
        (Types.LONG(), pa.array(["12"]), "integers, not strings"),
        (Types.LONG(), pa.array(["12"]).dictionary_encode(), "integers, not strings"),
        (Types.LONG(), pa.array([1.0]), "not floating-point numbers"),
        (Types.LONG(), pa.array([True]), "not booleans"),
        (Types.DOUBLE(), pa.array([Decimal(1)]), "not decimals"),
        (Types.DECIMAL(9, 2), pa.array([0.125]), "decimals, not floating-point numbers"),
        (Types.STRING(), pa.array([12]), "strings, not integers"),
        (Types.STRING(), pa.array([b"x"]), "strings, not bytes"),
        (Types.BINARY(), pa.array(["x"]), "bytes, not strings"),
    ],
)  # fmt: skip
def test_columns_of_what_the_row_methods_refuse_are_refused(kind: Any, column: Any, message: str) -> None:
    """They were cast: a FLOAT became infinite, a date lost the time, numbers became strings."""
    as_values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    for value in as_values.drop_null().to_pylist():
        with pytest.raises(InvalidRequestError):
            as_type(kind).freeze(tuple(value.values()) if isinstance(value, dict) else value)
    with pytest.raises(InvalidRequestError, match=message) as caught:
        canonical_column(as_type(kind), column, "state 'v'")
    assert str(caught.value).count("state 'v'") == 1


@pytest.mark.parametrize(
    ("kind", "column", "kept"),
    [
        (Types.LONG(), pa.array([1, None], pa.int8()), [1, None]),
        (Types.INT(), pa.array([1, 2], pa.uint64()), [1, 2]),
        (Types.DOUBLE(), pa.array([1, 2]), [1.0, 2.0]),
        (Types.FLOAT(), pa.array([0.1, math.inf, None]), [np.float32(0.1), math.inf, None]),
        (Types.FLOAT(), pa.array([0.5]).cast(pa.float16()), [0.5]),
        (Types.FLOAT(), pa.nulls(1), [None]),
        (Types.DECIMAL(38, 2), pa.array([3]), [Decimal("3.00")]),
        (Types.DECIMAL(9, 2), pa.array([Decimal("1.5")]), [Decimal("1.50")]),
        (Types.STRING(), pa.array(["a"], pa.large_string()), ["a"]),
        (Types.STRING(), pa.array(["a"], pa.string_view()), ["a"]),
        (Types.STRING(), pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (Types.BINARY(), pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        (Types.SQL_DATE(), pa.array([DAY.date()], pa.date64()), [DAY.date()]),
        (Types.SQL_TIME(), pa.array([5], pa.time32("s")), [time(0, 0, 5)]),
        (Types.SQL_TIMESTAMP(), pa.array([DAY], pa.timestamp("ns")), [DAY]),
        (Types.INSTANT(), pa.array([DAY], pa.timestamp("s", "Europe/Berlin")), [DAY.replace(tzinfo=UTC)]),
    ],
)  # fmt: skip
def test_columns_of_another_width_unit_or_layout_are_taken(kind: Any, column: Any, kept: list[Any]) -> None:
    assert canonical_column(as_type(kind), column, "state 'v'").to_pylist() == kept
