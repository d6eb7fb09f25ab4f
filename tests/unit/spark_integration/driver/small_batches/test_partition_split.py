"""Rows are divided over partitions as by Spark's shuffle: each to the owner of its key group, broadcast rows to all."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from varvite.changelog.chain.tiles import key_range
from varvite.spark_integration.driver.small_batches.partition_split import by_partition, in_order_of_time
from varvite.spark_integration.messages.protocol import KEY_GROUP_COLUMN

MAX = 128


def batch(groups: list[int | None], start: int = 0) -> pa.RecordBatch:
    rows = list(range(start, start + len(groups)))
    columns = {"row": pa.array(rows, pa.int64()), KEY_GROUP_COLUMN: pa.array(groups, pa.int32())}
    return pa.RecordBatch.from_pydict(columns)


def read(batches: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    return [(r["row"], r[KEY_GROUP_COLUMN]) for b in batches for r in b.to_pylist()]


@given(
    st.lists(st.lists(st.none() | st.integers(0, MAX - 1), max_size=30), max_size=4),
    st.sampled_from([1, 2, 3, 7, MAX]),
)
def test_each_partition_has_the_broadcast_rows_and_then_its_own_in_order(
    groups: list[list[int | None]], parallelism: int
) -> None:
    batches, rows = [], 0
    for part in groups:
        batches.append(batch(part, rows))
        rows += len(part)
    numbered = list(enumerate(group for part in groups for group in part))
    divided = by_partition(batches, parallelism, MAX)
    assert len(divided) == parallelism
    for partition, found in enumerate(divided):
        copies = [(row, key_range(partition, parallelism, MAX)[0]) for row, group in numbered if group is None]
        own = [(row, g) for row, g in numbered if g is not None and g * parallelism // MAX == partition]
        assert read(found) == copies + own
        assert all(b.num_rows for b in found)


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5, 64, 127, 128])
def test_the_first_group_is_the_lowest_of_the_partition(parallelism: int) -> None:
    for partition in range(parallelism):
        owned = [g for g in range(MAX) if g * parallelism // MAX == partition]
        assert key_range(partition, parallelism, MAX)[0] == min(owned)


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us", "UTC")], ids=str)
def test_rows_in_order_of_time_keep_their_order_at_one_time(kind: pa.DataType) -> None:
    def timed(times: list[int | None], groups: list[int | None], start: int) -> pa.RecordBatch:
        return batch(groups, start).append_column("at", pa.array(times, kind))

    batches = [timed([5, None, 3], [1, 2, None], 0), timed([5, 1, 0], [1, 2, None], 3)]
    rows = [row for part in in_order_of_time(batches, "at") for row in part.to_pylist()]
    assert [row["row"] for row in rows if row[KEY_GROUP_COLUMN] is None] == [2, 5], "as they came"
    assert [row["row"] for row in rows if row[KEY_GROUP_COLUMN] is not None] == [1, 4, 0, 3]


def test_rows_of_several_origins_may_differ_in_the_columns_that_allow_no_nulls() -> None:
    """Those of a source may, beside those of an operator, which yields nulls anywhere."""
    of_source = batch([1], 0)
    strict = pa.struct([pa.field("n", pa.int64(), nullable=False)])
    lists = pa.list_(pa.field("element", strict, nullable=False))
    of_source = of_source.append_column(pa.field("list", lists, nullable=False), pa.array([[{"n": 1}]], lists))
    any_list = pa.list_(pa.field("element", pa.struct([pa.field("n", pa.int64())])))
    of_operator = batch([1], 1).append_column("list", pa.array([[{"n": None}]], any_list))
    for batches in ([of_source, of_operator], [of_operator, of_source]):
        (found,) = by_partition(batches, 1, MAX)
        assert sorted(row["row"] for part in found for row in part.to_pylist()) == [0, 1]
        assert len({part.schema for part in found}) == 1
