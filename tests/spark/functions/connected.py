"""Functions on connected streams that tests send to workers; here, so that the workers can import them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from varvite.common import Types
from varvite.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    RuntimeContext,
)
from varvite.datastream.state import ListStateDescriptor, ValueStateDescriptor


class Sums(CoMapFunction):
    """(number of the stream, the key's sum so far): both streams add to one state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def _add(self, amount: int) -> int:
        self.sum.update((self.sum.value() or 0) + amount)
        return self.sum.value()

    def map1(self, value: Any) -> tuple[int, Any, int]:
        return 1, value.k, self._add(value.v)

    def map2(self, value: Any) -> tuple[int, Any, int]:
        return 2, value[0], self._add(value[1])


class Twice(CoFlatMapFunction):
    """Elements of the second stream twice; None for those of the first."""

    def flat_map1(self, value: Any) -> None:
        return None

    def flat_map2(self, value: Any) -> list[Any]:
        return [value, value]


class Pairs(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Joins by key once the watermark has passed the elements: ("pair", key, firsts, seconds)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.firsts = runtime_context.get_list_state(ListStateDescriptor("firsts", Types.LONG()))
        self.seconds = runtime_context.get_list_state(ListStateDescriptor("seconds", Types.STRING()))

    def _wait(self, ctx: Any) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(ctx.timestamp())
        yield "seen", ctx.get_current_key(), ctx.timestamp(), ctx.current_watermark()

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        self.firsts.add(value[1])
        yield from self._wait(ctx)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        self.seconds.add(value[0])
        yield from self._wait(ctx)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield "pair", ctx.get_current_key(), list(self.firsts.get()), list(self.seconds.get())


LATE = OutputTag("late", Types.STRING())
ODD = OutputTag("odd")


class Sorted(KeyedProcessFunction[Any, Any, Any]):
    """Even numbers twice in the main output, odd ones tagged; every third is late as well."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if value % 2:
            yield ODD, (value, ctx.get_current_key())
        else:
            yield value
            yield value
        if value % 3 == 0:
            yield LATE, f"late {value}"
