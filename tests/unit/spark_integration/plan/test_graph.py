"""Plans of programs: fusion, generated uids, and programs that cannot run. Without a JVM."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import types as t

from varvite.changelog.api.time_spans import Duration
from varvite.changelog.types.dynamic_key import DynamicKeyType
from varvite.changelog.types.factory import Types
from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.api.job_execution import job_name_of
from varvite.spark_integration.api.stream import DataStream
from varvite.spark_integration.elements.types import RowElements, pickled_elements
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.functions.keyed_operations import KeyedMap
from varvite.spark_integration.functions.watermark_strategy import TimestampAssigner, WatermarkStrategy
from varvite.spark_integration.messages.protocol import EVENT_TIME_COLUMN, KEY_COLUMN
from varvite.spark_integration.plan.element_operator import ElementOperator
from varvite.spark_integration.plan.function_chain import ChainPlace, FunctionChain
from varvite.spark_integration.plan.graph import GraphPlan, plan_graph
from varvite.spark_integration.plan.preparation import StepFailures, prepared
from varvite.spark_integration.plan.transformations import DataFrameSource
from varvite.storage.errors import InvalidRequestError

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class Same(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value


class Second(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    """An environment to build graphs with; nothing of it runs."""
    return StreamExecutionEnvironment(None)  # type: ignore[arg-type]


@pytest.fixture
def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([3, 1, 2], Types.LONG())


def plan_of(stream: DataStream) -> GraphPlan:
    return plan_graph(stream._transformation, stream._environment.graph_settings)


def rows_of(env: StreamExecutionEnvironment, **columns: t.DataType) -> DataStream:
    """A stream of rows; its DataFrame is not needed to plan."""
    schema = t.StructType([t.StructField(name, kind) for name, kind in columns.items()])
    source = DataFrameSource(elements=RowElements(schema), dataframe=None, event_time=None)  # type: ignore[arg-type]
    return DataStream(env, source)


def uids(stream: DataStream) -> list[str]:
    return [operator.uid for operator in plan_of(stream).operators]


def test_steps_before_the_first_key_are_one_preparation_with_the_key(numbers: DataStream) -> None:
    plan = plan_of(numbers.map(lambda x: (str(x), x), PAIR).filter(bool).key_by(lambda x: x[0]).map(str))
    assert plan.preparation is not None
    assert [step.kind for step in plan.preparation.steps] == ["map", "filter"]
    assert plan.preparation.output_schema.names == ["f0", "f1", KEY_COLUMN]
    (operator,) = plan.operators
    assert (operator.key_columns, operator.key_type) == ((KEY_COLUMN,), DynamicKeyType().type_string())
    assert operator.output_schema.names == ["value"]
    shipped = cloudpickle.loads(operator.function.function)
    assert isinstance(shipped, ElementOperator)
    assert isinstance(cloudpickle.loads(shipped.function), KeyedMap)
    assert (shipped.steps, shipped.key) == ((), None)


def test_steps_after_an_operator_and_the_next_key_go_into_the_operator(numbers: DataStream) -> None:
    first = numbers.key_by(lambda x: x, Types.LONG()).process(Same(), PAIR)
    plan = plan_of(first.map(str).filter(bool).key_by(lambda x: x).reduce(max).flat_map(list))
    first_shipped, second_shipped = [cloudpickle.loads(o.function.function) for o in plan.operators]
    assert [s.kind for s in first_shipped.steps] == ["map", "filter"]
    assert first_shipped.key is not None
    assert plan.operators[0].output_schema.names == ["value", KEY_COLUMN]
    assert plan.operators[0].key_type == "1:long"
    assert [s.kind for s in second_shipped.steps] == ["flat_map"]
    assert second_shipped.input == pickled_elements()
    assert plan.operators[1].output_schema.names == ["value"]


def test_rows_keyed_by_columns_need_nothing_around_the_function(env: StreamExecutionEnvironment) -> None:
    schema = t.StructType([t.StructField("k", t.StringType())])
    plan = plan_of(rows_of(env, k=t.StringType()).key_by("k").process(Same(), schema, uid="same"))
    assert plan.preparation is None
    (operator,) = plan.operators
    assert isinstance(cloudpickle.loads(operator.function.function), Same)
    assert (operator.uid, operator.name, operator.key_type) == ("same", "same", "1:string")


def test_columns_of_named_rows_can_be_the_key(env: StreamExecutionEnvironment) -> None:
    named = Types.ROW_NAMED(["a", "b", "c"], [Types.STRING(), Types.INT(), Types.BIG_INT()])
    rows = env.from_collection([("x", 1, 2)], named)
    (operator,) = plan_of(rows.key_by("b", "a").map(str)).operators
    assert (operator.key_columns, operator.key_type) == (("b", "a"), "1:tuple<int,string>")
    with pytest.raises(InvalidRequestError, match=r"big_int.*key function"):
        rows.key_by("c")


def test_a_stream_without_state_has_no_operator(numbers: DataStream) -> None:
    plan = plan_of(numbers.map(str))
    assert plan.operators == ()
    assert plan.preparation is not None
    assert plan.preparation.output_schema.names == ["value"]
    assert plan_of(numbers).preparation is None


def test_a_generated_uid_depends_on_the_stateful_operators_before(numbers: DataStream) -> None:
    def keyed(stream: DataStream) -> DataStream:
        return stream.key_by(lambda x: x).map(lambda x: x)

    one = uids(keyed(keyed(numbers)))
    assert one == uids(keyed(keyed(numbers.map(str).filter(bool)).map(len))), "stateless steps come and go"
    assert one[0] != one[1]
    assert one != uids(keyed(keyed(keyed(numbers))))[1:]
    assert one[0] != uids(numbers.key_by(lambda x: x).process(Same()))[0]
    assert one[0].startswith("map-")


def test_the_users_uid_and_name_count_even_when_they_are_set_later(numbers: DataStream) -> None:
    mapped = numbers.key_by(lambda x: x).map(str)
    after = mapped.map(len)
    mapped.uid("mine").name("My map")
    (operator,) = plan_of(after).operators
    assert (operator.uid, operator.name) == ("mine", "My map")
    assert mapped.get_name() == "My map"


def test_two_operators_cannot_share_a_uid(numbers: DataStream) -> None:
    second = numbers.key_by(lambda x: x).map(str).uid("same").key_by(lambda x: x).map(str)
    with pytest.raises(InvalidRequestError, match="'same'"):
        second.uid("same")
    assert uids(second)[0] == "same", "what was refused was not set"


@pytest.mark.parametrize(
    "call",
    [
        lambda keyed: keyed.uid("second"),
        lambda keyed: keyed.name("second"),
        lambda keyed: keyed.get_name(),
        lambda keyed: keyed.set_parallelism(2),
        lambda keyed: keyed.set_max_parallelism(64),
    ],
    ids=["uid", "name", "get_name", "parallelism", "max parallelism"],
)
def test_a_keyed_stream_is_no_operator_and_renames_none(numbers: DataStream, call: Any) -> None:
    """As in PyFlink. The operator before it was renamed, and the one that was meant kept a uid made from its place."""
    first = numbers.key_by(lambda x: x).map(str).uid("first").name("First").set_parallelism(1)
    keyed = first.key_by(lambda x: x)
    with pytest.raises(InvalidRequestError, match="KeyedStream, which is no operator"):
        call(keyed)
    settings = first.get_execution_environment().graph_settings.of(first.transformation)
    assert (settings.uid, settings.name, settings.parallelism) == ("first", "First", 1)
    after = keyed.reduce(lambda a, _: a).uid("second")
    assert uids(after) == ["first", "second"]


def test_parallelism_is_that_of_the_operator(env: StreamExecutionEnvironment, numbers: DataStream) -> None:
    stream = numbers.map(str).set_parallelism(1).key_by(lambda x: x).map(str).set_parallelism(3)
    assert plan_of(stream).operators[0].parallelism == 3
    stream.set_max_parallelism(64).set_max_parallelism(64)
    assert env.get_max_parallelism() == 64
    for wrong in (lambda: stream.set_parallelism(0), lambda: stream.set_max_parallelism(128)):
        with pytest.raises(InvalidRequestError):
            wrong()


def run_preparation(stream: DataStream, batch: pa.RecordBatch) -> pa.RecordBatch:
    plan = plan_of(stream).preparation
    assert plan is not None
    chain = FunctionChain(plan.steps, plan.key, ChainPlace(0, 1, 128, {}))
    chain.open()
    made = prepared(plan, chain, batch)
    assert made.schema.names == plan.output_schema.names
    return made


def test_time_stamps_travel_beside_the_elements(env: StreamExecutionEnvironment) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    pairs = env.from_collection([("a", 10), ("b", 20)], PAIR)
    stream = pairs.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Second())).map(lambda x: x[0])
    keyed = stream.key_by(lambda x: x, Types.STRING()).map(str)
    plan = plan_of(keyed)
    assert plan.watermark_delay_ms == 5001, "as in Flink, an element at the watermark is late"
    assert plan.operators[0].timestamp_column == EVENT_TIME_COLUMN
    batch = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), pa.array([10, 20])], names=["f0", "f1"])
    made = run_preparation(keyed, batch)
    assert made.column(EVENT_TIME_COLUMN).to_pylist() == [10, 20]
    assert made.column(KEY_COLUMN).to_pylist() == ["a", "b"]
    monotonous = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    assert plan_of(pairs.assign_timestamps_and_watermarks(monotonous).key_by("f0").map(str)).watermark_delay_ms == 1


def test_rows_keep_their_columns_beside_a_computed_key(env: StreamExecutionEnvironment) -> None:
    stream = rows_of(env, k=t.StringType(), v=t.LongType()).key_by(lambda row: row.v % 2).map(lambda row: row.k)
    made = run_preparation(stream, pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array([3])], names=["k", "v"]))
    assert made.column("k").to_pylist() == ["a"]
    assert made.column(KEY_COLUMN).to_pylist() == [DynamicKeyType().freeze(1)]


def test_what_cannot_be_is_said_at_its_line(env: StreamExecutionEnvironment, numbers: DataStream) -> None:
    keyed = numbers.key_by(lambda x: x)
    lock = threading.Lock()
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    wrong: dict[str, Any] = {
        "an int is needed": lambda: env.from_collection(["x"], Types.LONG()),
        "is not a type": lambda: numbers.map(str, 5),
        "needs a uid": lambda: keyed.process(Same(), "value string"),
        "takes an instance": lambda: keyed.process(Same),
        "process takes a ProcessFunction, not Same": lambda: numbers.process(Same()),
        "cannot be sent": lambda: numbers.map(lambda x: (lock, x)),
        "no canonical bytes": lambda: numbers.key_by(lambda x: x, key_type=Types.LIST(Types.LONG())),
        "columns have their own types": lambda: numbers.key_by("value", key_type=Types.LONG()),
        "columns or a function": lambda: numbers.key_by(7),
        "TimestampAssigner": lambda: strategy.with_timestamp_assigner(str),
        "WatermarkStrategy is needed": lambda: numbers.assign_timestamps_and_watermarks(5),
        "no span of time": lambda: WatermarkStrategy.for_bounded_out_of_orderness(5),
        "several columns": lambda: numbers.map(str, Types.ROW_NAMED(["a", "A"], [Types.INT(), Types.INT()])),
        "nothing to execute": env.execute,
        "limit": lambda: numbers.execute_and_collect(limit=0),
    }
    for message, call in wrong.items():
        with pytest.raises(InvalidRequestError, match=message):
            call()


def test_time_stamps_after_a_stateful_operator_are_refused(numbers: DataStream) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    stream = numbers.key_by(lambda x: x).map(str).assign_timestamps_and_watermarks(strategy).key_by(len).map(str)
    with pytest.raises(InvalidRequestError, match="before the first stateful operator"):
        plan_of(stream)


def test_failures_add_up() -> None:
    failures = StepFailures()
    zero = failures.zero([])
    assert failures.addInPlace(zero, [(1, "e")]) == [(1, "e")]  # type: ignore[list-item]
    assert zero == []


@pytest.mark.parametrize(
    ("given", "name"),
    [("Word Count!", "Word-Count"), (None, "job"), ("...", "job"), ("a/b", "a-b"), ("x" * 200, "x" * 128)],
)
def test_any_job_name_becomes_a_directory_name(given: str | None, name: str) -> None:
    assert job_name_of(given) == name
