"""Checks of the arguments of handles."""

from __future__ import annotations

from typing import Any

import pytest

from varvite.changelog.api.checks import check_dict, check_result, list_elements, state_error
from varvite.storage.errors import InvalidRequestError


def test_the_elements_of_a_list_are_those_of_any_iterable() -> None:
    values = [1, 2]
    elements = list_elements(values)
    assert elements == values
    assert elements is not values
    assert list_elements(iter("ab")) == ["a", "b"]
    assert list_elements(()) == []


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ("ab", "a list of values is needed, not 'ab'"),
        (b"ab", "a list of values is needed"),
        (None, "a list of values is needed"),
        ([1, None], "an element of a ListState cannot be None"),
    ],
)
def test_what_is_no_list_of_values_is_refused(values: Any, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        list_elements(values)


def test_put_all_needs_a_dict() -> None:
    check_dict({})
    with pytest.raises(InvalidRequestError, match="put_all needs a dict, not \\[1\\]"):
        check_dict([1])


def test_a_function_must_return_a_value() -> None:
    check_result(0, "add()")
    with pytest.raises(InvalidRequestError, match="add\\(\\) returned None; it must return a value"):
        check_result(None, "add()")


def test_an_error_names_state_and_operator() -> None:
    error = state_error("seen", "op", "is wrong")
    assert (error.message, error.context["operator"]) == ("state 'seen': is wrong", "op")
