"""Streams and what is done to them: `DataStream`, `KeyedStream`, `ProcessedStream`.

Every step makes a new value and checks what can be checked at that line; nothing runs before `start()`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructField, StructType

from varve.spark_integration.aggregations import aggregate_columns
from varve.spark_integration.column_aggregates import ColumnAggregates
from varve.spark_integration.job_plan import EventTime, check_uids, event_time_of
from varve.spark_integration.map_side_combine import map_side_combine
from varve.spark_integration.operator_plan import OperatorPlan, key_type_of, plan_operator, timestamp_column_of
from varve.spark_integration.stream_writer import StreamWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from varve.spark_integration.environment import StreamExecutionEnvironment
    from varve.spark_integration.functions import KeyedProcessFunction
    from varve.spark_integration.sinks import Sink
    from varve.spark_integration.vectorized_functions import VectorizedProcessFunction


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
        func: KeyedProcessFunction[Any, Any, Any] | VectorizedProcessFunction,
        output_schema: StructType | str,
        uid: str | None = None,
        name: str | None = None,
    ) -> ProcessedStream:
        """Call a function for every row, with the state of the row's key; a vectorised one for every batch of rows.

        Args:
            func: An instance; it is copied (pickled) now.
            output_schema: Columns of the rows that it yields: a `StructType` or a DDL string such as
                "tailnum string, flights bigint".
            uid: Required. Names the operator's state for ever: keep it when everything else changes.
            name: For people; the uid unless given.

        Raises:
            InvalidRequestError: Any of these cannot be right, or the uid is taken.
        """
        return self._processed(func, output_schema, uid, name)

    def aggregate(
        self,
        aggregations: Mapping[str, Any] | None = None,
        /,
        *,
        uid: str | None = None,
        name: str | None = None,
        **columns: Any,
    ) -> ProcessedStream:
        """Keep aggregates of all rows of each key, and yield those of every key that has rows in a micro-batch.

        An output row has the key columns and a column for each aggregation, typed as by Spark's `groupBy().agg()`.

        Args:
            aggregations: Output column → aggregation, for names that are no Python names, or are `uid` or `name`.
            uid: Required. Names the operator's state for ever; other aggregations are another state, which needs
                another uid.
            name: For people; the uid unless given.
            columns: Output column = aggregation: "count" (of rows), `("amount", "sum")`, `("amount", "top", 10)` or an
                `Aggregation`, which names the functions.

        Raises:
            InvalidRequestError: Any of these cannot be right, or the uid is taken.
        """
        schema = self._graph.schema
        wanted = aggregate_columns(schema, {**(aggregations or {}), **columns})
        output = StructType(
            [
                *[StructField(key, schema[key].dataType) for key in self._columns],
                *[StructField(column.name, column.output_type) for column in wanted],
            ]
        )
        event_time = timestamp_column_of(schema, self._graph.event_time.column if self._graph.event_time else None)
        combine = map_side_combine(self._columns, wanted, event_time)
        function = ColumnAggregates(self._columns, wanted, combined=combine.combines)
        return self._processed(function, output, uid, name, combine)

    def _processed(
        self, func: Any, output_schema: StructType | str, uid: str | None, name: str | None,
        prepare: Callable[[DataFrame], DataFrame] | None = None,
    ) -> ProcessedStream:  # fmt: skip
        graph = self._graph
        plan = plan_operator(
            graph.schema,
            self._columns,
            func,
            output_schema,
            uid=uid,
            name=name,
            event_time=graph.event_time.column if graph.event_time else None,
            prepare=prepare,
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
