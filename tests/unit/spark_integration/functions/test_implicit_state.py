"""States that reduce and windows keep by themselves: which would hold pickled objects, and what is said of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.jobs.window_job import Count
from varvite.changelog.types.factory import Types
from varvite.datastream import ProcessWindowFunction, WindowFunction
from varvite.datastream.window import CountTrigger, EventTimeSessionWindows, GlobalWindows, TumblingEventTimeWindows
from varvite.spark_integration.connectors.sources.collection import collection_source
from varvite.spark_integration.elements.types import UndeclaredElements, united_elements
from varvite.spark_integration.functions.implicit_state import OF_ACCUMULATOR, OF_ELEMENTS
from varvite.spark_integration.harness.plan import HarnessSettings, harness_plan, harness_program
from varvite.spark_integration.plan import job
from varvite.spark_integration.plan.job import check_generic_types
from varvite.spark_integration.plan.operator import OperatorPlan, elements_of
from varvite.storage.errors import InvalidRequestError

PICKLED = Types.PICKLED_BYTE_ARRAY()
TUMBLING = TumblingEventTimeWindows.of(5)


class Apply(WindowFunction[Any, Any, Any, Any]):
    """Gives nothing."""

    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return []


class Process(ProcessWindowFunction[Any, Any, Any, Any]):
    """Gives nothing."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return []


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "reduce": lambda keyed: keyed.reduce(max),
    "reduced windows": lambda keyed: keyed.window(TUMBLING).reduce(max),
    "applied windows": lambda keyed: keyed.window(EventTimeSessionWindows.with_gap(5)).apply(Apply(), Types.LONG()),
    "processed windows": lambda keyed: (
        keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(3)).process(Process(), Types.LONG())
    ),
    "counted windows": lambda keyed: keyed.count_window(3).reduce(max),
}
"""Operator that keeps elements."""


def planned(build: Callable[[Any], Any], input_type: Any = None, **options: Any) -> OperatorPlan:
    program = harness_program(build, (input_type,))
    return harness_plan(program, HarnessSettings(options=options)).job.operators[0]


def keyed(stream: Any) -> Any:
    return stream.key_by(lambda value: value, Types.LONG())


@pytest.mark.parametrize("what", OPERATORS)
def test_elements_that_nobody_declared_are_kept_pickled_with_a_warning(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    operate = OPERATORS[what]
    with caplog.at_level(logging.WARNING, logger=job.__name__):
        plan = planned(lambda stream: operate(keyed(stream.map(lambda value: value))).uid("mine"), Types.LONG())
    (state,) = plan.implicit_states
    assert (state.kind, state.undeclared) == (PICKLED, OF_ELEMENTS)
    (warning,) = caplog.messages
    for part in (
        "job harness",
        repr(state.name),
        "'mine'",
        OF_ELEMENTS,
        "docs/operate/security.md",
        "pipeline.generic-types",
    ):
        assert part in warning


@pytest.mark.parametrize("what", OPERATORS)
@pytest.mark.parametrize("declared", [Types.LONG(), PICKLED, Types.TUPLE([Types.LONG(), PICKLED])], ids=str)
def test_what_is_declared_is_kept_as_such_without_a_word(
    what: str, declared: Any, caplog: pytest.LogCaptureFixture
) -> None:
    operate = OPERATORS[what]
    with caplog.at_level(logging.WARNING, logger=job.__name__):
        (state,) = planned(lambda stream: operate(keyed(stream.map(lambda value: value, declared)))).implicit_states
    assert (state.kind, state.undeclared) == (declared, "")
    assert caplog.messages == []


def test_filters_and_time_stamps_declare_nothing() -> None:
    plan = planned(lambda stream: keyed(stream.filter(bool)).reduce(max))
    assert plan.implicit_states[0].undeclared == OF_ELEMENTS


def test_an_accumulator_is_declared_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    def windows(accumulator_type: Any) -> OperatorPlan:
        return planned(lambda stream: keyed(stream).window(TUMBLING).aggregate(Count(), None, accumulator_type))

    with caplog.at_level(logging.WARNING, logger=job.__name__):
        assert windows(Types.LONG()).implicit_states[0].kind == Types.LONG()
        assert caplog.messages == []
        (state,) = windows(None).implicit_states
    assert (state.kind, state.undeclared) == (PICKLED, OF_ACCUMULATOR)
    assert OF_ACCUMULATOR in caplog.messages[0]


@pytest.mark.parametrize("what", OPERATORS)
@pytest.mark.parametrize("declared", [None, PICKLED, Types.LIST(PICKLED)], ids=str)
def test_where_no_generic_type_is_allowed_none_is_declared_or_not(what: str, declared: Any) -> None:
    operate = OPERATORS[what]
    with pytest.raises(InvalidRequestError, match=r"pipeline\.generic-types=false does not allow"):
        planned(lambda stream: operate(keyed(stream)), declared, **{"pipeline.generic-types": "false"})
    planned(lambda stream: operate(keyed(stream)), Types.LONG(), **{"pipeline.generic-types": "false"})


def test_elements_in_flight_may_be_anything_all_the_same() -> None:
    planned(
        lambda stream: stream.map(str).key_by(lambda text: text, Types.STRING()).map(len),
        **{"pipeline.generic-types": "false"},
    )


def test_a_collection_is_stored_until_it_is_processed() -> None:
    untyped, typed = (collection_source(elements_of(kind), [1]) for kind in (None, Types.LONG()))
    check_generic_types("job", [], [untyped, typed], allowed=True)
    check_generic_types("job", [], [typed], allowed=False)
    with pytest.raises(InvalidRequestError, match=r"from_collection would be pickled.*type_info"):
        check_generic_types("job", [], [typed, untyped], allowed=False)


def test_a_union_is_undeclared_if_one_of_its_streams_is() -> None:
    declared, undeclared = elements_of(PICKLED), elements_of(None)
    assert declared == undeclared
    for one, other in ((declared, undeclared), (undeclared, declared)):
        assert isinstance(united_elements(one, other), UndeclaredElements)
    assert not isinstance(united_elements(declared, declared), UndeclaredElements)
