"""Rows as JSON: the conversions are those of Flink's `JsonRow…Schema`, from their source."""

# ruff: noqa: DTZ001  SQL_TIMESTAMP takes times without a zone
from __future__ import annotations

import pickle
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from varvite.changelog.row import Row
from varvite.changelog.types.factory import Types
from varvite.spark_integration.elements.formats.json_rows import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from varvite.storage.errors import InvalidRequestError

PAIR = Types.ROW_NAMED(["n", "s"], [Types.INT(), Types.STRING()])


def reader(kind: Any, *settings: str) -> JsonRowDeserializationSchema:
    builder = JsonRowDeserializationSchema.builder().type_info(kind)
    for setting in settings:
        getattr(builder, setting)()
    return pickle.loads(pickle.dumps(builder.build()))


def read(kind: Any, text: str, *settings: str) -> Any:
    """A value of a type from its JSON."""
    row = reader(Types.ROW_NAMED(["x"], [kind]), *settings).deserialize(f'{{"x": {text}}}'.encode())
    return row.x


def write(kind: Any, value: Any) -> str:
    schema = JsonRowSerializationSchema.builder().with_type_info(Types.ROW_NAMED(["x"], [kind])).build()
    return pickle.loads(pickle.dumps(schema)).serialize((value,)).decode().removeprefix('{"x":').removesuffix("}")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Types.INT(), "7", 7), (Types.INT(), '" 7 "', 7), (Types.INT(), "1.9", 1), (Types.INT(), "-1.9", -1),
        (Types.LONG(), "9007199254740993", 9007199254740993), (Types.LONG(), '"+5"', 5),
        (Types.SHORT(), '"12"', 12), (Types.BYTE(), "-128", -128), (Types.BIG_INT(), "1" * 30, int("1" * 30)),
        (Types.DOUBLE(), "1", 1.0), (Types.DOUBLE(), '"1.5f"', 1.5), (Types.FLOAT(), "0.1", 0.10000000149011612),
        (Types.FLOAT(), "1e39", float("inf")),
        (Types.BOOLEAN(), "true", True), (Types.BOOLEAN(), '" TRUE "', True), (Types.BOOLEAN(), "1", False),
        (Types.BIG_DEC(), "1.50", Decimal("1.5")), (Types.BIG_DEC(), '"1.50"', Decimal("1.50")),
        (Types.BIG_DEC(), "7", Decimal(7)),
        (Types.STRING(), "1", "1"), (Types.STRING(), "1e10", "1.0E10"), (Types.STRING(), "true", "true"),
        (Types.STRING(), '{"a": [1, "é"]}', '{"a":[1,"é"]}'),
        (Types.SQL_DATE(), '"2024-02-29"', date(2024, 2, 29)),
        (Types.SQL_TIME(), '"23:59:58Z"', time(23, 59, 58)),
        (Types.SQL_TIMESTAMP(), '"2024-02-29T23:59:58.5Z"', datetime(2024, 2, 29, 23, 59, 58, 500_000)),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), '"AQI="', b"\x01\x02"),
        (Types.OBJECT_ARRAY(Types.INT()), '[1, null, "3"]', [1, None, 3]),
        (Types.MAP(Types.INT(), Types.STRING()), '{"1": "a"}', {1: "a"}),
        (PAIR, '{"s": "a", "more": 1}', Row(n=None, s="a")),
        (Types.INT(), "null", None),
    ],
)  # fmt: skip
def test_values_are_read_as_flink_reads_them(kind: Any, text: str, value: Any) -> None:
    found = read(kind, text)
    assert found == value
    assert type(found) is type(value) or isinstance(found, Row)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Types.INT(), '"x"'), (Types.INT(), "3000000000"), (Types.INT(), "true"), (Types.SHORT(), "1.0"),
        (Types.BYTE(), "128"), (Types.LONG(), '"1_0"'), (Types.DOUBLE(), '"nan"'), (Types.BIG_DEC(), '"1_0"'),
        (Types.SQL_DATE(), '"20240229"'), (Types.SQL_DATE(), '"2023-02-29"'), (Types.SQL_TIME(), '"23:59:58"'),
        (Types.SQL_TIMESTAMP(), '"2024-02-29T23:59:58+01:00"'), (Types.PRIMITIVE_ARRAY(Types.BYTE()), '"?"'),
        (Types.OBJECT_ARRAY(Types.INT()), "1"), (Types.MAP(Types.STRING(), Types.INT()), "[]"), (PAIR, "[1]"),
    ],
)  # fmt: skip
def test_a_field_that_does_not_fit_is_an_error_or_none(kind: Any, text: str) -> None:
    with pytest.raises(InvalidRequestError, match="Failed to deserialize JSON"):
        read(kind, text)
    assert read(kind, text, "ignore_parse_errors") is None


@pytest.mark.parametrize("message", [b"", b"{", b"[1]", b'{"n": NaN}', b"\xff{}", b"[" * 100_000])
def test_a_message_that_is_no_object_is_an_error_or_skipped(message: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="Failed to deserialize JSON '"):
        reader(PAIR).deserialize(message)
    assert reader(PAIR, "ignore_parse_errors").deserialize(message) is None


def test_what_follows_the_object_does_not_matter() -> None:
    assert reader(PAIR).deserialize(b' {"n": 1, "s": "a"} x') == Row(n=1, s="a")
    assert reader(PAIR).deserialize('{"n": 1, "s": "é"}'.encode("utf-16")) == Row(n=1, s="é")
    assert reader(PAIR).deserialize(b"null") is None


def test_a_missing_field_is_an_error_if_that_is_asked_for() -> None:
    with pytest.raises(InvalidRequestError, match="Could not find field with name 's'"):
        reader(PAIR, "fail_on_missing_field").deserialize(b'{"n": 1}')
    assert reader(PAIR, "fail_on_missing_field").deserialize(b'{"n": 1, "s": null}') == Row(n=1, s=None)
    builder = JsonRowDeserializationSchema.builder().type_info(PAIR)
    with pytest.raises(InvalidRequestError, match="contradict"):
        builder.fail_on_missing_field().ignore_parse_errors().build()


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Types.INT(), 7, "7"), (Types.DOUBLE(), 1e10, "1.0E10"), (Types.DOUBLE(), float("nan"), '"NaN"'),
        (Types.FLOAT(), 0.1, "0.1"), (Types.BOOLEAN(), False, "false"), (Types.STRING(), 'é"\n', '"é\\"\\n"'),
        (Types.BIG_DEC(), Decimal("1.50"), "1.5"), (Types.BIG_DEC(), Decimal("0.00"), "0"),
        (Types.BIG_INT(), 10**30, "1" + "0" * 30),
        (Types.SQL_DATE(), date(2024, 2, 29), '"2024-02-29"'), (Types.SQL_TIME(), time(1, 2, 3), '"01:02:03Z"'),
        (Types.SQL_TIMESTAMP(), datetime(2024, 2, 29, 1, 2, 3, 500_000), '"2024-02-29T01:02:03.5Z"'),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x01\x02", '"AQI="'),
        (Types.OBJECT_ARRAY(Types.INT()), [1, None], "[1,null]"), (Types.MAP(Types.STRING(), PAIR), {"a": (1, "b")},
         '{"a":{"n":1,"s":"b"}}'), (PAIR, None, "null"),
    ],
)  # fmt: skip
def test_values_are_written_as_flink_writes_them_and_read_again(kind: Any, value: Any, text: str) -> None:
    assert write(kind, value) == text
    assert write(kind, read(kind, text)) == text


def test_rows_without_names_have_flinks() -> None:
    schema = JsonRowSerializationSchema.Builder().with_type_info(Types.ROW([Types.INT(), Types.STRING()])).build()
    assert schema.serialize((1, "hi")) == b'{"f0":1,"f1":"hi"}'
    assert schema.serialize(Row(n=1, s="hi")) == b'{"f0":1,"f1":"hi"}', "by position, as in Flink"
    assert schema.serialize(Row(f1="hi", f0=1)) == b'{"f0":1,"f1":"hi"}'
    for wrong in ((1,), ("x", "hi"), 5, Row(n=1)):
        with pytest.raises(InvalidRequestError):
            schema.serialize(wrong)


def test_settings_that_cannot_be_are_errors() -> None:
    for call, error in (
        (JsonRowSerializationSchema.builder().build, TypeError),
        (JsonRowDeserializationSchema.builder().build, InvalidRequestError),
        (lambda: JsonRowDeserializationSchema.builder().json_schema("{}"), InvalidRequestError),
        (lambda: JsonRowDeserializationSchema.builder().type_info(Types.STRING()), InvalidRequestError),
        (lambda: write(Types.INSTANT(), datetime(2024, 1, 1)), InvalidRequestError),
        (lambda: read(Types.PICKLED_BYTE_ARRAY(), "1"), InvalidRequestError),
    ):
        with pytest.raises(error):
            call()
