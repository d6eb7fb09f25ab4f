"""Random lives of a job: whatever is done to its states, they equal plain dicts, also after commits, drops and crashes.

One machine per working store and per setting of the changelog. The model keeps what is committed and what is visible;
a drop or a crash makes the visible state the committed one again.
"""

from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.jobs.keyed_job import Changelog, KeyedJob
from tests.stores.working_stores import KINDS
from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.api.functions import AggregateFunction
from varvite.changelog.types.factory import Types
from varvite.storage.private_directories import TemporaryDirectory

KEYS = st.sampled_from([None, "a", "ab", "ключ"])
"""Few keys, so that most accesses meet what earlier ones left."""
NUMBERS = st.integers(-(2**40), 2**40)
MAP_KEYS = st.sampled_from([("x", 0), ("xy", 0), (None, None)])
MAP_VALUES = st.none() | st.lists(st.integers(0, 9), max_size=2)


class Collect(AggregateFunction[int, dict[str, int], list[tuple[str, int]]]):
    """Counts values by their last digit, in an accumulator that is changed in place."""

    def create_accumulator(self) -> dict[str, int]:
        return {}

    def add(self, value: int, accumulator: dict[str, int]) -> dict[str, int]:
        digit = str(abs(value) % 10)
        accumulator[digit] = accumulator.get(digit, 0) + 1
        return accumulator

    def get_result(self, accumulator: dict[str, int]) -> list[tuple[str, int]]:
        return sorted(accumulator.items())

    def merge(self, acc_a: dict[str, int], acc_b: dict[str, int]) -> dict[str, int]:
        return {digit: acc_a.get(digit, 0) + acc_b.get(digit, 0) for digit in acc_a | acc_b}


VALUE = ValueStateDescriptor("value", Types.TUPLE(["bigint", "double"]))
ITEMS = ListStateDescriptor("items", Types.LIST("bigint"))
MAP = MapStateDescriptor("map", Types.TUPLE(["string", "int"]), "array<int>")
SUM = ReducingStateDescriptor("sum", lambda a, b: a + b, "bigint")
DIGITS = AggregatingStateDescriptor("digits", Collect(), "map<string,int>")


class Model:
    """States of all keys."""

    def __init__(self) -> None:
        self.value: dict[str | None, Any] = {}
        self.items: dict[str | None, list[Any]] = {}
        self.map: dict[str | None, dict[Any, Any]] = {}
        self.sum: dict[str | None, int] = {}
        self.digits: dict[str | None, list[int]] = {}


class StateMachine(RuleBasedStateMachine):
    """The rules; subclasses say which store and which setting."""

    kind: str
    changelog: Changelog

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.job = KeyedJob(self.kind, self.changelog, self.resources.enter_context(TemporaryDirectory("test")))
        self.seen = Model()
        self.committed = Model()
        self.keys: set[str | None] = set()

    @initialize(number=NUMBERS)
    def first_batch(self, number: int) -> None:
        """Not every life begins with the empty state."""
        self.add("a", number)
        self.commit()

    # --- states ---

    @rule(key=KEYS, value=st.none() | st.tuples(NUMBERS, st.floats(allow_nan=False)))
    def update(self, key: str | None, value: Any) -> None:
        self.keys.add(key)
        self.job.at(key, VALUE).update(value)
        if value is None:
            self.seen.value.pop(key, None)
        else:
            self.seen.value[key] = value

    @rule(key=KEYS, lists=st.lists(st.lists(NUMBERS, max_size=2), max_size=3), replace=st.booleans())
    def extend(self, key: str | None, lists: list[list[int]], replace: bool) -> None:
        self.keys.add(key)
        if replace:
            self.job.at(key, ITEMS).update(lists)
            self.seen.items[key] = copy.deepcopy(lists)
        else:
            self.job.at(key, ITEMS).add_all(lists)
            self.seen.items.setdefault(key, []).extend(copy.deepcopy(lists))
        for element in lists:
            element.append(0)  # what was given does not alias state

    @rule(key=KEYS, element=st.lists(NUMBERS, max_size=2))
    def append(self, key: str | None, element: list[int]) -> None:
        self.keys.add(key)
        self.job.at(key, ITEMS).add(element)
        self.seen.items.setdefault(key, []).append(list(element))

    @rule(key=KEYS, map_key=MAP_KEYS, value=MAP_VALUES)
    def put(self, key: str | None, map_key: Any, value: Any) -> None:
        self.keys.add(key)
        self.job.at(key, MAP)[map_key] = value
        self.seen.map.setdefault(key, {})[map_key] = value

    @rule(key=KEYS, entries=st.dictionaries(MAP_KEYS, MAP_VALUES, max_size=3))
    def put_all(self, key: str | None, entries: dict[Any, Any]) -> None:
        self.keys.add(key)
        self.job.at(key, MAP).put_all(entries)
        self.seen.map.setdefault(key, {}).update(copy.deepcopy(entries))

    @rule(key=KEYS, map_key=MAP_KEYS)
    def remove(self, key: str | None, map_key: Any) -> None:
        self.keys.add(key)
        del self.job.at(key, MAP)[map_key]
        self.seen.map.get(key, {}).pop(map_key, None)

    @rule(key=KEYS, number=NUMBERS)
    def add(self, key: str | None, number: int) -> None:
        self.keys.add(key)
        self.job.at(key, SUM).add(number)
        self.job.at(key, DIGITS).add(number)
        self.seen.sum[key] = self.seen.sum.get(key, 0) + number
        self.seen.digits.setdefault(key, []).append(number)

    @rule(key=KEYS, which=st.sets(st.sampled_from([VALUE, ITEMS, MAP, SUM, DIGITS]), min_size=1))
    def clear(self, key: str | None, which: set[Any]) -> None:
        for descriptor in which:
            self.job.at(key, descriptor).clear()
            getattr(self.seen, descriptor.name).pop(key, None)

    @rule(which=st.sampled_from([VALUE, ITEMS, MAP, SUM, DIGITS]))
    def remove_state(self, which: Any) -> None:
        """Of every key at once."""
        self.job.backend.remove_state(which.name)
        getattr(self.seen, which.name).clear()

    @rule(which=st.sampled_from([VALUE, ITEMS, MAP, SUM, DIGITS]))
    def redeploy_and_remove(self, which: Any) -> None:
        """New code, which has not asked for the state; what was not committed is lost."""
        self.job.redeploy()
        self.seen = copy.deepcopy(self.committed)
        self.remove_state(which)

    # --- life ---

    @rule()
    def cut(self) -> None:
        """A part of the batch leaves early; nothing that can be seen changes."""
        self.job.cut()

    @rule()
    def commit(self) -> None:
        self.job.commit()
        self.committed = copy.deepcopy(self.seen)

    @rule()
    def drop(self) -> None:
        self.job.drop()
        self.seen = copy.deepcopy(self.committed)

    @rule(kind=st.none() | st.sampled_from(KINDS))
    def crash(self, kind: str | None) -> None:
        """The backend may be another one afterwards, but most often is this machine's own."""
        self.job.crash(kind or self.kind)
        self.seen = copy.deepcopy(self.committed)

    @precondition(lambda self: self.changelog == "on")
    @rule()
    def materialize(self) -> None:
        """Also while changes are pending: a snapshot holds what is confirmed."""
        self.job.materialize()

    # --- what must hold ---

    @invariant()
    def every_key_reads_as_the_model_says(self) -> None:
        job, seen = self.job, self.seen
        for key in sorted(self.keys, key=repr):
            assert job.at(key, VALUE).value() == seen.value.get(key)
            assert job.at(key, ITEMS).get() == seen.items.get(key, [])
            entries = job.at(key, MAP)
            assert dict(entries.items()) == seen.map.get(key, {})
            assert entries.is_empty() == (not seen.map.get(key))
            for map_key in [*seen.map.get(key, {}), ("no", 0)]:
                assert entries.contains(map_key) == (map_key in seen.map.get(key, {}))
                assert entries.get(map_key) == seen.map.get(key, {}).get(map_key)
            assert job.at(key, SUM).get() == seen.sum.get(key)
            assert job.at(key, DIGITS).get() == _digits(seen.digits.get(key))

    @invariant()
    def the_keys_of_every_state_are_known(self) -> None:
        for descriptor in (VALUE, ITEMS, MAP, SUM, DIGITS):
            self.job.handle(descriptor)
            held: dict[str | None, Any] = getattr(self.seen, descriptor.name)
            expected = [key for key, value in held.items() if value or descriptor in (VALUE, SUM, DIGITS)]
            found = list(self.job.backend.get_keys(descriptor.name))
            assert sorted(found, key=repr) == sorted(expected, key=repr)

    def teardown(self) -> None:
        self.job.close()
        self.resources.close()


def _digits(numbers: list[int] | None) -> list[tuple[str, int]] | None:
    """Result of `Collect` for these numbers."""
    if numbers is None:
        return None
    collect, accumulator = Collect(), Collect().create_accumulator()
    for number in numbers:
        accumulator = collect.add(number, accumulator)
    return collect.get_result(accumulator)


def _test_case(kind_: str, changelog_: Changelog, examples: int) -> Any:
    class Machine(StateMachine):
        kind = kind_
        changelog = changelog_

    case = Machine.TestCase
    case.settings = settings(max_examples=examples, stateful_step_count=40)
    return case


TestHashMapWithChangelog = _test_case("hashmap", "on", 40)
TestHashMapWithoutChangelog = _test_case("hashmap", "off", 25)
TestRocksDBWithChangelog = _test_case("rocksdb", "on", 40)
TestRocksDBWithoutChangelog = _test_case("rocksdb", "off", 25)
TestSQLiteWithChangelog = _test_case("sqlite", "on", 20)
