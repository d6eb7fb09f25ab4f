"""Spark's stateful operations on a keyed stream, as methods: checked, and made into functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.state import GroupStateTimeout

from varvite.spark_integration.elements.row_values import columns_type
from varvite.spark_integration.elements.types import RowElements
from varvite.spark_integration.operators.processors.group_state import GroupStateFunction, check_timeout
from varvite.spark_integration.operators.processors.handle import TimeMode
from varvite.spark_integration.operators.processors.stateful_processor import (
    PandasProcessorFunction,
    ProcessorFunction,
    check_processor,
)
from varvite.spark_integration.plan.initial_state import initial_state_of
from varvite.spark_integration.plan.operator import output_schema_of, timestamp_column_of
from varvite.spark_integration.plan.transformations import (
    DataFrameSource,
    KeyedTransformation,
    StepTransformation,
    sources_of,
)
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import GroupedData
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import StructType

    from varvite.spark_integration.api.stream import DataStream
    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.plan.initial_state import InitialState
    from varvite.spark_integration.plan.transformations import KeyFunction, Transformation


class SparkOperations(ABC):
    """Spark's stateful operations as methods of a keyed stream."""

    _transformation: Transformation
    _columns: tuple[str, ...]
    _key: KeyFunction | None

    @abstractmethod
    def _operator(
        self,
        kind: str,
        func: Any,
        elements: ElementType,
        uid: str | None = None,
        name: str | None = None,
        *,
        initial_state: InitialState | None = None,
        event_time_column: str | None = None,
    ) -> DataStream:
        """A stateful operator on this stream."""

    def transform_with_state(
        self,
        stateful_processor: StatefulProcessor,
        output_struct_type: StructType | str,
        output_mode: str = "Append",
        time_mode: str = "None",
        initial_state: GroupedData | None = None,
        event_time_column: str = "",
        *,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Spark's `transformWithState`: a processor that gets all rows of a key in a batch at once.

        See `docs/guide/spark-programs.md`.

        Args:
            stateful_processor: An instance; it is copied (pickled) now.
            output_struct_type: Columns of the Rows that it yields.
            output_mode: "Append" or "Update", which are the same.
            time_mode: "None", "ProcessingTime" or "EventTime".
            initial_state: A grouped DataFrame, which the job's first batch gives to `handleInitialState`.
            event_time_column: Output column with the event time, for the operators that follow.
            uid: Names the operator's state for ever; without one, one is made from the place in the graph.
            name: For people; the uid unless given.

        Raises:
            InvalidRequestError: Any of these cannot be right.
        """
        check_output_mode(output_mode)
        return self._with_processor(
            stateful_processor, output_struct_type, time_mode, initial_state, event_time_column, uid=uid, name=name
        )

    def transform_with_state_in_pandas(
        self,
        stateful_processor: StatefulProcessor,
        output_struct_type: StructType | str,
        output_mode: str = "Append",
        time_mode: str = "None",
        initial_state: GroupedData | None = None,
        event_time_column: str = "",
        *,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Spark's `transformWithStateInPandas`: as `transform_with_state`, with pandas DataFrames in place of Rows."""
        check_output_mode(output_mode)
        return self._with_processor(
            stateful_processor, output_struct_type, time_mode, initial_state, event_time_column, uid=uid, name=name,
            in_pandas=True,
        )  # fmt: skip

    def _with_processor(
        self, processor: Any, output_type: Any, time_mode: Any, initial_state: Any, event_time_column: str,
        *, uid: str | None, name: str | None, in_pandas: bool = False,
    ) -> DataStream:  # fmt: skip
        check_rows(self._transformation, self._key)
        output = output_of(output_type, event_time_column)
        function = processor_function(processor, output, time_mode, self._columns, in_pandas=in_pandas)
        if function.drops_late_rows:
            check_has_watermark(self._transformation, "time mode EventTime")
        initial = initial_state_of(initial_state, self._transformation.elements.schema, self._columns)
        return self._operator(
            "transform_with_state", function, RowElements(output), uid, name,
            initial_state=initial, event_time_column=event_time_column or None,
        )  # fmt: skip

    def apply_in_pandas_with_state(
        self,
        func: Callable[..., Any],
        output_struct_type: StructType | str,
        state_struct_type: StructType | str,
        output_mode: str = "Append",
        timeout_conf: str = "NoTimeout",
        *,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Spark's `applyInPandasWithState`: a function of (key, iterator of DataFrames, `GroupState`).

        Args:
            func: Yields DataFrames; it is copied (pickled) now.
            output_struct_type: Their columns.
            state_struct_type: Columns of the group's state.
            output_mode: "Append" or "Update", which are the same.
            timeout_conf: One of `GroupStateTimeout`.
            uid: As of `transform_with_state`.
            name: For people; the uid unless given.

        Raises:
            InvalidRequestError: Any of these cannot be right.
        """
        check_rows(self._transformation, self._key)
        check_output_mode(output_mode)
        output = output_of(output_struct_type, "")
        function = group_state_function(
            func, state_struct_type, timeout_conf, output, self._transformation, self._columns
        )
        return self._operator("apply_in_pandas_with_state", function, RowElements(output), uid, name)


def processor_function(
    processor: Any, output: StructType, time_mode: Any, key_columns: Sequence[str], *, in_pandas: bool
) -> ProcessorFunction:
    """A processor as a function. Raises `InvalidRequestError` if it is none, or the time mode is none."""
    method = "transform_with_state_in_pandas" if in_pandas else "transform_with_state"
    make = PandasProcessorFunction if in_pandas else ProcessorFunction
    return make(check_processor(processor, method), TimeMode.of(time_mode), output, key_columns)


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
        output=output,
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
    is_only = len(sources_of(end)) == 1  # rows of several sources have their time stamps beside them
    for node in reversed(list(end.lineage())):
        if isinstance(node, KeyedTransformation) and node.event_time_column:
            return node.event_time_column
        if isinstance(node, StepTransformation) and node.step == "timestamps":
            return None  # the watermark follows what was assigned, which is no column
        if is_only and isinstance(node, DataFrameSource) and node.event_time is not None:
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
