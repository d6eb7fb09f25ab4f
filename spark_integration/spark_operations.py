"""Spark's stateful operations on a keyed stream, checked and made into functions; `KeyedStream` has them as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.state import GroupStateTimeout

from varve.spark_integration.element_type import RowElements
from varve.spark_integration.group_state_function import GroupStateFunction, check_timeout
from varve.spark_integration.operator_plan import output_schema_of, timestamp_column_of
from varve.spark_integration.processor_handle import TimeMode
from varve.spark_integration.processor_states import columns_type
from varve.spark_integration.stateful_processor import PandasProcessorFunction, ProcessorFunction, check_processor
from varve.spark_integration.transformations import DataFrameSource, KeyedTransformation, StepTransformation
from varve.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from varve.spark_integration.transformations import KeyFunction, Transformation


def processor_function(
    processor: Any, output: StructType, time_mode: Any, key_columns: Sequence[str], *, in_pandas: bool
) -> ProcessorFunction:
    """A processor as a function. Raises `InvalidRequestError` if it is none, or the time mode is none."""
    method = "transform_with_state_in_pandas" if in_pandas else "transform_with_state"
    make = PandasProcessorFunction if in_pandas else ProcessorFunction
    return make(check_processor(processor, method), TimeMode.of(time_mode), output.names, key_columns)


def group_state_function(
    function: Any, state_type: Any, timeout: Any, output: StructType, before: Transformation, key_columns: Sequence[str]
) -> GroupStateFunction:
    """A function of `applyInPandasWithState` as a function. Raises `InvalidRequestError` if anything is wrong."""
    if not callable(function) or isinstance(function, type):
        raise InvalidRequestError(f"apply_in_pandas_with_state takes a function, not {function!r}")
    check_timeout(timeout)
    if timeout == GroupStateTimeout.EventTimeTimeout:
        check_has_watermark(before, "EventTimeTimeout")
    columns_type(state_type, "the group's state")
    return GroupStateFunction(
        function,
        state_type,
        timeout,
        input_columns=before.elements.schema.names,
        output_columns=output.names,
        key_columns=key_columns,
        has_watermark=_has_watermark(before),
    )


def check_output_mode(given: Any) -> None:
    """Spark's output mode. It changes nothing: what is yielded is written. Raises `InvalidRequestError`."""
    if not isinstance(given, str) or given.lower() not in ("append", "update"):
        raise InvalidRequestError(f"the output mode is 'Append' or 'Update', not {given!r}")


def check_rows(before: Transformation, key: KeyFunction | None) -> None:
    """Spark's functions get columns. Raises `InvalidRequestError` if the stream has none."""
    if not isinstance(before.elements, RowElements):
        raise InvalidRequestError(
            "Spark's functions get rows with columns, and the stream's elements are of "
            f"{before.elements.state_type}: give the step before an output type of columns, such as 'k string, v long'"
        )
    if key is not None:
        raise InvalidRequestError("Spark's functions need a stream that is keyed by columns: key_by('k')")


def output_of(given: StructType | str, event_time_column: str) -> StructType:
    """The output's columns. Raises `InvalidRequestError` if they are none or hold no such event time."""
    schema = output_schema_of(given)
    if event_time_column and timestamp_column_of(schema, event_time_column) is None:
        raise InvalidRequestError(f"the output has no timestamp column {event_time_column!r}; it has {schema.names}")
    return schema


def event_time_before(end: Transformation) -> str | None:
    """Name of the event time column of a stream; None if it has none, or its time stamps are no column."""
    for node in reversed(list(end.lineage())):
        if isinstance(node, KeyedTransformation) and node.event_time_column:
            return node.event_time_column
        if isinstance(node, DataFrameSource) and node.event_time is not None:
            return node.event_time.column
    return None


def check_has_watermark(end: Transformation, what: str) -> None:
    """Event time needs a watermark. Raises `InvalidRequestError`."""
    if not _has_watermark(end):
        raise InvalidRequestError(
            f"{what} needs a watermark: with_watermark('at', '10 seconds') right after from_dataframe"
        )


def _has_watermark(end: Transformation) -> bool:
    return any(
        (isinstance(node, DataFrameSource) and node.event_time is not None)
        or (isinstance(node, StepTransformation) and node.watermark_delay_ms is not None)
        for node in end.lineage()
    )
