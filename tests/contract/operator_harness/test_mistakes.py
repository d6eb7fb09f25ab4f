"""Mistakes that programs make with output and timers: each is an error or a warning that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from varvite import KeyedProcessFunction
from varvite.common import Time
from varvite.spark_integration.functions.connected import KeyedCoProcessFunction
from varvite.spark_integration.operators.windows.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from varvite.storage.errors import UserFunctionError
from varvite.testing import OperatorHarness


class Card(NamedTuple):
    """A row with names."""

    card: str
    n: int


class Returns(KeyedProcessFunction[Any, Any, Any]):
    """Returns, or yields, a fixed value."""

    def __init__(self, value: Any, *, in_timer: bool = False) -> None:
        self.value = value
        self.in_timer = in_timer

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        if not self.in_timer:
            return self.value
        ctx.timer_service().register_processing_time_timer(ctx.current_processing_time() + 1)
        return None

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        return self.value


class ReturnsRow(StatefulProcessor):
    """Returns one row."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
        return Row(card="a", n=1)


def output(function: Any, columns: str = "card string, n bigint") -> list[Any]:
    with OperatorHarness.of_function(function, "k", "k string", columns) as harness:
        harness.process_batch([("a",)])
        return harness.process_batch([], processing_time=100)


@pytest.mark.parametrize("in_timer", [False, True])
@pytest.mark.parametrize("columns", ["card string", "card string, n bigint"])
@pytest.mark.parametrize("value", [{"card": "a"}, Row(card="a"), "ab", b"cd", Card("a", 1), 5])
def test_one_row_that_is_returned_is_an_error_that_says_so(value: Any, columns: str, in_timer: bool) -> None:
    """Found as a row for each letter, field name or value, without a word."""
    with pytest.raises(UserFunctionError, match="yield the row, or return a list of rows"):
        output(Returns(value, in_timer=in_timer), columns)


def test_a_tuple_that_is_returned_is_an_error_that_says_so() -> None:
    with pytest.raises(UserFunctionError, match="must yield it, not return it"):
        output(Returns(("a", 1)))
    with pytest.raises(UserFunctionError, match="yield the row, or return a list of rows"):
        output(ReturnsRow())


def test_one_row_that_a_step_without_state_returns_is_an_error_that_says_so() -> None:
    def build(stream: Any) -> Any:
        steps = stream.flat_map(lambda row: {"k": row.k}, "k string").key_by("k")
        return steps.process(Returns(None), "k string", uid="op")

    with (
        OperatorHarness(build, "k string") as harness,
        pytest.raises(UserFunctionError, match="yield the row, or return a list of rows"),
    ):
        harness.process_batch([("a",)])


@pytest.mark.parametrize("value", [[("a", 1)], (("a", 1),), iter([("a", 1)]), [{"card": "a", "n": 1}], [Card("a", 1)]])
def test_rows_that_are_returned_are_the_output(value: Any) -> None:
    function = Returns(value)
    function.value = list(value) if isinstance(value, Iterator) else value
    with OperatorHarness.of_function(function, "k", "k string", "card string, n bigint") as harness:
        assert [tuple(row) for row in harness.process_batch([("a",)])] == [("a", 1)]


@pytest.mark.parametrize("row", [{"crad": "a", "n": 1}, {"card": "a", "n": 1, "crad": 2}])
def test_an_unknown_column_of_a_dict_is_an_error_with_the_name_that_was_meant(row: dict[str, Any]) -> None:
    """Found as a null in the output."""
    with pytest.raises(UserFunctionError, match="'crad' that the output does not have; did you mean 'card'"):
        output(Returns([row]))
    with OperatorHarness.of_function(Returns([{"n": 1}]), "k", "k string", "card string, n bigint") as harness:
        assert [tuple(r) for r in harness.process_batch([("a",)])] == [(None, 1)], "what is missing is null"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("struct<a:int>", {"aa": 1}), ("struct<a:int>", {"a": 1, "b": 2}), ("array<struct<a:int>>", [{"aa": 1}]),
        ("map<string,struct<a:int>>", {"k": {"aa": 1}}), ("struct<s:struct<a:int>>", {"s": {"aa": 1}}),
    ],
)  # fmt: skip
def test_an_unknown_field_within_a_value_is_an_error_at_any_depth(kind: str, value: Any) -> None:
    with pytest.raises(UserFunctionError, match=r"output column 0 'v'.*and not only \['a'\]"):
        output(Returns([{"v": value}]), f"v {kind}")


class Unheard(KeyedProcessFunction[Any, Any, Any]):
    """Registers timers, and has no on_timer."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_processing_time_timer(1)


class UnheardOfTwo(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Registers timers, and has no on_timer."""

    def process_element1(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(1)

    def process_element2(self, value: Any, ctx: Any) -> None:
        pass


class UnheardProcessor(StatefulProcessor):
    """Registers timers, and has no handleExpiredTimer."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        self.handle.registerTimer(1)
        return iter(())


@pytest.mark.parametrize("function", [Unheard(), UnheardProcessor()])
def test_timers_without_effect_are_warned_of(function: Any) -> None:
    with OperatorHarness.of_function(function, "k", "k string", "k string") as harness:
        harness.process_batch([("a",)])
        assert any("without effect" in text for text in harness._job.warnings)


def test_timers_without_effect_of_two_streams_are_warned_of() -> None:
    with OperatorHarness.of_co_function(UnheardOfTwo(), ("k", "k"), ("k string", "k string"), "k string") as harness:
        harness.process_batch([("a",)])
        assert any("no on_timer" in text for text in harness._job.warnings)


def test_timers_with_an_effect_are_not_warned_of() -> None:
    with OperatorHarness.of_function(Returns([("a", 1)], in_timer=True), "k", "k string", "a string, n int") as harness:
        harness.process_batch([("a",)])
        assert not harness._job.warnings


class AddsToTime(KeyedProcessFunction[Any, Any, Any]):
    """Counts with the time stamp."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        stamp: Any = ctx.timestamp()
        yield (str(stamp + 1000),)


def test_arithmetic_with_a_missing_time_stamp_says_that_it_is_missing() -> None:
    def build(stream: Any) -> Any:
        return stream.key_by("k").process(AddsToTime(), "k string", uid="op")

    with (
        OperatorHarness(build, "k string") as harness,
        pytest.raises(UserFunctionError, match=r"NoneType(.|\n)*rows have no time stamps(.|\n)*with_watermark"),
    ):
        harness.process_batch([("a",)])


def windows(stream: Any) -> Any:
    return stream.key_by("k").window(TumblingEventTimeWindows.of(Time.milliseconds(10))).reduce(lambda a, b: a)


def sliding_with_gaps(stream: Any) -> Any:
    assigner = SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(1000))
    return stream.key_by("k").window(assigner).reduce(lambda a, b: a)


@pytest.mark.parametrize(("build", "late"), [(windows, 2), (sliding_with_gaps, 2)])
def test_late_rows_are_counted(build: Any, late: int) -> None:
    """Found as rows that were dropped, and counted nowhere."""
    with OperatorHarness(build, "k string, v int") as harness:
        harness.process_batch([("a", 1), ("a", 2)], [1000, 1500])
        assert harness.late_rows == 0, "a row between two windows is not late"
        harness.process_batch([("a", 1), ("b", 2), ("a", 3)], [10, 20, 2000], watermark=1500)
        assert harness.late_rows == late
        harness.process_batch([("a", 4)], [3000])
        assert harness.late_rows == late
