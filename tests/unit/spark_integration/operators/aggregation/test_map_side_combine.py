"""Combination of the rows of a key before the shuffle."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as spark

from tests.workers.summaries import summary
from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
from varvite.spark_integration.operators.aggregation.aggregations import aggregate_columns
from varvite.spark_integration.operators.aggregation.map_side_combine import (
    ARROW_ROWS_MIN,
    ARROW_ROWS_PER_KEY_MIN,
    COMBINED_BATCHES_MAX,
    ROWS_PER_KEY_MIN,
    MapSideCombining,
    Way,
    map_side_combine,
)

KEYS = ARROW_ROWS_MIN // ARROW_ROWS_PER_KEY_MIN


def of_operator(rows: int, keys: int, operator: str = "totals", others: int = 0) -> OperatorSummaries:
    """Of a partition with these rows and keys, and one with as many of both as `others` says."""
    first = summary(operator=operator, rows_in=rows, rows_out=keys)
    second = summary(operator=operator, partition=1, rows_in=others, rows_out=others)
    return OperatorSummaries.of(operator, [first, second])


def test_nothing_is_combined_before_many_rows_per_key_were_seen() -> None:
    combining = MapSideCombining()
    assert combining.way("totals") is None
    combining.after([of_operator(ROWS_PER_KEY_MIN * 5 - 1, 5)])
    assert combining.way("totals") is None
    combining.after([of_operator(ROWS_PER_KEY_MIN * 5, 5), of_operator(10, 10, "other")])
    assert combining.way("totals") is Way.SPARK
    assert combining.way("other") is None


def test_all_partitions_count() -> None:
    combining = MapSideCombining()
    combining.after([of_operator(ROWS_PER_KEY_MIN * 5, 5, others=5)])
    assert combining.way("totals") is None


@pytest.mark.parametrize(
    ("rows", "keys", "combined", "way"),
    [(ROWS_PER_KEY_MIN, 1, 1, Way.SPARK), (ARROW_ROWS_MIN, KEYS, KEYS * 2, Way.ARROW)],
)
def test_combined_batches_say_nothing_until_one_is_not_combined_again(
    rows: int, keys: int, combined: int, way: Way
) -> None:
    combining = MapSideCombining()
    combining.after([of_operator(rows, keys)])
    for _ in range(COMBINED_BATCHES_MAX):
        assert combining.way("totals") is way
        combining.after([of_operator(combined, keys)])
    assert combining.way("totals") is None
    combining.after([of_operator(rows, keys)])
    assert combining.way("totals") is way


def test_a_batch_without_rows_changes_nothing() -> None:
    combining = MapSideCombining()
    combining.after([of_operator(0, 0)])
    assert combining.way("totals") is None


@pytest.mark.parametrize(("rows", "keys"), [(ARROW_ROWS_MIN - 1, KEYS), (ARROW_ROWS_MIN, KEYS + 1)])
def test_few_rows_or_few_per_key_are_not_combined_in_arrow(rows: int, keys: int) -> None:
    combining = MapSideCombining()
    combining.after([of_operator(rows, keys)])
    assert combining.way("totals") is None


def test_combining_in_arrow_rests_where_it_leaves_most_rows() -> None:
    combining = MapSideCombining()
    combining.after([of_operator(ARROW_ROWS_MIN, KEYS)])
    combining.after([of_operator(ARROW_ROWS_MIN // 2 + 1, KEYS)])
    for _ in range(COMBINED_BATCHES_MAX):
        assert combining.way("totals") is None
        combining.after([of_operator(ARROW_ROWS_MIN, KEYS)])
    combining.after([of_operator(ARROW_ROWS_MIN, KEYS)])
    assert combining.way("totals") is Way.ARROW


def test_combining_in_arrow_ends_with_the_large_batches() -> None:
    combining = MapSideCombining()
    combining.after([of_operator(ARROW_ROWS_MIN, KEYS)])
    combining.after([of_operator(KEYS // 2 + 1, KEYS // 2 + 1)])
    assert combining.way("totals") is Way.ARROW
    combining.after([of_operator(10, 10)])
    assert combining.way("totals") is None


SCHEMA = spark.StructType(
    [
        spark.StructField("k", spark.StringType()),
        spark.StructField("x", spark.DoubleType()),
        spark.StructField("s", spark.StructType([spark.StructField("a", spark.IntegerType())])),
        spark.StructField("n", spark.IntegerType()),
    ]
)


@pytest.mark.parametrize(
    ("key", "wanted", "ways"),
    [
        (
            ("k",),
            {"a": "count", "b": ("n", "sum"), "c": ("x", "avg"), "d": ("x", "max"), "e": ("s", "count")},
            list(Way),
        ),
        (("k", "n"), {"a": ("k", "min")}, list(Way)),
        (("x",), {"a": "count"}, [Way.SPARK]),
        (("k", "s"), {"a": "count"}, [Way.SPARK]),
        (("k",), {"a": "count", "b": ("n", "last")}, []),
    ],
)
def test_functions_and_types_say_which_ways_suit(key: tuple[str, ...], wanted: Any, ways: list[Way]) -> None:
    made = map_side_combine(SCHEMA, key, aggregate_columns(SCHEMA, wanted), None)
    assert [way for way in Way if made.suits(way)] == ways
