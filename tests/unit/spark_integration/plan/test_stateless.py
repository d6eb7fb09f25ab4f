"""Stateless nodes are made from nodes alone, without streams or an environment."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import types as t

from varvite.changelog.api.time_spans import Duration, Time
from varvite.changelog.types.factory import Types, as_type
from varvite.spark_integration.elements.types import ElementType, RowElements, TypedElements
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.functions.output_tag import OutputTag
from varvite.spark_integration.functions.watermark_strategy import WatermarkStrategy
from varvite.spark_integration.plan.keyed import keyed_operator, stream_key
from varvite.spark_integration.plan.stateless import side_output, step, timestamps, union, with_watermark
from varvite.spark_integration.plan.transformations import DataFrameSource, EventTime, StepTransformation
from varvite.storage.errors import InvalidRequestError


class Reduced(KeyedProcessFunction[Any, Any, Any]):
    """Yields nothing."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        return None


LONGS = TypedElements(as_type(Types.LONG()))
ROWS = RowElements(t.StructType([t.StructField("k", t.StringType()), t.StructField("at", t.TimestampType())]))


def source(elements: ElementType = LONGS, event_time: EventTime | None = None) -> DataFrameSource:
    frame: Any = None
    return DataFrameSource(elements=elements, dataframe=frame, event_time=event_time)


def test_a_step_reads_the_node_before_it() -> None:
    before = source()
    node = step(before, "map", lambda value: value, LONGS)
    assert (node.kind, node.step, node.inputs, node.elements) == ("map", "map", (before,), LONGS)


def test_a_union_has_the_elements_of_its_inputs() -> None:
    nodes = [source(), source(), step(source(), "filter", bool, LONGS)]
    node = union(nodes)
    assert node.inputs == tuple(nodes)
    assert node.elements == LONGS
    with pytest.raises(InvalidRequestError, match="elements of one type"):
        union([source(), source(ROWS)])


def test_what_a_stateful_operator_made_is_united_as_any_stream_and_has_side_outputs() -> None:
    before = source(ROWS)
    operator = keyed_operator(before, stream_key(before, ("k",)), "process", Reduced(), LONGS)
    assert union([source(), operator]).inputs[1] is operator
    assert side_output(operator, OutputTag("late", Types.LONG())).inputs == (operator,)
    with pytest.raises(InvalidRequestError, match="source has no side outputs"):
        side_output(before, OutputTag("late"))


def test_event_times_are_given_once() -> None:
    timed = with_watermark(source(ROWS), "at", "5 seconds")
    assert timed.event_time == EventTime("at", 5000)
    for delay in (Time.seconds(5), Duration.of_seconds(5), timedelta(seconds=5), 5000):
        assert with_watermark(source(ROWS), "at", delay).event_time == EventTime("at", 5000)
    with pytest.raises(InvalidRequestError, match="already"):
        with_watermark(timed, "at", 1)
    with pytest.raises(InvalidRequestError, match="belongs to the input"):
        with_watermark(step(timed, "filter", bool, ROWS), "at", 1)


def test_a_strategy_without_an_assigner_keeps_the_timestamps_that_there_are(caplog: pytest.LogCaptureFixture) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2))
    plain = source()
    with caplog.at_level("INFO"):
        assert timestamps(plain, strategy) is plain, "nothing happens, as in PyFlink"
    assert "with_timestamp_assigner" in caplog.text
    node = timestamps(with_watermark(source(ROWS), "at", "5 seconds"), strategy)
    assert isinstance(node, StepTransformation)
    assert node.watermark_delay_ms == 2001
    assert cloudpickle.loads(node.function.function).extract_timestamp("element", 77) == 77
