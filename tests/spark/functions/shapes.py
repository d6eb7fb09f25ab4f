"""Functions and elements that tests of shapes share; here, so that the workers can import them."""

from __future__ import annotations

from typing import Any

from varvite.common import Types
from varvite.common.watermark_strategy import TimestampAssigner
from varvite.datastream import (
    KeyedProcessFunction,
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
