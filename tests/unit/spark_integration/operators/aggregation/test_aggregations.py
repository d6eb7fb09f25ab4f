"""Arguments that `aggregate` takes, and those it refuses at that line."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import ArrayType, IntegerType, StructType

from varvite import Aggregation
from varvite.spark_integration.operators.aggregation.aggregations import aggregate_columns
from varvite.storage.errors import InvalidRequestError

SCHEMA = (
    StructType()
    .add("i", "integer")
    .add("f", "float")
    .add("dec", "decimal(10,2)")
    .add("wide", "decimal(38,37)")
    .add("s", "string")
    .add("a", ArrayType(IntegerType()))
    .add("st", StructType().add("a", "integer"))
)


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ("count", "bigint"), (("a", "count"), "bigint"), (("i", "sum"), "bigint"), (("f", "sum"), "double"),
        (("dec", "sum"), "decimal(20,2)"), (("wide", "sum"), "decimal(38,37)"), (("i", "mean"), "double"),
        (("dec", "avg"), "decimal(14,6)"), (("wide", "avg"), "decimal(38,38)"), (("s", "min"), "string"),
        (("f", "max"), "float"), (("st", "first"), "struct<a:int>"), (["s", "count_distinct"], "bigint"),
        (("i", "top", 10), "array<int>"), (Aggregation("last", "s", ignore_nulls=True), "string"),
    ],
)  # fmt: skip
def test_outputs_have_sparks_types(given: Any, output: str) -> None:
    assert [c.output_type.simpleString() for c in aggregate_columns(SCHEMA, {"x": given})] == [output]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("sum", "sum of which column"), (("s", "sum"), "string is not possible: it takes numbers"),
        (("s", "avg"), "takes numbers"), (("none", "sum"), "no column 'none'"),
        (("i", "median"), "no function 'median'"),
        (("a", "min"), "opaque bytes"), (("st", "max"), "structs are not compared"), (("st", "top", 2), "structs"),
        (("i", "top"), "a number belongs to top"), (("i", "sum", 3), "to top alone"),
        (("i", "top", 0), "from 1 to 100"),
        (("i", "top", True), "from 1 to 100"), (Aggregation("sum", "i", ignore_nulls=True), "ignore_nulls belongs"),
        (7, "is none; write"), (("i",), "is none; write"), (("i", "top", 1, 2), "is none; write"),
    ],
)  # fmt: skip
def test_what_cannot_be_computed_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"aggregation x: .*{message}"):
        aggregate_columns(SCHEMA, {"x": given})


def test_nothing_to_compute_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="computes nothing"):
        aggregate_columns(SCHEMA, {})
