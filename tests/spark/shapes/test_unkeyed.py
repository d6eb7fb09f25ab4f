"""Streams that are connected without keys."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.functions.shapes import collected
from varvite.common import Types
from varvite.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from varvite.datastream.state import ValueStateDescriptor
from varvite.storage.errors import InvalidRequestError, UserFunctionError

pytestmark = pytest.mark.spark


class Prices(CoFlatMapFunction[Any, Any, Any]):
    """Counts what both streams bring to one instance; the streams share its fields, as in PyFlink."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = 0

    def flat_map1(self, value: int) -> Any:
        self.seen += 1
        yield "number", value, self.seen

    def flat_map2(self, value: str) -> Any:
        self.seen += 1
        yield "text", value, self.seen


class Lengths(CoMapFunction[Any, Any, Any]):
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: str) -> int:
        return len(value)


NAMED = OutputTag("named")


class Both(CoProcessFunction[Any, Any, Any]):
    """Elements with their times; texts in a side output, too."""

    def process_element1(self, value: int, ctx: CoProcessFunction.Context) -> Any:
        assert ctx.timer_service().current_processing_time() > 0
        yield value, ctx.timestamp()

    def process_element2(self, value: str, ctx: CoProcessFunction.Context) -> Any:
        yield NAMED, value
        if value == "timer":
            ctx.timer_service().register_processing_time_timer(1)


class Stateful(CoMapFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def map1(self, value: Any) -> Any: ...

    def map2(self, value: Any) -> Any: ...


class KeyedBoth(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> Any: ...

    def process_element2(self, value: Any, ctx: Any) -> Any: ...


@pytest.mark.long
def test_streams_without_keys_are_connected(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(2)
    both = env.from_collection([1, 2], Types.LONG()).connect(env.from_collection(["abc", "d"], Types.STRING()))
    rows = collected(both.flat_map(Prices()), "prices")
    assert sorted(row[:2] for row in rows) == [("number", 1), ("number", 2), ("text", "abc"), ("text", "d")]
    assert sorted(row[2] for row in rows) == [1, 2, 3, 4], "one instance gets them all"
    assert sorted(collected(both.map(Lengths(), Types.LONG()), "lengths")) == [1, 1, 2, 3]
    timed = both.process(Both())
    assert sorted(collected(timed, "both")) == [(1, None), (2, None)]
    assert sorted(collected(timed.get_side_output(NAMED), "texts")) == ["abc", "d"]
    with pytest.raises(UserFunctionError, match="call key_by before"):
        collected(both.map(Stateful()), "stateful")
    late = env.from_collection([1], Types.LONG()).connect(env.from_collection(["timer"], Types.STRING()))
    with pytest.raises(UserFunctionError, match="no timers"):
        collected(late.process(Both()), "timer")


def test_connected_streams_have_keys_or_none(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1], Types.LONG())
    keyed = numbers.key_by(lambda x: x, Types.LONG())
    with pytest.raises(InvalidRequestError, match="one of the connected streams has keys"):
        keyed.connect(numbers).map(Lengths())
    with pytest.raises(InvalidRequestError, match="KeyedCoProcessFunction"):
        keyed.connect(keyed).process(Both())
    with pytest.raises(InvalidRequestError, match="without keys takes a CoProcessFunction"):
        numbers.connect(numbers).process(KeyedBoth())
