"""Streams and what is done to them: `DataStream`, `KeyedStream`, `ProcessedStream`.

Every step makes a new value and checks what can be checked at that line; nothing runs before `start()`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from varve.spark_integration.job_plan import EventTime, check_uids, event_time_column, event_time_of
from varve.spark_integration.operator_plan import OperatorPlan, key_type_of, plan_operator
from varve.spark_integration.stream_writer import StreamWriter
from varve.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from varve.spark_integration.environment import StreamExecutionEnvironment
    from varve.spark_integration.functions import KeyedProcessFunction
    from varve.spark_integration.sinks import Sink


@dataclass(frozen=True, slots=True)
class StreamGraph:
    """What leads to a stream: the input and the operators so far."""

    environment: StreamExecutionEnvironment
    input: DataFrame
    operators: tuple[OperatorPlan, ...] = ()
    event_time: EventTime | None = None

    @property
    def schema(self) -> StructType:
        """Columns of the stream."""
        return self.operators[-1].output_schema if self.operators else self.input.schema


class DataStream:
    """A stream of rows; `StreamExecutionEnvironment.from_dataframe` makes one."""

    def __init__(self, graph: StreamGraph) -> None:
        self._graph = graph

    @property
    def schema(self) -> StructType:
        """Columns of the rows."""
        return self._graph.schema

    def with_watermark(self, column: str, delay: str | int | timedelta) -> DataStream:
        """Let a column be the event time of the rows, and the watermark follow it.

        The watermark of a batch is `delay` behind the largest event time of all batches before it. Rows behind the
        watermark are late; they are processed like all others. Spark's `withWatermark` on the DataFrame does the same.

        Args:
            column: Name of a timestamp column.
            delay: How long to wait for rows that come late: "10 seconds", a timedelta, or milliseconds.

        Raises:
            InvalidRequestError: No such column, no timestamps, no delay; the stream has event times already, or is
                what an operator yields.
        """
        graph = self._graph
        if graph.operators:
            raise InvalidRequestError("a watermark belongs to the input: call with_watermark before the first key_by")
        if graph.event_time is not None:
            raise InvalidRequestError(
                f"the stream has the event time column {graph.event_time.column!r} already; call with_watermark once"
            )
        event_time = event_time_column(graph.schema, column, delay)
        return DataStream(replace(graph, event_time=event_time))

    def key_by(self, *columns: str) -> KeyedStream:
        """Divide the rows by key: all rows of a key go to the same partition, in the order of the stream's batches.

        Args:
            columns: Names of top-level columns. One: its value is the key; several: a tuple of their values.

        Raises:
            InvalidRequestError: A column is missing, or its type cannot be a key (floating point, map, array).
        """
        key_type_of(self._graph.schema, columns)
        return KeyedStream(self._graph, columns)


class KeyedStream:
    """A stream divided by key."""

    def __init__(self, graph: StreamGraph, columns: tuple[str, ...]) -> None:
        self._graph = graph
        self._columns = columns

    def process(
        self,
        func: KeyedProcessFunction[Any, Any, Any],
        output_schema: StructType | str,
        uid: str | None = None,
        name: str | None = None,
    ) -> ProcessedStream:
        """Call a function for every row, with the state of the row's key.

        Args:
            func: An instance; it is copied (pickled) now.
            output_schema: Columns of the rows that it yields: a `StructType` or a DDL string such as
                "tailnum string, flights bigint".
            uid: Required. Names the operator's state for ever: keep it when everything else changes.
            name: For people; the uid unless given.

        Raises:
            InvalidRequestError: Any of these cannot be right, or the uid is taken.
        """
        graph = self._graph
        plan = plan_operator(
            graph.schema,
            self._columns,
            func,
            output_schema,
            uid=uid,
            name=name,
            event_time=graph.event_time.column if graph.event_time else None,
        )
        operators = (*graph.operators, plan)
        check_uids(operators)
        return ProcessedStream(replace(graph, operators=operators))


class ProcessedStream(DataStream):
    """What a stateful operator yields: may be keyed and processed again, or written.

    A later operator's event time is the column of the name that the input's event time column has, if its rows have
    one that holds timestamps.
    """

    def foreach_batch(self, func: Callable[[DataFrame, int], None] | Sink) -> StreamWriter:
        """Write with a function of (rows, batch id), as Spark's `foreachBatch`, or with a `Sink`."""
        return StreamWriter(self._graph).foreach_batch(func)

    def format(self, source: str) -> StreamWriter:
        """Write files: csv, json, orc or parquet; exactly once."""
        return StreamWriter(self._graph).format(source)

    @property
    def write_stream(self) -> StreamWriter:
        """A writer, as Spark's `writeStream`."""
        return StreamWriter(self._graph)


def input_stream(environment: StreamExecutionEnvironment, df: DataFrame) -> DataStream:
    """The stream of a checked streaming DataFrame."""
    return DataStream(StreamGraph(environment, df, event_time=event_time_of(df.schema)))
