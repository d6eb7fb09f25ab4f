"""Conformance of timers (see conftest.py for the ways of life)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.jobs.keyed_job import KeyedJob
from tests.jobs.living_job import CUT, CUT_LOG, PENDING, VALUE, LivingJob
from varvite.changelog.keyed.timers import KeyedTimers, TimeDomain
from varvite.changelog.types.factory import Types, as_type
from varvite.changelog.types.key_wire import key_writer
from varvite.storage.errors import IncompatibleError, InvalidRequestError

EVENT, PROCESSING = TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME
WINDOW = as_type(Types.TUPLE([Types.LONG(), Types.LONG()]))


def timers(job: KeyedJob, key: Any, domain: TimeDomain = EVENT) -> KeyedTimers:
    """The timers of a key."""
    job.set_key(key)
    return job.backend.get_timers("user-timers", domain)


def pop(job: KeyedJob, until_ms: int, domain: TimeDomain = EVENT) -> list[tuple[int, Any]]:
    """Fire everything that is due: (time, key)."""
    queue = job.backend.get_timers("user-timers", domain)
    found: list[tuple[int, Any]] = []
    while (due := queue.pop_due(until_ms)) is not None:
        found.append((due.timer.time_ms, due.timer.key))
    return found


def test_timers_fire_once_and_in_order_of_time(job: LivingJob) -> None:
    for time_ms in (30, 10, 20):
        timers(job, "a").register(time_ms)
    timers(job, "b").register(15)
    job.step()
    assert pop(job, 9) == []
    assert pop(job, 20) == [(10, "a"), (15, "b"), (20, "a")]
    job.step()
    assert pop(job, 29) == []
    assert pop(job, 30) == [(30, "a")]
    job.step()
    assert pop(job, 1000) == []


def test_a_timer_that_is_registered_twice_fires_once(job: LivingJob) -> None:
    for _ in range(3):
        timers(job, "a").register(5)
        timers(job, "a").register(5)
        job.step()
    assert pop(job, 5) == [(5, "a")]
    job.step()
    assert pop(job, 5) == []
    timers(job, "a").register(5)
    job.step()
    assert pop(job, 5) == [(5, "a")], "a timer that has fired may be registered again"


def test_a_deleted_timer_does_not_fire(job: LivingJob) -> None:
    for time_ms in (1, 2, 3):
        timers(job, "a").register(time_ms)
        timers(job, "b").register(time_ms)
    job.step()
    timers(job, "a").delete(2)
    timers(job, "a").delete(99)
    timers(job, "b").delete(3)
    timers(job, "b").register(3)
    timers(job, "c").register(7)
    timers(job, "c").delete(7)
    job.step()
    assert pop(job, 100) == [(1, "a"), (1, "b"), (2, "b"), (3, "a"), (3, "b")]


def test_timers_of_the_two_domains_have_nothing_to_do_with_each_other(job: LivingJob) -> None:
    timers(job, "a", EVENT).register(1)
    timers(job, "a", PROCESSING).register(1)
    timers(job, "a", PROCESSING).register(2)
    job.step()
    timers(job, "a", EVENT).delete(2)
    assert pop(job, 1, EVENT) == [(1, "a")]
    job.step()
    assert pop(job, 9, PROCESSING) == [(1, "a"), (2, "a")]


def test_times_are_signed_and_of_64_bits(job: LivingJob) -> None:
    edges = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]
    for time_ms in random.Random(1).sample(edges, len(edges)):
        timers(job, "a").register(time_ms)
    job.step()
    assert pop(job, -(2**63)) == [(-(2**63), "a")]
    assert pop(job, 0) == [(t, "a") for t in edges[1:4]]
    job.step()
    assert pop(job, 2**63 - 1) == [(t, "a") for t in edges[4:]]


def test_equal_times_of_many_keys_come_in_order_of_the_keys_bytes(job: LivingJob) -> None:
    keys = ["", "a", "ab", "b", "x" * 40, *[f"k{i}" for i in range(300)]]
    for key in random.Random(2).sample(keys, len(keys)):
        timers(job, key).register(7)
        timers(job, key).register(8)
    job.step()
    wire = key_writer(job.key_type)
    assert pop(job, 8) == [(t, key) for t in (7, 8) for key in sorted(keys, key=wire)]


def test_the_null_key_has_timers_like_any_other(job: LivingJob) -> None:
    timers(job, None).register(5)
    timers(job, "").register(5)
    timers(job, None).register(6)
    job.step()
    timers(job, None).delete(6)
    job.step()
    assert sorted(pop(job, 10), key=str) == [(5, ""), (5, None)]


def test_timers_that_are_registered_while_others_fire_fire_in_their_place(job: LivingJob) -> None:
    for time_ms in (10, 20, 30):
        timers(job, "a").register(time_ms)
    job.step()
    queue = job.backend.get_timers("user-timers", EVENT)
    fired = []
    while (due := queue.pop_due(30)) is not None:
        fired.append((due.timer.time_ms, due.timer.key))
        if fired == [(10, "a")]:
            for time_ms in (25, 5, 31, 20):  # between others, in the past, in the future, there already
                timers(job, "b").register(time_ms)
                timers(job, "a").register(time_ms)
            timers(job, "a").delete(30)
    assert fired == [(10, "a"), (5, "a"), (5, "b"), (20, "a"), (20, "b"), (25, "a"), (25, "b")]
    job.step()
    assert pop(job, 31) == [(31, "a"), (31, "b")]


def test_a_timer_may_register_itself_again(job: LivingJob) -> None:
    timers(job, "a").register(1)
    job.step()
    queue = job.backend.get_timers("user-timers", EVENT)
    for _ in range(5):
        due = queue.pop_due(1)
        assert due is not None
        timers(job, "a").register(1)
    timers(job, "a").delete(1)
    assert pop(job, 1) == []
    job.step()
    assert pop(job, 1) == []


def test_a_batch_that_is_dropped_leaves_the_timers_as_they_were(job: LivingJob) -> None:
    timers(job, "a").register(1)
    timers(job, "b").register(2)
    job.step()
    timers(job, "c").register(0)
    timers(job, "b").delete(2)
    assert pop(job, 5) == [(0, "c"), (1, "a")]
    job.drop()
    was_pending = job.life in (PENDING, CUT, CUT_LOG)
    assert pop(job, 5) == ([] if was_pending else [(1, "a"), (2, "b")])


def test_namespaces_divide_the_timers_of_a_key(job: LivingJob) -> None:
    def windows(key: str) -> KeyedTimers:
        job.set_key(key)
        return job.backend.get_timers("windows", EVENT, WINDOW)

    for window in ((0, 10), (5, 15), None):
        windows("a").register(9, window)
    windows("b").register(9, (0, 10))
    job.step()
    windows("a").delete(9, (5, 15))
    windows("b").delete(9, (5, 15))
    windows("a").register(8, (5, 15))
    job.step()
    queue, found = windows("a"), []
    while (due := queue.pop_due(9)) is not None:
        found.append(tuple(due.timer))
    assert found == [(8, "a", (5, 15)), (9, "a", (0, 10)), (9, "a", None), (9, "b", (0, 10))]


def test_keys_with_timers_are_listed(job: LivingJob) -> None:
    for key in ("a", "b", "c"):
        timers(job, key).register(1)
        timers(job, key).register(2)
    job.step()
    timers(job, "b").delete(1)
    timers(job, "b").delete(2)
    timers(job, "d").register(3)
    name = "_timer_state/event_user-timers"
    assert sorted(job.backend.get_keys(name)) == ["a", "c", "d"]


def test_timers_need_a_key_and_a_time(job: LivingJob) -> None:
    queue = timers(job, "a")
    for wrong in (1.5, "1", None, 2**63, -(2**63) - 1):
        with pytest.raises(InvalidRequestError, match="is no time"):
            queue.register(wrong)
        with pytest.raises(InvalidRequestError, match="is no time"):
            queue.delete(wrong)
    job.backend.drop()
    with pytest.raises(InvalidRequestError, match="no key is current"):
        queue.register(1)
    job.set_key("a")
    with pytest.raises(InvalidRequestError, match=r"_timer_state/event_windows"):
        job.backend.get_timers("windows", EVENT, WINDOW).register(1, "no window")
    with pytest.raises(InvalidRequestError, match="canonical bytes"):
        job.backend.get_timers("lists", EVENT, as_type(Types.LIST(Types.LONG())))


def test_other_namespaces_than_the_stored_ones_are_refused(job: LivingJob) -> None:
    timers(job, "a").register(1)
    job.at("a", VALUE).update("1")
    job.step()
    with pytest.raises((InvalidRequestError, IncompatibleError), match="user-timers"):
        job.backend.get_timers("user-timers", EVENT, WINDOW)
