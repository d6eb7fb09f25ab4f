"""Rows by partition, as Spark's shuffle would divide them; pure.

A row without a key group is a broadcast row: each partition gets it, before its own rows, as one of its first key group
(`plan/broadcast_input.py`). Rows of a partition keep their order.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from varvite.changelog.chain.tiles import key_range
from varvite.spark_integration.messages.protocol import KEY_GROUP_COLUMN

if TYPE_CHECKING:
    from collections.abc import Sequence

# Arrow makes these functions at import, so type checkers do not see them.
_compute: Any = pyarrow.compute


def by_partition(
    batches: Sequence[pa.RecordBatch], parallelism: int, max_parallelism: int, rows_max: int | None = None
) -> list[list[pa.RecordBatch]]:
    """The rows of each partition; without empty batches.

    Args:
        batches: Rows with their key groups (`KEY_GROUP_COLUMN`).
        parallelism: Partitions.
        max_parallelism: Key groups.
        rows_max: Most rows of a batch; None: as many as there are.
    """
    rows = _united(batches).combine_chunks() if batches else None
    if rows is None or not rows.num_rows:
        return [[] for _ in range(parallelism)]
    groups = rows.column(KEY_GROUP_COLUMN)
    copies: pa.Table | None = None
    if groups.null_count:
        copies = rows.filter(_compute.is_null(groups))
        rows = rows.filter(_compute.is_valid(groups))
        groups = rows.column(KEY_GROUP_COLUMN)
    numbers = groups.to_numpy().astype(np.int64) * parallelism // max_parallelism
    if parallelism > 1:
        order = np.argsort(numbers, kind="stable")
        rows, numbers = rows.take(order), numbers[order]
    ends: list[int] = np.searchsorted(numbers, np.arange(parallelism + 1)).tolist()
    return [
        [
            *_copies(copies, key_range(partition, parallelism, max_parallelism)[0], rows_max),
            *_batches(rows.slice(start, end - start), rows_max),
        ]
        for partition, (start, end) in enumerate(pairwise(ends))
    ]


def in_order_of_time(batches: Sequence[pa.RecordBatch], column: str) -> list[pa.RecordBatch]:
    """The rows in the order of their event times, those without one first; broadcast rows before, as they are."""
    rows = _united(batches)
    is_broadcast = _compute.is_null(rows.column(KEY_GROUP_COLUMN))
    times = _compute.if_else(is_broadcast, None, rows.column(column))
    order = _compute.array_sort_indices(times.combine_chunks(), null_placement="at_start")
    in_order: list[pa.RecordBatch] = rows.take(order).to_batches()
    return in_order


def _united(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The rows of all batches. Those of a source and of an operator may differ in the columns that allow no nulls."""
    return pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="default")


def _copies(rows: pa.Table | None, group: int, rows_max: int | None) -> list[pa.RecordBatch]:
    """The broadcast rows as rows of that key group."""
    if rows is None:
        return []
    index = rows.schema.get_field_index(KEY_GROUP_COLUMN)
    groups = pa.repeat(pa.scalar(group, pa.int32()), rows.num_rows)
    return _batches(rows.set_column(index, rows.schema.field(index), groups), rows_max)


def _batches(rows: pa.Table, rows_max: int | None) -> list[pa.RecordBatch]:
    return [batch for batch in rows.to_batches(max_chunksize=rows_max) if batch.num_rows]
