"""Columns of tuples of numbers: right if they are found, and not found where a row is anything else."""

from __future__ import annotations

import math
from collections import namedtuple
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from varvite.changelog.types.composites_fast import FixedWidthRows
from varvite.changelog.types.factory import Types, as_type

COUNT_AND_SUM = FixedWidthRows([int, float])
Pair = namedtuple("Pair", ["count", "total"])  # noqa: PYI024 - what is tested is that its class is not tuple


class Level(IntEnum):
    LOW = 1


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 4096, 4097, 10_000])
def test_columns_are_those_of_the_tuples(count: int) -> None:
    rows = [((-1) ** i * i * 200_000, i / 7) for i in range(count)]
    counts, totals = COUNT_AND_SUM.columns(rows) or ([], [])
    assert [*zip(counts.tolist(), totals.tolist(), strict=True)] == rows


def test_no_rows_have_empty_columns() -> None:
    assert [len(column) for column in COUNT_AND_SUM.columns([]) or ()] == [0, 0]


def test_the_ends_of_the_numbers_are_kept() -> None:
    ends = [(-(1 << 31), math.inf), ((1 << 31) - 1, -math.inf), (0, 5e-324)]
    counts, totals = COUNT_AND_SUM.columns(ends) or ([], [])
    assert [*zip(counts.tolist(), totals.tolist(), strict=True)] == ends


@pytest.mark.parametrize("place", [0, 63, 64, 99])
@pytest.mark.parametrize(
    "other",
    [
        None,
        (1, None),
        (1 << 31, 1.0),
        (-(1 << 31) - 1, 1.0),
        (1 << 62, 1.0),
        (True, 1.0),
        (1.0, 1.0),
        (1, 1),
        (1.0, 1),
        (Level.LOW, 1.0),
        (np.int64(1), 1.0),
        (1, np.float64(1)),
        (1,),
        (1, 1.0, 1),
        [1, 1.0],
        Pair(1, 1.0),
        "text",
        object(),
    ],
)
def test_anything_else_is_seen_wherever_it_is(other: Any, place: int) -> None:
    rows: list[Any] = [(i, i / 2) for i in range(100)]
    rows[place] = other
    assert COUNT_AND_SUM.columns(rows) is None


def test_rows_that_are_too_wide_do_not_make_up_for_others_that_are_too_narrow() -> None:
    rows: list[Any] = [(1.0, 1.0), (1, 1)]
    assert COUNT_AND_SUM.columns(rows) is None
    for count in (100, 4096, 5000):
        assert COUNT_AND_SUM.columns([*[(1, 1.0)] * count, *rows]) is None


@pytest.mark.parametrize(
    "rows",
    [
        [(1, 2, 3.5), (4, 5, math.nan)],
        [(1, 1 << 40, 3.5), (4, 5, 6.5)],
        [(1, 2, 3.5), None, (4, None, None)],
    ],
)
def test_a_tuple_type_makes_the_same_bytes_with_them_and_without(rows: list[Any]) -> None:
    fields = [Types.INT(), Types.LONG(), Types.DOUBLE()]
    with_them, without = as_type(Types.TUPLE(fields)), as_type(Types.ROW_NAMED(["f0", "f1", "f2"], fields))
    columns: list[Any] = [with_them.to_arrow(rows), without.to_arrow(rows)]
    columns[0].validate(full=True)
    written = [pa.RecordBatch.from_arrays([column], names=["value"]).serialize() for column in columns]
    assert written[0].equals(written[1])
