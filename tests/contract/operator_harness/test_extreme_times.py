"""Time stamps near the ends of 64 bits, which only an assigner makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from varvite import KeyedProcessFunction
from varvite.common import Duration, WatermarkStrategy
from varvite.common.watermark_strategy import TimestampAssigner
from varvite.spark_integration.driver import batch_commit
from varvite.storage.errors import UserFunctionError
from varvite.testing import OperatorHarness

FIRST = -(1 << 63)


class Own(TimestampAssigner):
    """The number of the element; if it has none, the one that it has come with, which is the first time."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return record_timestamp + 1 if value[1] is None else value[1]


class Timed(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(100)
        yield value[0], ctx.timer_service().current_watermark()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield "timer", timestamp


def build(stream: Any) -> Any:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(10)).with_timestamp_assigner(Own())
    return stream.assign_timestamps_and_watermarks(strategy).key_by(lambda value: value[0]).process(Timed(), uid="t")


@pytest.mark.parametrize("stamp", [FIRST, FIRST + 5, None])
def test_the_watermark_stays_within_64_bits(stamp: int | None) -> None:
    """It was committed below them; each later batch failed at its timers, after a restart as well."""
    with OperatorHarness(build) as harness:
        for element in (("a", stamp), ("b", 50), ("c", 500), ("d", 600)):
            harness.process_batch([element])
        assert [tuple(row) for row in harness.output if row[0] != "timer"] == [
            ("a", FIRST), ("b", FIRST), ("c", 39), ("d", 489)
        ]  # fmt: skip
        assert [tuple(row) for row in harness.output if row[0] == "timer"] == [("timer", 100)] * 4


def test_a_job_goes_on_that_has_committed_such_a_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    with OperatorHarness(build) as harness:
        with monkeypatch.context() as before:
            before.setattr(batch_commit, "held_ms", lambda time_ms: time_ms)
            harness.process_batch([("a", FIRST + 5)])
            assert harness.current_watermark < FIRST
        harness.crash()
        harness.process_batch([("b", 50)])
        harness.crash()
        harness.process_batch([("c", 500)])
        harness.process_batch([("d", 600)])
        assert [tuple(row) for row in harness.output if row[0] != "timer"][1:] == [("b", FIRST), ("c", 39), ("d", 489)]


@pytest.mark.parametrize("stamp", [1 << 63, FIRST - 1, 1e300])
def test_an_assigner_whose_number_has_more_bits_is_named(stamp: float) -> None:
    with (
        OperatorHarness(build) as harness,
        pytest.raises(UserFunctionError, match=r"the TimestampAssigner gave .* 64 bits"),
    ):
        harness.process_batch([("a", stamp)])
