"""Firing timers of a user's function: order, time, output, errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from varvite.changelog.api.descriptors import ValueStateDescriptor
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.keyed.timers import TimeDomain
from varvite.changelog.types.factory import Types
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.spark_integration.functions.keyed import KeyedProcessContext, KeyedProcessFunction
from varvite.spark_integration.functions.timers import MIN_WATERMARK, KeyedTimerService
from varvite.spark_integration.operators.processors.grouped_function import FIRED_ROWS
from varvite.spark_integration.worker.runners import timers as timer_firing
from varvite.spark_integration.worker.runners.timers import TimerFiring
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.records import Link


class Bench:
    """One function instance with its timers, and batches of it."""

    def __init__(self, backend: KeyedStateBackend | None = None) -> None:
        store = HashMapStore(operator="op", key_type=Types.STRING().type_string(), low=0, high=8)
        self.backend = backend or KeyedStateBackend(store, Types.STRING(), "op")
        self.service = KeyedTimerService(self.backend)
        self.failures: list[tuple[Exception, Any]] = []

    def batch(self, time_ms: int, watermark_ms: int | None = None) -> None:
        self.service.begin_batch(time_ms, watermark_ms)

    def fire(self, on_timer: Any) -> list[Any]:
        return [row for rows in self.pieces(on_timer) for row in rows]

    def pieces(self, on_timer: Any) -> Iterator[list[Any]]:
        firing = TimerFiring(self.backend, self.service, "op")
        return firing.fire(on_timer, lambda error, key: self.failures.append((error, key)))


def what_fired(timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[Any]:
    assert ctx.timestamp() == timestamp
    return [(ctx.time_domain().name[0], timestamp, ctx.get_current_key())]


def test_event_time_comes_before_processing_time_and_each_in_order() -> None:
    bench = Bench()
    bench.batch(100, 50)
    for group, key in ((1, "a"), (2, "b")):
        bench.backend.set_current_key(group, key)
        for time_ms in (100, 50, 51, 101, -1):
            bench.service.register_processing_time_timer(time_ms)
            bench.service.register_event_time_timer(time_ms)
    fired = bench.fire(what_fired)
    assert fired == [
        *[("E", t, k) for t in (-1, 50) for k in "ab"],
        *[("P", t, k) for t in (-1, 50, 51, 100) for k in "ab"],
    ]
    bench.batch(101, 99)
    assert bench.fire(what_fired) == [
        *[("E", 51, k) for k in "ab"], *[("P", 101, k) for k in "ab"],
    ]  # fmt: skip


def test_without_a_watermark_no_event_time_timer_fires() -> None:
    bench = Bench()
    bench.batch(0, None)
    bench.backend.set_current_key(0, "a")
    bench.service.register_event_time_timer(-(2**63))
    assert bench.service.current_watermark() == MIN_WATERMARK
    assert bench.fire(what_fired) == []
    bench.batch(0, MIN_WATERMARK)
    assert bench.fire(what_fired) == [("E", -(2**63), "a")]


def test_a_due_timer_that_on_timer_registers_fires_in_the_same_batch() -> None:
    bench = Bench()
    bench.batch(100, 50)
    bench.backend.set_current_key(0, "a")
    bench.service.register_processing_time_timer(10)
    bench.service.register_processing_time_timer(20)

    def on_timer(timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[Any]:
        if timestamp == 10:
            ctx.timer_service().register_event_time_timer(30)
            ctx.timer_service().register_event_time_timer(60)
            ctx.timer_service().register_processing_time_timer(5)
            ctx.timer_service().delete_processing_time_timer(20)
            ctx.timer_service().register_processing_time_timer(ctx.current_processing_time())
        return what_fired(timestamp, ctx)

    assert [row[:2] for row in bench.fire(on_timer)] == [("P", 10), ("E", 30), ("P", 5), ("P", 100)]
    bench.batch(100, ctx_watermark := 60)
    assert bench.service.current_watermark() == ctx_watermark
    assert [row[:2] for row in bench.fire(on_timer)] == [("E", 60)]


def test_state_in_on_timer_is_that_of_the_timers_key() -> None:
    bench = Bench()
    total = bench.backend.get_state(ValueStateDescriptor("total", Types.LONG()))
    bench.batch(10, None)
    for group, key in ((1, "a"), (2, None), (3, "b")):
        bench.backend.set_current_key(group, key)
        total.update(group)
        bench.service.register_processing_time_timer(group)

    def on_timer(timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), total.value()
        total.clear()

    assert bench.fire(on_timer) == [("a", 1), (None, 2), ("b", 3)]
    assert list(bench.backend.get_keys("total")) == []


def test_a_restored_function_instance_fires_what_its_store_holds() -> None:
    bench = Bench()
    bench.batch(0, None)
    bench.backend.set_current_key(0, "a")
    bench.service.register_processing_time_timer(7)
    bench.backend.fold(Link(1, "t1"))
    again = Bench(KeyedStateBackend(bench.backend.store, Types.STRING(), "op"))
    again.batch(7, None)
    assert again.fire(what_fired) == [("P", 7, "a")]


def test_a_function_without_timers_has_no_timer_state() -> None:
    bench = Bench()
    bench.batch(100, 100)
    assert bench.fire(what_fired) == []
    assert bench.backend.schemas == ()


def test_a_function_that_has_no_on_timer_lets_its_timers_pass() -> None:
    class Nothing(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> None:
            """Not called."""

    bench = Bench()
    bench.batch(5, None)
    bench.backend.set_current_key(0, "a")
    bench.service.register_processing_time_timer(5)
    assert bench.fire(Nothing().on_timer) == []
    assert bench.fire(what_fired) == []


def test_an_error_names_the_key_and_ends_the_firing() -> None:
    bench = Bench()
    bench.batch(9, None)
    for key in ("a", "b", "c"):
        bench.backend.set_current_key(0, key)
        bench.service.register_processing_time_timer(9)

    def on_timer(timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[Any]:
        if ctx.get_current_key() == "b":
            raise ArithmeticError("no")
        return [ctx.get_current_key()]

    assert bench.fire(on_timer) == ["a"]
    [(error, key)] = bench.failures
    assert (type(error), key) == (ArithmeticError, "b")


def test_a_function_that_never_ends_gives_its_rows_in_pieces_and_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory stays bounded, and the log says why the batch does not end."""
    monkeypatch.setattr(timer_firing, "WARN_EVERY", 1000)
    bench = Bench()
    bench.batch(9, None)
    bench.backend.set_current_key(0, "a")
    bench.service.register_processing_time_timer(9)

    def on_timer(timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[Any]:
        ctx.timer_service().register_processing_time_timer(timestamp)
        return [timestamp]

    pieces = bench.pieces(on_timer)
    with caplog.at_level(logging.WARNING, logger=timer_firing.__name__):
        assert [len(next(pieces)) for _ in range(3)] == [FIRED_ROWS] * 3
    assert sum(len(change) for change in bench.backend.changes()) == 1
    assert "1000 timers have fired in one batch" in caplog.text


def test_contexts_give_the_same_service() -> None:
    bench = Bench()
    context = KeyedProcessContext(bench.service)
    assert context.timer_service() is bench.service
    with pytest.raises(InvalidRequestError):
        context.timer_service().register_event_time_timer(1)
    bench.backend.set_current_key(0, "a")
    context.timer_service().register_event_time_timer(1)
    context.timer_service().delete_event_time_timer(1)
    assert [list(change.ops or b"") for change in bench.backend.changes()] == [[1]]


def test_domains_have_flinks_numbers() -> None:
    assert [(d.name, d.value) for d in TimeDomain] == [("EVENT_TIME", 0), ("PROCESSING_TIME", 1)]


def test_an_event_time_timer_without_a_watermark_is_refused() -> None:
    """Found as timers that never fired, without a word."""
    service = KeyedTimerService(Bench().backend, has_watermark=False)
    with pytest.raises(InvalidRequestError, match=r"never fire.*with_watermark"):
        service.register_event_time_timer(5)
