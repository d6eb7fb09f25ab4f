"""The jobs whose small batches may take the driver's way, and the width of rows."""

from __future__ import annotations

import pytest
from pyspark.sql.types import CharType, LongType, StringType, StructField, StructType

from varvite.spark_integration.driver.small_batches.way import SmallBatchLimits, obstacle, width_bytes

LIMITS = SmallBatchLimits(100, 1000)


def columns(ddl: dict[str, object]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in ddl.items()])  # type: ignore[arg-type]


PLAIN = columns({"k": StringType(), "v": LongType()})


def test_a_local_job_of_plain_columns_has_no_obstacle() -> None:
    assert obstacle(LIMITS, is_one_process=True, has_spark_state=False, schemas=(PLAIN,)) is None


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"limits": SmallBatchLimits(0, 1000)}, "switched off"),
        ({"is_one_process": False}, "local mode"),
        ({"has_spark_state": True}, "operators of Spark with state"),
        ({"schemas": (PLAIN, columns({"c": CharType(3)}))}, r"column 'c' has the type char\(3\)"),
        ({"schemas": (columns({"s": StructType([StructField("c", CharType(3))])}),)}, "column 's'"),
    ],
)
def test_the_reason_says_what_is_in_the_way(changed: dict[str, object], reason: str) -> None:
    import re

    facts = {"limits": LIMITS, "is_one_process": True, "has_spark_state": False, "schemas": (PLAIN,)} | changed
    limits = facts.pop("limits")
    found = obstacle(limits, **facts)  # type: ignore[arg-type]
    assert found is not None
    assert re.search(reason, found)


def test_only_rows_of_one_width_have_a_width() -> None:
    assert width_bytes(columns({"a": LongType(), "b": LongType()})) == 16
    assert width_bytes(PLAIN) is None
    assert width_bytes(StructType([])) == 1
