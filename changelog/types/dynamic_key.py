"""The type of keys without a declared type: `key_by(function)` without a `key_type`.

A key is None, a bool, an int, a float, a str, bytes, a date, time, datetime or timedelta, a Decimal, or a tuple or
`Row` of these. Keys are the same if they are of the same type and equal: 1, 1.0, True and "1" are four keys, on every
working store alike, because both forms that a store may keep are the wire bytes. 0.0 and -0.0 are one key, so are all
NaNs, Decimals that differ only in trailing zeros, and aware datetimes that name one instant (which comes back in UTC).

On the wire a key is one MessagePack value, which distinguishes the basic types; the others are extensions.
"""

from __future__ import annotations

import enum
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import numpy as np
import pyarrow as pa

from varvite.changelog.row import Row, make_row, row_class
from varvite.changelog.types.basic import NAN, as_integer
from varvite.changelog.types.wire import MutableType, encode
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DEPTH_MAX: Final = 32
_INT64: Final = range(-(1 << 63), 1 << 64)
"""The range of MessagePack's integers."""
_BIG_INT, _DATE, _TIME, _DATETIME, _INSTANT, _TIMEDELTA, _DECIMAL, _ROW = range(1, 9)
"""Codes of the extensions; they go to disk."""

_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime.min.replace(tzinfo=UTC) - _EPOCH
_LAST: Final = datetime.max.replace(tzinfo=UTC) - _EPOCH

Ext: Final = msgspec.msgpack.Ext


class DynamicKeyType(MutableType):
    """Keys of any of the module's types; kept as wire bytes, which hash and compare as the keys do."""

    hashable = True

    def notation(self) -> str:
        return "dynamic_key"

    @property
    def wire_schema(self) -> Any:
        return Any

    def dump(self, value: Any) -> Any:
        try:
            return _plain(value, 0)
        except _NoKeyError as error:
            kind = type(error.value).__name__
            raise InvalidRequestError(
                f"{error.value!r} (of type {kind}) cannot be a key{error.reason}: let the key function return a str, "
                "number, bytes, date, Decimal or a tuple of these, or pass key_type to key_by"
            ) from None

    def load(self, plain: Any) -> Any:
        return _value(plain)

    def to_arrow(self, stored: Sequence[Any]) -> pa.Array[Any]:
        return pa.array(stored, pa.binary())


class _NoKeyError(Exception):
    """A value, or a part of one, cannot be a key."""

    def __init__(self, value: object, reason: str = "") -> None:
        super().__init__(value)
        self.value = value
        self.reason = reason


def _plain(value: Any, depth: int) -> Any:
    kind = cast("Any", type(value))
    if kind is str:
        return _text(value)
    if kind is bytes or kind is bool or value is None:
        return value
    if kind is int:
        return value if value in _INT64 else Ext(_BIG_INT, str(value).encode())
    if kind is float:
        return value + 0.0 if value == value else NAN  # noqa: PLR0124 - only NaN differs from itself
    if depth == _DEPTH_MAX:
        raise _NoKeyError(value, f", it is nested more than {_DEPTH_MAX} deep")
    return _plain_tuple(value, depth) if isinstance(value, tuple) else _plain_other(value, depth)


def _plain_tuple(value: Any, depth: int) -> Any:
    names = value.FIELD_NAMES if isinstance(value, Row) else getattr(value, "__fields__", None)
    plain = [_plain(field, depth + 1) for field in value]
    if names is None and not isinstance(value, Row):
        return plain
    return Ext(_ROW, encode([None if names is None else list(names), *plain]))


def _plain_other(value: Any, depth: int) -> Any:
    """The rarer types."""
    key: Any = value
    if isinstance(value, enum.Enum):
        raise _NoKeyError(key, ", because an enum's members are only compared by identity; take its name or value")
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            return write(key)
    if isinstance(value, np.bool_):
        return bool(key)
    for base, plain in _BASES:
        if isinstance(value, base):
            return _plain(plain(key), depth)
    number = float(key) if isinstance(value, np.floating) else as_integer(key)
    if number is None:
        raise _NoKeyError(key)
    return _plain(number, depth)


def _text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _NoKeyError(value, ", because it holds lone surrogates, which are not valid Unicode") from None
    return value


def _decimal(value: Decimal) -> Any:
    if value.is_nan():
        raise _NoKeyError(value, ", because it equals nothing")
    if not value.is_finite():
        return Ext(_DECIMAL, str(value).encode())
    sign, digits, exponent = value.as_tuple()
    figures = "".join(map(str, digits)).lstrip("0")
    significant = figures.rstrip("0")
    if not significant:
        return Ext(_DECIMAL, b"0E0")
    scale = int(exponent) + len(figures) - len(significant)
    return Ext(_DECIMAL, f"{'-' if sign else ''}{significant}E{scale}".encode())


def _datetime(value: datetime) -> Any:
    plain = _plain_datetime(value)
    if plain.tzinfo is None:
        return Ext(_DATETIME, plain.replace(fold=0).isoformat(timespec="microseconds").encode())
    if plain.utcoffset() is None:
        raise _NoKeyError(value, ", because its time zone has no offset")
    since_epoch = plain - _EPOCH
    if not _FIRST <= since_epoch <= _LAST:
        raise _NoKeyError(value, ", because it is outside the years 1 to 9999 in UTC")
    return Ext(_INSTANT, str(since_epoch // _MICROSECOND).encode())


def _plain_datetime(value: datetime) -> datetime:
    """A datetime that is no subclass's."""
    if type(value) is datetime:
        return value
    if value != value:  # noqa: PLR0124 - only NaT differs from itself
        raise _NoKeyError(value, ", because it equals nothing")
    if getattr(value, "nanosecond", 0):
        raise _NoKeyError(value, ", because nanoseconds are not kept; floor it to microseconds")
    try:
        return datetime(
            value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, value.tzinfo,
            fold=value.fold,
        )  # fmt: skip
    except ValueError:
        raise _NoKeyError(value, ", because it is outside the years 1 to 9999") from None


def _time(value: time) -> Any:
    if value.tzinfo is not None:
        raise _NoKeyError(value, ", because it has a time zone but no date")
    return Ext(_TIME, value.replace(fold=0).isoformat(timespec="microseconds").encode())


def _timedelta(value: timedelta) -> Any:
    plain = value
    if type(value) is not timedelta:
        if getattr(value, "nanoseconds", 0):
            raise _NoKeyError(value, ", because nanoseconds are not kept; floor it to microseconds")
        try:
            plain = timedelta(value.days, value.seconds, value.microseconds)
        except OverflowError:
            raise _NoKeyError(value, ", because it is longer than a timedelta of Python") from None
    return Ext(_TIMEDELTA, str(plain // _MICROSECOND).encode())


_BASES: Final[list[tuple[type[Any], Callable[[Any], Any]]]] = [
    (str, str.__str__),
    (bytes, lambda value: bytes(memoryview(value))),
    (float, float.__float__),
]
"""Bases of the users' subclasses, and the base's value of one, whatever its own methods return."""

_WRITERS: Final[list[tuple[type[Any], Callable[[Any], Any]]]] = [
    (datetime, _datetime),  # before date, of which it is one
    (date, lambda value: Ext(_DATE, value.isoformat().encode())),
    (time, _time),
    (timedelta, _timedelta),
    (Decimal, _decimal),
]


def _read_row(data: bytes) -> Any:
    parts: Any = msgspec.msgpack.decode(data, type=list[Any])
    plain: Any = parts[0] if parts else []
    values = [_value(field) for field in parts[1:]]
    if plain is None:
        return make_row(Row, values)
    names = msgspec.convert(plain, list[str])
    if len(names) != len(values):
        raise ValueError("names that do not fit the fields of a Row")
    return make_row(row_class(tuple(names)), values)


_READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    _BIG_INT: lambda data: int(data.decode("ascii")),
    _DATE: lambda data: date.fromisoformat(data.decode("ascii")),
    _TIME: lambda data: time.fromisoformat(data.decode("ascii")),
    _DATETIME: lambda data: datetime.fromisoformat(data.decode("ascii")),
    _INSTANT: lambda data: _EPOCH + int(data.decode("ascii")) * _MICROSECOND,
    _TIMEDELTA: lambda data: int(data.decode("ascii")) * _MICROSECOND,
    _DECIMAL: lambda data: Decimal(data.decode("ascii")),
    _ROW: _read_row,
}


def _value(plain: Any) -> Any:
    """The key of a decoded MessagePack value; `ValueError` if it is none."""
    fields: Any = plain
    if isinstance(plain, list):
        return tuple([_value(field) for field in fields])
    if isinstance(plain, Ext):
        read = _READERS.get(plain.code)
        if read is None:
            raise ValueError(f"extension {plain.code} is not a part of a key")
        return read(bytes(plain.data))
    if isinstance(plain, float):
        return plain if plain == plain else NAN  # noqa: PLR0124 - only NaN differs from itself
    if isinstance(plain, dict):
        raise ValueError("a map is not a key")  # noqa: TRY004 - of the bytes, not of a caller's type
    return plain
