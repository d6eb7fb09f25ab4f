"""Rows as messages: Spark's columns and their types, order kept, pieces bounded."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from varvite.spark_integration.connectors.kafka import columns
from varvite.spark_integration.connectors.kafka.columns import check_columns, messages_of, topics_of
from varvite.storage.errors import InvalidRequestError

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def messages(table: pa.Table) -> list[dict[str, Any]]:
    return [message for piece, _ in messages_of(table) for message in piece]


def schema_of(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


TEXT, BYTES, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()


def headers_of(value: DataType) -> DataType:
    return ArrayType(schema_of(key=TEXT, value=value))


@pytest.mark.parametrize(
    "kinds",
    [
        {"value": TEXT},
        {"value": BYTES, "key": TEXT},
        {"key": BYTES, "value": TEXT, "partition": INT, "extra": LONG},
        {"value": TEXT, "headers": headers_of(BYTES)},
    ],
)
def test_columns_of_sparks_sink_are_taken(kinds: dict[str, DataType]) -> None:
    check_columns(schema_of(**kinds), "t")
    check_columns(schema_of(**kinds, topic=TEXT), None)


@pytest.mark.parametrize(
    ("kinds", "topic", "message"),
    [
        ({"key": TEXT, "v": TEXT}, "t", "need a column `value`, a string or binary; the output has key, v"),
        ({"value": TEXT}, None, "no topic is named: give the option `topic`, or yield a column `topic`"),
        ({"value": LONG}, "t", "column `value` is of type bigint; for Kafka it is a string or binary"),
        ({"value": TEXT, "key": INT}, "t", "`key` is of type int"),
        ({"value": TEXT, "partition": LONG}, "t", "`partition` is of type bigint; for Kafka it is an int"),
        ({"value": TEXT, "topic": BYTES}, None, "`topic` is of type binary"),
        ({"value": TEXT, "headers": headers_of(TEXT)}, "t", "an array of structs"),
        ({"value": TEXT, "headers": MapType(TEXT, BYTES)}, "t", "an array of structs"),
    ],
)
def test_other_columns_are_refused_with_what_they_are(
    kinds: dict[str, DataType], topic: str | None, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        check_columns(schema_of(**kinds), topic)


def test_values_are_bytes_and_nulls_stay_null() -> None:
    table = pa.table({"key": ["a", None, ""], "value": pa.array([b"\xff\x00", None, b""], pa.binary())})
    assert messages(table) == [
        {"key": b"a", "value": b"\xff\x00"},
        {"key": None, "value": None},
        {"key": b"", "value": b""},
    ]


def test_a_row_without_a_partition_leaves_the_choice_to_the_client() -> None:
    table = pa.table({"value": ["a", "b"], "partition": pa.array([3, None], pa.int32())})
    assert messages(table) == [{"value": b"a", "partition": 3}, {"value": b"b"}]


def test_headers_may_be_null_empty_and_without_value() -> None:
    rows = [None, [], [{"key": "h", "value": b"\x00"}, {"key": "h", "value": None}]]
    table = pa.table({"value": ["a"] * 3, "headers": pa.array(rows, HEADERS)})
    assert [m["headers"] for m in messages(table)] == [None, [], [("h", b"\x00"), ("h", None)]]


def test_each_topic_has_its_rows_in_their_order() -> None:
    table = pa.table({"topic": ["a", "b", "a"], "value": ["1", "2", "3"]})
    assert {name: [m["value"] for m in messages(rows)] for name, rows in topics_of(table, None)} == {
        "a": [b"1", b"3"],
        "b": [b"2"],
    }
    assert [(name, rows.num_rows) for name, rows in topics_of(table, "option")] == [("option", 3)]
    with pytest.raises(InvalidRequestError, match="null in its column `topic`"):
        list(topics_of(pa.table({"topic": ["a", None], "value": ["1", "2"]}), None))


@pytest.mark.parametrize(("rows_max", "bytes_max"), [(3, 1 << 20), (1000, 40)])
def test_pieces_are_bounded_and_in_order(monkeypatch: pytest.MonkeyPatch, rows_max: int, bytes_max: int) -> None:
    monkeypatch.setattr(columns, "ROWS_MAX", rows_max)
    monkeypatch.setattr(columns, "BYTES_MAX", bytes_max)
    values = [f"{i:010d}" for i in range(20)]
    pieces = [piece for piece, _ in messages_of(pa.table({"value": values}))]
    assert [m["value"].decode() for piece in pieces for m in piece] == values
    assert max(map(len, pieces)) <= 3


def test_no_rows_are_no_pieces() -> None:
    empty = pa.table({"topic": pa.array([], pa.string()), "value": pa.array([], pa.string())})
    assert [list(messages_of(rows)) for _, rows in topics_of(empty, None)] == []
    assert [len(piece) for _, rows in topics_of(empty, "t") for piece, _ in messages_of(rows)] == []
