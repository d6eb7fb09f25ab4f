"""Rows are processed by key group, those of a key in their order; a single partition keeps the order of its input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from tests.workers.state_worker_setup import task_request
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.segments.batch import BatchTime
from varvite.changelog.types.factory import Types
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.datastream import KeyedProcessFunction
from varvite.spark_integration.elements.key_group_order import in_key_group_order
from varvite.spark_integration.messages.protocol import EVENT_TIME_COLUMN, KEY_GROUP_COLUMN
from varvite.spark_integration.worker.runners.operator import OperatorRunner

ROWS = [("c", 3, 1), ("a", 1, 2), ("b", 3, 3), ("a", 1, 4), ("c", 3, 5), ("d", 0, 6)]
"""Key, key group, number."""


class Numbers(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        assert ctx.get_current_key() == value.k
        assert ctx.timestamp() == value.v * 10
        yield value.k, value.v


@given(st.lists(st.integers(0, 9)))
def test_rows_of_a_key_group_keep_their_order(groups: list[int]) -> None:
    batch = pa.RecordBatch.from_pydict({"place": range(len(groups)), "group": pa.array(groups, pa.int32())})
    assert in_key_group_order(batch, 1).to_pylist() == sorted(batch.to_pylist(), key=lambda row: row["group"])


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, [(k, v) for k, _, v in ROWS]), (2, [("d", 6), ("a", 2), ("a", 4), ("c", 1), ("b", 3), ("c", 5)])],
)
def test_several_partitions_process_by_key_group(parallelism: int, expected: list[Any]) -> None:
    request = task_request(
        key_type="1:string", key_columns=("k",), timestamp_column=EVENT_TIME_COLUMN, parallelism=parallelism
    ).batch.operator
    store = HashMapStore(operator="op", key_type="1:string", low=0, high=8)
    backend = KeyedStateBackend(store, Types.STRING(), "op")
    backend.begin_batch(BatchTime(1000, 50))
    runner = OperatorRunner(request, 0, cloudpickle.dumps(Numbers()), backend)
    runner.start(1000, 50)
    keys, groups, numbers = (list(column) for column in zip(*ROWS, strict=True))
    columns = {
        "k": pa.array(keys),
        "v": pa.array(numbers, pa.int64()),
        KEY_GROUP_COLUMN: pa.array(groups, pa.int32()),
        EVENT_TIME_COLUMN: pa.array([v * 10 for v in numbers], pa.int64()),
    }
    assert runner.run(pa.RecordBatch.from_pydict(columns)) == expected
    assert runner.error is None
    runner.close()
