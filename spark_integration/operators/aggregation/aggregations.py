"""`Aggregation`: a column that `KeyedStream.aggregate` computes, and the checks of what the user wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as spark

from varvite.changelog.types.basic import FloatingType, IntegerType
from varvite.changelog.types.columns import check_columnar
from varvite.changelog.types.composites import CompositeType
from varvite.changelog.types.decimals import DecimalType
from varvite.changelog.types.factory import as_type
from varvite.spark_integration.operators.aggregation.accumulators import (
    Accumulator,
    AverageAccumulator,
    CountAccumulator,
    DecimalAverageAccumulator,
    DecimalSumAccumulator,
    DistinctAccumulator,
    DoubleSumAccumulator,
    ExtremeAccumulator,
    LongSumAccumulator,
    PositionAccumulator,
    TopAccumulator,
)
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from varvite.changelog.types.wire import WireType

TOP_MAX: Final = 100
"""The most values that `top` keeps per key: they are columns of the state."""
_ALIASES: Final = {"mean": "avg", "countDistinct": "count_distinct"}


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What to compute of the rows of a key.

    Args:
        function: count, sum, min, max, avg (or mean), first, last, count_distinct or top.
        column: Of the stream; None only for count, which then counts rows.
        k: How many values; for top alone, from 1 to 100.
        ignore_nulls: For first and last: take the first or last value that is not null. Otherwise a null counts, as
            in Spark.
    """

    function: str
    column: str | None = None
    k: int | None = None
    ignore_nulls: bool = False


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    """An aggregation that was checked."""

    name: str
    """Of the output column."""
    column: str | None
    """Input column."""
    input_type: WireType | None
    """Its type; None if only nulls are told from others."""
    accumulator: Accumulator
    output_type: spark.DataType


def as_aggregation(name: str, given: Any) -> Aggregation:
    """What the user meant by "count", ("amount", "sum"), ("amount", "top", 10) or an `Aggregation`."""
    if isinstance(given, str):
        found = Aggregation(given)
    elif isinstance(given, (tuple, list)) and len(given) in (2, 3) and all(isinstance(part, str) for part in given[:2]):
        column, function, *more = given
        found = Aggregation(function, column, *more)
    elif isinstance(given, Aggregation):
        found = given
    else:
        raise InvalidRequestError(
            f'aggregation {name}: {given!r} is none; write "count", ("amount", "sum"), ("amount", "top", 10) or an '
            "Aggregation"
        )
    function = _ALIASES.get(found.function, found.function)
    if function not in _MAKERS:
        raise InvalidRequestError(f"aggregation {name}: there is no function {function!r}; there are {list(_MAKERS)}")
    if (found.k is not None) != (function == "top"):
        raise InvalidRequestError(f"aggregation {name}: a number belongs to top, and to top alone")
    if found.k is not None and (
        isinstance(found.k, bool) or not isinstance(found.k, int) or not 1 <= found.k <= TOP_MAX
    ):
        raise InvalidRequestError(f"aggregation {name}: top keeps from 1 to {TOP_MAX} values, not {found.k!r}")
    if found.ignore_nulls and function not in ("first", "last"):
        raise InvalidRequestError(f"aggregation {name}: ignore_nulls belongs to first and last; {function} always does")
    return Aggregation(function, found.column, found.k, found.ignore_nulls)


def aggregate_columns(schema: spark.StructType, aggregations: Mapping[str, Any]) -> list[AggregateColumn]:
    """Check the aggregations of an operator.

    Args:
        schema: Columns of the stream.
        aggregations: Name of the output column → what the user wrote.

    Raises:
        InvalidRequestError: There are none; one is not understood, or its column is missing or of a type that the
            function does not take.
    """
    if not aggregations:
        raise InvalidRequestError('aggregate computes nothing; give it columns, such as total=("amount", "sum")')
    return [_aggregate_column(schema, name, as_aggregation(name, given)) for name, given in aggregations.items()]


def _aggregate_column(schema: spark.StructType, name: str, wanted: Aggregation) -> AggregateColumn:
    if wanted.column is None:
        if wanted.function != "count":
            raise InvalidRequestError(f"aggregation {name}: {wanted.function} of which column?")
        return AggregateColumn(name, None, None, CountAccumulator(name), spark.LongType())
    if wanted.column not in schema.names:
        raise InvalidRequestError(
            f"aggregation {name}: there is no column {wanted.column!r}; the columns are {schema.names}"
        )
    spark_type = schema[wanted.column].dataType
    if wanted.function == "count":
        return AggregateColumn(name, wanted.column, None, CountAccumulator(name), spark.LongType())
    try:
        value_type = as_type(spark_type)
        check_columnar(value_type, f"column {wanted.column!r}")
        accumulator, output_type = _MAKERS[wanted.function](name, wanted, spark_type, value_type)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"aggregation {name}: {wanted.function} of column {wanted.column!r} of type {spark_type.simpleString()} "
            f"is not possible: {error.message}"
        ) from error
    return AggregateColumn(name, wanted.column, value_type, accumulator, output_type)


_Made = tuple[Accumulator, spark.DataType]


def _sum(name: str, _: Aggregation, __: spark.DataType, value_type: WireType) -> _Made:
    if isinstance(value_type, IntegerType):
        return LongSumAccumulator(name), spark.LongType()
    if isinstance(value_type, FloatingType):
        return DoubleSumAccumulator(name), spark.DoubleType()
    if isinstance(value_type, DecimalType):
        summed = DecimalSumAccumulator(name, value_type)
        return summed, spark.DecimalType(summed.sum_type.precision, summed.sum_type.scale)
    raise InvalidRequestError("it takes numbers; cast the column")


def _avg(name: str, _: Aggregation, __: spark.DataType, value_type: WireType) -> _Made:
    if isinstance(value_type, (IntegerType, FloatingType)):
        return AverageAccumulator(name), spark.DoubleType()
    if isinstance(value_type, DecimalType):
        averaged = DecimalAverageAccumulator(name, value_type)
        return averaged, spark.DecimalType(averaged.result_type.precision, averaged.result_type.scale)
    raise InvalidRequestError("it takes numbers; cast the column")


def _extreme(name: str, wanted: Aggregation, spark_type: spark.DataType, value_type: WireType) -> _Made:
    _check_ordered(spark_type, value_type)
    return ExtremeAccumulator(name, value_type, wanted.function), spark_type


def _position(name: str, wanted: Aggregation, spark_type: spark.DataType, value_type: WireType) -> _Made:
    return PositionAccumulator(name, value_type, wanted.function, ignore_nulls=wanted.ignore_nulls), spark_type


def _distinct(name: str, _: Aggregation, spark_type: spark.DataType, value_type: WireType) -> _Made:
    _check_collation(spark_type)
    return DistinctAccumulator(name, value_type), spark.LongType()


def _top(name: str, wanted: Aggregation, spark_type: spark.DataType, value_type: WireType) -> _Made:
    _check_ordered(spark_type, value_type)
    return TopAccumulator(name, value_type, wanted.k or 1), spark.ArrayType(spark_type)


def _check_ordered(spark_type: spark.DataType, value_type: WireType) -> None:
    _check_collation(spark_type)
    if isinstance(value_type, CompositeType):
        raise InvalidRequestError("structs are not compared; take one of the fields")


def _check_collation(spark_type: spark.DataType) -> None:
    if isinstance(spark_type, spark.StringType) and spark_type != spark.StringType():
        raise InvalidRequestError("values are compared by their bytes, not by a collation")


_MAKERS: Final[dict[str, Callable[[str, Aggregation, spark.DataType, WireType], _Made]]] = {
    "count": lambda name, *_: (CountAccumulator(name), spark.LongType()),
    "sum": _sum,
    "min": _extreme,
    "max": _extreme,
    "avg": _avg,
    "first": _position,
    "last": _position,
    "count_distinct": _distinct,
    "top": _top,
}
