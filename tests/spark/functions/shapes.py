"""Functions and elements that tests of shapes share; here, so that the workers can import them."""

from __future__ import annotations

from typing import Any

from varvite.common import Types
from varvite.common.watermark_strategy import TimestampAssigner
from varvite.datastream import (
    KeyedProcessFunction,
    TimeDomain,
)

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def collected(stream: Any, name: str) -> list[Any]:
    with stream.execute_and_collect(name) as elements:
        return list(elements)


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1] * 1000


class Timed(KeyedProcessFunction[Any, Any, Any]):
    """Elements with the times that they have here."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value, ctx.timestamp()


class Timers(KeyedProcessFunction[Any, Any, Any]):
    """Elements with their times, a timer for each of half a second later, and one far ahead in processing time."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        time_ms: Any = ctx.timestamp()
        ctx.timer_service().register_event_time_timer(time_ms + 500)
        ctx.timer_service().register_processing_time_timer(1 << 52)
        assert ctx.current_watermark() < 0
        yield ctx.get_current_key(), "element", time_ms, None

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        domain = "event" if ctx.time_domain() is TimeDomain.EVENT_TIME else "processing"
        yield ctx.get_current_key(), domain, timestamp, ctx.current_watermark() == (1 << 63) - 1
