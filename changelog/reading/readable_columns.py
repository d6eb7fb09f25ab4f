"""Stored values as Arrow columns that any tool can read, nested types as nested columns.

Values for which Arrow has no type are text: whole numbers of any size, decimals that keep their zeros, and keys of a
dynamic type (a string as it is, another key as Python writes it). A pickled object stays the bytes of its pickle:
nothing here unpickles, so reading a state runs no code that is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from varvite.changelog.types.collections import MapType, PickledType, SequenceType
from varvite.changelog.types.composites import CompositeType
from varvite.changelog.types.decimals import BigDecimalType, BigIntType
from varvite.changelog.types.dynamic_key import DynamicKeyType
from varvite.changelog.types.stamped import unstamped
from varvite.changelog.types.times import SqlTimeType
from varvite.storage.errors import CorruptDataError
from varvite.storage.format.frame import UNPARSABLE

arrow: Final[Any] = pa
Convert: TypeAlias = Callable[[Any], Any]
_AS_TEXT: Final = (BigIntType, BigDecimalType)


class ReadableColumn(NamedTuple):
    """The column in which values of a type are shown."""

    arrow_type: pa.DataType
    to_arrow: Callable[[Sequence[Any]], Any]
    """Stored forms without stamps, None for none → a `pyarrow.Array` of `arrow_type`. Raises `CorruptDataError`."""


def readable_column(kind: Any) -> ReadableColumn:
    """The column of a type; of a stamped type, that of the stamped value."""
    shown = unstamped(kind)
    if _is_native(shown):
        return ReadableColumn(shown.arrow_type, shown.to_arrow)
    arrow_type: Any = _arrow_type(shown)
    convert = _of_stored(shown)

    def to_arrow(stored: Sequence[Any]) -> Any:
        return arrow.array([None if value is None else convert(value) for value in stored], arrow_type)

    return ReadableColumn(arrow_type, to_arrow)


def key_text(key: Any) -> str:
    """A key as text: a string as it is, any other key as Python writes it."""
    return key if isinstance(key, str) else repr(key)


def _is_native(kind: Any) -> bool:
    """Tell whether the type's own column is readable."""
    if isinstance(kind, CompositeType):
        return kind.immutable and all(_is_native(part) for part in kind.types)
    return kind.immutable and not isinstance(kind, (*_AS_TEXT, SqlTimeType))


def _arrow_type(kind: Any) -> Any:
    if isinstance(kind, SequenceType):
        return arrow.list_(_arrow_type(kind.element))
    if isinstance(kind, MapType):
        return arrow.map_(_arrow_type(kind.key), _arrow_type(kind.value))
    if isinstance(kind, CompositeType):
        return arrow.struct([arrow.field(n, _arrow_type(t)) for n, t in zip(kind.names, kind.types, strict=True)])
    if isinstance(kind, (*_AS_TEXT, DynamicKeyType)):
        return pa.string()
    # Nanoseconds are what Spark takes.
    return pa.time64("ns") if isinstance(kind, SqlTimeType) else kind.arrow_type


def _of_stored(kind: Any) -> Convert:
    """A function from a stored form to what `pa.array` takes for it."""
    if kind.immutable:
        if isinstance(kind, CompositeType):
            return _fields(kind, _of_stored)
        return str if isinstance(kind, _AS_TEXT) else _same
    decode: Convert = msgspec.msgpack.Decoder(kind.wire_schema).decode
    convert = _of_plain(kind)

    def read(stored: bytes) -> Any:
        try:
            return convert(decode(stored))
        except UNPARSABLE as error:
            raise CorruptDataError(f"stored bytes are not a value of type {kind}: {error}") from error

    return read


def _of_plain(kind: Any) -> Convert:
    """A function from a decoded plain form to what `pa.array` takes for it."""
    if isinstance(kind, PickledType):
        return _same
    if isinstance(kind, SequenceType):
        element = _or_none(_of_plain(kind.element))
        return lambda plain: [element(item) for item in plain]
    if isinstance(kind, MapType):
        key, value = _of_plain(kind.key), _or_none(_of_plain(kind.value))
        return lambda plain: [(key(name), value(held)) for name, held in plain.items()]
    if isinstance(kind, CompositeType):
        return _fields(kind, _of_plain)
    load: Convert = kind.load
    if isinstance(kind, DynamicKeyType):
        return lambda plain: key_text(load(plain))
    return (lambda plain: str(load(plain))) if isinstance(kind, _AS_TEXT) else load


def _fields(kind: CompositeType, convert: Callable[[Any], Convert]) -> Convert:
    names, fields = kind.names, [_or_none(convert(part)) for part in kind.types]
    return lambda row: {name: field(value) for name, field, value in zip(names, fields, row, strict=True)}


def _or_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value
