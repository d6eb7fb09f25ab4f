"""Rows as Avro's binary form, without a header, converted as Flink's `AvroRow…Schema` do; needs the extra `avro`."""

from __future__ import annotations

import io
import json
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.types.composites import RowType
from varvite.changelog.types.factory import Types
from varvite.spark_integration.elements.formats.schemas import DeserializationSchema, SerializationSchema, row_fields
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.types.contract import TypeInformation

Convert = Any
"""A function from a value to another one; None: values are the same."""
_PLAIN: Final = {
    "boolean": Types.BOOLEAN, "int": Types.INT, "long": Types.LONG, "float": Types.FLOAT, "double": Types.DOUBLE,
    "bytes": Types.BINARY, "string": Types.STRING, "enum": Types.STRING, "fixed": Types.BINARY,
}  # fmt: skip
_LOGICAL: Final = {
    ("int", "date"): Types.SQL_DATE, ("int", "time-millis"): Types.SQL_TIME, ("long", "time-micros"): Types.SQL_TIME,
    ("long", "timestamp-millis"): Types.SQL_TIMESTAMP, ("long", "timestamp-micros"): Types.SQL_TIMESTAMP,
    ("bytes", "decimal"): Types.BIG_DEC, ("fixed", "decimal"): Types.BIG_DEC,
}  # fmt: skip
_UNION_OF_TWO: Final = 2


def _parse(caller: str, record_class: str | None, avro_schema_string: str | None) -> tuple[Any, RowType]:
    """A schema as its library has it, and the type of its rows.

    Raises:
        TypeError: Nothing is given, as in PyFlink.
        InvalidRequestError: It is no schema of records that rows can have, or the library is not installed.
    """
    if record_class is not None:
        raise InvalidRequestError(
            f"{caller}: {record_class!r} is a class of Java, and there is none here; give avro_schema_string"
        )
    if avro_schema_string is None:
        raise TypeError("record_class or avro_schema_string should be specified.")
    try:
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException
    except ImportError:
        raise InvalidRequestError(
            f"{caller} needs the package fastavro: pip install 'varvite[avro]', on the workers too"
        ) from None
    try:
        parsed = parse_schema(json.loads(avro_schema_string), _force=True)
    except (ValueError, KeyError, SchemaParseException) as error:
        raise InvalidRequestError(f"{caller}: the Avro schema does not parse: {error!r}") from error
    kind = _type_of(parsed, {})
    if not isinstance(kind, RowType):
        raise InvalidRequestError(f"{caller} takes the schema of a record, not {avro_schema_string[:80]!r}")
    return parsed, kind


def _type_of(schema: Any, named: dict[str, Any]) -> TypeInformation:
    """The type of values of a schema. Raises `InvalidRequestError` for one that rows cannot have."""
    if isinstance(schema, list):
        return _type_of(_not_null(schema), named)
    if isinstance(schema, str):
        if schema in named:
            return named[schema]
        schema = {"type": schema}
    kind, logical = schema["type"], schema.get("logicalType")
    if isinstance(kind, dict | list):
        return _type_of(kind, named)
    if kind == "record":
        fields = schema["fields"]
        made = Types.ROW_NAMED([f["name"] for f in fields], [_type_of(f["type"], named) for f in fields])
    elif kind == "array":
        made = Types.OBJECT_ARRAY(_type_of(schema["items"], named))
    elif kind == "map":
        made = Types.MAP(Types.STRING(), _type_of(schema["values"], named))
    else:
        make = _LOGICAL.get((kind, logical)) or (None if logical else _PLAIN.get(kind))
        if make is None:
            raise InvalidRequestError(
                f"Avro's type {json.dumps({k: v for k, v in schema.items() if not k.startswith('__')})} has no type of "
                "rows; leave its logicalType out, or take another one"
            )
        made = make()
    if "name" in schema:
        named[schema["name"]] = made
    return made


def _not_null(union: list[Any]) -> Any:
    """The schema of a union with null, or of one. Raises `InvalidRequestError` for other unions."""
    others = [each for each in union if each != "null"]
    if len(others) != 1 or len(union) > _UNION_OF_TWO:
        raise InvalidRequestError(f"Avro's union {json.dumps(union)[:80]} is more than a value and null")
    return others[0]


class _AvroRows:
    """The schema of rows, by its text.

    Args:
        record_class: A class of Java's; not possible.
        avro_schema_string: The schema, as JSON.

    Raises:
        InvalidRequestError: No schema of records, or fastavro is not installed.
    """

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        self._schema, self._kind = _parse(type(self).__name__, record_class, avro_schema_string)
        self._text = avro_schema_string
        self._convert = self._converter(self._kind)

    def _converter(self, kind: RowType) -> Convert:
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None, self._text)


class AvroRowDeserializationSchema(_AvroRows, DeserializationSchema):
    """Rows of Avro records."""

    def _converter(self, kind: RowType) -> Convert:
        return _reader(kind)

    def deserialize(self, message: bytes) -> Any:
        from fastavro import schemaless_reader

        try:
            record: Any = schemaless_reader(io.BytesIO(message), self._schema, None)
            return self._convert(record)
        except Exception as error:  # its reader raises whatever comes of bytes that are none
            raise InvalidRequestError(f"Failed to deserialize Avro record. ({error!r})") from error

    def get_produced_type(self) -> TypeInformation:
        return self._kind


class AvroRowSerializationSchema(_AvroRows, SerializationSchema):
    """Avro records of rows."""

    def _converter(self, kind: RowType) -> Convert:
        return _writer(kind)

    def serialize(self, element: Any) -> bytes:
        from fastavro import schemaless_writer

        record = self._convert(element)
        written = io.BytesIO()
        try:
            schemaless_writer(written, self._schema, record)
        except Exception as error:  # as above
            raise InvalidRequestError(f"Failed to serialize row {element!r}: {error!r}") from error
        return written.getvalue()


def _reader(kind: TypeInformation) -> Convert:
    """A function from a value of fastavro's to one of a type."""
    if isinstance(kind, RowType):
        fields = [(name, _reader(field)) for name, field in zip(kind.names, kind.types, strict=True)]
        return lambda record: kind.make_all([tuple([_or_none(read, record[name]) for name, read in fields])])[0]
    if kind == Types.SQL_TIMESTAMP():
        return lambda moment: moment.astimezone(UTC).replace(tzinfo=None)
    return _of_parts(kind, _reader)


def _writer(kind: TypeInformation) -> Convert:
    """A function from a value of a type to one of fastavro's."""
    if isinstance(kind, RowType):
        fields = [(name, _writer(field)) for name, field in zip(kind.names, kind.types, strict=True)]
        ordered = row_fields(kind)
        return lambda row: {
            name: _or_none(write, value) for (name, write), value in zip(fields, ordered(row), strict=True)
        }
    if kind == Types.SQL_TIMESTAMP():
        return lambda moment: moment.replace(tzinfo=UTC)
    return _of_parts(kind, _writer)


def _of_parts(kind: Any, make: Any) -> Convert:
    """The conversion of the elements of an array, or of the values of a map; the identity for anything else."""
    if hasattr(kind, "element"):
        item = make(kind.element)
        return lambda value: [_or_none(item, each) for each in value]
    if hasattr(kind, "value"):
        of_value = make(kind.value)
        return lambda value: {key: _or_none(of_value, each) for key, each in value.items()}
    return lambda value: value


def _or_none(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)
