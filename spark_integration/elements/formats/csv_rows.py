"""Rows as lines of CSV, converted as Flink's `CsvRow…Schema` do; quotes stand where its library puts them."""

from __future__ import annotations

import base64
import binascii
import csv
import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.types.basic import (
    BinaryType,
    BooleanType,
    DoubleType,
    FloatType,
    IntegerType,
    StringType,
)
from varvite.changelog.types.collections import SequenceType
from varvite.changelog.types.composites import RowType
from varvite.changelog.types.decimals import BigDecimalType, BigIntType, DecimalType
from varvite.changelog.types.times import SqlDateType, SqlTimestampType, SqlTimeType
from varvite.spark_integration.elements.formats.java_text import double_text, float_text, timestamp_text
from varvite.spark_integration.elements.formats.json_rows import malformed, row_type
from varvite.spark_integration.elements.formats.parsing import (
    parse_date,
    parse_time,
    parse_timestamp,
    scalar_parser,
)
from varvite.spark_integration.elements.formats.schemas import DeserializationSchema, SerializationSchema, row_fields
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.types.contract import TypeInformation

Convert = Any
"""A function from a value to another one."""
_UNQUOTED_LENGTH_MAX: Final = 24
"""Longer text is quoted without a look at it."""
_LINE_ENDS: Final = ("\n", "\r", "\r\n", "")


@dataclass(frozen=True)
class CsvDialect:
    """The form of a line."""

    delimiter: str = ","
    quote: str | None = '"'
    """None: nothing is quoted."""
    escape: str | None = None
    item_delimiter: str = ";"
    """Between the elements of an array, and the fields of a row within the row."""
    null: str | None = None
    """The text of None; without one, reading knows no None and writing leaves the field empty."""
    line_end: str = "\n"
    comments: bool = False
    """Lines that begin with # are skipped."""


class _Builder:
    """The settings that both builders have."""

    def __init__(self, type_info: TypeInformation) -> None:
        if type_info is None:
            raise TypeError("Type information must not be None")
        self._kind = row_type(type_info, type(self).__qualname__.partition(".")[0])
        self._dialect = CsvDialect()

    def set_array_element_delimiter(self, delimiter: str) -> Any:
        """Set the text between the elements of an array; `;`."""
        return self._set(item_delimiter=delimiter)

    def set_quote_character(self, c: str) -> Any:
        """Set the character around text; `"`."""
        return self._set(quote=_character(c))

    def set_escape_character(self, c: str) -> Any:
        """Set the character that takes the meaning from the next one; there is none."""
        return self._set(escape=_character(c))

    def _set(self, **changes: Any) -> Any:
        self._dialect = replace(self._dialect, **changes)
        return self


def _character(text: str) -> str:
    if len(text) != 1:
        raise InvalidRequestError(f"{text!r} is not one character")
    return text


class CsvRowDeserializationSchema(DeserializationSchema):
    """Rows of lines of CSV; made by `Builder`.

    Args:
        kind: Type of the rows.
        dialect: Form of the lines.
        ignore_parse_errors: What cannot be read is None where a field cannot, and skipped where the line cannot.
    """

    def __init__(self, kind: RowType, dialect: CsvDialect, *, ignore_parse_errors: bool) -> None:
        self._kind, self._dialect, self._ignores = kind, dialect, ignore_parse_errors
        self._fields: list[Convert] | None = None

    def deserialize(self, message: bytes) -> Any:
        try:
            return self._read(message.decode("utf-8-sig", "replace"))
        except (InvalidRequestError, ValueError, csv.Error) as error:
            if self._ignores:
                return None
            raise malformed(message, "CSV row", error) from error

    def get_produced_type(self) -> TypeInformation:
        return self._kind

    def _read(self, text: str) -> Any:
        if self._fields is None:
            self._fields = [_reader(field, self._dialect, ignores=self._ignores) for field in self._kind.types]
        values = _first_line(text, self._dialect)
        if not values:
            return None  # as in Flink: an empty line is no row
        arity = self._kind.arity
        if len(values) > arity or (len(values) < arity and not self._ignores):
            raise InvalidRequestError(f"Row length mismatch. {arity} fields expected but was {len(values)}.")
        row = [read(value) for read, value in zip(self._fields, values, strict=False)]
        return self._kind.make_all([tuple(row + [None] * (arity - len(row)))])[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return _deserializer, (self._kind, self._dialect, self._ignores)

    class Builder(_Builder):
        """Builds a schema of rows of a type."""

        def __init__(self, type_info: TypeInformation) -> None:
            super().__init__(type_info)
            self._ignores = False

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character between fields; `,`."""
            return self._set(delimiter=_character(delimiter))

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Skip lines that begin with #, or do not."""
            return self._set(comments=allow_comments)

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """Set the text that stands for None; there is none."""
            return self._set(null=null_literal)

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> CsvRowDeserializationSchema.Builder:
            """Let what cannot be read be None, and skip lines that cannot be."""
            self._ignores = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """The schema. Raises `InvalidRequestError` for a type that CSV cannot have."""
            for field in self._kind.types:
                _reader(field, self._dialect, ignores=False)
            return _deserializer(self._kind, self._dialect, self._ignores)


def _deserializer(kind: RowType, dialect: CsvDialect, ignores: bool) -> CsvRowDeserializationSchema:
    return CsvRowDeserializationSchema(kind, dialect, ignore_parse_errors=ignores)


def _first_line(text: str, dialect: CsvDialect) -> list[str]:
    """The fields of the first line that is one; none if there is none."""
    lines: Any = io.StringIO(text, newline="")
    if dialect.comments:
        lines = (line for line in lines if not line.startswith("#"))
    reader = csv.reader(
        lines,
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        escapechar=dialect.escape,
        quoting=csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE,
        strict=True,
    )
    return next(reader, [])


def _reader(kind: TypeInformation, dialect: CsvDialect, *, ignores: bool) -> Convert:
    """A function from the text of a field to its value."""
    convert = _converter(kind, dialect, ignores=ignores)

    def read(text: str) -> Any:
        if text == dialect.null:
            return None
        try:
            return convert(text)
        except (InvalidRequestError, ValueError):
            if not ignores:
                raise
            return None

    return read


def _converter(  # noqa: PLR0911  one line for each kind of type
    kind: TypeInformation, dialect: CsvDialect, *, ignores: bool
) -> Convert:
    if isinstance(kind, RowType):
        fields = [_reader(field, dialect, ignores=ignores) for field in kind.types]
        return lambda text: _inner_row(kind, fields, _items(text, dialect))
    if isinstance(kind, SequenceType):
        item = _reader(kind.element, dialect, ignores=ignores)
        return lambda text: [item(each) for each in _items(text, dialect)]
    if isinstance(kind, BinaryType):
        return _decode_base64
    if isinstance(kind, SqlDateType):
        return parse_date
    if isinstance(kind, SqlTimeType):
        return parse_time
    if isinstance(kind, SqlTimestampType):
        return lambda text: parse_timestamp(text, " ")
    parse = scalar_parser(kind)
    if parse is None:
        raise _no_form(kind)
    return parse


def _no_form(kind: TypeInformation) -> InvalidRequestError:
    return InvalidRequestError(f"CSV has no form of the type {kind!r}; take a STRING, and convert it in a map()")


def _items(text: str, dialect: CsvDialect) -> list[str]:
    return text.split(dialect.item_delimiter) if text else []


def _inner_row(kind: RowType, fields: list[Convert], items: list[str]) -> Any:
    if len(items) != kind.arity:
        raise InvalidRequestError(f"Row length mismatch. {kind.arity} fields expected but was {len(items)}.")
    return kind.make_all([tuple([read(item) for read, item in zip(fields, items, strict=True)])])[0]


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise InvalidRequestError(f"{text!r} is no base64: {error}") from None


class CsvRowSerializationSchema(SerializationSchema):
    """Lines of CSV of rows; made by `Builder`.

    Args:
        kind: Type of the rows.
        dialect: Form of the lines.
    """

    def __init__(self, kind: RowType, dialect: CsvDialect) -> None:
        self._kind, self._dialect = kind, dialect
        self._fields: list[Convert] | None = None

    def serialize(self, element: Any) -> bytes:
        if self._fields is None:
            self._fields = [_writer(field, self._dialect) for field in self._kind.types]
        values = row_fields(self._kind)(element)
        line = self._dialect.delimiter.join([write(v) for write, v in zip(self._fields, values, strict=True)])
        return f"{line}{self._dialect.line_end}".encode()

    def __reduce__(self) -> tuple[Any, ...]:
        return CsvRowSerializationSchema, (self._kind, self._dialect)

    class Builder(_Builder):
        """Builds a schema of rows of a type."""

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character between fields; `,`."""
            return self._set(delimiter=_character(c))

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the end of each line. Raises `InvalidRequestError` for others than those of Flink."""
            if delimiter not in _LINE_ENDS:
                raise InvalidRequestError(f"{delimiter!r} ends no line of CSV; take one of {_LINE_ENDS}")
            return self._set(line_end=delimiter)

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """Quote nothing."""
            return self._set(quote=None)

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """Set the text that stands for None; it is empty."""
            return self._set(null=s)

        def build(self) -> CsvRowSerializationSchema:
            """The schema. Raises `InvalidRequestError` for a type that CSV cannot have."""
            for field in self._kind.types:
                _writer(field, self._dialect)
            return CsvRowSerializationSchema(self._kind, self._dialect)


def _writer(kind: TypeInformation, dialect: CsvDialect) -> Convert:
    """A function from a value, or None, to its field in a line."""
    text, null = _text_of(kind, dialect), dialect.null or ""
    if isinstance(kind, IntegerType | BigIntType | DoubleType | FloatType | BigDecimalType | DecimalType | BooleanType):
        return lambda value: null if value is None else text(value)
    quoted = _quoting(dialect)
    return lambda value: null if value is None else quoted(text(value))


def _text_of(kind: TypeInformation, dialect: CsvDialect) -> Convert:  # noqa: PLR0911  one line for each kind of type
    if isinstance(kind, RowType | SequenceType):
        return _joined(kind, dialect)
    if isinstance(kind, StringType):
        return kind.freeze
    if isinstance(kind, BooleanType):
        return lambda value: "true" if kind.freeze(value) else "false"
    if isinstance(kind, DoubleType | FloatType):
        number = double_text if isinstance(kind, DoubleType) else float_text
        return lambda value: number(kind.freeze(value))
    if isinstance(kind, IntegerType | BigIntType | BigDecimalType | DecimalType | SqlDateType):
        return lambda value: str(kind.freeze(value))
    if isinstance(kind, SqlTimeType):
        return lambda value: kind.freeze(value).strftime("%H:%M:%S")
    if isinstance(kind, SqlTimestampType):
        return lambda value: timestamp_text(kind.freeze(value))
    if isinstance(kind, BinaryType):
        return lambda value: base64.b64encode(kind.freeze(value)).decode()
    raise _no_form(kind)


def _joined(kind: RowType | SequenceType, dialect: CsvDialect) -> Convert:
    """The items of an array, or of a row within a row."""
    null, between = dialect.null or "", dialect.item_delimiter
    if isinstance(kind, RowType):
        texts, ordered = [_text_of(field, dialect) for field in kind.types], row_fields(kind)
        return lambda value: between.join(
            [null if v is None else text(v) for text, v in zip(texts, ordered(value), strict=True)]
        )
    item = _text_of(kind.element, dialect)
    return lambda value: between.join([null if v is None else item(v) for v in value])


def _quoting(dialect: CsvDialect) -> Convert:
    """A function that quotes text: long text, and where a character is not surely harmless."""
    quote, escape = dialect.quote, dialect.escape
    if quote is None:
        return lambda text: text
    safe_from = max(map(ord, (dialect.delimiter, quote, "\r", "\n"))) + 1

    def quoted(text: str) -> str:
        is_safe = len(text) <= _UNQUOTED_LENGTH_MAX and all(ord(c) >= safe_from and c != escape for c in text)
        if is_safe:
            return text
        if escape is None:
            inner = text.replace(quote, quote * 2)
        else:
            inner = text.replace(escape, escape * 2).replace(quote, escape + quote)
        return f"{quote}{inner}{quote}"

    return quoted
