"""`WindowedStream`: what it makes of its arguments, and what it refuses at once."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from tests.jobs.window_job import Count
from varvite.changelog.api.functions import Function
from varvite.changelog.types.factory import Types, as_type
from varvite.common import Duration, Time
from varvite.datastream import (
    AllWindowFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from varvite.datastream.window import (
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from varvite.spark_integration.api.windowed import AllWindowedStream, WindowedStream
from varvite.spark_integration.elements.types import TypedElements, pickled_elements
from varvite.spark_integration.operators.windows.any_trigger_operator import (
    TriggeredFixedWindowOperator,
    TriggeredGlobalWindowOperator,
    TriggeredSessionOperator,
)
from varvite.spark_integration.operators.windows.operator import (
    FixedWindowOperator,
    GlobalWindowOperator,
    SessionWindowOperator,
)
from varvite.spark_integration.plan.operator import plan_operator
from varvite.storage.errors import InvalidRequestError

ELEMENTS = TypedElements(as_type(Types.LONG()))


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
    assert [(what, uid, name) for what, _, _, uid, name, _ in added] == [
        ("window", None, None), ("window", None, None), ("window", "counts", "counting"), ("window", "columns", None),
        ("window", None, None),
    ]  # fmt: skip
    types = [ELEMENTS, ELEMENTS, pickled_elements(), None, ELEMENTS]
    assert all(expected in (None, made) for expected, (_, _, made, *_) in zip(types, added, strict=True))
    for _, operator, made, *_ in added:
        assert type(pickle.loads(pickle.dumps(operator))) is kind
        plan = plan_operator(ELEMENTS.schema, ["value"], operator, made.schema, uid="u")
        assert plan.has_timers


def test_a_lateness_is_said_in_any_span() -> None:
    stream, _ = windowed(TumblingEventTimeWindows.of(10))
    for span in (1500, Time.milliseconds(1500), Duration.of_millis(1500), timedelta(milliseconds=1500)):
        assert stream.allowed_lateness(span)._lateness_ms == 1500


def test_global_windows_fire_by_count() -> None:
    stream, added = windowed(GlobalWindows.create())
    with pytest.raises(InvalidRequestError, match="never end"):
        stream.reduce(max)
    stream.trigger(PurgingTrigger.of(CountTrigger.of(3))).reduce(max)
    assert type(added[0][1]) is GlobalWindowOperator


@pytest.mark.parametrize(
    ("assigner", "trigger", "kind"),
    [
        (SlidingEventTimeWindows.of(10, 5), PurgingTrigger.of(CountTrigger.of(2)), TriggeredFixedWindowOperator),
        (EventTimeSessionWindows.with_gap(5), ProcessingTimeTrigger.create(), TriggeredSessionOperator),
        (GlobalWindows.create(), ContinuousProcessingTimeTrigger.of(5), TriggeredGlobalWindowOperator),
    ],
    ids=["sliding", "session", "global"],
)
def test_a_trigger_that_has_to_be_asked_travels_with_its_operator(assigner: Any, trigger: Any, kind: Any) -> None:
    stream, added = windowed(assigner)
    stream.trigger(trigger).reduce(max)
    operator = pickle.loads(pickle.dumps(added[0][1]))
    assert type(operator) is kind
    assert operator._trigger == trigger


def test_late_elements_have_an_output() -> None:
    stream, added = windowed(TumblingEventTimeWindows.of(5))
    stream.reduce(max)
    stream.side_output_late_data(OutputTag("late", Types.LONG())).reduce(max)
    assert [late for *_, late in added] == [None, "late"]
    assert [operator._late_output for _, operator, *_ in added] == [None, OutputTag("late")]


class Telling(Function):
    """Tells when it is opened and closed."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def open(self, runtime_context: Any) -> None:
        self.said.append(runtime_context)

    def close(self) -> None:
        self.said.append("close")


class Plain(Telling, AllWindowFunction[Any, Any, Any]):
    """Gives window and elements out."""

    def apply(self, window: Any, inputs: Any) -> Any:
        return [(window, *inputs)]


class Knowing(Telling, ProcessAllWindowFunction[Any, Any, Any]):
    """Gives context and elements out."""

    def process(self, context: Any, elements: Any) -> Any:
        return [(context, *elements)]

    def clear(self, context: Any) -> None:
        self.said.append(context)


def test_windows_without_keys_call_functions_without_keys() -> None:
    added: list[Any] = []

    def add(*arguments: Any) -> Any:
        added.append(arguments)

    stream = AllWindowedStream(ELEMENTS, add, TumblingEventTimeWindows.of(5))
    plain, knowing = Plain(), Knowing()
    stream.apply(plain)
    stream.process(knowing)
    stream.aggregate(Count(), Plain())
    stream.reduce(max)
    functions = [operator._emission._function for _, operator, *_ in added]
    assert functions[3] is None
    assert functions[0].apply("key", "window", [1, 2]) == functions[2].apply("key", "window", [1, 2])
    assert functions[0].apply("key", "window", [1, 2]) == [("window", 1, 2)]
    assert functions[1].process("key", "context", [1]) == [("context", 1)]
    for function in functions[:2]:
        function.open("open")
    functions[1].clear("cleared")
    for function in functions[:2]:
        function.close()
    assert (plain.said, knowing.said) == (["open", "close"], ["open", "cleared", "close"])
    with pytest.raises(InvalidRequestError, match="AllWindowFunction"):
        stream.apply(Apply())  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="AllWindowFunction"):
        stream.reduce(max, Apply())


@pytest.mark.parametrize(
    "do",
    [
        lambda stream: stream.trigger("later"),
        lambda stream: stream.side_output_late_data("late"),
        lambda stream: stream.allowed_lateness(-1),
        lambda stream: stream.allowed_lateness(timedelta(seconds=-1)),
        lambda stream: stream.allowed_lateness(Duration(-1)),
        lambda stream: stream.allowed_lateness("1 s"),
        lambda stream: stream.reduce(3),
        lambda stream: stream.reduce(max, window_function=lambda key, window, inputs: inputs),
        lambda stream: stream.aggregate(max),
        lambda stream: stream.apply(Process()),
        lambda stream: stream.process(Apply()),
        lambda stream: stream.process(Process),
        lambda stream: stream.process(Process(), "n bigint"),
    ],
    ids=[f"{number}" for number in range(13)],
)
def test_what_cannot_be_is_refused_at_that_line(do: Any) -> None:
    stream, added = windowed(TumblingProcessingTimeWindows.of(5))
    with pytest.raises(InvalidRequestError):
        do(stream)
    assert added == []


def test_something_that_is_no_window_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"TumblingEventTimeWindows\.of"):
        windowed(5)
