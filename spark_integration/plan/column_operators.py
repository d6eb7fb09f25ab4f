"""Adds the stateful operators that work on columns to the graph: `aggregate`, and Spark's own stateful operations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import GroupedData, SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import StructField, StructType

from varvite.spark_integration.elements.arrow_values import zone_info
from varvite.spark_integration.elements.row_values import columns_type
from varvite.spark_integration.elements.types import RowElements
from varvite.spark_integration.operators.aggregation.aggregations import aggregate_columns
from varvite.spark_integration.operators.aggregation.column_aggregates import ColumnAggregates
from varvite.spark_integration.operators.aggregation.map_side_combine import map_side_combine
from varvite.spark_integration.operators.processors.group_state import GroupStateFunction, check_timeout
from varvite.spark_integration.operators.processors.handle import TimeMode
from varvite.spark_integration.operators.processors.stateful_processor import (
    PandasProcessorFunction,
    ProcessorFunction,
    check_processor,
)
from varvite.spark_integration.plan.keyed import event_time_before, has_watermark, keyed_operator
from varvite.spark_integration.plan.operator import (
    InitialState,
    check_columns,
    check_uid,
    elements_of,
    key_type_of,
    output_schema_of,
    timestamp_column_of,
)
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varvite.spark_integration.plan.transformations import KeyedTransformation, StreamKey, Transformation


def aggregate_operator(
    before: Transformation, key: StreamKey, aggregations: Mapping[str, Any], uid: str | None, name: str | None
) -> KeyedTransformation:
    """The operator of `KeyedStream.aggregate`.

    Args:
        before: A stream of rows.
        key: Columns of it.
        aggregations: Output column → what the user wrote.
        uid: Name of the state.
        name: For people.

    Raises:
        InvalidRequestError: Any of these cannot be right.
    """
    checked, elements = check_uid(uid), before.elements
    if key.function is not None or not isinstance(elements, RowElements):
        raise InvalidRequestError("aggregate works on columns: key a stream of rows by columns", operator=checked)
    schema = elements.schema
    columns = aggregate_columns(schema, aggregations)
    output = StructType(
        [
            *[StructField(column, schema[column].dataType) for column in key.columns],
            *[StructField(column.name, column.output_type) for column in columns],
        ]
    )
    event_time = timestamp_column_of(schema, event_time_before(before))
    combine = map_side_combine(schema, key.columns, columns, event_time)
    function = ColumnAggregates(key.columns, columns)
    return keyed_operator(
        before, key, "aggregate", function, elements_of(output, checked), uid=checked, name=name, prepare=combine
    )


def processor_operator(  # noqa: PLR0913  the parameters of Spark's method
    before: Transformation,
    key: StreamKey,
    processor: Any,
    output_type: Any,
    modes: tuple[Any, Any],
    *,
    initial_state: Any,
    event_time_column: str,
    uid: str | None,
    name: str | None,
    in_pandas: bool,
) -> KeyedTransformation:
    """The operator of Spark's `transformWithState`.

    Args:
        before: A stream of rows.
        key: Columns of it.
        processor: Instance of a `StatefulProcessor`.
        output_type: Columns of what it yields.
        modes: The output mode and the time mode.
        initial_state: A grouped DataFrame, or None.
        event_time_column: Output column with the event time; empty: none.
        uid: Name of the state.
        name: For people.
        in_pandas: Call the processor with DataFrames.

    Raises:
        InvalidRequestError: Any of these cannot be right.
    """
    output_mode, time_mode = modes
    is_update = _is_update(output_mode)
    _check_rows(before, key)
    output = _output_of(output_type, event_time_column)
    method = "transform_with_state_in_pandas" if in_pandas else "transform_with_state"
    make = PandasProcessorFunction if in_pandas else ProcessorFunction
    function = make(check_processor(processor, method), TimeMode.of(time_mode), output, key.columns)
    if isinstance(function, PandasProcessorFunction):
        function.zone = _session_zone()
    if function.drops_late_rows:
        _check_has_watermark(before, "time mode EventTime")
    node = keyed_operator(
        before,
        key,
        "transform_with_state",
        function,
        RowElements(output),
        uid=uid,
        name=name,
        initial_state=initial_state_of(initial_state, before.elements.schema, key.columns),
        event_time_column=event_time_column or None,
    )
    return replace(node, is_update=is_update)


def group_state_operator(
    before: Transformation,
    key: StreamKey,
    function: Any,
    types: tuple[Any, Any],
    modes: tuple[Any, Any],
    *,
    uid: str | None,
    name: str | None,
) -> KeyedTransformation:
    """The operator of Spark's `applyInPandasWithState`.

    Args:
        before: A stream of rows.
        key: Columns of it.
        function: The user's.
        types: Columns of the output, and of the group's state.
        modes: The output mode and the timeout.
        uid: Name of the state.
        name: For people.

    Raises:
        InvalidRequestError: Any of these cannot be right.
    """
    (output_type, state_type), (output_mode, timeout) = types, modes
    _check_rows(before, key)
    is_update = _is_update(output_mode)
    output = _output_of(output_type, "")
    if not callable(function) or isinstance(function, type):
        raise InvalidRequestError(f"apply_in_pandas_with_state takes a function, not {function!r}")
    check_timeout(timeout)
    if timeout == GroupStateTimeout.EventTimeTimeout:
        _check_has_watermark(before, "EventTimeTimeout")
    columns_type(state_type, "the group's state")
    grouped = GroupStateFunction(
        function,
        state_type,
        timeout,
        input_columns=before.elements.schema.names,
        output=output,
        key_columns=key.columns,
        has_watermark=has_watermark(before),
    )
    grouped.zone = _session_zone()
    kind = "apply_in_pandas_with_state"
    node = keyed_operator(before, key, kind, grouped, RowElements(output), uid=uid, name=name)
    return replace(node, is_update=is_update)


def initial_state_of(grouped: Any, schema: StructType, key_columns: Sequence[str]) -> InitialState | None:
    """The initial state that a user passes as `initial_state`.

    Args:
        grouped: `df.groupBy(...)`, or None.
        schema: Columns of the stream.
        key_columns: Those that it is keyed by.

    Raises:
        InvalidRequestError: It is something else, a stream, or grouped by other types.
    """
    if grouped is None:
        return None
    if not isinstance(grouped, GroupedData):
        raise InvalidRequestError(
            f"the initial state is a grouped DataFrame, df.groupBy(...), not a {type(grouped).__name__}"
        )
    rows: Any = grouped._df  # noqa: SLF001  there is no other way to the DataFrame
    if rows.isStreaming:
        raise InvalidRequestError("the initial state is a stream; give a DataFrame of spark.read or createDataFrame")
    check_columns(rows.schema, "the initial state")
    columns = tuple(grouped.count().columns[:-1])
    if len(columns) != len(key_columns):
        raise InvalidRequestError(
            f"the initial state is grouped by {list(columns)}, the stream is keyed by {list(key_columns)}"
        )
    group_type, key_type = key_type_of(rows.schema, columns), key_type_of(schema, key_columns)
    if group_type.type_string() != key_type.type_string():
        raise InvalidRequestError(
            f"the initial state is grouped by {list(columns)} of type {group_type}, the stream's key is of type "
            f"{key_type}; cast the columns"
        )
    return InitialState(rows=rows, columns=columns, key_columns=tuple(key_columns))


def _session_zone() -> str | None:
    """The time zone of the active session; None without one, as in a test without Spark."""
    session = SparkSession.getActiveSession()
    zone = None if session is None else session.conf.get("spark.sql.session.timeZone")
    try:
        return None if zone is None or zone_info(zone) is None else zone
    except (ValueError, LookupError):  # a name that only Java has; Spark itself sends no timestamps then
        return None


def _is_update(mode: Any) -> bool:
    """True for Spark's output mode "Update". It has no effect: rows that a function yields are written."""
    if not isinstance(mode, str) or mode.lower() not in ("append", "update"):
        raise InvalidRequestError(f"the output mode is 'Append' or 'Update', not {mode!r}")
    return mode.lower() == "update"


def _check_rows(before: Transformation, key: StreamKey) -> None:
    """Check that the stream has columns, which Spark's functions get."""
    if not isinstance(before.elements, RowElements):
        raise InvalidRequestError(
            "Spark's functions get rows with columns, and the stream's elements are of "
            f"{before.elements.state_type}: give the step before an output type of columns, such as 'k string, v long'"
        )
    if key.function is not None:
        raise InvalidRequestError("Spark's functions need a stream that is keyed by columns: key_by('k')")


def _output_of(output_type: Any, event_time_column: str) -> StructType:
    schema = output_schema_of(output_type)
    if event_time_column and timestamp_column_of(schema, event_time_column) is None:
        raise InvalidRequestError(f"the output has no timestamp column {event_time_column!r}; it has {schema.names}")
    return schema


def _check_has_watermark(end: Transformation, what: str) -> None:
    if not has_watermark(end):
        raise InvalidRequestError(
            f"{what} needs a watermark: with_watermark('at', '10 seconds') right after from_dataframe"
        )
