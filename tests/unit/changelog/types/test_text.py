"""Type strings of Spark and on disk."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as spark

from varvite.changelog.types.factory import Types, as_type, parse_type_string
from varvite.storage.errors import CorruptDataError, IncompatibleError, InvalidRequestError

SPARK_STRINGS = {
    "boolean": Types.BOOLEAN(),
    "tinyint": Types.BYTE(),
    "byte": Types.BYTE(),
    "smallint": Types.SHORT(),
    "INT": Types.INT(),
    " integer ": Types.INT(),
    "bigint": Types.LONG(),
    "long": Types.LONG(),
    "real": Types.FLOAT(),
    "double": Types.DOUBLE(),
    "string": Types.STRING(),
    "varchar(20)": Types.STRING(),
    "char( 3 )": Types.STRING(),
    "binary": Types.BINARY(),
    "date": Types.SQL_DATE(),
    "time": Types.SQL_TIME(),
    "time(6)": Types.SQL_TIME(),
    "timestamp": Types.INSTANT(),
    "timestamp_ltz": Types.INSTANT(),
    "timestamp_ntz": Types.SQL_TIMESTAMP(),
    "decimal": Types.DECIMAL(10, 0),
    "dec(5)": Types.DECIMAL(5, 0),
    "numeric( 16 , 8 )": Types.DECIMAL(16, 8),
    "array<double>": Types.LIST(Types.DOUBLE()),
    "map<string, array<int>>": Types.MAP(Types.STRING(), Types.LIST(Types.INT())),
    "struct<a:int,b:string>": Types.ROW_NAMED(["a", "b"], ["int", "string"]),
    "STRUCT<a int, `b c`: string NOT NULL COMMENT 'it, <here>'>": Types.ROW_NAMED(["a", "b c"], ["int", "string"]),
    "a int": Types.ROW_NAMED(["a"], ["int"]),
    "a int, b array<struct<Cc:date>>": Types.ROW_NAMED(["a", "b"], ["int", Types.LIST("struct<Cc:date>")]),
    "a: byte, b: decimal(  16 , 8   ) ": Types.ROW_NAMED(["a", "b"], ["byte", "decimal(16,8)"]),
    "map int, `x``y` string": Types.ROW_NAMED(["map", "x`y"], ["int", "string"]),
}


@pytest.mark.parametrize("text", SPARK_STRINGS)
def test_spark_strings(text: str) -> None:
    assert as_type(text) == SPARK_STRINGS[text]


@pytest.mark.parametrize(
    "text",
    [
        "", "blabla", "a: int,", "array<int", "map<int, boolean>>", "map<int>", "array<>", "decimal(39,0)",
        "decimal(5,6)", "decimal(a)", "interval day", "void", "int int int", "struct<>", "struct<a:int,a:int>",
        "a int b int", "a 'x'", "map<array<int>,int>", "varchar(", "a int comment b", "1:long",
        "array<" * 100 + "int" + ">" * 100,
    ],
    ids=lambda text: text[:24],
)  # fmt: skip
def test_other_strings_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not a type"):
        as_type(text)


SPARK_TYPES: list[tuple[Any, Any]] = [
    (spark.LongType(), Types.LONG()),
    (spark.LongType, Types.LONG()),
    (spark.StringType(), Types.STRING()),
    (spark.VarcharType(9), Types.STRING()),
    (spark.DecimalType(12, 3), Types.DECIMAL(12, 3)),
    (spark.TimestampType(), Types.INSTANT()),
    (spark.TimestampNTZType(), Types.SQL_TIMESTAMP()),
    (spark.DateType(), Types.SQL_DATE()),
    (spark.BinaryType(), Types.BINARY()),
    (spark.ByteType(), Types.BYTE()),
    (spark.ShortType(), Types.SHORT()),
    (spark.IntegerType(), Types.INT()),
    (spark.FloatType(), Types.FLOAT()),
    (spark.DoubleType(), Types.DOUBLE()),
    (spark.BooleanType(), Types.BOOLEAN()),
    (
        spark.StructType().add("a b", spark.ArrayType(spark.MapType(spark.StringType(), spark.LongType()))),
        Types.ROW_NAMED(["a b"], [Types.LIST(Types.MAP("string", "bigint"))]),
    ),
]


@pytest.mark.parametrize(("given", "expected"), SPARK_TYPES, ids=str)
def test_spark_types_without_a_jvm(given: Any, expected: Any) -> None:
    assert as_type(given) == expected


@pytest.mark.parametrize("given", [spark.DayTimeIntervalType(), spark.NullType(), spark.MapType, 5, None, int], ids=str)
def test_other_types_are_refused(given: Any) -> None:
    with pytest.raises(InvalidRequestError):
        as_type(given)


def test_the_classes_of_types_are_types() -> None:
    assert as_type(Types.LONG) == Types.LONG()


ON_DISK = {
    "1:long": Types.LONG(),
    "1:decimal(10,2)": Types.DECIMAL(10, 2),
    "1:tuple<long,double>": Types.TUPLE(["bigint", "double"]),
    "1:row<a:string,`b c`:list<char>,`d```:map<int,big_int>>": Types.ROW_NAMED(
        ["a", "b c", "d`"], ["string", Types.LIST(Types.CHAR()), Types.MAP("int", Types.BIG_INT())]
    ),
    "1:row<f0:instant,f1:pickled>": Types.ROW([Types.INSTANT(), Types.PICKLED_BYTE_ARRAY()]),
    "1:primitive_array<float>": Types.PRIMITIVE_ARRAY("float"),
    "1:basic_array<string>": Types.BASIC_ARRAY("string"),
    "1:object_array<sql_date>": Types.OBJECT_ARRAY("date"),
}


@pytest.mark.parametrize("text", ON_DISK)
def test_type_strings_on_disk(text: str) -> None:
    """These are on disk for ever."""
    assert ON_DISK[text].type_string() == text
    assert parse_type_string(text) == ON_DISK[text]


@pytest.mark.parametrize("text", ["2:long", "1:vector<int>", "1:list<duration>", "10:anything at all"])
def test_newer_type_strings_are_incompatible(text: str) -> None:
    with pytest.raises(IncompatibleError):
        parse_type_string(text)


@pytest.mark.parametrize(
    "text", ["", "long", "x:long", "1:", "1:long long", "1:list<int", "1:list<int,int>", "1:row<a int>", "1:tuple<>",
             "1:decimal(99,1)", "1:map<list<int>,int>", "1:basic_array<list<int>>", "1:row<a:int,a:int>"],
)  # fmt: skip
def test_what_is_no_type_string_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptDataError):
        parse_type_string(text)
