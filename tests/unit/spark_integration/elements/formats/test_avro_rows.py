"""Rows as Avro: types are those of Flink's converter, bytes those of Avro's library."""

# ruff: noqa: DTZ001  SQL_TIMESTAMP takes times without a zone
from __future__ import annotations

import json
import pickle
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from varvite.changelog.row import Row
from varvite.changelog.types.factory import Types
from varvite.spark_integration.elements.formats.avro_rows import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)
from varvite.storage.errors import InvalidRequestError

pytest.importorskip("fastavro", reason="the extra avro is not installed")


def record(*fields: tuple[str, Any], name: str = "Test") -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]})


def both(schema: str) -> tuple[AvroRowSerializationSchema, AvroRowDeserializationSchema]:
    made = AvroRowSerializationSchema(avro_schema_string=schema), AvroRowDeserializationSchema(None, schema)
    return pickle.loads(pickle.dumps(made))


def test_rows_are_written_as_avro_and_read_again() -> None:
    write, read = both(record(("id", "int"), ("name", "string")))
    assert write.serialize((1, "hi")) == b"\x02\x04hi", "Avro's specification: zigzag, then length and text"
    assert write.serialize(Row(name="hi", id=1)) == write.serialize(Row(f0=1, f1="hi")) == b"\x02\x04hi"
    assert read.deserialize(b"\x02\x04hi") == Row(id=1, name="hi")
    assert read.get_produced_type() == Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])


FIELDS: list[tuple[Any, Any, Any]] = [
    ("boolean", Types.BOOLEAN(), True),
    ("long", Types.LONG(), 1 << 40),
    ("double", Types.DOUBLE(), 1.5),
    ("bytes", Types.BINARY(), b"\x00"),
    (["null", "string"], Types.STRING(), None),
    (["string", "null"], Types.STRING(), "a"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, Types.STRING(), "B"),
    ({"type": "fixed", "name": "F", "size": 2}, Types.BINARY(), b"ab"),
    ({"type": "array", "items": ["null", "int"]}, Types.OBJECT_ARRAY(Types.INT()), [1, None]),
    ({"type": "map", "values": "long"}, Types.MAP(Types.STRING(), Types.LONG()), {"a": 1}),
    ({"type": "int", "logicalType": "date"}, Types.SQL_DATE(), date(2024, 2, 29)),
    ({"type": "int", "logicalType": "time-millis"}, Types.SQL_TIME(), time(1, 2, 3, 4000)),
    ({"type": "long", "logicalType": "time-micros"}, Types.SQL_TIME(), time(1, 2, 3, 4)),
    ({"type": "long", "logicalType": "timestamp-millis"}, Types.SQL_TIMESTAMP(), datetime(2024, 2, 29, 1, 2, 3, 4000)),
    ({"type": "long", "logicalType": "timestamp-micros"}, Types.SQL_TIMESTAMP(), datetime(1969, 2, 28, 1, 2, 3, 4)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, Types.BIG_DEC(), Decimal("1.50")),
]


@pytest.mark.parametrize(("avro", "kind", "value"), FIELDS)
def test_values_of_every_type(avro: Any, kind: Any, value: Any) -> None:
    write, read = both(record(("x", avro)))
    assert read.get_produced_type() == Types.ROW_NAMED(["x"], [kind])
    assert read.deserialize(write.serialize((value,))) == Row(x=value)


def test_timestamps_are_those_of_utc() -> None:
    write, _ = both(record(("x", {"type": "long", "logicalType": "timestamp-millis"})))
    plain, _ = both(record(("x", "long")))
    assert write.serialize((datetime(1970, 1, 1, 0, 0, 1),)) == plain.serialize((1000,))


def test_rows_within_rows_and_types_by_their_names() -> None:
    inner = json.loads(record(("n", "int"), name="Inner"))
    write, read = both(record(("a", inner), ("b", ["null", "Inner"]), ("c", {"type": "array", "items": "Inner"})))
    value = Row(a=Row(n=1), b=None, c=[Row(n=2), Row(n=3)])
    assert read.deserialize(write.serialize(((1,), None, [(2,), (3,)]))) == value


def test_bytes_that_are_none_and_rows_that_do_not_fit_are_errors() -> None:
    write, read = both(record(("id", "int"), ("name", "string")))
    for message in (b"", b"\x02\x7fhi"):
        with pytest.raises(InvalidRequestError, match=r"Failed to deserialize Avro record\."):
            read.deserialize(message)
    for row in ((1,), (1, None), ("x", "hi")):
        with pytest.raises(InvalidRequestError):
            write.serialize(row)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, "record_class or avro_schema_string"),
        ({"record_class": "org.Test"}, InvalidRequestError, "class of Java"),
        ({"avro_schema_string": "{"}, InvalidRequestError, "does not parse"),
        ({"avro_schema_string": '{"type": "record"}'}, InvalidRequestError, "does not parse"),
        ({"avro_schema_string": '{"type": "array", "items": "int"}'}, InvalidRequestError, "schema of a record"),
        ({"avro_schema_string": record(("x", ["int", "string"]))}, InvalidRequestError, "more than a value and null"),
        (
            {"avro_schema_string": record(("x", {"type": "string", "logicalType": "uuid"}))},
            InvalidRequestError,
            "leave its logicalType out",
        ),
    ],
)
def test_schemas_that_cannot_be_are_errors(arguments: dict[str, str], error: type[Exception], message: str) -> None:
    for kind in (AvroRowSerializationSchema, AvroRowDeserializationSchema):
        with pytest.raises(error, match=message):
            kind(**arguments)
