"""`WindowedStream`: what it makes of its arguments, and what it refuses at once."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from varve.changelog.functions import AggregateFunction
from varve.changelog.types import Types, as_type
from varve.datastream import ProcessWindowFunction, WindowFunction
from varve.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from varve.spark_integration.element_type import TypedElements, pickled_elements
from varve.spark_integration.operator_plan import plan_operator
from varve.spark_integration.window_operator import FixedWindowOperator, GlobalWindowOperator, SessionWindowOperator
from varve.spark_integration.windowed_stream import WindowedStream
from varve.storage.errors import InvalidRequestError

ELEMENTS = TypedElements(as_type(Types.LONG()))


class Count(AggregateFunction[Any, int, int]):
    """Counts."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Apply(WindowFunction[Any, Any, Any, Any]):
    """Gives the elements out."""

    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return inputs


class Process(ProcessWindowFunction[Any, Any, Any, Any]):
    """Gives the elements out."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return elements


def windowed(assigner: Any) -> tuple[WindowedStream, list[Any]]:
    """A windowed stream, and what it adds."""
    added: list[Any] = []

    def add(*arguments: Any) -> Any:
        added.append(arguments)

    return WindowedStream(ELEMENTS, add, assigner), added


@pytest.mark.parametrize(
    ("assigner", "kind"),
    [
        (TumblingEventTimeWindows.of(5), FixedWindowOperator),
        (SlidingEventTimeWindows.of(10, 5), FixedWindowOperator),
        (EventTimeSessionWindows.with_gap(5), SessionWindowOperator),
    ],
    ids=["tumbling", "sliding", "session"],
)
def test_every_way_makes_an_operator_that_travels_and_has_timers(assigner: Any, kind: Any) -> None:
    stream, added = windowed(assigner)
    stream.allowed_lateness(3).trigger(EventTimeTrigger.create())
    stream.reduce(max)
    stream.reduce(max, Apply(), Types.LONG())
    stream.aggregate(Count(), uid="counts", name="counting")
    stream.apply(Apply(), StructType([StructField("n", LongType())]), uid="columns")
    stream.process(Process(), Types.LONG())
    assert [(what, uid, name) for what, _, _, uid, name in added] == [
        ("window", None, None), ("window", None, None), ("window", "counts", "counting"), ("window", "columns", None),
        ("window", None, None),
    ]  # fmt: skip
    types = [ELEMENTS, ELEMENTS, pickled_elements(), None, ELEMENTS]
    assert all(expected in (None, made) for expected, (_, _, made, _, _) in zip(types, added, strict=True))
    for _, operator, made, _, _ in added:
        assert type(pickle.loads(pickle.dumps(operator))) is kind
        plan = plan_operator(ELEMENTS.schema, ["value"], operator, made.schema, uid="u")
        assert plan.has_timers


def test_global_windows_fire_by_count() -> None:
    stream, added = windowed(GlobalWindows.create())
    with pytest.raises(InvalidRequestError, match="never end"):
        stream.reduce(max)
    stream.trigger(PurgingTrigger.of(CountTrigger.of(3))).reduce(max)
    assert type(added[0][1]) is GlobalWindowOperator


@pytest.mark.parametrize(
    "do",
    [
        lambda stream: stream.trigger("later"),
        lambda stream: stream.trigger(EventTimeTrigger.create()),
        lambda stream: stream.allowed_lateness(-1),
        lambda stream: stream.allowed_lateness(timedelta(seconds=-1)),
        lambda stream: stream.reduce(3),
        lambda stream: stream.reduce(max, window_function=lambda key, window, inputs: inputs),
        lambda stream: stream.aggregate(max),
        lambda stream: stream.apply(Process()),
        lambda stream: stream.process(Apply()),
        lambda stream: stream.process(Process),
        lambda stream: stream.process(Process(), "n bigint"),
    ],
    ids=[f"{number}" for number in range(11)],
)
def test_what_cannot_be_is_refused_at_that_line(do: Any) -> None:
    stream, added = windowed(TumblingProcessingTimeWindows.of(5))
    with pytest.raises(InvalidRequestError):
        do(stream)
    assert added == []


def test_something_that_is_no_window_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"TumblingEventTimeWindows\.of"):
        windowed(5)
