"""Conformance of `ReducingState` and `AggregatingState` (see conftest.py for the ways of life)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.living_job import AVERAGE, COLLECT, SUM, LivingJob
from varvite.changelog.api.descriptors import AggregatingStateDescriptor, ReducingStateDescriptor
from varvite.changelog.api.functions import ReduceFunction
from varvite.storage.errors import InvalidRequestError


class Longest(ReduceFunction[str]):
    """The longer of two strings."""

    def reduce(self, value1: str, value2: str) -> str:
        return max(value1, value2, key=len)


def test_reducing_state(job: LivingJob) -> None:
    longest = ReducingStateDescriptor("longest", Longest(), "string")
    assert job.at("a", SUM).get() is None
    for number in (17, 11):
        job.at("a", SUM).add(number)
    job.at("b", SUM).add(1)
    job.at("a", longest).add("abc")
    job.step()
    assert (job.at("a", SUM).get(), job.at("b", SUM).get(), job.at("c", SUM).get()) == (28, 1, None)
    job.at("a", SUM).add(2)
    job.at("a", longest).add("x")
    job.at("b", SUM).clear()
    job.step()
    assert (job.at("a", SUM).get(), job.at("b", SUM).get(), job.at("a", longest).get()) == (30, None, "abc")
    job.at("b", SUM).add(5)
    job.step()
    assert job.at("b", SUM).get() == 5


def test_adding_none_clears_as_in_flink(job: LivingJob) -> None:
    job.at("a", SUM).add(1)
    job.at("a", AVERAGE).add(1)
    job.step()
    job.at("a", SUM).add(None)
    job.at("a", AVERAGE).add(None)
    assert (job.at("a", SUM).get(), job.at("a", AVERAGE).get()) == (None, None)
    job.step()
    assert (job.at("a", SUM).get(), job.at("a", AVERAGE).get()) == (None, None)


@pytest.mark.parametrize(
    ("descriptor", "two", "three"), [(AVERAGE, 14.0, 10.0), (COLLECT, "17,11", "17,11,2")], ids=["immutable", "mutable"]
)
def test_aggregating_state(job: LivingJob, descriptor: AggregatingStateDescriptor, two: Any, three: Any) -> None:
    assert job.at("a", descriptor).get() is None
    job.at("a", descriptor).add(17)
    job.at("a", descriptor).add(11)
    job.step()
    assert (job.at("a", descriptor).get(), job.at("a", descriptor).get()) == (two, two)
    job.at("a", descriptor).add(2)
    job.step()
    assert job.at("a", descriptor).get() == three
    job.at("a", descriptor).clear()
    assert job.at("a", descriptor).get() is None, "the function is not called for an empty state"
    job.step()
    assert job.at("a", descriptor).get() is None


def test_a_failing_function_leaves_the_state_as_it_was(job: LivingJob) -> None:
    def fail_on_three(a: int, b: int) -> int:
        if b == 3:
            raise ZeroDivisionError
        return a + b

    descriptor = ReducingStateDescriptor("sum", fail_on_three, "int")
    job.at("a", descriptor).add(1)
    job.step()
    with pytest.raises(ZeroDivisionError):
        job.at("a", descriptor).add(3)
    job.at("a", descriptor).add(4)
    job.step()
    assert job.at("a", descriptor).get() == 5


def test_a_function_that_returns_none_is_refused(job: LivingJob) -> None:
    descriptor = ReducingStateDescriptor("sum", lambda _a, _b: None, "int")
    job.at("a", descriptor).add(1)
    with pytest.raises(InvalidRequestError, match="returned None"):
        job.at("a", descriptor).add(2)
    job.step()
    assert job.at("a", descriptor).get() == 1
