"""Function of the simulated job, and its model: every attempt at a batch changes the state in its own way.

The values come from the attempt's tag, so that two executions of one batch never agree: state that mixes them, or that
comes from one that did not win, cannot pass for right. Whatever the function reads is compared with the model of the
commit that the batch is executed on, at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.simulation.system import threads
from varvite import ListStateDescriptor, MapStateDescriptor, TimeDomain, Types, ValueStateDescriptor
from varvite.datastream import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    RuntimeContext,
)
from varvite.storage.format.records import Link

KEYS = ("a", "b", "c", "d", "ab", "ba", "")
KEY_GROUPS = 8
OPERATOR = "changer"
FOLLOWER = "follower"
"""The operator behind it, in jobs that have one."""
TOTAL = ValueStateDescriptor("total", Types.LONG())
BY_NAME = MapStateDescriptor("by_name", Types.LONG(), Types.LONG())
EVENTS = ListStateDescriptor("events", Types.LONG())
SEEN = ListStateDescriptor("seen", Types.LONG())
"""Of the instance, not keyed."""
SHARED = ListStateDescriptor("shared", Types.LONG())
"""A union list: when a run begins, each instance has what all of them had."""
RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
"""Broadcast state: the same in all instances."""
SHARED_MAX = 4
"""Elements that an instance keeps of it; else they would multiply with every run."""
TIMER_AFTER_MS = 20_000
OPS = 30


class KeyState(NamedTuple):
    """The state of one key."""

    total: int | None = None
    by_name: tuple[tuple[int, int], ...] = ()
    events: tuple[int, ...] = ()
    timers: tuple[int, ...] = ()
    """Processing time, milliseconds; ascending."""


EMPTY = KeyState()
State = dict[str, KeyState]
"""By key; a key without state is not there."""
Seen = tuple[int, ...]
"""Content of an instance's list."""
Rules = dict[int, int]
"""Content of the broadcast state."""


def key_group(key: str) -> int:
    """The key group of a key."""
    return zlib.crc32(key.encode()) % KEY_GROUPS


@dataclass
class AttemptModel:
    """Reads and changes of one attempt of a partition."""

    tag: str
    operator: str
    base: Link
    before: State
    """The model's, at the base."""
    partition: int
    parallelism: int
    slot: int
    time_ms: int
    changed: State = field(default_factory=dict[str, KeyState])
    consumed: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    emitted: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    fired: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    seen_before: Seen | None = None
    """The instance's list when it was read first; None: it was not read yet."""
    seen: Seen = ()
    """The list now."""
    shared: Seen = ()
    """The instance's union list now."""
    rules: Rules = field(default_factory=Rules)
    """The instance's broadcast state now."""
    finished: bool = False
    _numbers: int = 0
    _broadcasts: int = 0

    def at(self, key: str) -> KeyState:
        """The state of a key now."""
        found = self.changed.get(key)
        return self.before.get(key, EMPTY) if found is None else found

    def number(self, op: int) -> int:
        """A value that no other attempt makes."""
        self._numbers += 1
        return zlib.crc32(f"{self.tag} {self._numbers} {op}".encode())

    def broadcast_number(self, op: int) -> int:
        """A value that those attempts make, too, that read the same broadcast rows on the same base; no others."""
        self._broadcasts += 1
        return zlib.crc32(f"{self.base.token} {self._broadcasts} {op}".encode())


def current_attempt() -> AttemptModel:
    """Of the task that runs."""
    task = threads.scheduler().current
    assert task is not None
    assert isinstance(task.context, AttemptModel)
    return task.context


class Changing(CheckpointedFunction):
    """Changes state of every kind as each element says."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.seen = context.get_operator_state_store().get_list_state(SEEN)
        self.shared = context.get_operator_state_store().get_union_list_state(SHARED)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        attempt = current_attempt()
        self._read_seen(attempt)
        self._read_shared(attempt)
        if len(attempt.shared) > SHARED_MAX:
            attempt.shared = attempt.shared[-SHARED_MAX:]
            self.shared.update(list(attempt.shared))

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(TOTAL)
        self.by_name = runtime_context.get_map_state(BY_NAME)
        self.events = runtime_context.get_list_state(EVENTS)
        self.memory: dict[str, int | None] = {}
        """In fields of the instance: must be forgotten with the state of an attempt that did not win (I4)."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        attempt, key = current_attempt(), value.k
        before = self._read(attempt, key)
        attempt.consumed.append((key, value.n))
        number = attempt.number(value.n)
        attempt.changed[key] = self._change(before, value.n % OPS, number, ctx)
        self._see(attempt, number)
        self.memory[key] = attempt.changed[key].total
        yield self._emit(attempt, number)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        attempt, key = current_attempt(), ctx.get_current_key()
        before = self._read(attempt, key)
        if ctx.time_domain() is not TimeDomain.PROCESSING_TIME or timestamp not in before.timers:
            threads.scheduler().fail(f"timer {timestamp} of {key} is not one of {before.timers} (I5)")
        number = attempt.number(timestamp)
        self.total.update(number)
        rest = tuple(time for time in before.timers if time != timestamp)
        attempt.changed[key] = before._replace(total=number, timers=rest)
        attempt.fired.add((key, timestamp))
        self.memory[key] = number
        yield self._emit(attempt, number)

    def _emit(self, attempt: AttemptModel, number: int) -> tuple[str, int]:
        """A row of another key, so that rows of one partition go to several of the next operator."""
        row = KEYS[number % len(KEYS)], number
        attempt.emitted.append(row)
        return row

    def _see(self, attempt: AttemptModel, number: int) -> None:
        """Change the instance's list now and then."""
        self._read_seen(attempt)
        if number % 4 == 0:
            self.seen.add(number)
            attempt.seen = (*attempt.seen, number)
        elif number % 16 == 1:
            attempt.seen = (*attempt.seen[-2:], number)
            self.seen.update(list(attempt.seen))
        if number % 4 == 2:
            self._read_shared(attempt)
            self.shared.add(number)
            attempt.shared = (*attempt.shared, number)

    def _read_seen(self, attempt: AttemptModel) -> None:
        """Content of the instance's list: what the attempt left there; at the base, whatever the oracle expects."""
        found = tuple(self.seen.get() or ())
        if attempt.seen_before is None:
            attempt.seen_before = attempt.seen = found
        elif found != attempt.seen:
            threads.scheduler().fail(f"the list of partition {attempt.partition} has {found}, not {attempt.seen} (I4)")

    def _read_shared(self, attempt: AttemptModel) -> None:
        found = tuple(self.shared.get() or ())
        if found != attempt.shared:
            what = f"the union list of partition {attempt.partition}, on commit {attempt.base.seq}"
            threads.scheduler().fail(f"{what}, has {found}, not {attempt.shared} (I4, I5)")

    def _read(self, attempt: AttemptModel, key: str) -> KeyState:
        """Content of the state, which must be what the model says."""
        expected = attempt.at(key)
        found = KeyState(
            self.total.value(),
            tuple(sorted(self.by_name.items())),
            tuple(self.events.get() or ()),
            expected.timers,
        )
        if found != expected:
            what = f"batch at seq {attempt.slot}, partition {attempt.partition}, on commit {attempt.base.seq}"
            threads.scheduler().fail(f"{what}: key {key} has {found}, the model {expected} (I3, I4, I5)")
        if self.memory.get(key, expected.total) != expected.total:
            threads.scheduler().fail(f"the function remembers an attempt that did not win, of key {key} (I4)")
        return expected

    def _change(self, before: KeyState, op: int, number: int, ctx: Any) -> KeyState:
        total, entries, events, timers = before.total, dict(before.by_name), before.events, before.timers
        name = op // 10 % 3
        match op % 10:
            case 0 | 1:
                self.total.update(total := number)
            case 2:
                self.total.clear()
                total = None
            case 3 | 4:
                self.by_name.put(name, number)
                entries[name] = number
            case 5:
                self.by_name.remove(name)
                entries.pop(name, None)
            case 6:
                self.by_name.clear()
                self.events.clear()
                entries, events = {}, ()
            case 7:
                self.events.add(number)
                events = (*events, number)
            case 8:
                events = (*events[-1:], number)
                self.events.update(list(events))
            case _:
                service = ctx.timer_service()
                time_ms = service.current_processing_time() + TIMER_AFTER_MS * (1 + name)
                service.register_processing_time_timer(time_ms)
                timers = tuple(sorted({*timers, time_ms}))
        return KeyState(total, tuple(sorted(entries.items())), events, timers)


class Changer(Changing, KeyedProcessFunction[str, Any, Any]):
    """Of one stream."""


class RuledChanger(Changing, KeyedBroadcastProcessFunction[str, Any, Any, Any]):
    """Beside a broadcast stream, whose elements change the rules."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self._read_rules(ctx)
        yield from super().process_element(value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        self._read_rules(ctx)
        yield from super().on_timer(timestamp, ctx)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        attempt, rules = self._read_rules(ctx), ctx.get_broadcast_state(RULES)
        number, name = attempt.broadcast_number(value.n), value.n // 10 % 3
        match value.n % 10:
            case 0:
                rules.clear()
                attempt.rules = {}
            case 1 | 2:
                rules.remove(name)
                attempt.rules.pop(name, None)
            case _:
                rules.put(name, number)
                attempt.rules[name] = number

    def _read_rules(self, ctx: Any) -> AttemptModel:
        attempt = current_attempt()
        found = dict(ctx.get_broadcast_state(RULES).items())
        if found != attempt.rules:
            what = f"the broadcast state of partition {attempt.partition}, on commit {attempt.base.seq}"
            threads.scheduler().fail(f"{what}, has {found}, not {attempt.rules} (I3, I4, I5)")
        return attempt


def difference(found: State, expected: State) -> str:
    """The keys that differ."""
    keys = [key for key in {**found, **expected} if found.get(key) != expected.get(key)]
    return "; ".join(f"{key}: {found.get(key)} instead of {expected.get(key)}" for key in keys[:3])


def model_range(model: AttemptModel) -> tuple[int, int]:
    """Key groups of the attempt's partition."""
    parallelism = model.parallelism
    return (
        -(-model.partition * KEY_GROUPS // parallelism),
        -(-(model.partition + 1) * KEY_GROUPS // parallelism),
    )
