"""`aggregate` as a method of a keyed stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructField, StructType

from varvite.spark_integration.api.spark_operations import event_time_before
from varvite.spark_integration.elements.types import RowElements
from varvite.spark_integration.operators.aggregation.aggregations import aggregate_columns
from varvite.spark_integration.operators.aggregation.column_aggregates import ColumnAggregates
from varvite.spark_integration.operators.aggregation.map_side_combine import map_side_combine
from varvite.spark_integration.plan.operator import check_uid, elements_of, timestamp_column_of
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varvite.spark_integration.api.stream import DataStream
    from varvite.spark_integration.plan.transformations import KeyFunction, Transformation


class AggregateOperation(ABC):
    """See the module."""

    _transformation: Transformation
    _columns: tuple[str, ...]
    _key: KeyFunction | None

    @abstractmethod
    def _operator(self, kind: str, func: Any, *arguments: Any, **more: Any) -> DataStream:
        """A stateful operator on this stream."""

    def aggregate(
        self,
        aggregations: Mapping[str, Any] | None = None,
        /,
        *,
        uid: str | None = None,
        name: str | None = None,
        **columns: Any,
    ) -> DataStream:
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
            InvalidRequestError: Any of these cannot be right, the uid is taken, or the stream is not keyed by columns.
        """
        checked, elements = check_uid(uid), self._transformation.elements
        if self._key is not None or not isinstance(elements, RowElements):
            raise InvalidRequestError("aggregate works on columns: key a stream of rows by columns", operator=checked)
        schema = elements.schema
        wanted = aggregate_columns(schema, {**(aggregations or {}), **columns})
        output = StructType(
            [
                *[StructField(key, schema[key].dataType) for key in self._columns],
                *[StructField(column.name, column.output_type) for column in wanted],
            ]
        )
        combine = map_side_combine(
            schema, self._columns, wanted, timestamp_column_of(schema, event_time_before(self._transformation))
        )
        function = ColumnAggregates(self._columns, wanted)
        return self._operator("aggregate", function, elements_of(output, checked), checked, name, prepare=combine)
