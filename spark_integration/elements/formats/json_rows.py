"""Rows as JSON objects, converted as Flink's `JsonRow…Schema` do.

Numbers may be text and text may be numbers, as there. Times are in UTC: `23:59:58Z`, `2024-02-29T23:59:58Z`.
"""

from __future__ import annotations

import base64
import binascii
import json
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.types.basic import (
    BinaryType,
    BooleanType,
    DoubleType,
    FloatType,
    IntegerType,
    IntType,
    LongType,
    StringType,
)
from varvite.changelog.types.collections import MapType, SequenceType
from varvite.changelog.types.composites import RowType
from varvite.changelog.types.decimals import BigDecimalType, BigIntType, DecimalType
from varvite.changelog.types.times import SqlDateType, SqlTimestampType, SqlTimeType
from varvite.spark_integration.elements.formats.java_text import double_text, float_text
from varvite.spark_integration.elements.formats.parsing import (
    parse_date,
    parse_float,
    parse_integer,
    parse_time,
    parse_timestamp,
    scalar_parser,
)
from varvite.spark_integration.elements.formats.schemas import DeserializationSchema, SerializationSchema, row_fields
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.changelog.types.contract import TypeInformation

Convert = Any
"""A function from a value to another one."""
_SHOWN_BYTES: Final = 200
"""Of a message in an error."""
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def row_type(kind: Any, caller: str) -> RowType:
    """The type of rows. Raises `InvalidRequestError` for any other type."""
    if not isinstance(kind, RowType):
        raise InvalidRequestError(f"{caller} takes a Types.ROW or Types.ROW_NAMED, not {kind!r}")
    return kind


def malformed(message: bytes, what: str, error: Exception) -> InvalidRequestError:
    """The error of a message that is not of a format."""
    shown = message[:_SHOWN_BYTES].decode("utf-8", "replace") + ("..." if len(message) > _SHOWN_BYTES else "")
    reason = error.message if isinstance(error, InvalidRequestError) else str(error)
    return InvalidRequestError(f"Failed to deserialize {what} '{shown}': {reason}")


class JsonRowDeserializationSchema(DeserializationSchema):
    """Rows of JSON objects; made by `builder`. A field that an object does not have is None.

    Args:
        kind: Type of the rows; names of fields are those of the objects.
        fail_on_missing_field: A field that an object does not have is an error.
        ignore_parse_errors: What cannot be read is None where a field cannot, and skipped where the whole cannot.
    """

    def __init__(self, kind: RowType, *, fail_on_missing_field: bool, ignore_parse_errors: bool) -> None:
        self._kind, self._fails, self._ignores = kind, fail_on_missing_field, ignore_parse_errors
        self._convert: Convert = None

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """A builder."""
        return JsonRowDeserializationSchema.Builder()

    def deserialize(self, message: bytes) -> Any:
        if self._convert is None:
            self._convert = _Reading(fails=self._fails, ignores=self._ignores).nullable(self._kind)
        try:
            return self._convert(_parsed(message))
        except (InvalidRequestError, ValueError, RecursionError) as error:
            if self._ignores:
                return None
            raise malformed(message, "JSON", error) from error

    def get_produced_type(self) -> TypeInformation:
        return self._kind

    def __reduce__(self) -> tuple[Any, ...]:
        return _deserializer, (self._kind, self._fails, self._ignores)

    class Builder:
        """Builds a schema."""

        def __init__(self) -> None:
            self._kind: Any = None
            self._fails = self._ignores = False

        def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchema.Builder:
            """Set the type of the rows."""
            self._kind = row_type(type_info, "JsonRowDeserializationSchema")
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Not possible. Raises `InvalidRequestError` always."""
            raise InvalidRequestError(
                f"JSON schemas such as {json_schema[:40]!r} are not read: give the rows' type with type_info(...)"
            )

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Let a field that an object does not have be an error."""
            self._fails = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Let what cannot be read be None, and skip what is no object."""
            self._ignores = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """The schema. Raises `InvalidRequestError` without a type, or for two settings that contradict."""
            if self._kind is None:
                raise InvalidRequestError("give the type of the rows with type_info(Types.ROW_NAMED(...))")
            if self._fails and self._ignores:
                raise InvalidRequestError("fail_on_missing_field() and ignore_parse_errors() contradict; leave one out")
            return _deserializer(self._kind, self._fails, self._ignores)


def _deserializer(kind: RowType, fails: bool, ignores: bool) -> JsonRowDeserializationSchema:
    return JsonRowDeserializationSchema(kind, fail_on_missing_field=fails, ignore_parse_errors=ignores)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_decoder: Final = json.JSONDecoder(parse_constant=_no_constant)


def _parsed(message: bytes) -> Any:
    """The first JSON value of a message; as in Flink, what follows does not matter."""
    text = message.decode(json.detect_encoding(message)).lstrip(" \t\r\n")
    return _decoder.raw_decode(text)[0]


def _text(node: Any) -> str:
    """A scalar as text, as Flink's JSON library has it; empty for an object or a list."""
    if isinstance(node, str):
        return node
    if isinstance(node, bool):
        return "true" if node else "false"
    if isinstance(node, float):
        return double_text(node)
    return str(node) if isinstance(node, int) else ""


class _Reading:
    """Makes functions from JSON values to those of a type."""

    def __init__(self, *, fails: bool, ignores: bool) -> None:
        self._fails, self._ignores = fails, ignores

    def nullable(self, kind: TypeInformation) -> Convert:
        """A function that also takes null."""
        convert = self._converter(kind)

        def read(node: Any) -> Any:
            if node is None:
                return None
            try:
                return convert(node)
            except (InvalidRequestError, ValueError):
                if not self._ignores:
                    raise
                return None

        return read

    def _converter(self, kind: TypeInformation) -> Convert:
        if isinstance(kind, RowType):
            return self._row(kind)
        if isinstance(kind, SequenceType):
            return self._list(kind)
        if isinstance(kind, MapType):
            return self._map(kind)
        if isinstance(kind, IntType | LongType | DoubleType):
            return _number(kind)
        return _scalar(kind)

    def _row(self, kind: RowType) -> Convert:
        fields = [(name, self.nullable(field)) for name, field in zip(kind.names, kind.types, strict=True)]
        fails, make_all = self._fails, kind.make_all

        def read(node: Any) -> Any:
            if not isinstance(node, dict):
                raise InvalidRequestError(f"an object is needed, not {_compact(node)}")
            values: list[Any] = []
            for name, convert in fields:
                if name in node:
                    values.append(convert(node[name]))
                elif fails:
                    raise InvalidRequestError(f"Could not find field with name '{name}'.")
                else:
                    values.append(None)
            return make_all([tuple(values)])[0]

        return read

    def _list(self, kind: SequenceType) -> Convert:
        item = self.nullable(kind.element)

        def read(node: Any) -> list[Any]:
            if not isinstance(node, list):
                raise InvalidRequestError(f"a list is needed, not {_compact(node)}")
            return [item(each) for each in node]

        return read

    def _map(self, kind: MapType) -> Convert:
        of_key, of_value = self.nullable(kind.key), self.nullable(kind.value)

        def read(node: Any) -> dict[Any, Any]:
            if not isinstance(node, dict):
                raise InvalidRequestError(f"an object is needed, not {_compact(node)}")
            return {of_key(key): of_value(value) for key, value in node.items()}

        return read


def _scalar(kind: TypeInformation) -> Convert:
    if isinstance(kind, BinaryType):
        return _decode_base64
    if isinstance(kind, StringType):
        return lambda node: kind.freeze(_compact(node) if isinstance(node, dict | list) else _text(node))
    if isinstance(kind, SqlDateType):
        return lambda node: parse_date(_text(node))
    if isinstance(kind, SqlTimeType):
        return lambda node: parse_time(_utc(_text(node)))
    if isinstance(kind, SqlTimestampType):
        return lambda node: parse_timestamp(_utc(_text(node)), "T")
    parse = scalar_parser(kind)
    if parse is None:
        raise InvalidRequestError(f"JSON has no form of the type {kind!r}; read a STRING, and convert it in a map()")
    return lambda node: parse(_text(node))


def _number(kind: IntType | LongType | DoubleType) -> Convert:
    """A function that takes a number as it is, and else its text."""
    if isinstance(kind, DoubleType):
        return lambda node: node if isinstance(node, float) else parse_float(kind, _text(node))
    return lambda node: int(node) if _fits(node, kind) else parse_integer(kind, _text(node))


def _fits(node: Any, kind: IntegerType) -> bool:
    """Is a JSON value a number within the bounds of a type? A fraction is cut off, as in Flink."""
    bound = 1 << (kind.bits - 1)
    return isinstance(node, int | float) and not isinstance(node, bool) and -bound <= node < bound


def _utc(text: str) -> str:
    if not text.endswith("Z"):
        raise InvalidRequestError(f"{text!r} is not in UTC; it ends with Z")
    return text[:-1]


def _compact(node: Any) -> str:
    return json.dumps(node, separators=(",", ":"), ensure_ascii=False)


def _decode_base64(node: Any) -> bytes:
    if not isinstance(node, str):
        raise InvalidRequestError(f"text in base64 is needed, not {_compact(node)}")
    try:
        return base64.b64decode(node, validate=True)
    except binascii.Error as error:
        raise InvalidRequestError(f"{node!r} is no base64: {error}") from None


class JsonRowSerializationSchema(SerializationSchema):
    """JSON objects of rows; made by `builder`.

    Args:
        kind: Type of the rows; names of fields are those of the objects.
    """

    def __init__(self, kind: RowType) -> None:
        self._kind = kind
        self._convert: Convert = None

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """A builder."""
        return JsonRowSerializationSchema.Builder()

    def serialize(self, element: Any) -> bytes:
        if self._convert is None:
            self._convert = json_text(self._kind)
        return self._convert(element).encode()

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonRowSerializationSchema, (self._kind,)

    class Builder:
        """Builds a schema."""

        def __init__(self) -> None:
            self._kind: Any = None

        def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchema.Builder:
            """Set the type of the rows."""
            self._kind = row_type(type_info, "JsonRowSerializationSchema")
            return self

        def build(self) -> JsonRowSerializationSchema:
            """The schema. Raises `TypeError` without a type, as in PyFlink."""
            if self._kind is None:
                raise TypeError("Typeinfo should be set.")
            return JsonRowSerializationSchema(self._kind)


def json_text(kind: TypeInformation) -> Callable[[Any], str]:
    """A function from a value of a type, or None, to its JSON, as Flink writes it."""
    convert = _writer(kind)
    return lambda value: "null" if value is None else convert(value)


def _writer(kind: TypeInformation) -> Convert:  # noqa: PLR0911  one line for each kind of type
    if isinstance(kind, RowType):
        fields = [(f"{_compact(n)}:", json_text(t)) for n, t in zip(kind.names, kind.types, strict=True)]
        ordered = row_fields(kind)
        return lambda row: (
            f"{{{','.join([name + text(value) for (name, text), value in zip(fields, ordered(row), strict=True)])}}}"
        )
    if isinstance(kind, SequenceType):
        item = json_text(kind.element)
        return lambda value: f"[{','.join(map(item, value))}]"
    if isinstance(kind, MapType):
        of_value = json_text(kind.value)
        return lambda value: f"{{{','.join([f'{_compact(str(k))}:{of_value(v)}' for k, v in value.items()])}}}"
    if isinstance(kind, BooleanType):
        return lambda value: "true" if kind.freeze(value) else "false"
    if isinstance(kind, IntegerType | BigIntType):
        return lambda value: str(kind.freeze(value))
    if isinstance(kind, DoubleType | FloatType):
        number = double_text if isinstance(kind, DoubleType) else float_text
        return lambda value: _finite(number(kind.freeze(value)))
    if isinstance(kind, BigDecimalType | DecimalType):
        return lambda value: _stripped(kind.freeze(value))
    text = _text_of(kind)
    return lambda value: _compact(text(value))


def _text_of(kind: TypeInformation) -> Convert:
    """A function from a value to the text that stands for it in JSON."""
    if isinstance(kind, StringType):
        return kind.freeze
    if isinstance(kind, BinaryType):
        return lambda value: base64.b64encode(kind.freeze(value)).decode()
    if isinstance(kind, SqlDateType):
        return lambda value: kind.freeze(value).isoformat()
    if isinstance(kind, SqlTimeType):
        return lambda value: f"{_short(kind.freeze(value).isoformat())}Z"
    if isinstance(kind, SqlTimestampType):
        return lambda value: f"{_short(kind.freeze(value).isoformat('T'))}Z"
    raise InvalidRequestError(f"JSON has no form of the type {kind!r}: convert it to text in a map()")


def _short(text: str) -> str:
    """A time without the zeros at the end of its fraction."""
    return text.rstrip("0") if "." in text else text


def _finite(text: str) -> str:
    return f'"{text}"' if text.endswith(("NaN", "Infinity")) else text


def _stripped(number: Decimal) -> str:
    return str(number.normalize(_EXACT)) if number else "0"
