"""Conformance of `MapState` (see conftest.py for the ways of life)."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.jobs.keyed_job import KeyedJob
from tests.jobs.living_job import MAP, LivingJob
from varvite.changelog.api.descriptors import MapStateDescriptor
from varvite.changelog.api.time_spans import Time
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.changelog.keyed.overlays.map import MapOverlay
from varvite.changelog.types.factory import Types
from varvite.changelog.working_stores.rocksdb.database import Database
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def test_map_state(job: LivingJob) -> None:
    state = job.at("a", MAP)
    assert (state.get(1), state.contains(1), state.is_empty(), list(state)) == (None, False, True, [])
    state.put(1, "1")
    state[2] = "2"
    state.put_all({3: "3", 4: "4"})
    job.at("b", MAP).put(1, "other")
    job.step()
    state = job.at("a", MAP)
    assert (state[1], state.get(2), 3 in state, 5 in state, state[5]) == ("1", "2", True, False, None)
    state.remove(1)
    del state[2]
    state.put(3, "three")
    job.step()
    state = job.at("a", MAP)
    assert sorted(state.items()) == [(3, "three"), (4, "4")]
    assert (sorted(state.keys()), sorted(state.values()), sorted(state)) == ([3, 4], ["4", "three"], [3, 4])
    assert job.at("b", MAP).items() == [(1, "other")]


def test_removing_a_missing_entry_is_no_error(job: LivingJob) -> None:
    job.at("a", MAP).remove(1)
    del job.at("a", MAP)[2]
    job.at("a", MAP).put(3, "x")
    job.step()
    job.at("a", MAP).remove(1)
    job.at("a", MAP).clear()
    job.at("a", MAP).remove(3)
    job.step()
    assert job.at("a", MAP).is_empty()


def test_clearing_a_map_and_filling_it_again(job: LivingJob) -> None:
    job.at("a", MAP).put_all({1: "1", 2: "2"})
    job.step()
    state = job.at("a", MAP)
    state.put(3, "3")
    state.clear()
    assert (state.is_empty(), state.contains(1), state.get(3), state.items()) == (True, False, None, [])
    state.put(2, "two")
    state.put(4, "4")
    state.remove(4)
    job.step()
    assert job.at("a", MAP).items() == [(2, "two")]
    job.at("a", MAP).clear()
    job.step()
    assert (job.at("a", MAP).is_empty(), job.at("a", MAP).get(2)) == (True, None)


def test_null_map_values_are_entries(job: LivingJob) -> None:
    job.at("a", MAP).put(1, None)
    job.at("a", MAP).put_all({2: None, 3: "3"})
    job.step()
    state = job.at("a", MAP)
    assert (state.contains(1), state.get(1), 1 in state, state.is_empty()) == (True, None, True, False)
    assert sorted(state.items()) == [(1, None), (2, None), (3, "3")]
    state.put(3, None)
    state.remove(2)
    job.step()
    state = job.at("a", MAP)
    assert sorted(state.items()) == [(1, None), (3, None)]
    assert state.values() == [None, None]
    state.put(1, "1")
    job.step()
    assert job.at("a", MAP).get(1) == "1"


def test_a_map_may_be_changed_while_it_is_iterated(job: LivingJob) -> None:
    job.at("a", MAP).put_all({i: str(i) for i in range(10)})
    job.step()
    state = job.at("a", MAP)
    state.put(10, "10")
    for key in state:
        if key % 2:
            state.remove(key)
        else:
            state.put(key + 100, "new")
    job.step()
    expected = [key for key in range(11) if key % 2 == 0]
    assert sorted(job.at("a", MAP).keys()) == expected + [key + 100 for key in expected]


def test_is_empty_follows_every_change(job: LivingJob) -> None:
    job.at("a", MAP).put(1, "1")
    job.step()
    assert not job.at("a", MAP).is_empty()
    job.at("a", MAP).remove(1)
    assert job.at("a", MAP).is_empty()
    job.step()
    assert job.at("a", MAP).is_empty()
    job.at("a", MAP).put(1, None)
    assert not job.at("a", MAP).is_empty()


def test_is_empty_is_what_the_entries_say(job: LivingJob) -> None:
    """Values that were put, removed and cleared before and after a cut, a commit or a crash."""
    rng = random.Random(3)
    seen: set[bool] = set()
    for _ in range(200):
        state = job.at("a", MAP)
        if rng.random() < 0.1:
            state.clear()
        key = rng.randrange(3)
        if rng.random() < 0.4:
            state.put(key, rng.choice([None, "x"]))
        else:
            state.remove(key)
        assert state.is_empty() == (not state.keys())
        seen.add(state.is_empty())
        if rng.random() < 0.3:
            job.step()
    assert seen == {True, False}


@pytest.mark.parametrize("with_ttl", [False, True])
@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
def test_is_empty_reads_no_whole_map(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, with_ttl: bool
) -> None:
    """A map of 300,000 entries took half a second each time; Flink's looks for one entry."""
    described = MapStateDescriptor("entries", "bigint", "string")
    if with_ttl:
        described.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    read: list[bytes] = []
    scan = Database.scan

    def counted(database: Database, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for row, value in scan(database, start, end):
            read.append(row)
            yield row, value

    job = KeyedJob(kind, "on", tmp_path)
    state = job.at("a", described)
    for key in range(1000):
        state.put(key, "x")
    job.commit()
    state = job.at("a", described)
    state.remove(0)
    monkeypatch.setattr(Database, "scan", counted)
    monkeypatch.setattr(MapOverlay, "entries", None)
    assert not state.is_empty()
    assert len(read) <= 2
    job.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda state: state.put("1", "x"),
        lambda state: state.put(None, "x"),
        lambda state: state.put(1, 5),
        lambda state: state.put_all({1: "x", 2: 2}),
        lambda state: state.put_all([(1, "x")]),
        lambda state: state.get("1"),
        lambda state: state.remove(2**70),
        lambda state: "1" in state,
    ],
    ids=["key", "null key", "value", "one of all", "no dict", "get", "remove", "contains"],
)
def test_wrong_entries_are_refused_and_none_is_put(job: LivingJob, call: Callable[[Any], Any]) -> None:
    job.at("a", MAP).put(9, "9")
    job.step()
    with pytest.raises(InvalidRequestError, match="state 'map'"):
        call(job.at("a", MAP))
    job.step()
    assert job.at("a", MAP).items() == [(9, "9")]


def test_map_keys_and_values_of_composite_types(job: LivingJob) -> None:
    pair = Types.TUPLE(["string", "double"])
    descriptor = MapStateDescriptor("m", pair, Types.LIST("int"))
    state = job.at("k", descriptor)
    state.put(("a", math.nan), [1])
    state.put(("a", 0.0), [2])
    state.put((None, None), None)
    job.step()
    state = job.at("k", descriptor)
    assert state.get(("a", math.nan)) == [1], "every NaN is the same key"
    assert state.get(("a", -0.0)) == [2], "the zeros are the same key"
    assert state.contains((None, None))
    state.get(("a", 0.0)).append(3)
    job.step()
    assert job.at("k", descriptor).get(("a", 0.0)) == [2]
