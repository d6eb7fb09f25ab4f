"""With which event time a function's state is stamped: that of the row, and in `on_timer` the watermark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark import cloudpickle

from tests.workers.state_worker_setup import rows, task_request
from varvite.changelog.api.descriptors import ValueStateDescriptor
from varvite.changelog.api.time_spans import Time
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.types.factory import Types
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.spark_integration.functions.keyed import KeyedProcessFunction, RuntimeContext
from varvite.spark_integration.worker.runners.operator import OperatorRunner


class Stamping(KeyedProcessFunction[Any, Any, Any]):
    """Writes one state in rows and another in timers."""

    def open(self, runtime_context: RuntimeContext) -> None:
        config = StateTtlConfig.new_builder(Time.hours(1)).use_event_time().build()
        self.states = [ValueStateDescriptor(name, "bigint") for name in ("by row", "by timer")]
        for state in self.states:
            state.enable_time_to_live(config)
        self.by_row, self.by_timer = (runtime_context.get_state(state) for state in self.states)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.by_row.update(value.value)
        ctx.timer_service().register_event_time_timer(5)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        self.by_timer.update(timestamp)
        yield from ()


def test_what_a_timer_writes_has_the_watermark_and_not_the_time_of_the_last_row() -> None:
    store = HashMapStore(operator="op", key_type="1:int", low=0, high=8)
    backend = KeyedStateBackend(store, Types.INT(), "op")
    request = task_request(
        key_type="1:int", key_columns=("__varvite_key_group",), timestamp_column="value"
    ).batch.operator
    backend.begin_batch(BatchTime(1000, 10))
    runner = OperatorRunner(request, 0, cloudpickle.dumps(Stamping()), backend)
    runner.start(1000, 10)
    assert runner.run(rows(2, 77)) == []
    assert list(runner.fire_timers()) == []
    assert runner.error is None
    changes: dict[str, StateChanges] = {change.schema.name: change for change in backend.changes()}
    assert changes["by row"].values == [(78, 78)]
    assert changes["by timer"].values == [(10, 5)]
