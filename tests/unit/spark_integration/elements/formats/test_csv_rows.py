"""Rows as CSV: the conversions, and the quotes, are those of Flink's `CsvRow…Schema`."""

# ruff: noqa: DTZ001  SQL_TIMESTAMP takes times without a zone
from __future__ import annotations

import pickle
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from varvite.changelog.row import Row
from varvite.changelog.types.factory import Types
from varvite.spark_integration.elements.formats.csv_rows import CsvRowDeserializationSchema, CsvRowSerializationSchema
from varvite.storage.errors import InvalidRequestError

PAIR = Types.ROW([Types.INT(), Types.STRING()])


def reader(kind: Any = PAIR, **settings: Any) -> CsvRowDeserializationSchema:
    builder = CsvRowDeserializationSchema.Builder(kind)
    for name, value in settings.items():
        getattr(builder, f"set_{name}")(value)
    return pickle.loads(pickle.dumps(builder.build()))


def writer(kind: Any = PAIR, **settings: Any) -> CsvRowSerializationSchema:
    builder = CsvRowSerializationSchema.Builder(kind)
    for name, value in settings.items():
        getattr(builder, f"set_{name}")(value)
    return pickle.loads(pickle.dumps(builder.build()))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,a", (1, "a")), (" 1 , a \n", (1, " a ")), ('1,"a, ""b"""', (1, 'a, "b"')), ("-2,", (-2, "")),
        ("1,a\n2,b", (1, "a")), ("\ufeff1,a", (1, "a")), ('1,"a\nb"', (1, "a\nb")),
    ],
)  # fmt: skip
def test_lines_are_read(text: str, values: tuple[Any, ...]) -> None:
    assert tuple(reader().deserialize(text.encode())) == values


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Types.DOUBLE(), " 1.5 ", 1.5), (Types.BOOLEAN(), "True", True), (Types.BOOLEAN(), "yes", False),
        (Types.BIG_DEC(), "1.50", Decimal("1.50")), (Types.BYTE(), "7", 7), (Types.SQL_DATE(), "2024-2-9",
         date(2024, 2, 9)), (Types.SQL_TIME(), "1:2:3", time(1, 2, 3)),
        (Types.SQL_TIMESTAMP(), "2024-02-29 01:02:03.5", datetime(2024, 2, 29, 1, 2, 3, 500_000)),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "AQI=", b"\x01\x02"), (Types.OBJECT_ARRAY(Types.INT()), "1;2", [1, 2]),
        (Types.BASIC_ARRAY(Types.STRING()), "", []), (PAIR, "1;a", Row(f0=1, f1="a")),
    ],
)  # fmt: skip
def test_values_are_read_as_flink_reads_them(kind: Any, text: str, value: Any) -> None:
    assert reader(Types.ROW([kind, Types.INT()])).deserialize(f"{text},1".encode())[0] == value


@pytest.mark.parametrize("text", ["x,a", "3000000000,a", ",a", "1"])
def test_what_does_not_fit_is_an_error_or_none(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"Failed to deserialize CSV row '{text}'"):
        reader().deserialize(text.encode())
    row = reader(ignore_parse_errors=True).deserialize(text.encode())
    assert tuple(row) == ((1, None) if text == "1" else (None, "a"))


@pytest.mark.parametrize("text", ["1,a,b", '1,"a', '1,"a"b'])
def test_a_line_that_does_not_fit_is_an_error_or_skipped(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="Failed to deserialize CSV row"):
        reader().deserialize(text.encode())
    assert reader(ignore_parse_errors=True).deserialize(text.encode()) is None


def test_an_empty_line_is_no_row_and_comments_are_skipped_if_they_are_allowed() -> None:
    assert reader().deserialize(b"") is reader().deserialize(b"\n") is None
    assert tuple(reader(allow_comments=True).deserialize(b"# x\n1,a")) == (1, "a")
    with pytest.raises(InvalidRequestError):
        reader().deserialize(b"# x\n1,a")


def test_settings_of_a_reader() -> None:
    row = reader(field_delimiter="|", quote_character="'", null_literal="n/a").deserialize(b"n/a|'a|b'")
    assert tuple(row) == (None, "a|b")
    arrays = Types.ROW([Types.OBJECT_ARRAY(Types.STRING()), Types.INT()])
    assert reader(arrays, array_element_delimiter=":").deserialize(b"a:b,1")[0] == ["a", "b"]
    assert tuple(reader(escape_character="\\").deserialize(rb'1,"a\"b"')) == (1, 'a"b')


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("hi", "hi"), ("a b", '"a b"'), ("a,b", '"a,b"'), ('a"b', '"a""b"'), ("", ""), (None, ""), ("é-x", "é-x"),
        ("x" * 24, "x" * 24), ("x" * 25, f'"{"x" * 25}"'), ("a\nb", '"a\nb"'),
    ],
)  # fmt: skip
def test_text_is_quoted_where_flink_quotes_it(value: str | None, text: str) -> None:
    assert writer().serialize((1, value)) == f"1,{text}\n".encode()
    assert tuple(reader().deserialize(writer().serialize((1, value)))) == (1, value or "")


def test_values_are_written_as_flink_writes_them() -> None:
    kinds = [
        Types.DOUBLE(), Types.BOOLEAN(), Types.BIG_DEC(), Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.OBJECT_ARRAY(Types.INT()), PAIR,
    ]  # fmt: skip
    values = (
        1e10, True, Decimal("1.50"), date(2024, 2, 29), time(1, 2, 3), datetime(2024, 2, 29, 1, 2, 3), b"\x01\x02",
        [1, 2], (1, "a"),
    )  # fmt: skip
    written = writer(Types.ROW(kinds)).serialize(values)
    assert written == b'1.0E10,true,1.50,2024-02-29,01:02:03,"2024-02-29 01:02:03.0",AQI=,1;2,1;a\n'
    assert tuple(reader(Types.ROW(kinds)).deserialize(written))[:-1] == values[:-1]


def test_settings_of_a_writer() -> None:
    schema = writer(field_delimiter="|", quote_character="'", null_literal="n/a", line_delimiter="\r\n")
    assert schema.serialize((None, "a'b")) == b"n/a|'a''b'\r\n"
    unquoted = CsvRowSerializationSchema.Builder(PAIR).disable_quote_character().set_line_delimiter("").build()
    assert unquoted.serialize((1, "a b")) == b"1,a b"
    assert writer(escape_character="\\").serialize((1, 'a"\\')) == b'1,"a\\"\\\\"\n'


def test_settings_that_cannot_be_are_errors() -> None:
    for call, error in (
        (lambda: writer(line_delimiter="x"), InvalidRequestError), (lambda: writer(field_delimiter="ab"),
         InvalidRequestError), (lambda: writer(Types.STRING()), InvalidRequestError),
        (lambda: reader(Types.ROW([Types.MAP(Types.STRING(), Types.INT())])), InvalidRequestError),
        (lambda: writer(Types.ROW([Types.INSTANT()])), InvalidRequestError),
        (lambda: CsvRowDeserializationSchema.Builder(None), TypeError),  # type: ignore[arg-type]
    ):  # fmt: skip
        with pytest.raises(error):
            call()
