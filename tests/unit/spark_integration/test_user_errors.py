"""How what a function raises in a state worker reaches the user."""

from __future__ import annotations

import pytest

from tests.state_worker_setup import filled
from varve.spark_integration.operator_runner import user_error
from varve.spark_integration.summary import Summary
from varve.spark_integration.user_errors import user_function_error
from varve.storage.errors import IncompatibleError, UserFunctionError


def raised(error: Exception, key: str | None) -> Exception:
    summary = filled(Summary, operator="sums", partition=3, error=user_error(error, key))
    return user_function_error(summary, "job", 7)


def test_state_that_is_declared_otherwise_than_stored_is_raised_as_it_is() -> None:
    found = raised(IncompatibleError("declared otherwise", operator="sums"), None)
    assert isinstance(found, IncompatibleError)
    assert found.message == "declared otherwise"
    assert found.context == {"operator": "sums", "job": "job", "partition": 3, "batch": 7}


@pytest.mark.parametrize(
    ("error", "key"), [(IncompatibleError("a value cannot be loaded"), "'a'"), (ArithmeticError("unlucky"), None)]
)
def test_everything_else_is_an_error_of_the_function_with_its_cause(error: Exception, key: str | None) -> None:
    found = raised(error, key)
    assert isinstance(found, UserFunctionError)
    assert str(error) in found.message
    assert type(found.__cause__) is type(error)
    assert (f"at key {key}" in found.message) == (key is not None)
