"""What Spark does to the input of `aggregate` before it is shuffled to the state workers.

Sums, counts, averages and extremes are first computed per batch by Spark's own `groupBy`, whose tasks combine the rows
of a key before they are shuffled; a state worker then gets one row per key of the batch. Other functions need the rows,
so that all rows are shuffled, with the columns that are read, if one of these is among them.

It changes no result: the partial sums of integers and decimals are exact (null if they do not fit, and then an error),
and Spark's own order of adding floating-point numbers is as undefined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses

from varve.spark_integration.column_aggregates import partial_name
from varve.spark_integration.column_name import quoted
from varve.spark_integration.protocol import UPSTREAM_TAG_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

    from varve.spark_integration.aggregations import AggregateColumn

_PARTIALS: Final[dict[str, Callable[[Column], Column]]] = {
    "count": F.count,
    "sum": F.try_sum,
    "double_sum": lambda column: F.sum(column.cast("double")),
    "min": F.min,
    "max": F.max,
}


@dataclass(frozen=True, slots=True)
class MapSideCombine:
    """Makes the rows that are shuffled; see the module."""

    key_columns: tuple[str, ...]
    columns: tuple[AggregateColumn, ...]
    event_time: str | None
    """Column whose maximum the tasks tell, if it is no key column."""
    combines: bool
    """Whether rows are combined, or only have fewer columns."""

    def with_event_time(self, column: str | None) -> MapSideCombine:
        """The same for input whose event time is that column."""
        return replace(self, event_time=None if column in self.key_columns else column)

    def __call__(self, rows: DataFrame) -> DataFrame:
        """The rows to shuffle."""
        # Rows of different upstream attempts stay apart, so that each carries the tag of its own.
        kept = [*self.key_columns, *([UPSTREAM_TAG_COLUMN] if UPSTREAM_TAG_COLUMN in rows.columns else [])]
        if self.combines:
            computed = [partial for column in self.columns for partial in _partials_of(column)]
            if self.event_time is not None:
                computed.append(F.max(_column(self.event_time)).alias(self.event_time))
            return rows.groupBy(*map(_column, kept)).agg(*computed)
        read = [column.column for column in self.columns if column.column is not None]
        times = [self.event_time] if self.event_time is not None else []
        wanted: dict[str, None] = dict.fromkeys([*kept, *read, *times])
        return rows.select(*map(_column, wanted))


def map_side_combine(
    key_columns: Sequence[str], columns: Sequence[AggregateColumn], event_time: str | None
) -> MapSideCombine:
    """How the input of these aggregations is prepared; `event_time` names its timestamp column, if it has one."""
    return MapSideCombine(
        key_columns=tuple(key_columns),
        columns=tuple(columns),
        event_time=None if event_time in key_columns else event_time,
        combines=all(column.accumulator.partials for column in columns),
    )


def _partials_of(column: AggregateColumn) -> list[Column]:
    values = F.lit(1) if column.column is None else _column(column.column)
    kinds = column.accumulator.partials
    return [_PARTIALS[kind](values).alias(partial_name(column.name, kind)) for kind in kinds]


def _column(name: str) -> Column:
    return F.col(quoted(name))
