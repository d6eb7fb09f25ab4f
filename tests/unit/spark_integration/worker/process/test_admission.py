"""Requests that a state worker executes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.state_worker_setup import task_request
from varvite.spark_integration.worker.process.admission import Seen, judge, number_of, supersedes

NUMBERS = st.fixed_dictionaries(
    {
        "epoch": st.integers(1, 3),
        "slot": st.integers(1, 3),
        "attempt": st.integers(0, 2),
        "task_attempt": st.integers(0, 3),
        "operator": st.sampled_from(["a", "b"]),
    }
)


def test_the_first_request_is_admitted() -> None:
    assert judge(Seen(), task_request()).refused is None


@pytest.mark.parametrize(
    ("late", "reason"),
    [({"epoch": 4, "slot": 9}, "newer run"), ({"slot": 6}, "slot 7"), ({"attempt": 0}, "attempt 1"), ({}, None)],
)
def test_a_request_below_the_highest_seen_is_refused_with_a_reason(late: dict[str, int], reason: str | None) -> None:
    current = {"epoch": 5, "slot": 7, "attempt": 1}
    seen = judge(Seen(), task_request(**current)).seen
    refused = judge(seen, task_request(**{**current, **late})).refused
    assert refused is None if reason is None else refused is not None and reason in refused


def test_task_attempts_are_compared_within_one_operator_and_one_attempt_only() -> None:
    seen = judge(Seen(), task_request(task_attempt=5, operator="a")).seen
    assert judge(seen, task_request(task_attempt=4, operator="a")).refused is not None
    assert judge(seen, task_request(task_attempt=4, operator="b")).refused is None
    assert judge(seen, task_request(task_attempt=4, operator="a", attempt=1)).refused is None


def test_operators_of_one_attempt_do_not_supersede_each_other() -> None:
    first, second = task_request(task_attempt=1, operator="a"), task_request(task_attempt=2, operator="b")
    assert not supersedes(second, first)
    assert supersedes(task_request(task_attempt=2, operator="a"), first)
    assert supersedes(task_request(operator="b", slot=3), first)


@given(st.lists(NUMBERS, max_size=12))
def test_what_is_admitted_never_goes_back(requests: list[dict[str, int]]) -> None:
    """Over any arrivals: numbers of admitted requests only rise, and within one attempt so do an operator's tasks."""
    seen = Seen()
    admitted = []
    for request in requests:
        task = task_request(**request)
        seen, refused = judge(seen, task)
        if refused is None:
            admitted.append(task)
    numbers = [number_of(t) for t in admitted]
    assert numbers == sorted(numbers)
    for older, newer in itertools.combinations(admitted, 2):
        same = number_of(older) == number_of(newer) and older.batch.operator.operator == newer.batch.operator.operator
        assert not same or older.task_attempt <= newer.task_attempt


@given(NUMBERS, NUMBERS)
def test_of_two_admitted_requests_at_most_the_earlier_is_superseded(
    first: dict[str, int], second: dict[str, int]
) -> None:
    older, newer = task_request(**first), task_request(**second)
    verdict = judge(judge(Seen(), older).seen, newer)
    if verdict.refused is None and number_of(older) != number_of(newer):
        assert supersedes(newer, older)
        assert not supersedes(older, newer)
