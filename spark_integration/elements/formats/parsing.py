"""Text as values, as Java reads it: narrower than Python in some places (`1_000`, `nan`), wider in others (`1.5f`)."""

from __future__ import annotations

import re
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.types.basic import BooleanType, FloatingType, FloatType, IntegerType, StringType
from varvite.changelog.types.decimals import BigDecimalType, BigIntType, DecimalType
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.changelog.types.contract import TypeInformation

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_FLOAT: Final = re.compile(r"([+-]?)(NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_DATE: Final = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_TIME: Final = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?")


def parse_integer(kind: IntegerType | BigIntType, text: str) -> int:
    """An integer of a type. Raises `InvalidRequestError`."""
    stripped = text.strip()
    if not _INTEGER.fullmatch(stripped):
        raise InvalidRequestError(f"{text!r} is no integer")
    return kind.freeze(int(stripped))


def parse_float(kind: FloatingType, text: str) -> float:
    """A floating-point number of a type. Raises `InvalidRequestError`."""
    match = _FLOAT.fullmatch(text.strip())
    if match is None:
        raise InvalidRequestError(f"{text!r} is no number")
    number = float(match[1] + match[2])
    if isinstance(kind, FloatType) and abs(number) > _FLOAT_MAX:
        return float("inf") if number > 0 else float("-inf")
    return kind.freeze(number)


_FLOAT_MAX: Final = 3.4028235677973366e38
"""The smallest number that is infinite in 32 bits."""


def parse_decimal(kind: BigDecimalType | DecimalType, text: str) -> Decimal:
    """A decimal number of a type. Raises `InvalidRequestError`."""
    stripped = text.strip()
    try:
        if "_" not in stripped:
            return kind.freeze(Decimal(stripped))
    except InvalidOperation:
        pass
    raise InvalidRequestError(f"{text!r} is no decimal number")


def parse_date(text: str) -> date:
    """A date such as 2024-02-29. Raises `InvalidRequestError`."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise InvalidRequestError(f"{text!r} is no date; it is written like 2024-02-29")
    return _made(date, text, *map(int, match.groups()))


def parse_time(text: str) -> time:
    """A time of day such as 23:59:58.5, cut to microseconds. Raises `InvalidRequestError`."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise InvalidRequestError(f"{text!r} is no time of day; it is written like 23:59:58")
    hour, minute, second, fraction = match.groups()
    return _made(time, text, int(hour), int(minute), int(second), int((fraction or "").ljust(6, "0")[:6]))


def parse_timestamp(text: str, separator: str) -> datetime:
    """A date and a time of day with a separator between them. Raises `InvalidRequestError`."""
    day, between, clock = text.partition(separator)
    if not between:
        raise InvalidRequestError(f"{text!r} is no timestamp; it is written like 2024-02-29{separator}23:59:58")
    return datetime.combine(parse_date(day), parse_time(clock))


def _made(make: Callable[..., Any], text: str, *parts: int) -> Any:
    try:
        return make(*parts)
    except ValueError as error:
        raise InvalidRequestError(f"{text!r}: {error}") from None


def scalar_parser(kind: TypeInformation) -> Callable[[str], Any] | None:
    """A function from text to a value of a type of numbers, booleans or text; None for other types."""
    if isinstance(kind, StringType):
        return kind.freeze
    if isinstance(kind, BooleanType):
        return lambda text: text.strip().lower() == "true"
    if isinstance(kind, IntegerType | BigIntType):
        return lambda text: parse_integer(kind, text)
    if isinstance(kind, FloatingType):
        return lambda text: parse_float(kind, text)
    if isinstance(kind, BigDecimalType | DecimalType):
        return lambda text: parse_decimal(kind, text)
    return None
