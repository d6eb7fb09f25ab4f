"""Checks that make an operator's plan; Spark's types without Spark's JVM."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import types as t

from varvite.changelog.types.factory import Types, parse_type_string
from varvite.spark_integration.driver.operator_executor import answer_struct
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.plan.job import (
    check_parallelism,
    check_query_name,
    missing_checkpoint_location,
    take_option,
)
from varvite.spark_integration.plan.operator import (
    OperatorPlan,
    check_columns,
    key_type_of,
    output_schema_of,
    plan_operator,
)
from varvite.spark_integration.plan.stateless import event_time_column, event_time_of
from varvite.spark_integration.plan.transformations import EventTime
from varvite.storage.errors import InvalidRequestError

OUTPUT = t.StructType([t.StructField("n", t.LongType())])


class Nothing(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        return None


def schema(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


def plan(uid: str | None = "count", function: Any = None, **changes: Any) -> OperatorPlan:
    arguments = {"input_schema": schema(k=t.StringType()), "key_columns": ("k",), "output_schema": OUTPUT, **changes}
    return plan_operator(function=function or Nothing(), uid=uid, **arguments)


def test_one_key_column_is_the_key_itself() -> None:
    assert key_type_of(schema(k=t.LongType(), x=t.DoubleType()), ["k"]) == Types.LONG()


def test_several_key_columns_are_a_tuple_in_the_order_of_the_call() -> None:
    columns = schema(day=t.DateType(), origin=t.StringType())
    assert key_type_of(columns, ["origin", "day"]) == Types.TUPLE([Types.STRING(), Types.SQL_DATE()])


@pytest.mark.parametrize(
    "kind",
    [
        t.BooleanType(),
        t.ByteType(),
        t.ShortType(),
        t.IntegerType(),
        t.LongType(),
        t.StringType(),
        t.BinaryType(),
        t.DecimalType(10, 2),
        t.DateType(),
        t.TimestampType(),
        t.TimestampNTZType(),
        schema(a=t.LongType(), b=t.StringType()),
    ],
)
def test_types_that_can_be_keys_have_a_type_string_that_parses(kind: t.DataType) -> None:
    found = key_type_of(schema(k=kind), ["k"])
    assert parse_type_string(found.type_string()) == found
    assert found.hashable


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (t.DoubleType(), "NaN"),
        (t.FloatType(), "NaN"),
        (t.ArrayType(t.StringType()), "mutable"),
        (t.MapType(t.StringType(), t.LongType()), "no order"),
        (schema(a=t.LongType(), b=t.DoubleType()), "NaN"),
        (schema(a=schema(b=t.ArrayType(t.LongType()))), "mutable"),
        (t.StringType("UTF8_LCASE"), "collation"),
        (t.CalendarIntervalType(), "cannot be a key"),
    ],
)
def test_types_that_cannot_be_keys_are_refused_with_the_reason(kind: t.DataType, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        key_type_of(schema(k=kind), ["k"])


def test_a_missing_key_column_is_named_with_the_nearest() -> None:
    with pytest.raises(InvalidRequestError, match="did you mean 'tailnum'"):
        key_type_of(schema(tailnum=t.StringType()), ["tail_num"])
    with pytest.raises(InvalidRequestError, match="did you mean 'tailnum'"):
        key_type_of(schema(tailnum=t.StringType()), ["TAILNUM"])


@pytest.mark.parametrize("columns", [[], ["k", "k"], [lambda row: row.k], [0]])
def test_keys_are_names_of_different_columns(columns: list[Any]) -> None:
    with pytest.raises(InvalidRequestError):
        key_type_of(schema(k=t.StringType()), columns)


def test_reserved_and_doubled_columns_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="varvite's"):
        check_columns(schema(__varvite_tag=t.LongType()), "the input")
    with pytest.raises(InvalidRequestError, match="several"):
        check_columns(schema(a=t.LongType(), A=t.LongType()), "the input")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (t.YearMonthIntervalType(), "cast it to int"),
        (t.CalendarIntervalType(), "cast it to string"),
        (t.StructType([t.StructField("a", t.LongType()), t.StructField("a", t.LongType())]), r"fields named \['a'\]"),
    ],
    ids=["months", "calendar", "doubled"],
)
def test_columns_that_no_function_can_get_are_refused_at_any_depth(kind: t.DataType, why: str) -> None:
    """A `KeyError` of pyarrow or a `ValueError`, tried again for ever, or one value for both fields."""
    nested = [t.ArrayType(kind), t.MapType(t.StringType(), kind), t.StructType([t.StructField("i", kind)])]
    for column in (kind, *nested):
        with pytest.raises(InvalidRequestError, match=f"the input has the column 'c' of type .*{why}"):
            check_columns(schema(c=column), "the input")
    check_columns(schema(c=t.ArrayType(t.StructType([t.StructField("a", t.VariantType())]))), "the input")


def test_none_may_be_yielded_at_any_depth_of_the_output() -> None:
    """The top was widened only: a null deeper down was durable before the sink's job failed in Spark's JVM."""
    inner = t.StructType([t.StructField("x", t.IntegerType(), nullable=False)])
    kinds = [inner, t.ArrayType(inner, containsNull=False), t.MapType(t.StringType(), inner, valueContainsNull=False)]
    for kind in kinds:
        declared = t.StructType([t.StructField("c", kind, nullable=False)])
        planned = plan(output_schema=declared)
        assert planned.output_schema == declared.toNullable() != declared
        assert answer_struct(planned.output_schema)["c"].dataType == kind.toNullable()


@pytest.mark.parametrize("uid", [None, "", "  ", "x" * 201])
def test_an_operator_needs_a_uid_that_can_name_a_directory(uid: str | None) -> None:
    with pytest.raises(InvalidRequestError, match="uid"):
        plan(uid)


def test_a_plan_carries_a_copy_of_the_function() -> None:
    given = Nothing()
    made = plan(function=given)
    given.late = True  # type: ignore[attr-defined]
    copied = cloudpickle.loads(made.function.function)
    assert isinstance(copied, Nothing)
    assert not hasattr(copied, "late")
    assert (made.name, made.key_columns, made.timestamp_column) == ("count", ("k",), None)


def test_a_function_is_an_instance_that_can_be_pickled() -> None:
    with pytest.raises(InvalidRequestError, match=r"Nothing\(\), not Nothing"):
        plan(function=Nothing)
    with pytest.raises(InvalidRequestError, match="KeyedProcessFunction"):
        plan(function=lambda value, ctx: None)
    locked = Nothing()
    locked.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(InvalidRequestError, match=r"open\(\)"):
        plan(function=locked)


@pytest.mark.parametrize("output", [t.StructType([]), t.LongType(), None, schema(__varvite_x=t.LongType())])
def test_an_output_schema_is_a_list_of_columns(output: Any) -> None:
    with pytest.raises(InvalidRequestError):
        plan(output_schema=output)


def test_the_arrow_form_of_the_output_keeps_names_and_types() -> None:
    made = plan(output_schema=schema(a=t.TimestampType(), b=t.StringType())).arrow_output_schema()
    assert made.names == ["a", "b"]
    assert str(made.field("a").type) == "timestamp[us, tz=UTC]"


def test_the_event_time_column_is_the_one_with_a_watermark() -> None:
    delay = {"spark.watermarkDelayMs": 600_000}
    marked = t.StructType([t.StructField("k", t.StringType()), t.StructField("ts", t.TimestampType(), True, delay)])
    assert event_time_of(marked) == EventTime("ts", 600_000)
    assert event_time_of(OUTPUT) is None
    two = t.StructType([*marked.fields, t.StructField("ts2", t.TimestampType(), True, delay)])
    with pytest.raises(InvalidRequestError, match="withWatermark"):
        event_time_of(two)


@pytest.mark.parametrize(
    "kind", [t.LongType(), t.DateType(), schema(a=t.TimestampType()), t.ArrayType(t.TimestampType())]
)
def test_a_window_is_an_event_time_and_any_other_type_is_refused_with_its_column(kind: t.DataType) -> None:
    delay = {"spark.watermarkDelayMs": 600_000}
    window = schema(start=t.TimestampType(), end=t.TimestampType())
    assert event_time_of(t.StructType([t.StructField("w", window, True, delay)])) == EventTime("w", 600_000)
    with pytest.raises(InvalidRequestError, match=r"column 'w' has the type .*timestamp or a window"):
        event_time_of(t.StructType([t.StructField("w", kind, True, delay)]))


@pytest.mark.parametrize("delay", ["10 seconds", "10 s", 10_000, timedelta(seconds=10)])
def test_a_watermark_takes_a_delay_in_every_form(delay: Any) -> None:
    columns = schema(k=t.StringType(), ts=t.TimestampType(), local=t.TimestampNTZType())
    assert event_time_column(columns, "ts", delay) == EventTime("ts", 10_000)
    assert event_time_column(columns, "local", 0) == EventTime("local", 0)


@pytest.mark.parametrize(
    ("column", "delay", "problem"),
    [("t", "1 s", "did you mean 'ts'"), ("k", "1 s", "timestamp"), ("ts", -1, "delay"), ("ts", "soon", "soon")],
)
def test_a_watermark_needs_a_timestamp_column_and_a_delay(column: str, delay: Any, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        event_time_column(schema(k=t.StringType(), ts=t.TimestampType()), column, delay)


def test_a_function_with_on_timer_has_timers() -> None:
    class Reminder(Nothing):
        def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
            """Nothing."""

    assert not plan().has_timers
    assert plan(function=Reminder()).has_timers


def test_a_later_operator_takes_the_column_of_that_name_as_its_event_time() -> None:
    assert plan(input_schema=schema(k=t.StringType(), ts=t.TimestampType()), event_time="ts").timestamp_column == "ts"
    assert plan(input_schema=schema(k=t.StringType(), ts=t.StringType()), event_time="ts").timestamp_column is None
    assert plan(event_time="ts").timestamp_column is None


@pytest.mark.parametrize("name", [None, "", "a/b", ".hidden", "x" * 129])
def test_a_query_name_can_be_a_directory_name(name: str | None) -> None:
    with pytest.raises(InvalidRequestError):
        check_query_name(name)


def test_parallelism_falls_back_to_spark_within_the_key_groups() -> None:
    assert check_parallelism(3, 200, 128) == 3
    assert check_parallelism(None, 4, 128) == 4
    assert check_parallelism(None, 200, 128) == 128


def test_spark_options_are_found_whatever_their_case() -> None:
    options = {"CHECKPOINTLOCATION": "/c", "path": "/p"}
    assert take_option(options, "checkpointLocation") == "/c"
    assert options == {"path": "/p"}


def test_a_misspelt_checkpoint_location_is_recognised() -> None:
    assert "chekpointLocation" in str(missing_checkpoint_location({"chekpointLocation": "/c"}, "it needs one"))
    assert "set option" in str(missing_checkpoint_location({}, "it needs one"))


def test_columns_as_text_need_no_session() -> None:
    text = (
        "k string, n BIGINT, d decimal(10,2), at timestamp, local timestamp_ntz, day date, tags array<int>, "
        "m map<string,double>, s struct<a:int,b:binary>"
    )
    nested = t.StructType([t.StructField("a", t.IntegerType()), t.StructField("b", t.BinaryType())])
    assert output_schema_of(text) == schema(
        k=t.StringType(),
        n=t.LongType(),
        d=t.DecimalType(10, 2),
        at=t.TimestampType(),
        local=t.TimestampNTZType(),
        day=t.DateType(),
        tags=t.ArrayType(t.IntegerType()),
        m=t.MapType(t.StringType(), t.DoubleType()),
        s=nested,
    )


@pytest.mark.parametrize("text", ["bigint", "k nothing", "k string,", ""])
def test_text_that_is_no_columns_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        output_schema_of(text)
