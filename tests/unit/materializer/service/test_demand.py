from __future__ import annotations

import pytest

from tests.jobs.committing_job import NumberedTokens
from tests.stores.manual_clock import ManualClock
from varvite.materializer.service.demand import LOOK_MS, NEW_MS, DemandWatch, ask
from varvite.storage.errors import CorruptDataError
from varvite.storage.format import layout
from varvite.storage.object_stores.memory import MemoryStore


def test_every_materializer_serves_a_request_once() -> None:
    store, clock, tokens = MemoryStore(), ManualClock(), NumberedTokens()
    a, b = DemandWatch(store, clock), DemandWatch(store, clock)
    assert not a.look(0)
    first = ask(store, clock, tokens)
    assert a.look(1)
    assert not a.look(2)
    assert b.look(2)
    second = ask(store, clock, tokens)
    assert first != second
    assert a.look(3)
    assert not a.look(4)


def test_a_request_is_served_whatever_the_clocks_say() -> None:
    store, clock = MemoryStore(), ManualClock()
    watch = DemandWatch(store, clock)
    watch.look(0)
    ask(store, clock, NumberedTokens())
    clock.advance(10 * NEW_MS / 1_000)
    assert watch.look(1)


def test_a_materializer_that_starts_serves_only_a_new_request() -> None:
    store, clock = MemoryStore(), ManualClock()
    ask(store, clock, NumberedTokens())
    clock.advance(NEW_MS / 1_000 - 0.001)
    assert DemandWatch(store, clock).look(0)
    clock.advance(0.001)
    late = DemandWatch(store, clock)
    assert not late.look(0)
    assert not late.look(1)


def test_looks_are_rare() -> None:
    watch = DemandWatch(MemoryStore(), ManualClock())
    assert watch.is_due(0)
    watch.look(0)
    assert not watch.is_due(LOOK_MS - 1)
    assert watch.is_due(LOOK_MS)


def test_a_damaged_request_is_an_error_with_its_name_until_the_next_one() -> None:
    store, clock = MemoryStore(), ManualClock()
    watch = DemandWatch(store, clock)
    store.put(layout.REQUEST, b"not a request")
    with pytest.raises(CorruptDataError) as raised:
        watch.look(0)
    assert raised.value.context["object_name"] == layout.REQUEST
    ask(store, clock, NumberedTokens())
    assert watch.look(1)
