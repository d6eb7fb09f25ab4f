"""Conformance of states with TTL, in the manner of Flink's TtlStateTestBase (see conftest.py for the ways of life)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.contract.keyed_state.ttl.states import TTL_MS, average, entries, items, total, ttl, value
from tests.jobs.living_job import PENDING, LivingJob
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.storage.errors import InvalidRequestError

WRITE = ttl().build()
READ = ttl().update_ttl_on_read_and_write().build()
SHOWN = ttl().return_expired_if_not_cleaned_up().disable_cleanup_in_background().build()


class Kind:
    """Writing and reading of a kind of state, the same for all."""

    def __init__(self, name: str, descriptor: Any, write: Any, read: Any, written: Any, empty: Any) -> None:
        self.name, self.descriptor, self._write, self._read = name, descriptor, write, read
        self.written, self.empty = written, empty

    def write(self, job: LivingJob, config: StateTtlConfig | None, key: str = "k") -> None:
        self._write(job.at(key, self.descriptor(config)))

    def read(self, job: LivingJob, config: StateTtlConfig | None, key: str = "k") -> Any:
        return self._read(job.at(key, self.descriptor(config)))


ALL = [
    Kind("value", value, lambda s: s.update("v"), lambda s: s.value(), "v", None),
    Kind("list", items, lambda s: s.update([1, 2]), lambda s: s.get(), [1, 2], []),
    Kind("map", entries, lambda s: s.put("a", [1]), lambda s: dict(s.items()), {"a": [1]}, {}),
    Kind("null map value", entries, lambda s: s.put("n", None), lambda s: dict(s.items()), {"n": None}, {}),
    Kind("map entry", entries, lambda s: s.put("a", [1]), lambda s: s.get("a"), [1], None),
    Kind("map key", entries, lambda s: s.put("a", None), lambda s: "a" in s, True, False),
    Kind("reducing", total, lambda s: s.add(3), lambda s: s.get(), 3, None),
    Kind("aggregating", average, lambda s: s.add(4), lambda s: s.get(), 4.0, None),
]
of_all_kinds = pytest.mark.parametrize("state", ALL, ids=lambda state: state.name)


@of_all_kinds
def test_a_value_lives_exactly_as_long_as_its_ttl(job: LivingJob, state: Kind) -> None:
    assert state.read(job, WRITE) == state.empty
    job.move_time(50)
    state.write(job, WRITE)
    assert state.read(job, WRITE) == state.written
    job.step()
    job.move_time(50 + TTL_MS - 1)
    assert state.read(job, WRITE) == state.written
    job.step()
    job.move_time(50 + TTL_MS)
    assert state.read(job, WRITE) == state.empty
    job.step()
    assert state.read(job, WRITE) == state.empty


@pytest.mark.parametrize("config", [WRITE, SHOWN], ids=["hidden", "shown"])
def test_a_map_is_empty_if_it_has_no_entry_to_be_seen(job: LivingJob, config: StateTtlConfig) -> None:
    """Values that were put, removed, cleared or have expired before and after a cut, a commit or a crash."""
    rng = random.Random(5)
    seen: set[bool] = set()
    for number in range(300):
        state = job.at("k", entries(config))
        chance, name = rng.random(), rng.choice("abc")
        if chance < 0.3:
            state.put(name, rng.choice([None, [number]]))
        elif chance < 0.4:
            state.remove(name)
        elif chance < 0.45:
            state.clear()
        if rng.random() < 0.3:
            job.step()
            job.move_time((number + 1) * TTL_MS // 4)
            state = job.at("k", entries(config))
        is_empty = state.is_empty()
        if rng.random() < 0.7:
            assert is_empty == (not state.keys())
            seen.add(is_empty)
    assert seen == {True, False}


@of_all_kinds
def test_writing_begins_a_new_life(job: LivingJob, state: Kind) -> None:
    state.write(job, WRITE)
    job.step()
    job.move_time(TTL_MS)
    state.write(job, WRITE)
    job.step()
    job.move_time(2 * TTL_MS - 1)
    assert state.read(job, WRITE) == state.written
    job.step()
    job.move_time(2 * TTL_MS)
    assert state.read(job, WRITE) == state.empty


@of_all_kinds
def test_reading_renews_a_life_only_if_it_is_told_to(job: LivingJob, state: Kind) -> None:
    for key, config in (("write", WRITE), ("read", READ)):
        descriptor = state.descriptor(config)
        descriptor.name = key
        state._write(job.at("k", descriptor))
    job.step()
    for time_ms in (60, 120, 180):
        job.move_time(time_ms)
        for key, config in (("write", WRITE), ("read", READ)):
            descriptor = state.descriptor(config)
            descriptor.name = key
            expected = state.empty if key == "write" and time_ms > TTL_MS else state.written
            assert state._read(job.at("k", descriptor)) == expected
        job.step()


@of_all_kinds
def test_an_expired_value_is_shown_once_if_that_is_wanted(job: LivingJob, state: Kind) -> None:
    state.write(job, SHOWN)
    job.step()
    job.move_time(TTL_MS)
    assert state.read(job, SHOWN) == state.written
    assert state.read(job, SHOWN) == state.empty, "the read removed it"
    job.step()
    assert state.read(job, SHOWN) == state.empty


@of_all_kinds
def test_event_time(job: LivingJob, state: Kind) -> None:
    config = ttl().use_event_time().build()
    job.row.element_timestamp = 1000
    state.write(job, config)
    job.step()
    job.move_time(10**12)
    assert state.read(job, config) == state.written, "without a watermark nothing expires"
    job.step()
    job.move_time(10**12, 1000 + TTL_MS - 1)
    assert state.read(job, config) == state.written
    job.step()
    job.row.element_timestamp = 0
    job.move_time(10**12, 1000 + TTL_MS)
    assert state.read(job, config) == state.empty
    state.write(job, config)
    assert state.read(job, config) == state.written, "a late row is as old as the watermark"
    job.step()
    job.move_time(10**12, 1000 + 2 * TTL_MS)
    assert state.read(job, config) == state.empty


@of_all_kinds
def test_a_row_without_event_time_counts_by_the_watermark_or_by_processing_time(job: LivingJob, state: Kind) -> None:
    config = ttl().use_event_time().build()
    job.move_time(500)
    state.write(job, config, "early")
    job.step()
    job.move_time(500, 550)
    state.write(job, config)
    job.step()
    job.move_time(500, 599)
    assert [state.read(job, config, key) for key in ("early", "k")] == [state.written] * 2
    job.step()
    job.move_time(500, 600)
    assert [state.read(job, config, key) for key in ("early", "k")] == [state.empty, state.written]
    job.step()
    job.move_time(500, 650)
    assert state.read(job, config) == state.empty


def test_reading_in_event_time_renews_but_never_ages(job: LivingJob) -> None:
    state = value(ttl().use_event_time().update_ttl_on_read_and_write().build())
    job.row.element_timestamp = 1000
    job.at("k", state).update("v")
    job.row.element_timestamp = 10
    assert job.at("k", state).value() == "v"
    job.step()
    job.move_time(0, 1000 + TTL_MS - 1)
    job.row.element_timestamp = 1050
    assert job.at("k", state).value() == "v"
    job.step()
    job.move_time(0, 1000 + 2 * TTL_MS - 2)
    assert job.at("k", state).value() == "v"


def test_elements_of_a_list_expire_one_by_one(job: LivingJob) -> None:
    for time_ms in (0, 40, 80):
        job.move_time(time_ms)
        job.at("k", items(WRITE)).add(time_ms)
        job.step()
    seen = {}
    for time_ms in (99, 100, 139, 140, 179, 180):
        job.move_time(time_ms)
        seen[time_ms] = job.at("k", items(WRITE)).get()
        job.step()
    assert seen == {99: [0, 40, 80], 100: [40, 80], 139: [40, 80], 140: [80], 179: [80], 180: []}
    assert list(job.at("k", items(WRITE))) == []


def test_reading_a_list_renews_its_live_elements_only(job: LivingJob) -> None:
    job.at("k", items(READ)).add(1)
    job.step()
    job.move_time(60)
    job.at("k", items(READ)).add_all([2, 3])
    job.step()
    job.move_time(110)
    assert job.at("k", items(READ)).get() == [2, 3]
    job.step()
    job.move_time(209)
    assert job.at("k", items(READ)).get() == [2, 3]


def test_entries_of_a_map_expire_one_by_one(job: LivingJob) -> None:
    job.at("k", entries(WRITE)).put_all({"a": [1], "b": None})
    job.step()
    job.move_time(50)
    job.at("k", entries(WRITE)).put("b", [2])
    job.at("k", entries(WRITE)).put("c", None)
    job.step()
    job.move_time(100)
    state = job.at("k", entries(WRITE))
    assert sorted(state.keys()) == ["b", "c"]
    assert dict(state.items()) == {"b": [2], "c": None}
    assert sorted(state.values(), key=str) == [None, [2]]
    assert (state.contains("a"), state.contains("c"), state.get("b"), state.is_empty()) == (False, True, [2], False)
    job.step()
    job.move_time(150)
    state = job.at("k", entries(WRITE))
    assert state.is_empty(), "in Flink a map whose entries have all expired is not empty"
    assert list(state) == []


def test_reading_one_entry_renews_that_entry(job: LivingJob) -> None:
    job.at("k", entries(READ)).put_all({"a": [1], "b": [2]})
    job.step()
    job.move_time(60)
    assert job.at("k", entries(READ)).get("a") == [1]
    assert not job.at("k", entries(READ)).is_empty()
    job.step()
    job.move_time(120)
    assert dict(job.at("k", entries(READ)).items()) == {"a": [1]}


def test_what_has_expired_is_no_part_of_a_sum(job: LivingJob) -> None:
    job.at("k", total(WRITE)).add(1)
    job.at("k", average(WRITE)).add(1)
    job.step()
    job.move_time(60)
    job.at("k", total(WRITE)).add(2)
    job.at("k", average(WRITE)).add(2)
    job.step()
    job.move_time(159)
    assert (job.at("k", total(WRITE)).get(), job.at("k", average(WRITE)).get()) == (3, 1.5)
    job.step()
    job.move_time(160)
    job.at("k", total(WRITE)).add(5)
    job.at("k", average(WRITE)).add(5)
    job.step()
    assert (job.at("k", total(WRITE)).get(), job.at("k", average(WRITE)).get()) == (5, 5.0)


def test_an_expired_sum_goes_on_while_it_can_be_seen(job: LivingJob) -> None:
    job.at("k", total(SHOWN)).add(1)
    job.step()
    job.move_time(TTL_MS)
    job.at("k", total(SHOWN)).add(2)
    job.step()
    assert job.at("k", total(SHOWN)).get() == 3


@of_all_kinds
def test_what_is_cleared_is_gone(job: LivingJob, state: Kind) -> None:
    state.write(job, WRITE)
    job.step()
    job.at("k", state.descriptor(WRITE)).clear()
    assert state.read(job, WRITE) == state.empty
    job.step()
    assert state.read(job, WRITE) == state.empty
    state.write(job, WRITE)
    job.step()
    assert state.read(job, WRITE) == state.written


def test_none_means_what_it_means_without_ttl(job: LivingJob) -> None:
    job.at("k", value(WRITE)).update("v")
    job.at("k", value(WRITE)).update(None)
    job.at("k", total(WRITE)).add(1)
    job.at("k", total(WRITE)).add(None)
    job.at("k", average(WRITE)).add(1)
    job.at("k", average(WRITE)).add(None)
    job.step()
    found = [job.at("k", value(WRITE)).value(), job.at("k", total(WRITE)).get(), job.at("k", average(WRITE)).get()]
    assert found == [None, None, None]
    del job.at("k", entries(WRITE))["never"]


def test_what_does_not_fit_is_refused_by_name(job: LivingJob) -> None:
    with pytest.raises(InvalidRequestError, match="state 'value'"):
        job.at("k", value(WRITE)).update(1)
    for wrong in ([None], [1, "x"], None, "12"):
        with pytest.raises(InvalidRequestError, match="state 'items'"):
            job.at("k", items(WRITE)).update(wrong)
        with pytest.raises(InvalidRequestError, match="state 'items'"):
            job.at("k", items(WRITE)).add_all(wrong)
    with pytest.raises(InvalidRequestError, match="state 'items'"):
        job.at("k", items(WRITE)).add(None)
    for wrong_map in (7, {"a": 7}, {1: [1]}):
        with pytest.raises(InvalidRequestError, match="state 'entries'"):
            job.at("k", entries(WRITE)).put_all(wrong_map)
    with pytest.raises(InvalidRequestError, match="state 'entries'"):
        job.at("k", entries(WRITE)).put("a", 7)
    job.step()
    assert job.at("k", items(WRITE)).get() == []
    assert job.at("k", entries(WRITE)).is_empty()


def test_a_function_that_returns_none_is_refused(job: LivingJob) -> None:
    state: Any = total(WRITE)
    state._reduce_function.reduce = lambda a, b: None
    job.at("k", state).add(1)
    with pytest.raises(InvalidRequestError, match=r"state 'total'.*returned None"):
        job.at("k", state).add(1)
    assert job.at("k", state).get() == 1


def test_changing_a_returned_object_changes_no_state(job: LivingJob) -> None:
    job.at("k", entries(READ)).put("a", [1])
    job.step()
    job.move_time(10)
    job.at("k", entries(READ)).get("a").append(2)
    job.at("k", entries(READ)).values()[0].append(2)
    job.step()
    assert job.at("k", entries(READ)).get("a") == [1]


def test_a_disabled_config_is_none(job: LivingJob) -> None:
    off = ttl().set_update_type(StateTtlConfig.UpdateType.Disabled).build()
    job.at("k", value(off)).update("v")
    job.step()
    job.move_time(10**15)
    assert job.at("k", value(off)).value() == "v"
    assert [schema.value_type for schema in job.backend.schemas] == ["1:string"]


def test_a_read_logs_a_new_life_once_per_batch(job: LivingJob) -> None:
    job.at("k", value(READ)).update("v")
    job.step()
    if job.life != PENDING:
        assert job.at("k", value(READ)).value() == "v"
        assert job.backend.changes() == [], "the stamp is this batch's already"
    job.move_time(10)
    for _ in range(3):
        assert job.at("k", value(READ)).value() == "v"
    [change] = job.backend.changes()
    assert change.values == [(10, "v")]
