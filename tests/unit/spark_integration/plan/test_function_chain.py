"""Chains of stateless functions: order, time stamps, keys, and errors that say where they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import types as t

from varvite.changelog.types.dynamic_key import DynamicKeyType
from varvite.changelog.types.factory import Types, as_type
from varvite.changelog.types.wire import WireType
from varvite.spark_integration.elements.types import RowElements, TypedElements, pickled_elements
from varvite.spark_integration.functions.keyed import RuntimeContext
from varvite.spark_integration.functions.stateless import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    check_function,
)
from varvite.spark_integration.functions.watermark_strategy import TimestampAssigner
from varvite.spark_integration.plan.function_chain import ChainPlace, FunctionChain, KeyStep, Step, StepError, StepKind
from varvite.storage.errors import InvalidRequestError

PLACE = ChainPlace(1, 4, 128, {"greeting": "hello"})


def step(kind: StepKind, function: Any, name: str = "") -> Step:
    return Step(kind, name or kind, cloudpickle.dumps(function))


def opened(*steps: Step, key: Callable[[Any], Any] | KeySelector | None = None, kind: WireType | None = None) -> Any:
    chain = FunctionChain(
        steps, None if key is None else KeyStep(cloudpickle.dumps(key), kind or DynamicKeyType()), PLACE
    )
    chain.open()
    return chain


class Doubled(MapFunction):
    def map(self, value: int) -> int:
        return 2 * value


class Twice(FlatMapFunction):
    def flat_map(self, value: int) -> Iterator[int]:
        yield value
        yield value


class Positive(FilterFunction):
    def filter(self, value: int) -> bool:
        return value > 0


class Stamped(ProcessFunction):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[tuple[int, int | None]]:
        yield value, ctx.timestamp()


class Tens(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return 10 * value if record_timestamp < 0 else record_timestamp + 1


class Greeting(MapFunction):
    """Says where it runs, and what became of it."""

    log: list[str] = []  # noqa: RUF012 - of the class: the instance in the chain is a copy

    def open(self, runtime_context: RuntimeContext) -> None:
        self.place = runtime_context.get_task_name_with_subtasks()
        self.word = runtime_context.get_job_parameter("greeting", "?")
        self.log.append("open")

    def map(self, value: Any) -> str:
        return f"{self.word} {value} from {self.place}"

    def close(self) -> None:
        self.log.append("close")


def test_functions_and_callables_are_called_in_order() -> None:
    chain = opened(
        step("filter", Positive()),
        step("map", Doubled()),
        step("flat_map", Twice()),
        step("map", lambda value: value + 1),
        step("filter", lambda value: value != 5),
        step("flat_map", lambda value: None if value == 7 else [value]),
    )
    assert chain.run([-1, 1, 2, 3, 4]) == ([3, 3, 9, 9], None)
    assert chain.run([]) == ([], None)


def test_what_is_made_of_an_element_has_its_time_stamp() -> None:
    chain = opened(step("timestamps", Tens()), step("flat_map", Twice()), step("filter", lambda value: value != 2),
                   step("map", str))  # fmt: skip
    assert chain.run([1, 2, 3]) == (["1", "1", "3", "3"], [10, 10, 30, 30])
    assert opened(step("timestamps", Tens())).run([1, 2], [5, 6]) == ([1, 2], [6, 7])
    assert opened(step("process", Stamped())).run([1, 2], [5, None]) == ([(1, 5), (2, None)], [5, None])
    assert opened(step("process", Stamped())).run([1]) == ([(1, None)], None)


def test_functions_are_opened_with_their_place_and_closed() -> None:
    Greeting.log.clear()
    chain = opened(step("map", Greeting(), "greet"))
    assert chain.run(["a"])[0] == ["hello a from greet (2/4)"]
    chain.close()
    assert Greeting.log == ["open", "close"]


@pytest.mark.parametrize(
    ("kind", "function"),
    [("map", lambda value: 1 / value), ("flat_map", lambda value: [1 / value]), ("filter", lambda value: 1 / value)],
)
def test_an_error_names_the_step_and_the_element(kind: StepKind, function: Any) -> None:
    chain = opened(step(kind, function, "inverse"))
    with pytest.raises(StepError) as raised:
        chain.run([2, 0, 1])
    assert raised.value.where == "in step inverse, at element 0"
    assert isinstance(raised.value.cause, ZeroDivisionError)


def test_a_function_finds_the_declared_type_of_the_one_before() -> None:
    named = TypedElements(as_type(Types.ROW_NAMED(["n"], [Types.LONG()])))
    first = Step("map", "first", cloudpickle.dumps(lambda value: [value]), named)
    assert opened(first, step("map", lambda row: row.n + 1)).run([1, 2])[0] == [2, 3]
    with pytest.raises(StepError, match="an int is needed") as raised:
        opened(first).run(["x"])
    assert raised.value.where == "in step first"


def test_rows_and_plain_values_conform_as_they_would_travel() -> None:
    rows = RowElements(t.StructType([t.StructField("a", t.LongType()), t.StructField("b", t.StringType())]))
    assert [(row.a, row["b"]) for row in rows.conform([(1, "x"), {"a": 2}])] == [(1, "x"), (2, None)]
    assert TypedElements(as_type(Types.DOUBLE())).conform([1, None, -0.0]) == [1.0, None, 0.0]
    anything = object()
    assert pickled_elements().conform([anything, None]) == [anything, None]


def test_an_error_while_opening_names_the_step() -> None:
    class Broken(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_state(None)  # type: ignore[arg-type]

        def map(self, value: Any) -> Any:
            return value

    with pytest.raises(StepError, match="keyed state on a stream without keys") as raised:
        opened(step("map", Broken(), "broken"))
    assert raised.value.where == "in step broken"


def test_all_functions_are_closed_although_one_raises() -> None:
    class Unclosable(MapFunction):
        def map(self, value: Any) -> Any:
            return value

        def close(self) -> None:
            raise OSError("no")

    Greeting.log.clear()
    chain = opened(step("map", Unclosable()), step("map", Greeting()))
    with pytest.raises(StepError):
        chain.close()
    assert Greeting.log == ["open", "close"]


def test_keys_are_a_column_of_their_type() -> None:
    assert (
        opened(key=lambda value: value % 2, kind=as_type(Types.LONG()))
        .keys([1, 2])
        .equals(pa.array([1, 0], pa.int64()))
    )
    column = opened(key=lambda value: value).keys([1, 1.0, None, "1"])
    assert column.null_count == 1
    assert len(set(column.to_pylist())) == 4

    class First(KeySelector):
        def get_key(self, value: Any) -> Any:
            return value[0]

    assert opened(key=First(), kind=as_type(Types.STRING())).keys(["ab"]).to_pylist() == ["a"]


def test_a_key_that_is_none_names_the_element() -> None:
    for chain in (opened(key=lambda value: [value]), opened(key=str, kind=as_type(Types.LONG()))):
        with pytest.raises(StepError) as raised:
            chain.keys([7])
        assert raised.value.where == "in step key_by, at element 7"
        assert isinstance(raised.value.cause, InvalidRequestError)


def test_a_class_or_something_that_cannot_be_called_is_refused() -> None:
    for wrong in (Doubled, 5, Twice()):
        with pytest.raises(InvalidRequestError, match="map takes"):
            check_function(wrong, MapFunction, "map")
    with pytest.raises(InvalidRequestError, match="process takes a ProcessFunction, not"):
        check_function(lambda value: value, ProcessFunction, "process", callables=False)
    check_function(str, MapFunction, "map")
