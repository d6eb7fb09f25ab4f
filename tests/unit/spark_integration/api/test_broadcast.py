"""Broadcast streams in the graph: how they are planned, and what is said of wrong programs. Without a JVM."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import types as t

from tests.workers.summaries import summary
from varvite.changelog.api.descriptors import MapStateDescriptor, ValueStateDescriptor
from varvite.changelog.api.time_spans import Time
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.changelog.types.factory import Types
from varvite.datastream import (
    BroadcastConnectedStream,
    BroadcastProcessFunction,
    BroadcastStream,
    KeyedBroadcastProcessFunction,
    OutputTag,
)
from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.api.stream import DataStream
from varvite.spark_integration.driver.operator_executor import BatchRedoError, check_broadcast
from varvite.spark_integration.elements.side_by_side import INPUT_COLUMN, rows_column
from varvite.spark_integration.elements.types import TypedElements
from varvite.spark_integration.functions.broadcast import BroadcastFunction
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
from varvite.spark_integration.messages.protocol import KEY_COLUMN
from varvite.spark_integration.plan.element_operator import ElementOperator
from varvite.spark_integration.plan.function_chain import ChainPlace
from varvite.spark_integration.plan.graph import GraphPlan, plan_graph
from varvite.spark_integration.plan.input_branches import BranchedPreparation
from varvite.storage.errors import InvalidRequestError

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Spread(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Any:
        yield value


class Keyed(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Any:
        yield value


class Timed(Keyed):
    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Any:
        yield timestamp


class Same(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    """An environment to build graphs with; nothing of it runs."""
    return StreamExecutionEnvironment(None)  # type: ignore[arg-type]


@pytest.fixture
def pairs(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([("a", 1)], PAIR)


@pytest.fixture
def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([1], Types.LONG())


def plan_of(stream: DataStream) -> GraphPlan:
    return plan_graph(stream.transformation, stream.get_execution_environment().graph_settings)


def prepared(stream: DataStream, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows that the branches make of a batch."""
    plan = plan_of(stream).preparation
    assert isinstance(plan, BranchedPreparation)
    run = plan.at(ChainPlace(0, 1, 128, {}))
    run.open()
    made = [row for part in run.prepared(batch) for row in part.to_pylist()]
    run.close()
    return made


def test_a_keyed_stream_and_a_broadcast_one_lie_side_by_side_and_only_the_former_has_a_key(
    pairs: DataStream, numbers: DataStream
) -> None:
    connected = pairs.key_by("f0").connect(numbers.map(lambda x: x + 1, Types.LONG()).broadcast(RULES))
    assert isinstance(connected, BroadcastConnectedStream)
    stream = connected.process(Keyed(), PAIR, name="checked").uid("rules")
    (operator,) = plan_of(stream).operators
    assert (operator.uid, operator.name, operator.key_type) == ("rules", "checked", "1:string")
    assert operator.broadcast is not None
    assert operator.broadcast.keyed
    assert not operator.has_timers
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([0, 1], pa.int32()),
            pa.array([{"f0": "x", "f1": 5}, None], pa.struct({"f0": pa.string(), "f1": pa.int64()})),
            pa.array([None, {"value": 7}], pa.struct({"value": pa.int64()})),
        ],
        names=[INPUT_COLUMN, rows_column(0), rows_column(1)],
    )
    assert prepared(stream, batch) == [
        {INPUT_COLUMN: 0, rows_column(0): {"f0": "x", "f1": 5}, rows_column(1): None, KEY_COLUMN: "x"},
        {INPUT_COLUMN: 1, rows_column(0): None, rows_column(1): {"value": 8}, KEY_COLUMN: None},
    ]
    shipped = cloudpickle.loads(operator.function.function)
    assert isinstance(shipped, ElementOperator)
    function = cloudpickle.loads(shipped.function)
    assert isinstance(function, BroadcastFunction)
    assert [descriptor.name for descriptor in function.descriptors] == ["rules"]


def test_a_stream_without_keys_goes_by_its_rows(pairs: DataStream, numbers: DataStream) -> None:
    stream = pairs.connect(numbers.broadcast(RULES)).process(Spread(), Types.LONG())
    (operator,) = plan_of(stream).operators
    assert operator.broadcast is not None
    assert not operator.broadcast.keyed
    assert operator.broadcast.rows == pairs.schema
    assert operator.uid.startswith("broadcast_process-")
    after = stream.map(str, Types.STRING()).key_by(lambda x: x).process(Same())
    assert len(plan_of(after).operators) == 2, "more operators may follow"
    tag = OutputTag("odd", Types.LONG())
    plan = plan_graph(
        stream.transformation, stream._environment.graph_settings, [stream.get_side_output(tag)._transformation]
    )
    assert rows_column(0) in plan.operators[0].output_schema.names


def test_a_function_with_on_timer_has_timers(pairs: DataStream, numbers: DataStream) -> None:
    stream = pairs.key_by(lambda x: x).connect(numbers.broadcast(RULES)).process(Timed())
    assert plan_of(stream).operators[0].has_timers


def test_both_streams_may_come_from_one_source(pairs: DataStream) -> None:
    plan = plan_of(pairs.key_by("f0").connect(pairs.broadcast(RULES)).process(Keyed()))
    assert len(plan.sources) == 1
    assert isinstance(plan.preparation, BranchedPreparation)
    assert [(branch.source, branch.number) for branch in plan.preparation.branches] == [(0, 0), (0, 1)]


def test_a_broadcast_stream_names_its_states(numbers: DataStream) -> None:
    other = MapStateDescriptor("other", Types.LONG(), Types.STRING())
    broadcast = numbers.broadcast(RULES, other)
    assert isinstance(broadcast, BroadcastStream)
    assert broadcast.broadcast_state_descriptors == (RULES, other)
    assert broadcast.input_stream is numbers


def test_what_cannot_be_broadcast_or_connected_is_said_at_its_line(pairs: DataStream, numbers: DataStream) -> None:
    keyed, rules = pairs.key_by("f0"), numbers.broadcast(RULES)
    elsewhere = StreamExecutionEnvironment(None).from_collection([1], Types.LONG())  # type: ignore[arg-type]
    expiring = MapStateDescriptor("expiring", Types.STRING(), Types.LONG())
    expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    wrong: dict[str, Any] = {
        "broadcast takes MapStateDescriptors, not <?ValueState": lambda: numbers.broadcast(
            ValueStateDescriptor("n", Types.LONG())  # type: ignore[arg-type]
        ),
        "broadcast needs a MapStateDescriptor": numbers.broadcast,
        "at least one": lambda: BroadcastStream(numbers),
        "several states named .'rules'.": lambda: numbers.broadcast(RULES, RULES),
        "'expiring' has a time to live": lambda: numbers.broadcast(expiring),
        "different environments": lambda: keyed.connect(elsewhere.broadcast(RULES)),
        "union takes streams, not BroadcastStream": lambda: numbers.union(rules),  # type: ignore[arg-type]
        "a stream without keys takes a BroadcastProcessFunction, not Keyed": lambda: pairs.connect(rules).process(
            Keyed()
        ),
        "a stream with keys takes a KeyedBroadcastProcessFunction": lambda: keyed.connect(rules).process(Spread()),
        "process takes a BaseBroadcastProcessFunction, not Same": lambda: keyed.connect(rules).process(Same()),  # type: ignore[arg-type]
        "takes an instance": lambda: keyed.connect(rules).process(Keyed),  # type: ignore[arg-type]
        "needs a uid": lambda: keyed.connect(rules).process(Keyed(), "k string"),
        "takes a KeyedProcessFunction": lambda: keyed.process(Keyed()),  # type: ignore[arg-type]
    }
    for message, call in wrong.items():
        with pytest.raises(InvalidRequestError, match=message):
            call()


def test_partitions_that_have_read_other_broadcast_rows_make_the_batch_be_redone() -> None:
    same = [summary(partition=p, broadcast_digest="x") for p in (0, 1)]
    check_broadcast(OperatorSummaries.of("sums", same), 3)
    with pytest.raises(BatchRedoError, match="different broadcast rows"):
        check_broadcast(OperatorSummaries.of("sums", [*same, summary(partition=2)]), 3)


def test_elements_of_both_streams_keep_their_types(pairs: DataStream, numbers: DataStream) -> None:
    stream = pairs.connect(numbers.broadcast(RULES)).process(Spread())
    shipped = cloudpickle.loads(plan_of(stream).operators[0].function.function)
    assert all(isinstance(elements, TypedElements) for elements in shipped.input.inputs)
    assert shipped.input.schema.fields[1].dataType == t.StructType(pairs.schema.fields)
