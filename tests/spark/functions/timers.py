"""Functions with timers that tests send to state workers; here, so that the workers can import them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row

from varvite import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor


class SumUntilTimer(KeyedProcessFunction[str, Row, tuple[Any, ...]]):
    """Sums values per key until an event-time timer, `v` seconds after the row's event time, gives the sum out."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> None:
        self.total.update((self.total.value() or 0) + value.v)
        ctx.timer_service().register_event_time_timer((ctx.timestamp() or 0) + 1000 * value.v)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[Any, ...]]:
        yield ctx.get_current_key(), timestamp, self.total.value(), ctx.time_domain().name


class RemindLater(KeyedProcessFunction[str, Row, tuple[Any, ...]]):
    """Sets a processing-time timer `v` milliseconds after the batch of the row."""

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> None:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + value.v)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[Any, ...]]:
        if timestamp > ctx.current_processing_time():
            raise ArithmeticError(f"{timestamp} is in the future")
        yield ctx.get_current_key(), ctx.time_domain().name


class FailingTimer(RemindLater):
    """Raises when its timer fires."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[Any, ...]]:
        raise ArithmeticError("no time")
