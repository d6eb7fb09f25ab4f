"""Integers of any size and decimal numbers.

BIG_INT is the shortest big-endian two's complement. DECIMAL(p, s) always has exactly `s` digits after the point and no
negative zero, so equal numbers are equal bytes. BIG_DEC keeps the user's digits after the point (1.50 stays 1.50, as in
Java), so equal numbers may differ in their bytes and it cannot be the type of a key.
"""

from __future__ import annotations

import decimal
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from varvite.changelog.types.basic import as_integer
from varvite.changelog.types.wire import ImmutableType
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

PRECISION_MAX: Final = 38
SUM_DIGITS: Final = 10
"""Digits by which a sum is wider than its terms, as in Spark."""
_EXACT: Final = decimal.Context(prec=2 * PRECISION_MAX, traps=[decimal.Inexact, decimal.InvalidOperation])


class BigIntType(ImmutableType):
    """Integers of any size."""

    def notation(self) -> str:
        return "big_int"

    @property
    def wire_schema(self) -> Any:
        return bytes

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.binary()

    def freeze(self, value: Any) -> int:
        if type(value) is int:
            return value
        number = as_integer(value)
        if number is None:
            raise self.reject(value, "an int is needed")
        return number

    def pack(self, stored: int) -> bytes:
        # A negative power of two needs no extra sign bit: -128 is one byte.
        bits = (stored if stored >= 0 else ~stored).bit_length()
        return stored.to_bytes(bits // 8 + 1, "big", signed=True)

    def load(self, plain: bytes) -> int:
        return int.from_bytes(plain, "big", signed=True)

    def to_arrow(self, stored: Sequence[Any]) -> pa.Array[Any]:
        return pa.array([None if number is None else self.pack(number) for number in stored], pa.binary())

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        return [None if plain is None else self.load(plain) for plain in column.to_pylist()]


class BigDecimalType(ImmutableType):
    """Finite decimal numbers of any size, which keep their digits after the point."""

    hashable = False

    def notation(self) -> str:
        return "big_dec"

    @property
    def wire_schema(self) -> Any:
        return str

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.string()

    def freeze(self, value: Any) -> Decimal:
        number = _decimal(value)
        if number is None or not number.is_finite():
            raise self.reject(value, "a finite Decimal is needed")
        return number or number.copy_abs()

    def pack(self, stored: Decimal) -> str:
        return str(stored)

    def load(self, plain: str) -> Decimal:
        return Decimal(plain)

    def to_arrow(self, stored: Sequence[Any]) -> pa.Array[Any]:
        return pa.array([None if number is None else str(number) for number in stored], pa.string())

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        return [None if plain is None else Decimal(plain) for plain in column.to_pylist()]


class DecimalType(ImmutableType):
    """Spark's `decimal(precision, scale)`: at most `precision` digits, `scale` of them after the point."""

    def __init__(self, precision: int, scale: int) -> None:
        if not (1 <= precision <= PRECISION_MAX and 0 <= scale <= precision):
            raise InvalidRequestError(
                f"decimal({precision},{scale}) is not possible: 1 <= precision <= {PRECISION_MAX} and"
                " 0 <= scale <= precision are needed"
            )
        self.precision = precision
        self.scale = scale
        self._step = Decimal((0, (1,), -scale))
        self._limit = Decimal((0, (1,), precision - scale))
        super().__init__()

    def notation(self) -> str:
        return f"decimal({self.precision},{self.scale})"

    def sum_type(self) -> DecimalType:
        """Type of a sum of such numbers: wider by `SUM_DIGITS`, but not above `PRECISION_MAX`."""
        return DecimalType(min(self.precision + SUM_DIGITS, PRECISION_MAX), self.scale)

    def arguments(self) -> tuple[Any, ...]:
        return self.precision, self.scale

    @property
    def wire_schema(self) -> Any:
        return str

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)

    def freeze(self, value: Any) -> Decimal:
        number = _decimal(value)
        if number is None or not number.is_finite():
            raise self.reject(value, "a finite Decimal is needed")
        if number.copy_abs() >= self._limit:  # abs() would round
            raise self.reject(value, f"it has more than {self.precision - self.scale} digits before the point")
        try:
            exact = number.quantize(self._step, context=_EXACT)
        except (decimal.Inexact, decimal.InvalidOperation):
            raise self.reject(value, f"it has more than {self.scale} digits after the point; quantize it") from None
        return exact or exact.copy_abs()

    def pack(self, stored: Decimal) -> str:
        return format(stored, "f")

    def load(self, plain: str) -> Decimal:
        return Decimal(plain)

    def to_arrow(self, stored: Sequence[Any]) -> pa.Array[Any]:
        return pa.array(stored, self.arrow_type)

    def from_arrow(self, column: pa.Array[Any]) -> list[Any]:
        return column.to_pylist()


def _decimal(value: Any) -> Decimal | None:
    """A Decimal of a Decimal or an int; None for anything else."""
    if isinstance(value, Decimal):
        return value if type(value) is Decimal else Decimal(value)
    number = as_integer(value)
    return None if number is None else Decimal(number)
