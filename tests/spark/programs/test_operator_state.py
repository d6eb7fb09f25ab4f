"""Non-keyed state on real Spark: what instances hold when a job starts again with another parallelism."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from tests.spark.keyed_jobs import KeyedJob, kill_state_workers
from tests.tidy.pages.doc_blocks import ROOT, blocks_of
from varvite import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RuntimeContext,
    Types,
)

pytestmark = pytest.mark.spark
PAGE = "docs/guide/operator-state.md"


class Everything(KeyedProcessFunction[str, Row, tuple[Any, ...]], CheckpointedFunction):
    """Has a state of every kind, and yields for every row what it began with and the list that it has now."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.values = store.get_list_state(ListStateDescriptor("values", Types.LONG()))
        self.instances = store.get_union_list_state(ListStateDescriptor("instances", Types.LONG()))
        self.batches = store.get_broadcast_state(MapStateDescriptor("batches", Types.STRING(), Types.LONG()))
        self.streams = [one.get_stream().read() for one in context.get_raw_operator_state_inputs()]
        keyed = context.get_raw_keyed_state_inputs()
        self.key_groups = {one.get_key_group_id(): one.get_stream().read() for one in keyed}
        self.began = {
            "restored": context.is_restored(),
            "instances": sorted(self.instances),
            "batches": self.batches["n"],
            "streams": len(self.streams),
            "lengths": sorted({len(data) for data in self.key_groups.values()}),
        }

    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()
        self.instances.update([self.index])

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        del ctx
        yield value.k, json.dumps([self.index, self.began, self.values.get()])
        self.values.add(value.v)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.batches["n"] = (self.batches["n"] or 0) + 1
        raw = context.get_raw_operator_state_output()
        for stream in self.streams or [b"one"]:
            raw.start_new_partition()
            raw.write(stream)
        keyed = context.get_raw_keyed_operator_state_output()
        for key_group in keyed.get_key_group_list():
            keyed.start_new_key_group(key_group)
            self.key_groups[key_group] = self.key_groups.get(key_group, b"") + b"x"
            keyed.write(self.key_groups[key_group])


def first_of_each(job: KeyedJob) -> dict[int, tuple[dict[str, Any], list[int]]]:
    """State that the first row of each instance saw: what the instance began with, and its list."""
    told: dict[int, tuple[dict[str, Any], list[int]]] = {}
    for _, rows in job.received:
        for index, began, values in sorted((json.loads(text) for _, text in rows), key=lambda one: len(one[2])):
            told.setdefault(index, (began, values))
    return told


def test_a_job_goes_on_with_another_parallelism(spark: SparkSession, tmp_path: Path) -> None:
    job = KeyedJob(spark, tmp_path, function=Everything(), output="k string, state string")
    keys = [f"k{i}" for i in range(24)]

    def deployed(parallelism: int, first: int) -> dict[int, tuple[dict[str, Any], list[int]]]:
        kill_state_workers(spark)
        job.received.clear()
        job.parallelism = parallelism
        job.add(*[(key, first + i) for i, key in enumerate(keys)])
        job.run()
        told = first_of_each(job)
        assert sorted(told) == list(range(parallelism)), "every instance has rows"
        return told

    for began, values in deployed(2, 0).values():
        assert (values, began) == (
            [],
            {"restored": False, "instances": [], "batches": None, "streams": 0, "lengths": []},
        )
    told = deployed(3, 100)
    for began, _ in told.values():
        assert (began["restored"], began["instances"], began["batches"]) == (True, [0, 1], 1)
        assert began["lengths"] == [1], "one byte for the one batch so far, in each key group"
    assert sorted(value for _, values in told.values() for value in values) == list(range(24))
    assert [len(values) for _, values in told.values()] == [8, 8, 8]
    assert sum(began["streams"] for began, _ in told.values()) == 2
    began, values = deployed(1, 200)[0]
    assert sorted(values) == [*range(24), *range(100, 124)]
    assert began == {"restored": True, "instances": [0, 1, 2], "batches": 2, "streams": 3, "lengths": [2]}


def test_the_function_of_the_page_loses_no_row_that_waits(spark: SparkSession, tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    text = next(b.text for b in blocks_of(PAGE, (ROOT / PAGE).read_text()) if "run" in b.tags)
    exec(text.partition("spark = ")[0], namespace)
    job = KeyedJob(spark, tmp_path, function=namespace["InThrees"](), output="members string", parallelism=1)
    job.add(("a", 1), ("b", 1), ("c", 1), ("d", 1))
    job.add(("e", 1))
    job.run()
    assert [rows for _, rows in job.received] == [[("a b c",)], []]
    kill_state_workers(spark)
    job.parallelism = 2
    job.add()
    job.run()
    kill_state_workers(spark)
    job.parallelism = 1
    job.add(("f", 1))
    job.run()
    assert job.received[-1][1] == [("d e f",)]
