"""Storage of the tests' harnesses, and a function for them with every simple kind of state and timer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row

from varvite import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    ListStateDescriptor,
    MapStateDescriptor,
    TimeDomain,
    Types,
    ValueStateDescriptor,
)
from varvite.datastream import (
    KeyedProcessFunction,
    OutputTag,
    RuntimeContext,
)
from varvite.testing import OperatorHarness

BACKENDS = {
    "hashmap": HashMapStateBackend(),
    "rocksdb": EmbeddedRocksDBStateBackend(),
    "custom": CustomStateBackend("examples.sqlite_store:SQLiteStore"),
}
INPUT, OUTPUT = "k string, v bigint", "k string, n bigint, at bigint"
ODD = OutputTag("odd", Types.LONG())


class Count(KeyedProcessFunction[str, Row, Any]):
    """Counts; remembers all values and the last at each digit; sets timers of both kinds."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))
        self.values = runtime_context.get_list_state(ListStateDescriptor("values", Types.LONG()))
        self.last = runtime_context.get_map_state(MapStateDescriptor("last", Types.LONG(), Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if value.v < 0:
            raise ValueError(f"{value.v} is negative")
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        self.values.add(value.v)
        self.last.put(value.v % 10, value.v)
        ctx.timer_service().register_processing_time_timer(1000)
        ctx.timer_service().register_event_time_timer(500)
        if value.v % 2:
            yield ODD, value.v
        yield value.k, n, ctx.timestamp()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), -(self.n.value() or 0), timestamp
        if ctx.time_domain() is TimeDomain.PROCESSING_TIME:
            self.n.clear()


def counting(**options: Any) -> OperatorHarness:
    return OperatorHarness.of_function(Count(), "k", INPUT, OUTPUT, **options)
