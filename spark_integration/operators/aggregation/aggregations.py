"""`Aggregation`: a column that `KeyedStream.aggregate` computes, and the checks of what a user writes."""

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
    """A function of the rows of a key.

    Args:
        function: count, sum, min, max, avg (or mean), first, last, count_distinct or top.
        column: Column of the stream; None only for count, which then counts rows.
        k: Number of values; for top alone, from 1 to 100.
        ignore_nulls: For first and last: take the first or last value that is not null. By default a null is a value,
            as in Spark.
    """

    function: str
    column: str | None = None
    k: int | None = None
    ignore_nulls: bool = False


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    """A checked aggregation."""

    name: str
    """Name of the output column."""
    column: str | None
    """Input column."""
    input_type: WireType | None
    """Its type; None if only nulls are distinguished."""
    accumulator: Accumulator
    output_type: spark.DataType


def as_aggregation(name: str, written: Any) -> Aggregation:
    """The aggregation of "count", ("amount", "sum"), ("amount", "top", 10) or an `Aggregation`."""
    if isinstance(written, str):
        parsed = Aggregation(written)
    elif isinstance(written, (tuple, list)) and len(written) in (2, 3) and all(isinstance(w, str) for w in written[:2]):
        column, function, *more = written
        parsed = Aggregation(function, column, *more)
    elif isinstance(written, Aggregation):
        parsed = written
    else:
        raise InvalidRequestError(
            f'aggregation {name}: {written!r} is none; write "count", ("amount", "sum"), ("amount", "top", 10) or an '
            "Aggregation"
        )
    function = _ALIASES.get(parsed.function, parsed.function)
    if function not in _MAKERS:
        raise InvalidRequestError(f"aggregation {name}: there is no function {function!r}; there are {list(_MAKERS)}")
    if (parsed.k is not None) != (function == "top"):
        raise InvalidRequestError(f"aggregation {name}: a number belongs to top, and to top alone")
    if parsed.k is not None and (
        isinstance(parsed.k, bool) or not isinstance(parsed.k, int) or not 1 <= parsed.k <= TOP_MAX
    ):
        raise InvalidRequestError(f"aggregation {name}: top keeps from 1 to {TOP_MAX} values, not {parsed.k!r}")
    if parsed.ignore_nulls and function not in ("first", "last"):
        raise InvalidRequestError(f"aggregation {name}: ignore_nulls belongs to first and last; {function} always does")
    return Aggregation(function, parsed.column, parsed.k, parsed.ignore_nulls)


def aggregate_columns(schema: spark.StructType, aggregations: Mapping[str, Any]) -> list[AggregateColumn]:
    """Check the aggregations of an operator.

    Args:
        schema: Columns of the stream.
        aggregations: Name of the output column → the user's aggregation.

    Raises:
        InvalidRequestError: There are none; one cannot be parsed, or its column is missing or of a type that the
            function does not take.
    """
    if not aggregations:
        raise InvalidRequestError('aggregate computes nothing; give it columns, such as total=("amount", "sum")')
    return [_aggregate_column(schema, name, as_aggregation(name, written)) for name, written in aggregations.items()]


def _aggregate_column(schema: spark.StructType, name: str, aggregation: Aggregation) -> AggregateColumn:
    if aggregation.column is None:
        if aggregation.function != "count":
            raise InvalidRequestError(f"aggregation {name}: {aggregation.function} of which column?")
        return AggregateColumn(name, None, None, CountAccumulator(name), spark.LongType())
    if aggregation.column not in schema.names:
        raise InvalidRequestError(
            f"aggregation {name}: there is no column {aggregation.column!r}; the columns are {schema.names}"
        )
    spark_type = schema[aggregation.column].dataType
    if aggregation.function == "count":
        return AggregateColumn(name, aggregation.column, None, CountAccumulator(name), spark.LongType())
    try:
        value_type = as_type(spark_type)
        check_columnar(value_type, f"column {aggregation.column!r}")
        accumulator, output_type = _MAKERS[aggregation.function](name, aggregation, spark_type, value_type)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"aggregation {name}: {aggregation.function} of column {aggregation.column!r} of type "
            f"{spark_type.simpleString()} is not possible: {error.message}"
        ) from error
    return AggregateColumn(name, aggregation.column, value_type, accumulator, output_type)


_Planned = tuple[Accumulator, spark.DataType]


def _sum(name: str, _: Aggregation, __: spark.DataType, value_type: WireType) -> _Planned:
    if isinstance(value_type, IntegerType):
        return LongSumAccumulator(name), spark.LongType()
    if isinstance(value_type, FloatingType):
        return DoubleSumAccumulator(name), spark.DoubleType()
    if isinstance(value_type, DecimalType):
        summed = DecimalSumAccumulator(name, value_type)
        return summed, spark.DecimalType(summed.sum_type.precision, summed.sum_type.scale)
    raise InvalidRequestError("it takes numbers; cast the column")


def _avg(name: str, _: Aggregation, __: spark.DataType, value_type: WireType) -> _Planned:
    if isinstance(value_type, (IntegerType, FloatingType)):
        return AverageAccumulator(name), spark.DoubleType()
    if isinstance(value_type, DecimalType):
        averaged = DecimalAverageAccumulator(name, value_type)
        return averaged, spark.DecimalType(averaged.result_type.precision, averaged.result_type.scale)
    raise InvalidRequestError("it takes numbers; cast the column")


def _extreme(name: str, spec: Aggregation, spark_type: spark.DataType, value_type: WireType) -> _Planned:
    _check_ordered(spark_type, value_type)
    return ExtremeAccumulator(name, value_type, spec.function), spark_type


def _position(name: str, spec: Aggregation, spark_type: spark.DataType, value_type: WireType) -> _Planned:
    return PositionAccumulator(name, value_type, spec.function, ignore_nulls=spec.ignore_nulls), spark_type


def _distinct(name: str, _: Aggregation, spark_type: spark.DataType, value_type: WireType) -> _Planned:
    _check_collation(spark_type)
    return DistinctAccumulator(name, value_type), spark.LongType()


def _top(name: str, spec: Aggregation, spark_type: spark.DataType, value_type: WireType) -> _Planned:
    _check_ordered(spark_type, value_type)
    return TopAccumulator(name, value_type, spec.k or 1), spark.ArrayType(spark_type)


def _check_ordered(spark_type: spark.DataType, value_type: WireType) -> None:
    _check_collation(spark_type)
    if isinstance(value_type, CompositeType):
        raise InvalidRequestError("structs are not compared; take one of the fields")


def _check_collation(spark_type: spark.DataType) -> None:
    if isinstance(spark_type, spark.StringType) and spark_type != spark.StringType():
        raise InvalidRequestError("values are compared by their bytes, not by a collation")


_MAKERS: Final[dict[str, Callable[[str, Aggregation, spark.DataType, WireType], _Planned]]] = {
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
