"""Behind another operator rows come at the watermark of the batch before, and due timers fire at that of the batch."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as t

from tests.jobs.operator_stage import Stage
from tests.jobs.window_job import Element, window_operator
from varvite.changelog.types.factory import Types
from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.api.stream import DataStream
from varvite.spark_integration.elements.types import RowElements
from varvite.spark_integration.functions.keyed import MIN_WATERMARK, KeyedProcessFunction
from varvite.spark_integration.functions.watermark_strategy import TimestampAssigner, WatermarkStrategy
from varvite.spark_integration.operators.windows.assigners import TumblingEventTimeWindows
from varvite.spark_integration.operators.windows.contents import ReducedContents
from varvite.spark_integration.plan.keyed import event_time_before
from varvite.spark_integration.plan.transformations import DataFrameSource, EventTime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Watermarks(KeyedProcessFunction[Any, Any, Any]):
    """Tells the watermark at each row and each timer, which are at the times of the rows and 5 ms later."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        assert ctx.current_watermark() == ctx.timer_service().current_watermark()
        ctx.timer_service().register_event_time_timer(ctx.timestamp())
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 5)
        yield "row", ctx.timestamp(), ctx.current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer", timestamp, ctx.timer_service().current_watermark()


class Number(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value.n


@pytest.mark.parametrize(("follows", "at_rows"), [(False, [10, 20]), (True, [MIN_WATERMARK, 10])])
def test_the_watermark_comes_after_the_rows_of_another_operator(
    tmp_path: Path, at_rows: list[int], *, follows: bool
) -> None:
    stage = Stage("hashmap", tmp_path / "state", Watermarks(), follows=follows)
    assert stage.batch([Element("a", 1, 9)], 10, None) == [("row", 9, at_rows[0]), ("timer", 9, 10)]
    stage.end("crash")
    expected = sorted([("row", 19, at_rows[1]), ("timer", 14, 20), ("timer", 19, 20)])
    assert sorted(stage.batch([Element("a", 2, 19)], 20, 10)) == expected
    stage.end("drop")
    assert sorted(stage.batch([Element("a", 2, 19)], 20, 10)) == expected, "the same again"
    stage.end("")
    assert stage.batch([], 20, 20) == []
    assert stage.batch([], 24, 20) == [("timer", 24, 24)]
    stage.job.close()


@pytest.mark.parametrize("follows", [False, True])
def test_the_log_tells_the_first_late_row_behind_another_operator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, follows: bool
) -> None:
    windows = window_operator(TumblingEventTimeWindows.of(10), ReducedContents(_first, Types.PICKLED_BYTE_ARRAY()))
    stage = Stage("hashmap", tmp_path / "state", windows, follows=follows)
    with caplog.at_level(logging.WARNING):
        fired = stage.batch([Element("a", 1, 15), Element("a", 2, 5), Element("a", 3, 6)], 30, 9)
    assert [row.v for row in fired] == ([1] if follows else [])
    told = [record.getMessage() for record in caplog.records if "is late" in record.getMessage()]
    assert len(told) == int(follows)
    assert all("a row of 5 ms" in line and "watermark was 9 ms" in line for line in told)
    stage.job.close()


def test_a_column_is_no_time_stamp_once_time_stamps_were_assigned() -> None:
    schema = t.StructType().add("k", t.StringType()).add("at", t.TimestampType()).add("n", t.LongType())
    env = StreamExecutionEnvironment(None)  # type: ignore[arg-type]
    source = DataFrameSource(elements=RowElements(schema), dataframe=None, event_time=EventTime("at", 5))  # type: ignore[arg-type]
    stream = DataStream(env, source)
    output = "k string, at timestamp, n bigint"
    assert event_time_before(stream.key_by("k").process(Watermarks(), output, uid="one")._transformation) == "at"
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Number())
    assigned = stream.assign_timestamps_and_watermarks(strategy).key_by("k").process(Watermarks(), output, uid="one")
    assert event_time_before(assigned._transformation) is None


def _first(one: Any, other: Any) -> Any:
    del other
    return one
