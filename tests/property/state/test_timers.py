"""Random lives of a job with timers: whatever happens, they equal a plain set of (domain, key, namespace, time)."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.jobs.keyed_job import MAX_PARALLELISM, Changelog, KeyedJob
from tests.stores.working_stores import KINDS, OPERATOR, open_snapshot
from varvite.changelog.keyed.timers import TimeDomain
from varvite.changelog.restore.clip import SnapshotSource, open_clipped
from varvite.changelog.types.factory import Types, as_type
from varvite.changelog.types.key_wire import key_writer
from varvite.storage.private_directories import TemporaryDirectory

KEYS = st.sampled_from([None, "", "a", "ab", "ключ", "z"])
TIMES = st.integers(-4, 12) | st.sampled_from([-(2**63), 2**63 - 1])
DOMAINS = st.sampled_from(list(TimeDomain))
NAMESPACE = as_type(Types.LONG())
NAMESPACES = st.none() | st.integers(-1, 1)
WIRE_KEY, WIRE_NAMESPACE = key_writer(as_type(Types.STRING())), key_writer(NAMESPACE)


class TimerMachine(RuleBasedStateMachine):
    """The rules; subclasses say which store and which setting of the changelog."""

    kind: str
    changelog: Changelog

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.job = KeyedJob(self.kind, self.changelog, self.resources.enter_context(TemporaryDirectory("test")))
        self.seen: set[tuple[TimeDomain, Any, Any, int]] = set()
        self.committed: set[tuple[TimeDomain, Any, Any, int]] = set()

    def queue(self, domain: TimeDomain) -> Any:
        return self.job.backend.get_timers("timers", domain, NAMESPACE)

    @rule(domain=DOMAINS, key=KEYS, namespace=NAMESPACES, time_ms=TIMES)
    def register(self, domain: TimeDomain, key: Any, namespace: Any, time_ms: int) -> None:
        self.job.set_key(key)
        self.queue(domain).register(time_ms, namespace)
        self.seen.add((domain, key, namespace, time_ms))

    @rule(domain=DOMAINS, key=KEYS, namespace=NAMESPACES, time_ms=TIMES)
    def delete(self, domain: TimeDomain, key: Any, namespace: Any, time_ms: int) -> None:
        self.job.set_key(key)
        self.queue(domain).delete(time_ms, namespace)
        self.seen.discard((domain, key, namespace, time_ms))

    @precondition(lambda self: self.changelog == "on")
    @rule()
    def cut(self) -> None:
        """A part of the batch leaves early; nothing changes that can be seen."""
        self.job.cut()

    @rule(domain=DOMAINS, until_ms=TIMES, added=st.lists(st.tuples(KEYS, NAMESPACES, TIMES), max_size=4))
    def fire(self, domain: TimeDomain, until_ms: int, added: list[tuple[Any, Any, int]]) -> None:
        """Fire what is due; each timer that fires registers one more, as long as there are."""
        queue = self.queue(domain)
        waiting = list(added)
        while True:
            due = [t for t in self.seen if t[0] is domain and t[3] <= until_ms]
            found = queue.pop_due(until_ms)
            if not due:
                assert found is None
                break
            first = min(due, key=lambda t: (t[3], WIRE_KEY(t[1]), WIRE_NAMESPACE(t[2])))
            assert found is not None
            assert (domain, found.timer.key, found.timer.namespace, found.timer.time_ms) == first
            self.seen.remove(first)
            if waiting:
                key, namespace, time_ms = waiting.pop()
                self.job.set_key(key)
                queue.register(time_ms, namespace)
                self.seen.add((domain, key, namespace, time_ms))

    @rule()
    def commit(self) -> None:
        self.job.commit()
        self.committed = set(self.seen)

    @rule()
    def drop(self) -> None:
        self.job.drop()
        self.seen = set(self.committed)

    @rule()
    @precondition(lambda self: self.changelog == "on")
    def materialize(self) -> None:
        self.job.materialize()

    @rule(kind=st.sampled_from(KINDS))
    def crash(self, kind: str) -> None:
        self.job.crash(kind)
        self.seen = set(self.committed)

    @rule(split=st.integers(1, MAX_PARALLELISM - 1), kind=st.sampled_from(KINDS))
    def rescale(self, split: int, kind: str) -> None:
        """A restart with two partitions, and one more with a single one."""
        job = self.job
        job.drop()
        job.materialize()
        snapshot, at = job._snapshot or (None, None)
        job.backend.store.close()
        key_type = job.key_type.type_string()
        parts = []
        for low, high in ((0, split), (split, MAX_PARALLELISM)):
            copy = job._new_directory()
            shutil.copytree(snapshot, copy)
            source = SnapshotSource(copy, low, high, at)
            part = open_clipped(
                job._new_directory(), [source], operator=OPERATOR, key_type=key_type, low=low, high=high
            )
            directory = job._new_directory()
            part.write_snapshot(directory)
            part.close()
            parts.append(SnapshotSource(directory, low, high, at))
        whole = open_clipped(
            job._new_directory(), parts, operator=OPERATOR, key_type=key_type, low=0, high=MAX_PARALLELISM
        )
        again = job._new_directory()
        whole.write_snapshot(again)
        whole.close()
        job.kind = kind
        job._open(open_snapshot(kind, again))
        self.seen = set(self.committed)

    @invariant()
    def the_confirmed_timers_are_the_committed_ones(self) -> None:
        held = set()
        for domain in TimeDomain:
            table = self.queue(domain)._overlay.table
            for _, packed in table.items():  # noqa: PERF102  not a dict
                time_ms, key, namespace = table.form.unpack(packed)
                held.add((domain, key, namespace, time_ms))
                assert packed == table.form.pack(time_ms, key, namespace)
        assert held == self.committed

    def teardown(self) -> None:
        self.job.close()
        self.resources.close()


def machine(kind: str, changelog: Changelog) -> Any:
    made: Any = type(f"Timers_{kind}_{changelog}", (TimerMachine,), {"kind": kind, "changelog": changelog})
    test = made.TestCase
    test.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
    return test


TestHashMapChangelog = machine("hashmap", "on")
TestHashMapSnapshots = machine("hashmap", "off")
TestRocksDBChangelog = machine("rocksdb", "on")
TestRocksDBSnapshots = machine("rocksdb", "off")
