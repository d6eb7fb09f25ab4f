"""Unions and connected streams as branches of one preparation, and what cannot meet. Without a JVM."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import types as t

from varvite.changelog.api.time_spans import Duration
from varvite.changelog.types.factory import Types
from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.api.stream import DataStream
from varvite.spark_integration.elements.side_by_side import (
    INPUT_COLUMN,
    OUTPUT_COLUMN,
    ConnectedElements,
    rows_column,
)
from varvite.spark_integration.elements.types import RowElements
from varvite.spark_integration.functions.connected import KeyedCoProcessFunction
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.functions.watermark_strategy import TimestampAssigner, WatermarkStrategy
from varvite.spark_integration.messages.protocol import EVENT_TIME_COLUMN, KEY_COLUMN
from varvite.spark_integration.plan.element_operator import OperatorElements
from varvite.spark_integration.plan.function_chain import ChainPlace
from varvite.spark_integration.plan.graph import GraphPlan, plan_graph
from varvite.spark_integration.plan.input_branches import BranchedPreparation
from varvite.spark_integration.plan.input_watermarks import InputDelay
from varvite.spark_integration.plan.transformations import DataFrameSource
from varvite.storage.errors import InvalidRequestError

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class Both(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        yield value

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        yield value


class Timed(Both):
    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Any:
        yield timestamp


class SamePair(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value


class Last(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[-1]


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    """An environment to build graphs with; nothing of it runs."""
    return StreamExecutionEnvironment(None)  # type: ignore[arg-type]


@pytest.fixture
def pairs(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([("a", 1)], PAIR)


def rows_of(env: StreamExecutionEnvironment, *fields: t.StructField) -> DataStream:
    source = DataFrameSource(elements=RowElements(t.StructType([*fields])), dataframe=None, event_time=None)  # type: ignore[arg-type]
    return DataStream(env, source)


def plan_of(stream: DataStream) -> GraphPlan:
    return plan_graph(stream.transformation, stream.get_execution_environment().graph_settings)


def branched(stream: DataStream) -> BranchedPreparation:
    plan = plan_of(stream).preparation
    assert isinstance(plan, BranchedPreparation)
    return plan


def prepared(stream: DataStream, batch: pa.RecordBatch) -> tuple[list[dict[str, Any]], dict[int, int]]:
    """The rows that the branches make of a batch, and each branch's largest event time."""
    plan = branched(stream)
    run = plan.at(ChainPlace(0, 1, 128, {}))
    run.open()
    made = [row for part in run.prepared(batch) for row in part.to_pylist()]
    run.close()
    return made, run.latest


def side_by_side(numbers: list[int], *columns: pa.Array) -> pa.RecordBatch:
    names = [INPUT_COLUMN, *[rows_column(i) for i in range(len(columns))]]
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int32()), *columns], names=names)


def pair_column(*given: tuple[str, int] | None) -> pa.Array:
    kind = pa.struct({"f0": pa.string(), "f1": pa.int64()})
    return pa.array([None if p is None else {"f0": p[0], "f1": p[1]} for p in given], kind)


def test_every_way_from_a_source_is_a_branch(env: StreamExecutionEnvironment, pairs: DataStream) -> None:
    other = env.from_collection([("b", 2)], PAIR)
    whole = pairs.filter(bool).union(other, pairs).map(lambda x: x[0])
    plan = plan_of(whole.key_by(lambda x: x, Types.STRING()).map(str))
    assert isinstance(plan.preparation, BranchedPreparation)
    assert len(plan.sources) == 2
    assert [(b.source, [s.kind for s in b.steps]) for b in plan.preparation.branches] == [
        (0, ["filter", "map"]),
        (1, ["map"]),
        (0, ["map"]),
    ]
    assert plan.preparation.output_schema.names == ["value", KEY_COLUMN]
    assert plan.input_delays == (InputDelay(None),) * 3
    batch = side_by_side([0, 1, 0], pair_column(("a", 1), None, ("c", 3)), pair_column(None, ("b", 2), None))
    made, _ = prepared(whole.key_by(lambda x: x, Types.STRING()).map(str), batch)
    assert [row[KEY_COLUMN] for row in made] == ["a", "c", "a", "c", "b"], "a row goes every way of its source"


def test_connected_streams_lie_side_by_side_with_one_key(env: StreamExecutionEnvironment, pairs: DataStream) -> None:
    rows = rows_of(env, t.StructField("k", t.StringType()), t.StructField("v", t.DoubleType()))
    stream = rows.key_by("k").connect(pairs.key_by("f0")).process(Both()).uid("both")
    (operator,) = plan_of(stream).operators
    assert (operator.uid, operator.key_columns, operator.key_type) == ("both", (KEY_COLUMN,), "1:string")
    assert not operator.has_timers
    first = pa.array([{"k": "x", "v": 0.5}, None], pa.struct({"k": pa.string(), "v": pa.float64()}))
    made, latest = prepared(stream, side_by_side([0, 1], first, pair_column(None, ("y", 2))))
    assert made == [
        {INPUT_COLUMN: 0, rows_column(0): {"k": "x", "v": 0.5}, rows_column(1): None, KEY_COLUMN: "x"},
        {INPUT_COLUMN: 1, rows_column(0): None, rows_column(1): {"f0": "y", "f1": 2}, KEY_COLUMN: "y"},
    ]
    assert latest == {}
    plan = branched(stream)
    assert isinstance(plan.output, ConnectedElements)
    batch = side_by_side([1, 0, 1], pa.array([None, first[0], None], first.type), pair_column(("y", 2), None, ("z", 3)))
    assert plan.output.reader(batch.schema).rows(batch) == [(1, ("y", 2)), (0, ("x", 0.5)), (1, ("z", 3))]


def test_several_key_columns_are_one_key_column(env: StreamExecutionEnvironment, pairs: DataStream) -> None:
    rows = rows_of(env, t.StructField("n", t.LongType()), t.StructField("k", t.StringType()))
    stream = rows.key_by("k", "n").connect(pairs.key_by("f0", "f1")).process(Both())
    first = pa.array([{"n": 1, "k": "x"}], pa.struct({"n": pa.int64(), "k": pa.string()}))
    made, _ = prepared(stream, side_by_side([0], first, pair_column(None)))
    assert list(made[0][KEY_COLUMN].values()) == ["x", 1]


def test_event_times_count_before_later_steps_drop_elements(pairs: DataStream) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Last())
    strategy = strategy.with_idleness(Duration.of_seconds(5))
    timed = pairs.assign_timestamps_and_watermarks(strategy).filter(lambda pair: pair[1] < 5)
    stream = timed.union(pairs).key_by("f0").process(SamePair())
    plan = plan_of(stream)
    assert plan.input_delays == (InputDelay(1, 5000), InputDelay(None))
    assert plan.operators[0].timestamp_column == EVENT_TIME_COLUMN
    made, latest = prepared(stream, side_by_side([0, 0], pair_column(("a", 3), ("b", 9))))
    assert [row[EVENT_TIME_COLUMN] for row in made] == [3, None, None]
    assert latest == {0: 9}


def test_a_connected_function_with_on_timer_has_timers(pairs: DataStream) -> None:
    keyed = pairs.key_by("f0")
    assert plan_of(keyed.connect(keyed).process(Timed())).operators[0].has_timers


def test_rows_are_united_whether_or_not_they_may_be_null(env: StreamExecutionEnvironment) -> None:
    one = rows_of(env, t.StructField("k", t.StringType(), nullable=False))
    other = rows_of(env, t.StructField("k", t.StringType(), metadata={"m": 1}))
    assert one.union(other).schema == t.StructType([t.StructField("k", t.StringType())])


def inputs_of(plan: GraphPlan) -> list[Any]:
    return [None if o.input is None else (o.input.outputs, o.input.preparation is not None) for o in plan.operators]


def test_what_operators_yield_is_read_by_its_number_or_as_a_whole(
    env: StreamExecutionEnvironment, pairs: DataStream
) -> None:
    first, second = pairs.key_by("f0").map(lambda x: x, PAIR), env.from_collection([("b", 2)], PAIR).key_by("f0")
    other = second.map(lambda x: x, PAIR)
    both = plan_of(first.union(other).key_by("f0").filter(bool))
    assert inputs_of(both) == [None, ((), True), (((0, 0), (1, 0)), False)]
    assert both.operators[0].output_schema.names == ["f0", "f1", OUTPUT_COLUMN, rows_column(0)]
    assert both.input_delays == (InputDelay(None), InputDelay(None))
    with_source = plan_of(first.union(pairs).key_by(lambda x: x, PAIR).filter(bool))
    assert inputs_of(with_source) == [None, (((0, 0),), True)]
    preparation: Any = with_source.operators[1].input
    assert preparation.preparation.first_branch == 1
    assert with_source.operators[1].key_columns == (KEY_COLUMN,)
    written = plan_of(first.union(other).map(lambda x: x[1], Types.LONG()))
    assert inputs_of(written)[2] == (((0, 0), (1, 0)), False)
    assert (written.operators[2].parallelism, written.operators[2].output_schema.names) == (1, ["value"])
    assert len({operator.uid for operator in written.operators}) == 3
    chained = plan_of(
        first.key_by("f0").map(lambda x: x, PAIR).key_by("f0").connect(other.key_by("f0")).process(Both())
    )
    assert inputs_of(chained) == [None, None, ((), True), (((1, 0), (2, 0)), False)]


def test_a_way_behind_operators_takes_times_key_and_stream_along(pairs: DataStream) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Last())
    first = pairs.assign_timestamps_and_watermarks(strategy).key_by("f0").map(lambda x: x, PAIR)
    stream = first.connect(pairs).key_by("f0", "f0").process(Timed())
    plan = plan_of(stream)
    assert plan.operators[1].timestamp_column == EVENT_TIME_COLUMN
    shipped = cloudpickle.loads(plan.operators[0].function.function)
    assert (shipped.has_main, shipped.gives_times) == (False, True)
    elements = OperatorElements(shipped, "first", ChainPlace(0, 1, 128, {}))
    main, numbers, rows = (c.to_pylist() for c in elements.columns([(7, ("x", 1)), (None, ("y", 2))])[1:])
    assert (main, numbers) == ([None, None], [0, 0])
    assert rows == [
        {INPUT_COLUMN: 0, rows_column(0): {"f0": "x", "f1": 1}, rows_column(1): None, EVENT_TIME_COLUMN: 7,
         KEY_COLUMN: "x"},
        {INPUT_COLUMN: 0, rows_column(0): {"f0": "y", "f1": 2}, rows_column(1): None, EVENT_TIME_COLUMN: None,
         KEY_COLUMN: "y"},
    ]  # fmt: skip
    elements.close()


def test_a_program_without_such_ways_is_planned_as_before(pairs: DataStream) -> None:
    plan = plan_of(pairs.key_by("f0").map(lambda x: x, PAIR).key_by("f0").map(lambda x: x, PAIR))
    assert inputs_of(plan) == [None, None]


def test_what_cannot_meet_is_said_at_its_line(env: StreamExecutionEnvironment, pairs: DataStream) -> None:
    keyed = pairs.key_by("f0")
    elsewhere = StreamExecutionEnvironment(None).from_collection([("a", 1)], PAIR)  # type: ignore[arg-type]
    numbers = env.from_collection([1], Types.LONG())
    wrong: dict[str, Any] = {
        "elements of one type": lambda: pairs.union(numbers),
        "different environments": lambda: pairs.union(elsewhere),
        "takes streams, not list": lambda: pairs.connect([]),  # type: ignore[arg-type]
        "has keys and the other has none": lambda: pairs.connect(keyed).process(Both()),
        "different types, 1:string and 1:long": lambda: keyed.connect(numbers.key_by("value")).process(Both()),
        "takes a CoMapFunction, not function": lambda: keyed.connect(keyed).map(lambda x: x),  # type: ignore[arg-type]
        "takes an instance": lambda: keyed.connect(keyed).process(Both),  # type: ignore[arg-type]
        "needs a uid": lambda: keyed.connect(keyed).process(Both(), "k string"),
    }
    for message, call in wrong.items():
        with pytest.raises(InvalidRequestError, match=message):
            call()
