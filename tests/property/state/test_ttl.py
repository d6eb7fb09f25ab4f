"""Random lives of states with TTL: they read as a plain model with stamps says, whatever is cleaned up when.

Time moves on, settings change, batches are committed, dropped, materialized and restored, also with another backend.
The model keeps what was written, with its stamp, and computes from scratch what has expired.
"""

from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.jobs.keyed_job import Changelog, KeyedJob
from tests.stores.working_stores import KINDS
from varvite.changelog.api.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.api.time_spans import Time
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.storage.private_directories import TemporaryDirectory

KEYS = st.sampled_from(["a", "ab", "c"])
MAP_KEYS = st.sampled_from(["x", "xy"])
NUMBERS = st.integers(-9, 9)
LONG_AGO = -(10**15)


class Model:
    """Stored state: per key a value, elements, entries, each `[stamp, value]`; and since when TTL counts."""

    def __init__(self) -> None:
        self.value: dict[str, list[Any]] = {}
        self.items: dict[str, list[list[Any]]] = {}
        self.map: dict[tuple[str, str], list[Any]] = {}
        self.ttl_ms: int | None = None
        self.stamped = False
        self.enabled_at = LONG_AGO

    def cells(self) -> list[list[Any]]:
        return [*self.value.values(), *(e for elements in self.items.values() for e in elements), *self.map.values()]

    def expire(self, now: int) -> None:
        """Forget what has expired: it never comes back."""
        if self.ttl_ms is None:
            return
        edge = now - self.ttl_ms

        def lives(cell: list[Any]) -> bool:
            return max(cell[0], self.enabled_at) > edge

        self.value = {key: cell for key, cell in self.value.items() if lives(cell)}
        self.items = {key: [cell for cell in cells if lives(cell)] for key, cells in self.items.items()}
        self.map = {key: cell for key, cell in self.map.items() if lives(cell)}

    def configure(self, ttl_ms: int | None, now: int) -> None:
        """TTL changes in the batch of this time."""
        self.expire(now)
        if ttl_ms is not None and self.ttl_ms is None:
            self.enabled_at = now
        self.ttl_ms = ttl_ms


class TtlMachine(RuleBasedStateMachine):
    """The rules; subclasses say which store and which setting."""

    kind: str
    changelog: Changelog
    cleanup: bool

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.job = KeyedJob(self.kind, self.changelog, self.resources.enter_context(TemporaryDirectory("test")))
        self.seen, self.committed = Model(), Model()
        self.now = self.committed_at = 0
        self.config: StateTtlConfig | None = None
        self.refreshes = False
        self.is_declared_only = False
        """The store has states that no committed batch has."""

    @initialize(ttl_ms=st.none() | st.just(10))
    def first_settings(self, ttl_ms: int | None) -> None:
        self._open(ttl_ms, refreshes=False)

    def _open(self, ttl_ms: int | None, *, refreshes: bool) -> None:
        """The function is opened with these settings in the current batch."""
        self.refreshes = refreshes and ttl_ms is not None
        self.config = None
        if ttl_ms is not None:
            build = StateTtlConfig.new_builder(Time.milliseconds(ttl_ms)).cleanup_full_snapshot()
            build.cleanup_in_rocksdb_compact_filter(2).cleanup_incrementally(2, True)
            if not self.cleanup:
                build = StateTtlConfig.new_builder(Time.milliseconds(ttl_ms)).disable_cleanup_in_background()
            if refreshes:
                build.update_ttl_on_read_and_write()
            self.config = build.build()
        self.seen.configure(ttl_ms, self.now)
        known = {schema.name for schema in self.job.backend.store.schemas}
        for state in (self.value_state, self.items_state, self.map_state):
            self.job.handle(state())
        self.is_declared_only = {schema.name for schema in self.job.backend.store.schemas} != known

    def _with_ttl(self, descriptor: StateDescriptor) -> StateDescriptor:
        if self.config is not None:
            descriptor.enable_time_to_live(self.config)
        return descriptor

    def value_state(self) -> StateDescriptor:
        return self._with_ttl(ValueStateDescriptor("value", "bigint"))

    def items_state(self) -> StateDescriptor:
        return self._with_ttl(ListStateDescriptor("items", "array<bigint>"))

    def map_state(self) -> StateDescriptor:
        return self._with_ttl(MapStateDescriptor("map", "string", "bigint"))

    # --- states ---

    @rule(key=KEYS, number=NUMBERS)
    def update(self, key: str, number: int) -> None:
        self.job.at(key, self.value_state()).update(number)
        self.seen.value[key] = [self.now, number]

    @rule(key=KEYS, number=NUMBERS)
    def add(self, key: str, number: int) -> None:
        self.job.at(key, self.items_state()).add([number])
        self.seen.items.setdefault(key, []).append([self.now, [number]])

    @rule(key=KEYS, map_key=MAP_KEYS, number=st.none() | NUMBERS)
    def put(self, key: str, map_key: str, number: int | None) -> None:
        self.job.at(key, self.map_state()).put(map_key, number)
        self.seen.map[key, map_key] = [self.now, number]

    @rule(key=KEYS)
    def clear(self, key: str) -> None:
        for state in (self.value_state, self.items_state, self.map_state):
            self.job.at(key, state()).clear()
        self.seen.value.pop(key, None)
        self.seen.items.pop(key, None)
        self.seen.map = {place: cell for place, cell in self.seen.map.items() if place[0] != key}

    @rule(key=KEYS)
    def read(self, key: str) -> None:
        """Reading renews lives if it is told to."""
        self.seen.expire(self.now)
        seen = self.seen
        entries = {m: cell[1] for (k, m), cell in seen.map.items() if k == key}
        assert self.job.at(key, self.value_state()).value() == seen.value.get(key, [None, None])[1]
        assert self.job.at(key, self.items_state()).get() == [cell[1] for cell in seen.items.get(key, [])]
        state = self.job.at(key, self.map_state())
        assert state.is_empty() == (not entries)
        assert {m: state.get(m) for m in ("x", "xy") if state.contains(m)} == entries
        assert dict(state.items()) == entries
        if self.refreshes:
            cells = [cell for (k, _), cell in seen.map.items() if k == key] + seen.items.get(key, [])
            for cell in [*cells, *([seen.value[key]] if key in seen.value else [])]:
                cell[0] = self.now

    # --- life ---

    def _next_batch(self, step_ms: int) -> None:
        self.now = self.committed_at + step_ms
        self.job.move_time(self.now)

    @rule(step_ms=st.integers(0, 12))
    def commit(self, step_ms: int) -> None:
        self.job.commit()
        self.committed, self.committed_at = copy.deepcopy(self.seen), self.now
        self.is_declared_only = False
        self._next_batch(step_ms)

    @rule(step_ms=st.integers(0, 12), ttl_ms=st.none() | st.sampled_from([4, 10, 30]), refreshes=st.booleans(),
          kind=st.none() | st.sampled_from(KINDS))  # fmt: skip
    def restart(self, step_ms: int, ttl_ms: int | None, refreshes: bool, kind: str | None) -> None:
        """The batch is lost; the next run has other settings, and maybe another backend."""
        self.seen = copy.deepcopy(self.committed)
        self.now = self.committed_at + step_ms
        self.job.crash(kind or self.kind)
        self.job.move_time(self.now)
        self._open(ttl_ms, refreshes=refreshes)

    @rule()
    def materialize(self) -> None:
        """A materializer knows the log, and so no state and no TTL of a batch that may never be."""
        if self.changelog == "on" and not self.job.backend.store.changed_ttls and not self.is_declared_only:
            self.job.materialize_at(self.committed_at)

    @invariant()
    def what_is_stored_is_no_less_than_what_lives(self) -> None:
        self.seen.expire(self.now)
        for name, held in (("value", self.seen.value), ("items", self.seen.items)):
            live = {key for key, cells in held.items() if cells}
            if name in {schema.name for schema in self.job.backend.schemas}:
                assert live <= set(self.job.backend.get_keys(name))

    def teardown(self) -> None:
        for key in ("a", "ab", "c"):
            if self.config is not None or self.seen.ttl_ms is None:
                self.read(key)
        self.job.close()
        self.resources.close()


def _test_case(kind_: str, changelog_: Changelog, *, cleanup_: bool) -> Any:
    class Machine(TtlMachine):
        kind = kind_
        changelog = changelog_
        cleanup = cleanup_

    case = Machine.TestCase
    case.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
    return case


TestHashMapWithChangelog = _test_case("hashmap", "on", cleanup_=True)
TestHashMapWithoutChangelog = _test_case("hashmap", "off", cleanup_=True)
TestRocksDBWithChangelog = _test_case("rocksdb", "on", cleanup_=True)
TestRocksDBWithoutChangelog = _test_case("rocksdb", "off", cleanup_=False)
