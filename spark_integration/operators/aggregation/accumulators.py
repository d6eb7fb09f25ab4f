"""Accumulators of `aggregate`: the state of each function, changed by a batch for all keys at once, in Arrow. Pure.

An accumulator is some fields of the operator's state row. Results are Spark's: nulls are ignored (except by first and
last), a sum of integers is a bigint and of decimals has ten digits more, NaN is larger than every number. A sum that
does not fit its type is an error, as in Spark's ANSI mode; it never wraps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from varvite.changelog.api.batch_keys import row_codes
from varvite.changelog.api.descriptors import MapStateDescriptor
from varvite.changelog.types.basic import FloatingType
from varvite.changelog.types.columns import canonical_column
from varvite.changelog.types.decimals import PRECISION_MAX, DecimalType
from varvite.changelog.types.factory import Types, as_type
from varvite.spark_integration.elements.grouped_rows import either, sum_fits, take, valid_rows, where
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.api.state import MapState
    from varvite.changelog.types.wire import WireType
    from varvite.spark_integration.elements.grouped_rows import GroupedRows
    from varvite.spark_integration.functions.keyed import RuntimeContext

arrow: Any = pa
pc: Any = pyarrow.compute
LONG: Final = as_type(Types.LONG())
DOUBLE: Final = as_type(Types.DOUBLE())
_EXACT: Final = Context(prec=100)
_WIDE: Final = 60
"""Digits of intermediate sums of decimals: more than any sum of a batch and a state of 38 digits has."""


class Accumulator(ABC):
    """Base. `name` is the output column; errors and the names of states and fields use it."""

    def __init__(self, name: str, *fields: tuple[str, WireType]) -> None:
        self.name = name
        self.fields = fields
        """Name and type of each field."""

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027 - most need no state of their own
        """Get states besides the fields."""

    @abstractmethod
    def add(self, rows: GroupedRows, column: Any, state: list[Any]) -> list[Any]:
        """The fields after a batch.

        Args:
            rows: The rows by key.
            column: The input column, canonical; None for count without a column.
            state: The fields before, an array with an element for each key; null for a key without state.
        """

    partials: tuple[str, ...] = ()
    """Partial results that may be computed of the rows of a key before the shuffle (see `map_side_combine`), the sum
    before the count; empty if the rows themselves are needed."""

    def merge(self, rows: GroupedRows, partials: list[Any], state: list[Any]) -> list[Any]:
        """As `add`, for rows that each combine several: `partials` are the columns of that name."""
        return self.add(rows, partials[0], state)

    def result(self, fields: list[Any]) -> Any:
        """The output column of the fields."""
        return fields[0]

    def check_sums(self, partials: list[Any]) -> None:
        """Raises for a null sum of values: Spark returns null for a sum that does not fit."""
        if pc.any(pc.and_(partials[0].is_null(), pc.greater(partials[1], 0))).as_py():
            raise self.too_large("its type within one batch", ArithmeticError("overflow"))

    def too_large(self, kind: str, error: Exception) -> InvalidRequestError:
        """The error of a sum that does not fit."""
        return InvalidRequestError(
            f"aggregation {self.name}: a sum does not fit into {kind} ({error}); cast the column to a wider type, such "
            "as decimal(38, 0) or double"
        )


class CountAccumulator(Accumulator):
    """Counts rows, or values that are not null."""

    partials = ("count",)

    def __init__(self, name: str) -> None:
        super().__init__(name, (name, LONG))

    def add(self, rows: GroupedRows, column: Any, state: list[Any]) -> list[Any]:
        return [pc.add(state[0].fill_null(0), counts_of(rows, column))]

    def merge(self, rows: GroupedRows, partials: list[Any], state: list[Any]) -> list[Any]:
        return [pc.add(state[0].fill_null(0), rows.reduce(partials[0], "sum"))]


def counts_of(rows: GroupedRows, column: Any) -> Any:
    """The number of values that are not null, for each key; of rows if there is no column."""
    if column is None or not column.null_count:
        return pa.array(rows.row_counts(), pa.int64())
    owners = rows.positions[valid_rows(column)]
    return pa.array(np.bincount(owners, minlength=rows.count), pa.int64())


class LongSumAccumulator(Accumulator):
    """Sum of integers, exact."""

    partials = ("sum", "count")

    def __init__(self, name: str) -> None:
        super().__init__(name, (name, LONG))

    def add(self, rows: GroupedRows, column: Any, state: list[Any]) -> list[Any]:
        values = column.cast(pa.int64())
        try:
            if sum_fits(values):
                added = rows.reduce(values, "sum")
            else:
                wide = values.cast(pa.decimal128(19, 0))
                added = rows.reduce(wide, "sum").cast(pa.int64())
            return [_plus(state[0], added, 0)]
        except pa.ArrowInvalid as error:
            raise self.too_large("bigint", error) from error

    def merge(self, rows: GroupedRows, partials: list[Any], state: list[Any]) -> list[Any]:
        self.check_sums(partials)
        return self.add(rows, partials[0], state)


class DoubleSumAccumulator(Accumulator):
    """Sum of floating-point numbers, in the order of the rows."""

    partials = ("double_sum",)

    def __init__(self, name: str) -> None:
        super().__init__(name, (name, DOUBLE))

    def add(self, rows: GroupedRows, column: Any, state: list[Any]) -> list[Any]:
        return [_plus(state[0], rows.reduce(column.cast(pa.float64()), "sum"), 0.0)]


class DecimalSumAccumulator(Accumulator):
    """Sum of decimals, exact: decimal(p, s) becomes decimal(p + 10, s), of at most 38 digits."""

    partials = ("sum", "count")

    def __init__(self, name: str, value_type: DecimalType) -> None:
        self.sum_type = value_type.sum_type()
        super().__init__(name, (name, self.sum_type))

    def add(self, rows: GroupedRows, column: Any, state: list[Any]) -> list[Any]:
        return [self.summed(rows, column, state[0])]

    def merge(self, rows: GroupedRows, partials: list[Any], state: list[Any]) -> list[Any]:
        self.check_sums(partials)
        return self.add(rows, partials[0], state)

    def summed(self, rows: GroupedRows, column: Any, before: Any) -> Any:
        """The sum after the batch."""
        scale = self.sum_type.scale
        wide = pa.decimal256(_WIDE, scale)
        try:
            added = rows.reduce(column.cast(wide), "sum").cast(wide)
            return _plus(before.cast(wide), added, Decimal(0)).cast(self.sum_type.arrow_type)
        except pa.ArrowInvalid as error:
            raise self.too_large(f"decimal({self.sum_type.precision},{scale})", error) from error


class AverageAccumulator(Accumulator):
    """Average of integers and floating-point numbers: sum as double, and count, as in Spark."""

    partials = ("double_sum", "count")

    def __init__(self, name: str) -> None:
        super().__init__(name, (f"{name}.sum", DOUBLE), (f"{name}.count", LONG))

    def add(self, rows: GroupedRows, column: Any, state: list[Any]) -> list[Any]:
        added = rows.reduce(column.cast(pa.float64(), safe=False), "sum")
        return [_plus(state[0], added, 0.0), pc.add(state[1].fill_null(0), counts_of(rows, column))]

    def merge(self, rows: GroupedRows, partials: list[Any], state: list[Any]) -> list[Any]:
        total, count = (rows.reduce(partial, "sum") for partial in partials)
        return [_plus(state[0], total, 0.0), pc.add(state[1].fill_null(0), count)]

    def result(self, fields: list[Any]) -> Any:
        return pc.divide(fields[0], fields[1].cast(pa.float64(), safe=False))


class DecimalAverageAccumulator(DecimalSumAccumulator):
    """Average of decimals: decimal(p, s) becomes decimal(p + 4, s + 4), of at most 38 digits, rounded half up."""

    def __init__(self, name: str, value_type: DecimalType) -> None:
        super().__init__(name, value_type)
        self.fields = (f"{name}.sum", self.sum_type), (f"{name}.count", LONG)
        self.result_type = DecimalType(
            min(value_type.precision + 4, PRECISION_MAX), min(value_type.scale + 4, PRECISION_MAX)
        )

    def add(self, rows: GroupedRows, column: Any, state: list[Any]) -> list[Any]:
        counts = pc.add(state[1].fill_null(0), counts_of(rows, column))
        return [self.summed(rows, column, state[0]), counts]

    def merge(self, rows: GroupedRows, partials: list[Any], state: list[Any]) -> list[Any]:
        self.check_sums(partials)
        counts = pc.add(state[1].fill_null(0), rows.reduce(partials[1], "sum"))
        return [self.summed(rows, partials[0], state[0]), counts]

    def result(self, fields: list[Any]) -> Any:
        scale = self.result_type.scale
        shift = 10 ** (PRECISION_MAX + 1 - self.sum_type.scale)
        back = 10 ** (PRECISION_MAX + 1 - scale)
        averages: list[Decimal | None] = []
        for total, count in zip(fields[0].to_pylist(), fields[1].to_pylist(), strict=True):
            if total is None:
                averages.append(None)
                continue
            sign, digits = (-1 if total < 0 else 1), int(total.copy_abs().scaleb(self.sum_type.scale, _EXACT))
            # Spark divides to 39 digits after the point, and then rounds to the result's.
            quotient = _half_up(_half_up(digits * shift, count), back)
            averages.append(Decimal(sign * quotient).scaleb(-scale, _EXACT))
        try:
            return arrow.array(averages, self.result_type.arrow_type)
        except pa.ArrowInvalid as error:
            raise self.too_large(str(self.result_type), error) from error


class ExtremeAccumulator(Accumulator):
    """The smallest or the largest value: `function` is min or max."""

    def __init__(self, name: str, value_type: WireType, function: str) -> None:
        super().__init__(name, (name, value_type))
        self.partials = (function,)
        self._type = value_type
        self._function = function
        self._floating = isinstance(value_type, FloatingType)

    def merge(self, rows: GroupedRows, partials: list[Any], state: list[Any]) -> list[Any]:
        # Times come with the session's time zone, and state has them in UTC.
        return self.add(rows, canonical_column(self._type, partials[0], f"aggregation {self.name}"), state)

    def add(self, rows: GroupedRows, column: Any, state: list[Any]) -> list[Any]:
        if not self._floating:
            return [rows.with_state(column, state[0], self._function)]
        # Arrow ignores NaN; to Spark it is the largest number.
        extremes = np.full(rows.count, np.nan if self._function == "min" else -np.inf, column.type.to_pandas_dtype())
        reduce = np.fmin if self._function == "min" else np.maximum
        valued, stored = valid_rows(column), valid_rows(state[0])
        with np.errstate(invalid="ignore"):  # numpy warns of NaN
            reduce.at(extremes, rows.positions[valued], column.take(pa.array(valued)).to_numpy())
            reduce.at(extremes, stored, state[0].take(pa.array(stored)).to_numpy())
        present = np.zeros(rows.count, bool)
        present[rows.positions[valued]] = present[stored] = True
        return [where(present, arrow.array(extremes, from_pandas=False))]


class PositionAccumulator(Accumulator):
    """The value of the first or of the last row: `function` is first or last."""

    def __init__(self, name: str, value_type: WireType, function: str, *, ignore_nulls: bool) -> None:
        super().__init__(name, (name, value_type))
        self._first = function == "first"
        self._ignore_nulls = ignore_nulls

    def add(self, rows: GroupedRows, column: Any, state: list[Any]) -> list[Any]:
        candidates = valid_rows(column) if self._ignore_nulls else np.arange(len(column))
        places = rows.first_rows(candidates) if self._first else rows.last_rows(candidates)
        values = take(column, places)
        if self._ignore_nulls:
            return [either(state[0], values) if self._first else either(values, state[0])]
        return [pc.if_else(rows.has_state, state[0], values) if self._first else values]


class DistinctAccumulator(Accumulator):
    """Exact number of distinct values, which are kept in a map state, so that only new ones are written."""

    def __init__(self, name: str, value_type: WireType) -> None:
        super().__init__(name, (name, LONG))
        self._value_type = value_type
        self._seen: MapState[Any, bool] | None = None

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = MapStateDescriptor(f"{self.name}.values", self._value_type, Types.BOOLEAN())
        self._seen = runtime_context.get_map_state(descriptor)

    def add(self, rows: GroupedRows, column: Any, state: list[Any]) -> list[Any]:
        before = state[0].fill_null(0)
        valued = valid_rows(column)
        if self._seen is None or not len(valued):
            return [before]
        owners, values = rows.positions[valued], column.take(pa.array(valued))
        codes = row_codes(values)
        _, first = np.unique(owners * (int(codes.max()) + 1) + codes, return_index=True)
        owners, values = owners[first], values.take(pa.array(first))
        seen = self._seen.get_many(rows.keys.take(owners), values)
        new = np.flatnonzero(seen.is_null().to_numpy(zero_copy_only=False))
        truths = pa.array(np.ones(len(new), bool))
        self._seen.put_many(rows.keys.take(owners[new]), values.take(pa.array(new)), truths)
        return [pc.add(before, pa.array(np.bincount(owners[new], minlength=rows.count), pa.int64()))]


class TopAccumulator(Accumulator):
    """The `k` largest values in descending order, equal ones included; a field for each."""

    def __init__(self, name: str, value_type: WireType, k: int) -> None:
        super().__init__(name, *[(f"{name}.{i}", value_type) for i in range(1, k + 1)])
        self._floating = isinstance(value_type, FloatingType)

    def add(self, rows: GroupedRows, column: Any, state: list[Any]) -> list[Any]:
        every = pa.concat_arrays([*state, column])
        owners = np.concatenate([np.tile(np.arange(rows.count), len(state)), rows.positions])
        valued = valid_rows(every)
        values, owners = every.take(pa.array(valued)), owners[valued]
        order = self._descending(values, owners)
        owners, values = owners[order], values.take(pa.array(order))
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        ranks = np.arange(len(owners)) - np.repeat(starts, np.diff(starts, append=len(owners)))
        fields: list[Any] = []
        for rank in range(len(state)):
            chosen = np.flatnonzero(ranks == rank)
            places = np.full(rows.count, -1)
            places[owners[chosen]] = chosen
            fields.append(take(values, places))
        return fields

    def _descending(self, values: Any, owners: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        columns = {"owner": owners, "value": values}
        order = [("owner", "ascending"), ("value", "descending")]
        if self._floating:  # Arrow puts NaN last, whatever the direction
            columns["nan"] = pc.is_nan(values)
            order.insert(1, ("nan", "descending"))
        return pc.sort_indices(pa.table(columns), sort_keys=order).to_numpy()

    def result(self, fields: list[Any]) -> Any:
        count, k = len(fields[0]), len(fields)
        by_key = (np.arange(k)[None, :] * count + np.arange(count)[:, None]).reshape(-1)
        every = pa.concat_arrays(fields).take(pa.array(by_key))
        valid = every.is_valid().to_numpy(zero_copy_only=False).reshape(count, k)
        ends = np.concatenate([[0], np.cumsum(valid.sum(axis=1))])
        return arrow.ListArray.from_arrays(pa.array(ends, pa.int32()), every.drop_null())


def _plus(before: Any, added: Any, zero: Any) -> Any:
    """The sum of two columns; null adds nothing, and the sum of two nulls is null."""
    total = pc.add_checked(before.fill_null(zero), added.fill_null(zero))
    return pc.if_else(pc.or_(before.is_valid(), added.is_valid()), total, arrow.scalar(None, total.type))


def _half_up(dividend: int, divisor: int) -> int:
    """The quotient of two numbers that are not negative, rounded half up."""
    return (2 * dividend + divisor) // (2 * divisor)
