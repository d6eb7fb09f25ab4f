from __future__ import annotations

import pytest

from varvite.materializer.ranges import RangeKey
from varvite.materializer.service.sharing import (
    DEAD_AFTER_MS,
    FORGOTTEN_AFTER_MS,
    HEARTBEAT_MS,
    Membership,
    beat,
    leave,
    owner,
)
from varvite.storage.format import layout
from varvite.storage.object_stores.memory import MemoryStore

RANGES = [RangeKey("job", "op", low, low + 1) for low in range(200)]


def test_every_range_has_exactly_one_owner_and_the_work_is_spread() -> None:
    members = ("a", "b", "c")
    owners = [owner(key, members) for key in RANGES]
    assert all(40 < owners.count(member) < 95 for member in members)


def test_only_the_ranges_of_a_member_that_left_move() -> None:
    before = {key: owner(key, ("a", "b", "c")) for key in RANGES}
    after = {key: owner(key, ("a", "c")) for key in RANGES}
    assert all(after[key] == before[key] for key in RANGES if before[key] != "b")


def test_a_silent_member_loses_its_ranges_and_a_moving_one_does_not() -> None:
    member = Membership("a").observe({"b": 7, "c": 1}, 0)
    assert sorted(member.alive(0)) == ["a", "b", "c"]
    member = member.observe({"b": 7, "c": 2}, DEAD_AFTER_MS)
    assert sorted(member.alive(DEAD_AFTER_MS)) == ["a", "c"]
    assert member.forgotten(FORGOTTEN_AFTER_MS) == ("b",)


def test_a_member_that_comes_back_is_alive_again() -> None:
    member = Membership("a").observe({"b": 7}, 0).observe({"b": 7}, DEAD_AFTER_MS).observe({"b": 8}, DEAD_AFTER_MS + 1)
    assert sorted(member.alive(DEAD_AFTER_MS + 2)) == ["a", "b"]


def test_heartbeats_are_due_regularly() -> None:
    member = Membership("a")
    assert member.is_due(0)
    member = member.observe({}, 0)
    assert not member.is_due(HEARTBEAT_MS - 1)
    assert member.is_due(HEARTBEAT_MS)


def test_members_find_each_other_through_the_store_and_leave_it() -> None:
    store = MemoryStore()
    a, b = Membership("a"), Membership("b")
    a = beat(store, a, 0)
    b = beat(store, b, 0)
    a = beat(store, a, 1_000)
    assert sorted(a.alive(1_000)) == sorted(b.alive(1_000)) == ["a", "b"]
    assert sum(a.owns(key, 1_000) for key in RANGES) + sum(b.owns(key, 1_000) for key in RANGES) == len(RANGES)
    leave(store, a)
    b = beat(store, b, 2_000)
    assert b.alive(2_000) == ("b",)


@pytest.mark.parametrize("after_ms", [FORGOTTEN_AFTER_MS])
def test_the_object_of_a_forgotten_member_is_deleted(after_ms: int) -> None:
    store = MemoryStore()
    beat(store, Membership("dead"), 0)
    a = beat(store, Membership("a"), 0)
    beat(store, a, after_ms)
    assert [meta.name for meta in store.list(layout.MEMBERS)] == [layout.member("a")]


def test_a_damaged_member_object_is_passed_over() -> None:
    store = MemoryStore()
    store.put(layout.member("broken"), b"not a frame")
    a = beat(store, Membership("a"), 0)
    assert a.alive(0) == ("a",)
