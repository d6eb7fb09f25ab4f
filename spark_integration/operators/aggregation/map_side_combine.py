"""What is done to the input of `aggregate` before it is shuffled to the state workers.

Sums, counts, averages and extremes can first be computed per batch and task, so that only one row per key and task is
shuffled. There are two ways (`Way`), by the rows that a key has in a batch:

* from 64 on by Spark's own `groupBy`, in the JVM. Its results are shuffled twice, by Spark and to the state, so there
  have to be few. It keeps a hot key from one worker.
* from 8 on, in large batches, in Arrow by the tasks' Python workers (`row_combiner.py`), to which Spark has to send all
  rows. 1 M rows of 100 k keys take 648 instead of 771 ms so, those of 1,000 keys 404 instead of 599 (by Spark: 339).

Otherwise, and for functions that need the rows, all rows are shuffled, with the columns that are read.

It changes no result: the partial sums of integers and decimals are exact (null if they do not fit, and then an error),
and Spark's own order of adding floating-point numbers is as undefined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses
from pyspark.sql import types as spark

from varvite.changelog.types.decimals import DecimalType
from varvite.spark_integration.elements.arrow_rows import quoted
from varvite.spark_integration.operators.aggregation.column_aggregates import partial_name
from varvite.spark_integration.operators.aggregation.row_combiner import Partial, RowCombiner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import Column, DataFrame

    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
    from varvite.spark_integration.operators.aggregation.aggregations import AggregateColumn

ROWS_PER_KEY_MIN: Final = 64
"""Mean rows per key of a batch from which Spark combines."""
ARROW_ROWS_PER_KEY_MIN: Final = 8
"""Mean rows per key of a batch from which they are combined in Arrow."""
ARROW_ROWS_MIN: Final = 300_000
"""Rows of a batch from which that pays: one more Python worker per task takes some 15 ms, 100 ns per row are saved."""
COMBINED_BATCHES_MAX: Final = 100

_PARTIALS: Final[dict[str, Callable[[Column], Column]]] = {
    "count": F.count,
    "sum": F.try_sum,
    "double_sum": lambda column: F.sum(column.cast("double")),
    "min": F.min,
    "max": F.max,
}
# Of these types, keys that Arrow takes for equal are one key of the state. (Equal ones that it tells apart do no harm.)
_ARROW_KEYS: Final = (
    spark.StringType, spark.BinaryType, spark.BooleanType, spark.IntegralType, spark.DecimalType, spark.DateType,
    spark.TimestampType, spark.TimestampNTZType,
)  # fmt: skip
_ARROW_VALUES: Final = (*_ARROW_KEYS, spark.FractionalType)


class Way(Enum):
    """How rows are combined."""

    SPARK = "spark"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True)
class MapSideCombine:
    """Makes the rows that are shuffled; see the module."""

    key_columns: tuple[str, ...]
    columns: tuple[AggregateColumn, ...]
    event_time: str | None
    """Column whose maximum the tasks tell, if it is no key column."""
    schema: spark.StructType
    """Columns of the stream."""

    def suits(self, way: Way) -> bool:
        """Whether all functions have partial results, and the types are such that they can be computed so."""
        if not all(column.accumulator.partials for column in self.columns):
            return False
        if way is Way.SPARK:
            return True
        compared = [p.column for p in self._partials() if p.column is not None and p.kind in ("min", "max")]
        keys_suit = all(isinstance(self.schema[name].dataType, _ARROW_KEYS) for name in self.key_columns)
        return keys_suit and all(isinstance(self.schema[name].dataType, _ARROW_VALUES) for name in compared)

    def with_event_time(self, column: str | None) -> MapSideCombine:
        """The same for input whose event time is that column."""
        return replace(self, event_time=None if column in self.key_columns else column)

    def combined(self, rows: DataFrame, way: Way) -> DataFrame:
        """The rows to shuffle, combined in a way that suits."""
        partials = self._partials()
        if way is Way.ARROW:
            combiner = RowCombiner(self.key_columns, partials)
            return rows.selectExpr(*self._arrow_columns(partials)).mapInArrow(combiner, self._combined_schema(partials))
        return rows.groupBy(*map(_column, self.key_columns)).agg(*map(_computed, partials))

    def _partials(self) -> tuple[Partial, ...]:
        """What is computed of the rows of a key."""
        found = [
            Partial(partial_name(column.name, kind), kind, column.column)
            for column in self.columns
            for kind in column.accumulator.partials
        ]
        times = [] if self.event_time is None else [Partial(self.event_time, "max", self.event_time)]
        return *found, *times

    def _combined_schema(self, partials: Sequence[Partial]) -> spark.StructType:
        """The columns that `RowCombiner` yields."""
        types = {name: self.schema[name].dataType for name in self.key_columns}
        types |= {partial.name: _partial_type(partial, self.schema) for partial in partials}
        return spark.StructType([spark.StructField(name, kind) for name, kind in types.items()])

    def _arrow_columns(self, partials: Sequence[Partial]) -> list[str]:
        """What `RowCombiner` reads, as expressions: of a column that is only counted, whether there is a value."""
        valued = {*self.key_columns, *(partial.column for partial in partials if partial.kind != "count")}
        return [
            quoted(name) if name in valued else f"IF({quoted(name)} IS NULL, NULL, TRUE) AS {quoted(name)}"
            for name in self._names_read()
        ]

    def columns_read(self) -> list[str]:
        """The columns of the rows to shuffle if they are not combined, as expressions."""
        return [quoted(name) for name in self._names_read()]

    def _names_read(self) -> list[str]:
        read = [column.column for column in self.columns if column.column is not None]
        times = [self.event_time] if self.event_time is not None else []
        return list(dict.fromkeys([*self.key_columns, *read, *times]))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is done to an operator's next batches, and why."""

    way: Way | None
    left: int
    """So many batches more, before it is decided again."""
    rows_per_key: float
    """Of the batch that decided it."""


_UNKNOWN: Final = _Seen(None, 0, 0)


class MapSideCombining:
    """Which operators combine the rows of the next batch, by what was seen of earlier ones.

    Rows per key are seen of a batch that was not combined; after `COMBINED_BATCHES_MAX` combined ones in a row there is
    one that is not. If combining in Arrow leaves more than half of a key's rows, because many tasks have some, it is
    not done in as many batches; and no longer once batches are small.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def way(self, uid: str) -> Way | None:
        """How that operator's next batch is combined; None: not at all."""
        return self._seen.get(uid, _UNKNOWN).way

    def after(self, summaries: Iterable[OperatorSummaries]) -> None:
        """Note a batch that has ended, by the summaries of all operators."""
        for own in summaries:
            seen = self._seen.get(own.operator, _UNKNOWN)
            self._seen[own.operator] = _after(seen, own.total("rows_in"), own.total("rows_out"))


def _after(seen: _Seen, rows: int, keys: int) -> _Seen:
    """What is done after a batch with these rows and keys; the rows are those that were shuffled."""
    if seen.way is Way.ARROW and rows * 2 > keys * seen.rows_per_key:
        return _Seen(None, COMBINED_BATCHES_MAX, 0)
    if seen.way is Way.ARROW and keys * seen.rows_per_key * 2 < ARROW_ROWS_MIN:
        return _UNKNOWN
    if seen.left:
        return replace(seen, left=seen.left - 1) if seen.left > 1 else _UNKNOWN
    if rows and rows >= keys * ROWS_PER_KEY_MIN:
        return _Seen(Way.SPARK, COMBINED_BATCHES_MAX, 0)
    if rows >= ARROW_ROWS_MIN and rows >= keys * ARROW_ROWS_PER_KEY_MIN:
        return _Seen(Way.ARROW, COMBINED_BATCHES_MAX, rows / max(1, keys))
    return _UNKNOWN


def map_side_combine(
    schema: spark.StructType, key_columns: Sequence[str], columns: Sequence[AggregateColumn], event_time: str | None
) -> MapSideCombine:
    """How input with that schema is prepared; `event_time` names its timestamp column, if it has one."""
    return MapSideCombine(
        key_columns=tuple(key_columns),
        columns=tuple(columns),
        event_time=None if event_time in key_columns else event_time,
        schema=schema,
    )


def _partial_type(partial: Partial, schema: spark.StructType) -> spark.DataType:
    """Type of a partial result, as `RowCombiner` makes it of columns of that schema."""
    if partial.column is None or partial.kind == "count":
        return spark.LongType()
    if partial.kind == "double_sum":
        return spark.DoubleType()
    given = schema[partial.column].dataType
    if partial.kind != "sum":
        return given
    if isinstance(given, spark.DecimalType):
        summed = DecimalType(given.precision, given.scale).sum_type()
        return spark.DecimalType(summed.precision, summed.scale)
    return spark.LongType()


def _computed(partial: Partial) -> Column:
    """The partial result as Spark computes it."""
    values = F.lit(1) if partial.column is None else _column(partial.column)
    return _PARTIALS[partial.kind](values).alias(partial.name)


def _column(name: str) -> Column:
    return F.col(quoted(name))
