"""Values as text, as Java's `toString` has them: what Flink writes to text files.

A tuple is `(a,1)`, a row `+I[a, 1]`, a list `[a, b]`, a map `{a=1}`, None `null`.
"""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from varvite.changelog.types.basic import BooleanType, DoubleType, FloatType
from varvite.changelog.types.collections import MapType, SequenceType
from varvite.changelog.types.composites import RowType, TupleType
from varvite.changelog.types.times import InstantType, SqlTimestampType, SqlTimeType

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.changelog.types.contract import TypeInformation

NULL: Final = "null"
_PLAIN_FROM, _PLAIN_TO = -3, 7
"""Decimal exponents between which Java writes a floating-point number without an exponent."""


def java_text(kind: TypeInformation) -> Callable[[Any], str]:
    """A function from a value of a type, or None, to its text."""
    convert = _converter(kind)
    return lambda value: NULL if value is None else convert(value)


def _converter(kind: TypeInformation) -> Callable[[Any], str]:  # noqa: PLR0911  one line for each kind of type
    if isinstance(kind, RowType | TupleType):
        fields = [java_text(field) for field in kind.types]
        begin, comma, end = ("+I[", ", ", "]") if isinstance(kind, RowType) else ("(", ",", ")")
        ordered = kind.ordered
        return lambda value: (
            f"{begin}{comma.join([text(v) for text, v in zip(fields, ordered(value), strict=True)])}{end}"
        )
    if isinstance(kind, SequenceType):
        item = java_text(kind.element)
        return lambda value: f"[{', '.join(map(item, value))}]"
    if isinstance(kind, MapType):
        of_key, of_value = java_text(kind.key), java_text(kind.value)
        return lambda value: f"{{{', '.join([f'{of_key(k)}={of_value(v)}' for k, v in value.items()])}}}"
    if isinstance(kind, BooleanType):
        return lambda value: "true" if value else "false"
    if isinstance(kind, DoubleType):
        return double_text
    if isinstance(kind, FloatType):
        return float_text
    if isinstance(kind, SqlTimestampType):
        return timestamp_text
    if isinstance(kind, InstantType):
        return instant_text
    return (lambda value: value.strftime("%H:%M:%S")) if isinstance(kind, SqlTimeType) else str


def double_text(value: float) -> str:
    """A number as `Double.toString` has it: 1.0, 1.0E10, NaN."""
    return _number_text(value, repr(float(value)))


def float_text(value: float) -> str:
    """A number of 32 bits as `Float.toString` has it."""
    return _number_text(value, str(np.float32(value)))


def _number_text(value: float, shortest: str) -> str:
    if value != value:  # noqa: PLR0124  only NaN differs from itself
        return "NaN"
    if value in {float("inf"), float("-inf")}:
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if shortest.startswith("-") else "0.0"
    number = Decimal(shortest)
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0") or "0"
    exponent = number.adjusted()
    sign = "-" if value < 0 else ""
    if _PLAIN_FROM <= exponent < _PLAIN_TO:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
        padded = digits.ljust(exponent + 1, "0")
        return f"{sign}{padded[: exponent + 1]}.{padded[exponent + 1 :] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def timestamp_text(value: Any) -> str:
    """A wall-clock time as `java.sql.Timestamp` has it: with a fraction, be it `.0`."""
    return f"{value:%Y-%m-%d %H:%M:%S}.{f'{value.microsecond:06d}'.rstrip('0') or '0'}"


def instant_text(value: Any) -> str:
    """A point in time as `java.time.Instant` has it: with as many groups of three digits as it needs."""
    value = value.astimezone(UTC)
    fraction = f".{value.microsecond:06d}" if value.microsecond else ""
    fraction = fraction.removesuffix("000") if value.microsecond else ""
    return f"{value:%Y-%m-%dT%H:%M:%S}{fraction}Z"
