"""Text of values: every expectation is what Java's `toString` gives."""

# ruff: noqa: DTZ001  SQL_TIMESTAMP takes times without a zone
from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from varvite.changelog.row import Row
from varvite.changelog.types.factory import Types
from varvite.spark_integration.elements.formats.java_text import double_text, float_text, java_text

INT, TEXT = Types.INT(), Types.STRING()


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1.0"), (-2.5, "-2.5"), (100.0, "100.0"), (9999999.0, "9999999.0"), (1e7, "1.0E7"), (1.5e10, "1.5E10"),
        (0.001, "0.001"), (0.00099, "9.9E-4"), (123456.789, "123456.789"), (0.1, "0.1"), (-0.0, "-0.0"), (0.0, "0.0"),
        (1e100, "1.0E100"), (float("nan"), "NaN"), (float("-inf"), "-Infinity"),
    ],
)  # fmt: skip
def test_doubles(number: float, text: str) -> None:
    assert double_text(number) == text


def test_floats_have_the_digits_of_32_bits() -> None:
    assert [float_text(n) for n in (0.1, 16777216.0, 3.4028234663852886e38, 1.5)] == [
        "0.1", "1.6777216E7", "3.4028235E38", "1.5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (TEXT, "a b", "a b"),
        (INT, 7, "7"),
        (Types.BOOLEAN(), True, "true"),
        (Types.BIG_DEC(), Decimal("1.50"), "1.50"),
        (Types.SQL_DATE(), date(2024, 2, 29), "2024-02-29"),
        (Types.SQL_TIME(), time(1, 2, 3, 4), "01:02:03"),
        (Types.SQL_TIMESTAMP(), datetime(2024, 2, 29, 1, 2, 3), "2024-02-29 01:02:03.0"),
        (Types.SQL_TIMESTAMP(), datetime(2024, 2, 29, 1, 2, 3, 4500), "2024-02-29 01:02:03.0045"),
        (Types.INSTANT(), datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), "2024-02-29T01:02:03Z"),
        (Types.INSTANT(), datetime(2024, 2, 29, 1, 2, 3, 120000, tzinfo=UTC), "2024-02-29T01:02:03.120Z"),
        (Types.INSTANT(), datetime(2024, 2, 29, 1, 2, 3, 123456, tzinfo=UTC), "2024-02-29T01:02:03.123456Z"),
        (Types.TUPLE([TEXT, INT, Types.DOUBLE()]), ("hi", 1, 2.0), "(hi,1,2.0)"),
        (Types.TUPLE([TEXT, INT]), ("hi", None), "(hi,null)"),
        (Types.ROW([TEXT, INT]), Row("hi", 1), "+I[hi, 1]"),
        (Types.ROW_NAMED(["a", "b"], [TEXT, INT]), Row(b=1, a="hi"), "+I[hi, 1]"),
        (Types.TUPLE([Types.ROW([INT]), INT]), ((1,), 2), "(+I[1],2)"),
        (Types.LIST(TEXT), ["a", None], "[a, null]"),
        (Types.MAP(TEXT, INT), {"a": 1, "b": 2}, "{a=1, b=2}"),
        (INT, None, "null"),
    ],
)
def test_values(kind: Any, value: Any, text: str) -> None:
    assert java_text(kind)(value) == text
