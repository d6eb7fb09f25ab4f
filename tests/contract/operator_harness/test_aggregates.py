"""The function behind `aggregate` in a batch that comes in several calls, as large ones do."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Row
from pyspark.sql.types import LongType, StringType, StructField, StructType

from varvite.spark_integration.operators.aggregation.aggregations import aggregate_columns
from varvite.spark_integration.operators.aggregation.column_aggregates import ColumnAggregates
from varvite.testing import OperatorHarness

COLUMNS = StructType([StructField("k", StringType()), StructField("n", LongType())])
WANTED = {"rows": "count", "total": ("n", "sum"), "mean": ("n", "avg"), "most": ("n", "top", 2), "last": ("n", "last"),
          "kinds": ("n", "count_distinct")}  # fmt: skip
OUTPUT = "k string, rows bigint, total bigint, mean double, most array<bigint>, last bigint, kinds bigint"


class RowByRow(ColumnAggregates):
    """Gets what the harness is given at once as a call of its own."""

    input_bytes_max = 1


def harness_of(function: type[ColumnAggregates], life: dict[str, Any]) -> OperatorHarness:
    made = function(("k",), aggregate_columns(COLUMNS, WANTED))
    return OperatorHarness.of_function(made, "k", "k string, n bigint", OUTPUT, **life)


def test_every_key_has_one_row_per_batch_in_however_many_calls_it_comes(life: dict[str, Any]) -> None:
    """Found as several rows of a key in one batch, of which a sink that merges by key takes any or none."""
    batches = [
        [[("a", 1), ("b", 5)], [("a", 3)], [(None, 2), ("a", None)]],
        [[("a", 3), ("c", 1)]],
        [[("b", 7)], [("b", 7), ("c", 0)], []],
        [],
    ]
    with harness_of(RowByRow, life) as harness, harness_of(ColumnAggregates, life) as at_once:
        for parts in batches:
            for part in parts:
                for element in part:
                    harness.process_element(element)
            harness.checkpoint()
            expected = at_once.process_batch([element for part in parts for element in part])
            assert sorted(harness.output, key=repr) == sorted(expected, key=repr)
            harness.output.clear()


def test_a_batch_that_is_dropped_between_its_calls_leaves_nothing(life: dict[str, Any]) -> None:
    with harness_of(RowByRow, life) as harness:
        harness.process_element(("a", 1))
        harness.process_element(("b", 2))
        harness.fail_batch()
        assert harness.process_batch([("a", 5)]) == [Row(k="a", rows=1, total=5, mean=5.0, most=[5], last=5, kinds=1)]
