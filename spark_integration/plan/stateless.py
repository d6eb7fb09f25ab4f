"""Adds stateless nodes to the graph: sources, steps, watermarks, unions and side outputs. Knows no streams.

Each function checks at the call what can be checked there, and returns the new node.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle

from varvite.changelog.api.time_spans import milliseconds_of
from varvite.spark_integration.elements.side_by_side import ConnectedElements
from varvite.spark_integration.elements.types import RowElements, united_elements
from varvite.spark_integration.functions.output_tag import OutputTag
from varvite.spark_integration.functions.pickling import PickledFunction, pickle_step
from varvite.spark_integration.functions.stateless import SideOutputOf
from varvite.spark_integration.functions.watermark_strategy import KeptTimestamps, WatermarkStrategy
from varvite.spark_integration.options.flink_values import log_without_effect
from varvite.spark_integration.plan.operator import (
    check_columns,
    column_named,
    elements_of,
    is_window,
    timestamp_column_of,
)
from varvite.spark_integration.plan.transformations import (
    DataFrameSource,
    EventTime,
    KeyedTransformation,
    OutputsTransformation,
    SideOutputTransformation,
    StepTransformation,
    Transformation,
    UnionTransformation,
)
from varvite.storage.errors import InvalidRequestError
from varvite.storage.options.kinds import DURATION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.plan.function_chain import StepKind

WATERMARK_DELAY: Final = "spark.watermarkDelayMs"
"""The metadata key with which `DataFrame.withWatermark` marks a column."""
_WITH_STATE: Final = frozenset(
    {"Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "GlobalLimit", "LocalLimit"}
)
"""Operators of Spark that keep state in a stream, beside functions with state and joins of two streams."""
_WITHOUT_WATERMARK: Final = frozenset({"FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState"})
"""Nodes of a logical plan behind which Spark knows no watermark."""


def dataframe_source(df: Any) -> DataFrameSource:
    """The source of a streaming DataFrame.

    Raises:
        InvalidRequestError: It is not a streaming DataFrame, or has columns that varvite cannot take.
    """
    if not hasattr(df, "isStreaming"):
        raise InvalidRequestError(f"a streaming DataFrame is needed, not {type(df).__name__}")
    if not df.isStreaming:
        raise InvalidRequestError("the DataFrame is not streaming; make it with spark.readStream")
    check_columns(df.schema, "the input")
    event_time = event_time_of(df.schema)
    watermarks = spark_watermarks(df._jdf.queryExecution().analyzed())  # noqa: SLF001  there is no other way
    if watermarks:
        event_time = replace(event_time or EventTime(None, None), spark_watermarks=watermarks)
    return DataFrameSource(elements=RowElements(df.schema), dataframe=df, event_time=event_time)


def spark_watermarks(plan: Any) -> int:
    """Number of `withWatermark` calls whose watermark reaches the end of a logical plan.

    Behind an arbitrary function with state Spark itself says that no watermark is known.
    """
    name = str(plan.nodeName())
    if name == "EventTimeWatermark":
        return 1
    is_processing_time = name.startswith("TransformWithState") and str(plan.timeMode()) == "ProcessingTime"
    if name in _WITHOUT_WATERMARK or is_processing_time:
        return 0
    return sum(map(spark_watermarks, children_of(plan)))


def children_of(node: Any) -> list[Any]:
    """The children of a node of Spark's plans, logical or physical."""
    children = node.children()
    return [children.apply(number) for number in range(children.size())]


def has_spark_state(plan: Any) -> bool:
    """Tell whether a logical plan has a streaming operator of Spark that keeps state: each batch must be executed."""
    name, inputs = str(plan.nodeName()), children_of(plan)
    streaming = sum(bool(each.isStreaming()) for each in inputs)
    keeps = name in _WITH_STATE or name.startswith("TransformWithState") or "GroupsWithState" in name
    return (keeps and streaming > 0) or (name == "Join" and streaming > 1) or any(map(has_spark_state, inputs))


def stream_sources(plan: Any) -> list[str]:
    """Names of the streaming sources of a logical plan, as `readStream.format` takes them, or as Spark shows them."""
    if str(plan.nodeName()).startswith("StreamingRelation"):
        return [str(plan.sourceName())]
    return [name for child in children_of(plan) for name in stream_sources(child)]


def event_time_of(schema: StructType) -> EventTime | None:
    """The event time column of a DataFrame: timestamps, or windows, whose event time is their end.

    Raises:
        InvalidRequestError: It has more than one, or one of another type.
    """
    marked = [f for f in schema.fields if WATERMARK_DELAY in f.metadata]
    if len(marked) > 1:
        raise InvalidRequestError(
            f"the stream has several event time columns: {[f.name for f in marked]}; call withWatermark once"
        )
    if not marked:
        return None
    column = marked[0]
    if timestamp_column_of(schema, column.name) is None and not is_window(column.dataType):
        raise InvalidRequestError(
            f"the event time column {column.name!r} has the type {column.dataType.simpleString()}, and an event time "
            "is a timestamp or a window: call withWatermark on such a column, or drop it before from_dataframe"
        )
    return EventTime(column.name, int(column.metadata[WATERMARK_DELAY]))


def with_watermark(source: Transformation, column: str, delay: Any) -> DataFrameSource:
    """The source with an event time column and a watermark.

    Raises:
        InvalidRequestError: The node is not a DataFrame's source, has event times already, or see `event_time_column`.
    """
    if not isinstance(source, DataFrameSource):
        raise InvalidRequestError(
            "a watermark belongs to the input: call with_watermark right after from_dataframe, or "
            "assign_timestamps_and_watermarks before the first stateful operator"
        )
    if source.event_time is not None:
        raise InvalidRequestError(f"the stream has {_described(source.event_time)} already; call with_watermark once")
    return replace(source, event_time=event_time_column(source.elements.schema, column, delay))


def _described(event_time: EventTime) -> str:
    if event_time.column is None:
        return "Spark's watermark"
    return f"the event time column {event_time.column!r}"


def event_time_column(schema: StructType, column: str, delay: Any) -> EventTime:
    """Event time from a column, with a watermark that is `delay` behind.

    Args:
        schema: Columns of the stream.
        column: Name of a timestamp column.
        delay: As text ("10 seconds"), a `Time`, `Duration` or timedelta, or milliseconds; not negative.

    Raises:
        InvalidRequestError: There is no such column, it holds no timestamps, or the delay is none.
    """
    column = column_named(schema, column)
    if column not in schema.names:
        close = difflib.get_close_matches(str(column), schema.names, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"the columns are {schema.names}"
        raise InvalidRequestError(f"there is no column {column!r}; {hint}")
    if timestamp_column_of(schema, column) is None:
        raise InvalidRequestError(
            f"column {column!r} of type {schema[column].dataType.simpleString()} is no event time: cast it to a "
            "timestamp, for example with timestamp_millis"
        )
    span_ms = milliseconds_of(delay)
    delay_ms = DURATION.read(delay) if span_ms is None else span_ms
    if delay_ms < 0:
        raise InvalidRequestError(f"a watermark cannot be ahead of the event time: the delay is {delay!r}")
    return EventTime(column, delay_ms)


def step(before: Transformation, kind: StepKind, function: Any, elements: ElementType) -> StepTransformation:
    """A stateless function after a node; it is pickled now. Raises `InvalidRequestError` if that fails."""
    return StepTransformation(
        kind=kind, inputs=(before,), elements=elements, step=kind, function=pickle_step(function, kind)
    )


def timestamps(before: Transformation, strategy: WatermarkStrategy) -> Transformation:
    """A step that gives each element a timestamp; the node itself if there is none to give.

    A strategy without an assigner keeps the timestamps that the elements have.

    Raises:
        InvalidRequestError: It is not a strategy.
    """
    if not isinstance(strategy, WatermarkStrategy):
        raise InvalidRequestError(f"a WatermarkStrategy is needed, not {strategy!r}")
    assigner = strategy.assigner
    if assigner is None:
        if not any(_has_timestamps(node) for node in before.lineage()):
            log_without_effect(
                "assign_timestamps_and_watermarks", "the elements have no time stamps: add with_timestamp_assigner(...)"
            )
            return before
        assigner = KeptTimestamps()
    node = step(before, "timestamps", assigner, before.elements)
    return replace(node, watermark_delay_ms=strategy.delay_ms, idle_timeout_ms=strategy.idle_timeout_ms)


def _has_timestamps(node: Transformation) -> bool:
    of_source = isinstance(node, DataFrameSource) and node.event_time is not None and node.event_time.column is not None
    return of_source or (isinstance(node, StepTransformation) and node.step == "timestamps")


def union(nodes: Sequence[Transformation]) -> UnionTransformation:
    """The elements of all nodes.

    Raises:
        InvalidRequestError: They differ in type.
    """
    elements = nodes[0].elements
    for node in nodes[1:]:
        elements = united_elements(elements, node.elements)
    return UnionTransformation(inputs=tuple(nodes), elements=elements)


def outputs_of(ends: Sequence[Transformation]) -> OutputsTransformation:
    """The end of several streams without stateful operators, for one query to write them all."""
    side_by_side: Any = ConnectedElements(tuple(end.elements for end in ends))
    return OutputsTransformation(inputs=tuple(ends), elements=side_by_side)


def side_output(operator: Transformation, tag: OutputTag) -> Transformation:
    """The elements that a stateful operator, or a process function without keys, yields as `(tag, value)`.

    The latter's are those of the function once more, which is called for the main output as well.

    Raises:
        InvalidRequestError: It is not an `OutputTag`, or the node is neither.
    """
    if not isinstance(tag, OutputTag):
        raise InvalidRequestError(f"get_side_output takes an OutputTag, not {tag!r}")
    if isinstance(operator, StepTransformation) and operator.step == "process":
        pickled = cloudpickle.dumps(SideOutputOf(operator.function.function, tag.tag_id))
        return StepTransformation(
            kind="side_output",
            inputs=operator.inputs,
            elements=elements_of(tag.type_info),
            step="process",
            function=PickledFunction(pickled, operator.function.broadcasts),
        )
    if not isinstance(operator, KeyedTransformation):
        raise InvalidRequestError(
            f"{operator.kind} has no side outputs: call get_side_output on what process(), or a function on a keyed "
            "or connected stream, has made"
        )
    is_late = tag.type_info is None and tag.tag_id == operator.late_output
    elements = operator.inputs[0].elements if is_late else elements_of(tag.type_info)
    return SideOutputTransformation(inputs=(operator,), elements=elements, tag_id=tag.tag_id)
