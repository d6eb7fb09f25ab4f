"""State and results of `aggregate`, against plain Python; without Spark. (Spark's own results: tests/spark.)"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.jobs.batch_keys import by_key, keys_of
from varvite.changelog.types.factory import Types, as_type
from varvite.spark_integration.elements.grouped_rows import GroupedRows
from varvite.spark_integration.operators.aggregation import accumulators as acc
from varvite.storage.errors import InvalidRequestError

LONG, DOUBLE, STRING = as_type(Types.LONG()), as_type(Types.DOUBLE()), as_type(Types.STRING())
DECIMAL = Types.DECIMAL(10, 2)
NAN = float("nan")


def after(accumulator: acc.Accumulator, *batches: tuple[str, Any]) -> dict[str, Any]:
    """The result for each key of the last batch; a batch is (one key per row, the column)."""
    state: dict[str, list[Any]] = {}
    result: Any = None
    for rows, column in batches:
        keys = keys_of(list(rows))
        known = pa.array([key in state for key in keys.stored], pa.bool_())
        blank = [None] * len(accumulator.fields)
        before = [
            pa.array([state.get(key, blank)[i] for key in keys.stored], kind.arrow_type, from_pandas=False)
            for i, (_, kind) in enumerate(accumulator.fields)
        ]
        fields = accumulator.add(GroupedRows(keys, known), column, before)
        assert [field.type for field in fields] == [kind.arrow_type for _, kind in accumulator.fields]
        for i, key in enumerate(keys.stored):
            state[key] = [field[i].as_py() for field in fields]
        result = by_key(keys, accumulator.result(fields))
    return result


def longs(*values: int | None) -> Any:
    return pa.array(values, pa.int64())


def doubles(*values: float | None) -> Any:
    return pa.array(values, pa.float64(), from_pandas=False)


def decimals(*values: str | None) -> Any:
    return pa.array([None if v is None else Decimal(v) for v in values], pa.decimal128(10, 2))


def test_counts() -> None:
    assert after(acc.CountAccumulator("n"), ("aab", None), ("a", None)) == {"a": 3}
    assert after(acc.CountAccumulator("n"), ("aab", longs(1, None, None))) == {"a": 1, "b": 0}


def test_sums_ignore_nulls_and_are_null_without_values() -> None:
    assert after(acc.LongSumAccumulator("s"), ("aab", longs(1, None, None)), ("ab", longs(2, None))) == {
        "a": 3,
        "b": None,
    }
    assert after(acc.DoubleSumAccumulator("s"), ("ab", doubles(0.5, NAN)), ("a", doubles(None))) == {"a": 0.5}
    total = after(
        acc.DecimalSumAccumulator("s", DECIMAL), ("aa", decimals("99999999.99", None)), ("a", decimals("0.02"))
    )
    assert total == {"a": Decimal("100000000.01")}


def test_integers_that_would_overflow_on_the_way_do_not_wrap() -> None:
    top = 2**63 - 1
    assert after(acc.LongSumAccumulator("s"), ("aa", longs(top, -top))) == {"a": 0}
    with pytest.raises(InvalidRequestError, match=r"aggregation s: a sum does not fit into bigint"):
        after(acc.LongSumAccumulator("s"), ("aa", longs(top, 1)))
    with pytest.raises(InvalidRequestError, match=r"does not fit into bigint"):
        after(acc.LongSumAccumulator("s"), ("a", longs(top)), ("a", longs(1)))


def test_decimals_that_do_not_fit_are_an_error() -> None:
    widest = Types.DECIMAL(38, 0)
    large = pa.array([Decimal(9 * 10**37)] * 4, pa.decimal128(38, 0))
    with pytest.raises(InvalidRequestError, match=r"decimal\(38,0\)"):
        after(acc.DecimalSumAccumulator("s", widest), ("aaaa", large))
    with pytest.raises(InvalidRequestError, match=r"decimal\(38,0\)"):
        after(acc.DecimalSumAccumulator("s", widest), ("a", large[:1]), ("a", large[:1]))


def test_averages() -> None:
    assert after(acc.AverageAccumulator("a"), ("aab", longs(1, 2, None)), ("ab", longs(6, None))) == {
        "a": 3.0,
        "b": None,
    }
    average = acc.DecimalAverageAccumulator("a", DECIMAL)
    assert (average.result_type.precision, average.result_type.scale) == (14, 6)
    rows = ("aaabbc", decimals("1.00", "0.00", "0.00", "-0.01", "0.00", None))
    assert after(average, rows) == {"a": Decimal("0.333333"), "b": Decimal("-0.005000"), "c": None}
    assert after(average, ("aaa", decimals("0.01", "0.01", "0.00"))) == {"a": Decimal("0.006667")}


def test_a_half_is_rounded_away_from_zero() -> None:
    wide = acc.DecimalAverageAccumulator("a", Types.DECIMAL(38, 38))
    smallest = Decimal(1).scaleb(-38)
    column = pa.array([smallest, Decimal(0), -smallest, Decimal(0)], pa.decimal128(38, 38))
    assert after(wide, ("aabb", column)) == {"a": smallest, "b": -smallest}


def test_an_average_keeps_all_digits() -> None:
    average = acc.DecimalAverageAccumulator("a", Types.DECIMAL(38, 10))
    values = [Decimal("63366938788888292726.2318592201"), Decimal("0.0000000002")]
    found = after(average, ("aa", pa.array(values, pa.decimal128(38, 10))))
    assert found == {"a": Decimal("31683469394444146363.11592961015")}


def test_combined_rows_give_what_the_rows_give() -> None:
    """Partials as Spark computes them of some of a key's rows; null for a sum that does not fit."""
    keys = keys_of(list("aba"))
    rows = GroupedRows(keys, pa.array([False, False]))
    nothing = [pa.nulls(2, pa.int64())]
    assert by_key(keys, acc.CountAccumulator("n").merge(rows, [longs(2, 0, 1)], nothing)[0]) == {"a": 3, "b": 0}
    total = acc.LongSumAccumulator("s")
    assert by_key(keys, total.merge(rows, [longs(5, None, 4), longs(2, 0, 1)], nothing)[0]) == {"a": 9, "b": None}
    with pytest.raises(InvalidRequestError, match="aggregation s: a sum does not fit"):
        total.merge(rows, [longs(5, None, 4), longs(2, 3, 1)], nothing)
    average = acc.AverageAccumulator("a")
    fields = average.merge(rows, [doubles(1.0, None, 5.0), longs(2, 0, 1)], [pa.nulls(2, pa.float64()), *nothing])
    assert by_key(keys, average.result(fields)) == {"a": 2.0, "b": None}
    exact = acc.DecimalAverageAccumulator("a", DECIMAL)
    sums = pa.array([Decimal("1.00"), None, Decimal("0.50")], pa.decimal128(20, 2))
    fields = exact.merge(rows, [sums, longs(2, 0, 1)], [pa.nulls(2, pa.decimal128(20, 2)), *nothing])
    assert by_key(keys, exact.result(fields)) == {"a": Decimal("0.500000"), "b": None}


def test_nan_is_the_largest_number() -> None:
    low, high = acc.ExtremeAccumulator("m", DOUBLE, "min"), acc.ExtremeAccumulator("m", DOUBLE, "max")
    rows = ("aabbcd", doubles(NAN, 1.0, NAN, None, None, -math.inf))
    assert str(sorted(after(low, rows).items())) == "[('a', 1.0), ('b', nan), ('c', None), ('d', -inf)]"
    assert str(sorted(after(high, rows).items())) == "[('a', nan), ('b', nan), ('c', None), ('d', -inf)]"
    more = ("abc", doubles(None, 7.0, 2.0))
    assert str(sorted(after(low, rows, more).items())) == "[('a', 1.0), ('b', 7.0), ('c', 2.0)]"
    assert str(sorted(after(high, rows, more).items())) == "[('a', nan), ('b', nan), ('c', 2.0)]"


def test_extremes_of_strings() -> None:
    rows = ("aab", pa.array(["é", "z", None]))
    assert after(acc.ExtremeAccumulator("m", STRING, "max"), rows, ("ab", pa.array(["x", "y"]))) == {"a": "é", "b": "y"}


@pytest.mark.parametrize(
    ("function", "ignore_nulls", "expected"),
    [("first", False, {"a": None, "b": "3"}), ("first", True, {"a": "2", "b": "3"}),
     ("last", False, {"a": None, "b": "6"}), ("last", True, {"a": "4", "b": "6"})],
)  # fmt: skip
def test_first_and_last(function: str, ignore_nulls: bool, expected: dict[str, Any]) -> None:
    accumulator = acc.PositionAccumulator("p", STRING, function, ignore_nulls=ignore_nulls)
    batches = ("aab", pa.array([None, "2", "3"])), ("aabb", pa.array(["4", None, "5", "6"]))
    assert after(accumulator, *batches) == expected


def test_the_largest_values_with_equal_ones() -> None:
    top = acc.TopAccumulator("t", LONG, 3)
    assert after(top, ("aaabc", longs(5, 7, 5, 1, None))) == {"a": [7, 5, 5], "b": [1], "c": []}
    assert after(top, ("aaab", longs(5, 7, 5, 1)), ("aab", longs(6, 7, None))) == {"a": [7, 7, 6], "b": [1]}
    of_doubles = acc.TopAccumulator("t", DOUBLE, 2)
    assert str(after(of_doubles, ("aaa", doubles(1.0, math.inf, NAN)), ("a", doubles(2.0)))) == "{'a': [nan, inf]}"


def test_random_sums_and_extremes_equal_plain_python() -> None:
    rng = np.random.default_rng(5)
    rows = ["".join(rng.choice(list("abcdefgh"), 50)) for _ in range(3)]
    columns = [[None if rng.random() < 0.2 else int(rng.integers(-50, 50)) for _ in row] for row in rows]
    batches = [(row, longs(*column)) for row, column in zip(rows, columns, strict=True)]
    held: dict[str, list[int]] = {}
    for row, column in zip(rows, columns, strict=True):
        for key, value in zip(row, column, strict=True):
            held.setdefault(key, []).extend([] if value is None else [value])
    expected = {
        key: (sum(held[key]), min(held[key]), max(held[key]), sorted(held[key])[::-1][:5]) for key in set(rows[-1])
    }
    made = [
        after(acc.LongSumAccumulator("s"), *batches), after(acc.ExtremeAccumulator("m", LONG, "min"), *batches),
        after(acc.ExtremeAccumulator("m", LONG, "max"), *batches), after(acc.TopAccumulator("t", LONG, 5), *batches),
    ]  # fmt: skip
    assert {key: tuple(each[key] for each in made) for key in made[0]} == expected
