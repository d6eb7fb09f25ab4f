"""Yields of a function with a tag: their place in an answer, and errors of wrong programs. Without a JVM."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import types as t

from varvite.changelog.types.factory import Types, as_type
from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.api.stream import DataStream
from varvite.spark_integration.elements.arrow_rows import RowWriter
from varvite.spark_integration.elements.side_by_side import OUTPUT_COLUMN, rows_column
from varvite.spark_integration.elements.types import TypedElements
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.functions.output_tag import OutputTag, is_tagged, untagged
from varvite.spark_integration.plan.element_operator import ElementOperator, OperatorElements, SideOutput
from varvite.spark_integration.plan.function_chain import ChainPlace, Step
from varvite.spark_integration.plan.graph import plan_graph
from varvite.storage.errors import InvalidRequestError

LATE, ODD = OutputTag("late", Types.STRING()), OutputTag("odd", Types.LONG())


class Same(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value


@pytest.fixture
def operator() -> DataStream:
    env = StreamExecutionEnvironment(None)  # type: ignore[arg-type]
    return env.from_collection([1], Types.LONG()).key_by(lambda x: x).process(Same(), Types.LONG())


def answer(sides: tuple[SideOutput, ...], yielded: list[Any]) -> list[list[Any]]:
    longs = TypedElements(as_type(Types.LONG()))
    shipped = ElementOperator(cloudpickle.dumps(Same()), longs, longs, longs, sides=sides)
    elements = OperatorElements(shipped, "operator", ChainPlace(0, 1, 128, {}))
    columns = elements.columns(yielded)
    elements.close()
    return [column.to_pylist() for column in columns]


def test_each_output_has_its_own_rows() -> None:
    strings, longs = TypedElements(as_type(Types.STRING())), TypedElements(as_type(Types.LONG()))
    double = Step("map", "double", cloudpickle.dumps(lambda x: x * 2))
    sides = (SideOutput("late", strings, strings), SideOutput("odd", longs, longs, (double,)))
    yielded = [1, (LATE, "x"), (ODD, 5), 2, (OutputTag("unread"), object()), (LATE, "y")]
    main, numbers, late, odd = answer(sides, yielded)
    assert main == [1, 2, None, None, None]
    assert numbers == [None, None, 0, 0, 1]
    assert late == [None, None, {"value": "x"}, {"value": "y"}, None]
    assert odd == [None, None, None, None, {"value": 10}]
    assert answer(sides, []) == [[], [], [], []]
    with pytest.raises(InvalidRequestError):
        answer(sides, [(ODD, "text")])


def test_what_nobody_reads_is_dropped() -> None:
    assert answer((), [1, (LATE, "x"), 2]) == [[1, 2]]
    schema = pa.schema({"a": pa.string(), "b": pa.int64()})
    with pytest.raises(InvalidRequestError):
        RowWriter(schema, "rows").columns([(LATE, 1)])
    assert untagged([(LATE, 1), ("a", 1), [LATE, 1], (LATE,)]) == [("a", 1), [LATE, 1], (LATE,)]
    assert is_tagged((LATE, None))


def test_a_plan_has_a_column_for_each_side_output(operator: DataStream) -> None:
    ends = [operator.get_side_output(LATE), operator.get_side_output(ODD).map(str, Types.STRING()).filter(bool)]
    settings = operator.get_execution_environment().graph_settings
    plan = plan_graph(operator.transformation, settings, [end.transformation for end in ends])
    (planned,) = plan.operators
    assert planned.output_schema.names == ["value", OUTPUT_COLUMN, rows_column(0), rows_column(1)]
    shipped = cloudpickle.loads(planned.function.function)
    assert [(side.tag_id, [step.kind for step in side.steps]) for side in shipped.sides] == [
        ("late", []),
        ("odd", ["map", "filter"]),
    ]
    assert planned.uid == plan_graph(operator.transformation, settings).operators[0].uid
    assert isinstance(planned.output_schema[rows_column(1)].dataType, t.StructType)


def test_what_cannot_be_is_an_error(operator: DataStream) -> None:
    env = operator.get_execution_environment()
    late = operator.get_side_output(LATE)
    second = operator.key_by(lambda x: x).map(str)

    def plan(end: DataStream, *sides: DataStream) -> Any:
        return plan_graph(end.transformation, env.graph_settings, [side.transformation for side in sides])

    wrong: dict[str, Any] = {
        "takes an OutputTag": lambda: operator.get_side_output("late"),  # type: ignore[arg-type]
        "filter has no side outputs": lambda: operator.filter(bool).get_side_output(LATE),
        "not empty": lambda: OutputTag(""),
        "last stateful operator": lambda: plan(second, late),
        "does not come from get_side_output": lambda: operator.format("csv").side_output(second, print),
    }
    for message, call in wrong.items():
        with pytest.raises(InvalidRequestError, match=message):
            call()


def test_tags_are_the_same_by_id() -> None:
    assert OutputTag("a", Types.LONG()) == OutputTag("a")
    assert len({OutputTag("a"), OutputTag("a"), OutputTag("b")}) == 2
    assert repr(OutputTag("a")) == "OutputTag('a')"
