"""Timers in the past, and sessions that were purged: cases that other engines have got wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tests.jobs.counting_harness import BACKENDS
from varvite import KeyedProcessFunction
from varvite.common import Time
from varvite.datastream import ProcessWindowFunction
from varvite.datastream.window import CountTrigger, EventTimeSessionWindows, EventTimeTrigger, PurgingTrigger
from varvite.testing import OperatorHarness


class Past(KeyedProcessFunction[Any, Any, Any]):
    """Registers timers at and before now, in the row and once in a timer."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        now = ctx.current_processing_time()
        for time_ms in (now, now - 1, 0, now - 3_600_000):
            ctx.timer_service().register_processing_time_timer(time_ms)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        if timestamp == 0:
            ctx.timer_service().register_processing_time_timer(-5)
        yield (timestamp,)


class PastProcessor(StatefulProcessor):
    """The same in Spark's API."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        now = timerValues.getCurrentProcessingTimeInMs()
        for time_ms in (now, now - 1, 0, now - 3_600_000):
            self.handle.registerTimer(time_ms)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        time_ms = expiredTimerInfo.getExpiryTimeInMs()
        if time_ms == 0:
            self.handle.registerTimer(-5)
        yield Row(time=time_ms)


NOW_MS = 10_000_000
DUE = [0, NOW_MS - 3_600_000, NOW_MS - 1, NOW_MS]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("in_same_batch", [True, False])
def test_timers_in_the_past_fire_once_also_after_another_parallelism(in_same_batch: bool, backend: str) -> None:
    """SPARK-56566: a scan only above the last watermark never found them again.

    In Flink one that a timer sets fires in the same batch, in Spark in the next.
    """
    function: Any = Past() if in_same_batch else PastProcessor()
    options: Any = {"backend": BACKENDS[backend], "processing_time": NOW_MS}
    with OperatorHarness.of_function(function, "k", "k string", "time bigint", **options) as harness:
        first = [row.time for row in harness.process_batch([("never again",)])]
        assert sorted(first) == sorted([*DUE, -5] if in_same_batch else DUE)
        snapshot = harness.snapshot()  # with a batch
        assert sorted(row.time for row in harness.output) == sorted([*DUE, -5])
    with OperatorHarness.restore(snapshot, parallelism=3) as restored:
        assert restored.process_batch([], processing_time=NOW_MS + 1) == []


class Spans(ProcessWindowFunction[Any, Any, Any, Any]):
    """Window and number of elements."""

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield context.window().start, context.window().end, len(list(elements))


class Unknown(EventTimeTrigger):
    """A class that varvite does not know, so that it is asked."""


class UnknownCount(CountTrigger):
    """The same."""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("trigger", [EventTimeTrigger, Unknown])
def test_a_late_element_joins_the_session_that_was_purged(trigger: Any, backend: str) -> None:
    """FLINK-4994: a purge cleared the set of merging windows, and the element began a session of its own."""

    def build(stream: Any) -> Any:
        windowed = stream.key_by("k").window(EventTimeSessionWindows.with_gap(Time.seconds(10)))
        windowed = windowed.allowed_lateness(60_000).trigger(PurgingTrigger.of(trigger.create()))
        return windowed.process(Spans(), "start bigint, end bigint, n bigint", uid="spans")

    fired: list[Any] = []
    with OperatorHarness(build, "k string", backend=BACKENDS[backend]) as harness:
        fired += harness.process_batch([("a",), ("a",)], [0, 5000])
        fired += harness.process_batch([], watermark=30_000)
        snapshot = harness.snapshot()
    with OperatorHarness.restore(snapshot, parallelism=3) as restored:
        fired += restored.process_batch([("a",)], [12_000])
        restored.crash()
        fired += restored.process_batch([("a",)], [-3000])
        fired += restored.process_batch([], watermark=40_000)
    assert list(map(tuple, fired)) == [(0, 15_000, 2), (0, 22_000, 1), (-3000, 22_000, 1)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("trigger", [CountTrigger, UnknownCount])
def test_a_purged_count_never_gives_an_element_twice(trigger: Any, backend: str) -> None:
    def build(stream: Any) -> Any:
        windowed = stream.key_by("k").window(EventTimeSessionWindows.with_gap(Time.seconds(10)))
        windowed = windowed.allowed_lateness(60_000).trigger(PurgingTrigger.of(trigger.of(2)))
        return windowed.process(Spans(), "start bigint, end bigint, n bigint", uid="spans")

    fired: list[Any] = []
    with OperatorHarness(build, "k string", backend=BACKENDS[backend]) as harness:
        for at_ms in (0, 5000, 12_000, -3000):
            fired += harness.process_batch([("a",)], [at_ms])
            harness.crash()
    assert list(map(tuple, fired)) == [(0, 15_000, 2), (-3000, 22_000, 2)]
