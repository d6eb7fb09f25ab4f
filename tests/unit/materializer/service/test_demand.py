from __future__ import annotations

from tests.jobs.committing_job import NumberedTokens
from tests.stores.manual_clock import ManualClock
from varvite.materializer.service.demand import KEPT_MS, LOOK_MS, DemandWatch, ask
from varvite.storage.format import layout
from varvite.storage.object_stores.memory import MemoryStore


def test_every_materializer_serves_a_request_once() -> None:
    store, tokens = MemoryStore(), NumberedTokens()
    a, b = DemandWatch(store), DemandWatch(store)
    assert not a.look(0)
    first = ask(store, ManualClock(), tokens)
    assert a.look(1)
    assert not a.look(2)
    assert b.look(2)
    second = ask(store, ManualClock(), tokens)
    assert first != second
    assert a.look(3)
    assert not a.look(4)


def test_looks_are_rare() -> None:
    watch = DemandWatch(MemoryStore())
    assert watch.is_due(0)
    watch.look(0)
    assert not watch.is_due(LOOK_MS - 1)
    assert watch.is_due(LOOK_MS)


def test_a_request_is_deleted_when_everybody_had_time_to_see_it() -> None:
    store = MemoryStore()
    ask(store, ManualClock(), NumberedTokens())
    watch = DemandWatch(store)
    watch.look(0)
    watch.look(KEPT_MS - 1)
    assert len(store.list(layout.REQUESTS)) == 1
    assert not watch.look(KEPT_MS)
    assert store.list(layout.REQUESTS) == []
