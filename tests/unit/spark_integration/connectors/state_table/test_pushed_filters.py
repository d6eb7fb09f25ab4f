"""Results of pushed filters, without Spark's planner."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from varvite.spark_integration.connectors.state_table.pushed_filters import Numbers, Pushed

N, NAME = ("key_group",), ("state",)
NOTHING = Pushed({"key_group": Numbers()}, {"state": None})
numbers = st.integers(-3, 12)
filters = st.one_of(
    *(st.builds(kind, st.just(N), numbers) for kind in (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)),
    *(st.builds(kind, st.just(N), numbers) for kind in (LessThan, LessThanOrEqual)),
    st.builds(In, st.just(N), st.lists(numbers, min_size=1).map(tuple)),
)
MEANS = {
    EqualTo: lambda a, b: a == b,
    EqualNullSafe: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    In: lambda a, b: a in b,
}


@given(st.lists(filters, max_size=4))
def test_exactly_the_numbers_pass_that_all_filters_let_pass(given_: list[Filter]) -> None:
    pushed = NOTHING
    for one in given_:
        taken = pushed.take(one)
        assert taken is not None
        pushed = taken
    found = pushed.numbers["key_group"]
    passing = [n for n in range(15) if all(MEANS[type(one)](n, one.value) for one in given_)]
    assert [n for n in range(15) if n in found] == passing
    within = found.within(range(2, 9))
    assert set(within) >= {n for n in passing if 2 <= n < 9}
    if within:
        assert 2 <= within.start < within.stop <= 9
        assert within.start in found
        assert within.stop - 1 in found


def test_names_are_chosen_by_equality_and_in() -> None:
    pushed = NOTHING.take(In(NAME, ("a", "b")))
    assert pushed is not None
    assert [name for name in "abc" if pushed.passes("state", name)] == ["a", "b"]
    pushed = pushed.take(EqualTo(NAME, "b"))
    assert pushed is not None
    assert [name for name in "abc" if pushed.passes("state", name)] == ["b"]


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("key",), "a"), EqualTo(("state", "x"), "a"), Not(EqualTo(NAME, "a")), IsNotNull(NAME), IsNotNull(N),
        StringStartsWith(NAME, "a"), GreaterThan(NAME, "a"), EqualTo(N, 1.5), EqualTo(N, True), In(N, (1, None)),
        EqualTo(NAME, None),
    ],
)  # fmt: skip
def test_what_is_not_understood_exactly_is_left_to_spark(one: Filter) -> None:
    assert NOTHING.take(one) is None


@pytest.mark.parametrize(("text", "passing"), [("3", [3]), ("2-4", [2, 3, 4]), ("7-", [7, 8, 9]), ("4-2", [])])
def test_an_option_is_a_number_or_two(text: str, passing: list[int]) -> None:
    assert [n for n in range(10) if n in Numbers.parse(text)] == passing


@pytest.mark.parametrize("text", ["", "a", "-3", "1-b", "1,2"])
def test_an_option_that_is_no_number_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        Numbers.parse(text)
