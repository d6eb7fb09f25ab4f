"""Rows that are combined before the shuffle: few, and as much together as they were."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from varvite.spark_integration.operators.aggregation.row_combiner import Partial, RowCombiner

KINDS = {
    "n": [Partial("rows", "count", None), Partial("values", "count", "n"), Partial("sum", "sum", "n")],
    "x": [Partial("total", "double_sum", "x"), Partial("low", "min", "x"), Partial("high", "max", "x")],
    "d": [Partial("decimals", "sum", "d"), Partial("d low", "min", "d")],
    "t": [Partial("text", "max", "t"), Partial("seconds", "max", "at")],
}
PARTIALS = tuple(partial for partials in KINDS.values() for partial in partials)
SCHEMA: Any = pa.schema(
    [
        ("k", pa.string()),
        ("k2", pa.int32()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("d", pa.decimal128(10, 2)),
        ("t", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


def rows(count: int, seed: int = 1, *, keys: int = 5) -> list[dict[str, Any]]:
    rng = random.Random(seed)

    def some(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    return [
        {
            "k": some(rng.choice("abcdefghij"[:keys])),
            "k2": some(rng.randrange(2)),
            "n": some(rng.randrange(-1000, 1000)),
            "x": some(rng.randrange(-999, 999) / 4),
            "d": some(Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-2)),
            "t": some(rng.choice(["x", "é", ""])),
            "at": some(1_700_000_000_000_000 + rng.randrange(1000)),
        }
        for _ in range(count)
    ]


def run(given: list[dict[str, Any]], *, input_bytes_max: int = 1 << 30, partials: Any = PARTIALS) -> list[Any]:
    batches: Any = pa.Table.from_pylist(given, SCHEMA).to_batches(max_chunksize=7)
    return list(RowCombiner(("k", "k2"), tuple(partials), input_bytes_max)(batches))


def reduced(kind: str, values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    if kind == "count" or (known and kind in ("sum", "double_sum")):
        return sum(known)
    return {"min": min, "max": max}[kind](known) if known else None


def by_key(given: list[dict[str, Any]], *, of_rows: bool) -> dict[Any, list[Any]]:
    """For each key the results, of rows or of partial results."""
    found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in given:
        found[row["k"], row["k2"]].append(row)

    def value(partial: Partial, row: dict[str, Any]) -> Any:
        if not of_rows:
            return row[partial.name]
        if partial.kind == "count":
            return int(partial.column is None or row[partial.column] is not None)
        return row[partial.column or ""]

    return {k: [reduced(p.kind, [value(p, row) for row in each]) for p in PARTIALS] for k, each in found.items()}


@pytest.mark.parametrize("input_bytes_max", [1, 3000, 1 << 30])
def test_combined_rows_are_together_what_the_rows_were(input_bytes_max: int) -> None:
    given = pa.Table.from_pylist(rows(300), SCHEMA).to_pylist()
    found = run(given, input_bytes_max=input_bytes_max)
    assert by_key([row for batch in found for row in batch.to_pylist()], of_rows=False) == by_key(given, of_rows=True)
    count = sum(batch.num_rows for batch in found)
    assert (count == len(by_key(given, of_rows=True))) == (input_bytes_max == 1 << 30)
    assert {batch.schema for batch in found} == {found[0].schema}
    types = [str(field.type) for field in found[0].schema]
    sums = ["int64", "int64", "int64", "double", "double", "double"]
    assert types == [
        "string",
        "int32",
        *sums,
        "decimal128(20, 2)",
        "decimal128(10, 2)",
        "string",
        "timestamp[us, tz=UTC]",
    ]


@pytest.mark.parametrize(
    ("column", "kind", "values", "is_combined"),
    [
        pytest.param("n", "sum", [1, 2, 3], True, id="small"),
        pytest.param("l", "sum", [1 << 62, 1 << 61, -5], False, id="large"),
        pytest.param("d", "sum", [Decimal("1.50"), Decimal("2.25"), None], True, id="decimals"),
        pytest.param("w", "sum", [Decimal(10**37), Decimal(10**37), Decimal(10**37)], False, id="wide decimals"),
        pytest.param("x", "min", [1.0, 2.0, None], True, id="numbers"),
        pytest.param("x", "max", [1.0, math.nan, 2.0], False, id="nan"),
        pytest.param("x", "double_sum", [1.0, math.inf, 2.0], True, id="infinite"),
        pytest.param("n", "max", [None, None, None], True, id="nulls"),
    ],
)
def test_what_might_not_be_exact_goes_on_row_by_row(column: str, kind: str, values: Any, is_combined: bool) -> None:
    types = {"n": pa.int32(), "l": pa.int64(), "d": pa.decimal128(10, 2), "w": pa.decimal128(38, 0), "x": pa.float64()}
    given: Any = pa.table({"k": ["a"] * 3, column: pa.array(values, types[column])})
    combiner = RowCombiner(("k",), (Partial("p", kind, column), Partial("rows", "count", None)))
    (found,) = combiner(given.to_batches())
    assert found.schema.names == ["k", "p", "rows"]
    assert found.column("rows").to_pylist() == ([3] if is_combined else [1, 1, 1])
    if is_combined:
        assert found.column("p").to_pylist() == [reduced(kind, values)]
    else:
        assert str(found.column("p").to_pylist()) == str(values)


def test_no_rows_give_none() -> None:
    assert run([]) == []
    empty: Any = pa.RecordBatch.from_pylist([], SCHEMA)
    assert list(RowCombiner(("k",), PARTIALS)([empty])) == []
