"""Conformance of `ListState` (see conftest.py for the ways of life)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.jobs.living_job import LIST, LivingJob
from varvite.changelog.api.descriptors import ListStateDescriptor
from varvite.changelog.types.factory import Types
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable


def test_list_state(job: LivingJob) -> None:
    assert list(job.at("a", LIST).get()) == []
    job.at("a", LIST).add(1)
    job.at("b", LIST).add(10)
    job.step()
    job.at("a", LIST).add_all([2, 3])
    job.at("b", LIST).add(10)
    job.step()
    job.at("a", LIST).add(1)
    assert job.at("a", LIST).get() == list(job.at("a", LIST)) == [1, 2, 3, 1]
    job.step()
    assert [list(job.at(key, LIST).get()) for key in "abc"] == [[1, 2, 3, 1], [10, 10], []]


def test_list_update_replaces_and_clear_empties(job: LivingJob) -> None:
    job.at("a", LIST).add_all([1, 2, 3])
    job.at("b", LIST).add(7)
    job.step()
    job.at("a", LIST).add(4)
    job.at("a", LIST).update([9, 8])
    job.at("a", LIST).add(7)
    job.at("b", LIST).clear()
    job.step()
    assert (job.at("a", LIST).get(), job.at("b", LIST).get()) == ([9, 8, 7], [])
    job.at("a", LIST).update([])
    job.at("b", LIST).add(1)
    job.step()
    assert (job.at("a", LIST).get(), job.at("b", LIST).get()) == ([], [1])


def test_adding_no_values_changes_nothing(job: LivingJob) -> None:
    job.at("a", LIST).add_all([])
    assert job.backend.changes() == []
    job.at("a", LIST).add(1)
    job.at("a", LIST).add_all([])
    job.step()
    assert job.at("a", LIST).get() == [1]


@pytest.mark.parametrize(
    "call",
    [
        lambda state: state.add(None),
        lambda state: state.add_all(None),
        lambda state: state.add_all([3, None, 5]),
        lambda state: state.update(None),
        lambda state: state.update([None]),
        lambda state: state.update([1, "2"]),
        lambda state: state.add_all("12"),
    ],
    ids=["add null", "add all null", "add all null entries", "update null", "update null entries", "type", "text"],
)
def test_wrong_elements_are_refused_and_none_is_added(job: LivingJob, call: Callable[[Any], None]) -> None:
    job.at("a", LIST).add_all([1, 2])
    job.step()
    with pytest.raises(InvalidRequestError, match="state 'list'"):
        call(job.at("a", LIST))
    job.step()
    assert job.at("a", LIST).get() == [1, 2]


def test_the_error_says_that_none_is_no_element(job: LivingJob) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be None"):
        job.at("a", LIST).add(None)


def test_list_elements_are_taken_from_any_iterable(job: LivingJob) -> None:
    job.at("a", LIST).add_all(iter((1, 2)))
    job.at("a", LIST).add_all(range(3, 5))
    job.step()
    job.at("b", LIST).update(value for value in job.at("a", LIST).get())
    job.step()
    assert job.at("a", LIST).get() == [1, 2, 3, 4]


def test_list_elements_of_a_mutable_type(job: LivingJob) -> None:
    descriptor = ListStateDescriptor("bags", Types.MAP("string", "int"))
    bag = {"a": 1}
    job.at("k", descriptor).add(bag)
    bag["b"] = 2
    job.at("k", descriptor).add(bag)
    job.step()
    job.at("k", descriptor).get()[0]["c"] = 3
    assert job.at("k", descriptor).get() == [{"a": 1}, {"a": 1, "b": 2}]


def test_a_long_list_keeps_its_order(job: LivingJob) -> None:
    for part in range(4):
        for i in range(150):
            job.at("a", LIST).add(part * 150 + i)
        job.step()
    assert job.at("a", LIST).get() == list(range(600))
