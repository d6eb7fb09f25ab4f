"""Random lives of a job that accesses state by key and by batch of keys: it equals plain dicts, whatever is mixed."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.jobs.batch_keys import by_key, in_order_of, keys_of
from tests.jobs.keyed_job import Changelog, KeyedJob
from tests.stores.working_stores import KINDS
from varvite.changelog.api.descriptors import MapStateDescriptor, ValueStateDescriptor
from varvite.changelog.types.factory import Types
from varvite.storage.private_directories import TemporaryDirectory

ALL_KEYS = [None, "a", "ab", "b", "ключ"]
KEYS = st.sampled_from(ALL_KEYS)
PAIRS = st.tuples(st.integers(-(2**40), 2**40) | st.none(), st.floats(allow_nan=False))
NUMBERS = st.none() | st.integers(-9, 9)
NAMES = st.sampled_from(["", "x", "xy"])
VALUE = ValueStateDescriptor("value", Types.TUPLE(["bigint", "double"]))
MAP = MapStateDescriptor("map", "string", "bigint")


class Machine(RuleBasedStateMachine):
    """The rules; subclasses say which store and which setting."""

    kind: str
    changelog: Changelog

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.job = KeyedJob(self.kind, self.changelog, self.resources.enter_context(TemporaryDirectory("test")))
        self.seen: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})
        """Key → value; (key, map key) → value."""
        self.committed = copy.deepcopy(self.seen)

    @rule(key=KEYS, value=st.none() | PAIRS)
    def update(self, key: Any, value: Any) -> None:
        self.job.at(key, VALUE).update(value)
        self._set(key, value)

    @rule(values=st.dictionaries(KEYS, st.none() | PAIRS))
    def put_many(self, values: dict[Any, Any]) -> None:
        keys = keys_of(list(values))
        self.job.handle(VALUE).put_many(keys, VALUE.stored_type.to_arrow(in_order_of(keys, values)))
        for key, value in values.items():
            self._set(key, value)

    @rule(values=st.dictionaries(KEYS, st.none() | PAIRS, min_size=2))
    def commit_many(self, values: dict[Any, Any]) -> None:
        """A batch that sets columns and nothing else."""
        self.commit()
        self.put_many(values)
        self.commit()

    @rule(keys=st.lists(KEYS))
    def remove_many(self, keys: list[Any]) -> None:
        self.job.handle(VALUE).remove_many(keys_of(keys))
        for key in keys:
            self._set(key, None)

    @rule(entries=st.lists(st.tuples(KEYS, NAMES, NUMBERS), max_size=6))
    def put_entries(self, entries: list[tuple[Any, str, int | None]]) -> None:
        keys, names = self._pairs([entry[:2] for entry in entries])
        self.job.handle(MAP).put_many(keys, names, pa.array([value for *_, value in entries], pa.int64()))
        self.seen[1].update({(key, name): value for key, name, value in entries})

    @rule(pairs=st.lists(st.tuples(KEYS, NAMES), max_size=4))
    def remove_entries(self, pairs: list[tuple[Any, str]]) -> None:
        self.job.handle(MAP).remove_many(*self._pairs(pairs))
        for pair in pairs:
            self.seen[1].pop(pair, None)

    @rule(key=KEYS)
    def clear_map(self, key: Any) -> None:
        self.job.at(key, MAP).clear()
        for pair in [pair for pair in self.seen[1] if pair[0] == key]:
            del self.seen[1][pair]

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
        self.job.crash(kind or self.kind)
        self.seen = copy.deepcopy(self.committed)

    @precondition(lambda self: self.changelog == "on")
    @rule()
    def materialize(self) -> None:
        self.job.materialize()

    @rule(keys=st.lists(KEYS, min_size=1))
    def read_values(self, keys: list[Any]) -> None:
        """As a rule, so that columns may stay columns until the batch ends."""
        many = keys_of(keys)
        expected = {key: self.seen[0].get(key) for key in keys}
        found = VALUE.stored_type.from_arrow(self.job.handle(VALUE).get_many(many))
        assert dict(zip(many.stored, found, strict=True)) == expected

    @rule(key=KEYS)
    def read_value(self, key: Any) -> None:
        assert self.job.at(key, VALUE).value() == self.seen[0].get(key)

    @rule()
    def list_keys(self) -> None:
        self.job.handle(VALUE)
        assert sorted(self.job.backend.get_keys("value"), key=repr) == sorted(self.seen[0], key=repr)

    @invariant()
    def entries_are_as_the_model_says(self) -> None:
        pairs = [(key, name) for key in ALL_KEYS for name in ("", "x", "xy")]
        found = self.job.handle(MAP).get_many(*self._pairs(pairs)).to_pylist()
        assert found == [self.seen[1].get(pair) for pair in pairs]
        for key in ALL_KEYS:
            entries = {name: value for (owner, name), value in self.seen[1].items() if owner == key}
            assert dict(self.job.at(key, MAP).items()) == entries

    def teardown(self) -> None:
        many = keys_of(ALL_KEYS)
        found = by_key(many, self.job.handle(VALUE).get_many(many))
        assert {key for key, value in found.items() if value is not None} == set(self.seen[0])
        self.job.close()
        self.resources.close()

    def _set(self, key: Any, value: Any) -> None:
        if value is None:
            self.seen[0].pop(key, None)
        else:
            self.seen[0][key] = value

    @staticmethod
    def _pairs(pairs: list[tuple[Any, str]]) -> Any:
        """(keys, map keys) for the methods of the map state, in order of the pairs."""
        every = keys_of([key for key, _ in pairs])
        return every.take(every.positions), pa.array([name for _, name in pairs], pa.string())


def _test_case(kind_: str, changelog_: Changelog) -> Any:
    class Case(Machine):
        kind = kind_
        changelog = changelog_

    case = Case.TestCase
    case.settings = settings(max_examples=25, stateful_step_count=30)
    return case


TestHashMapWithChangelog = _test_case("hashmap", "on")
TestHashMapWithoutChangelog = _test_case("hashmap", "off")
TestRocksDBWithChangelog = _test_case("rocksdb", "on")
TestRocksDBWithoutChangelog = _test_case("rocksdb", "off")
