"""Broadcast streams: keyed and not, order, restarts, crashes, time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import FileStream
from tests.spark.functions.broadcast import ORDER, RULES, SEEN, Checked, InOrder, Spread, order_sum
from tests.spark.keyed_jobs import BACKENDS, kill_state_workers
from tests.tidy.pages.doc_blocks import ROOT, blocks_of
from varvite.common import Types
from varvite.datastream import DataStream, StreamExecutionEnvironment
from varvite.spark_integration.elements.side_by_side import INPUT_COLUMN, rows_column
from varvite.spark_integration.messages.protocol import KEY_GROUP_COLUMN
from varvite.spark_integration.plan.broadcast_input import BroadcastInput

pytestmark = pytest.mark.spark


@dataclass
class RulesJob:
    """Rows of a growing input against rules of another one; every `run` is a new start of the same query."""

    spark: SparkSession
    directory: Path
    function: Any = field(default_factory=Checked)
    parallelism: int = 2
    changelog: bool = True
    backend: str = "hashmap"

    def __post_init__(self) -> None:
        self.rows = FileStream(self.spark, self.directory / "rows", "k string, v long, m map<string, long>")
        self.rules = FileStream(self.spark, self.directory / "rules", "name string, limit long")
        self.side: list[Any] = []

    def batch(self, rows: list[tuple[str, int]], rules: list[tuple[str, int | None]]) -> None:
        """Rows and rules of one more batch."""
        self.rows.add(*[json.dumps({"k": k, "v": v, "m": {k: v}}) for k, v in rows])
        self.rules.add(*[json.dumps({"name": name, "limit": limit}) for name, limit in rules])

    def run(self) -> list[list[tuple[Any, ...]]]:
        """Output of each batch, sorted."""
        env = StreamExecutionEnvironment.get_execution_environment(self.spark)
        env.set_state_backend(BACKENDS[self.backend]).enable_changelog_state_backend(self.changelog)
        env.configure("execution.checkpointing.dir", str(self.directory / "state")).set_parallelism(self.parallelism)
        env.configure("materializer.mode", "off")
        rows, rules = env.from_dataframe(self.rows.read()), env.from_dataframe(self.rules.read())
        is_keyed = isinstance(self.function, Checked)
        connected = (rows.key_by("k") if is_keyed else rows).connect(rules.broadcast(RULES))
        stream = connected.process(self.function, "what string, n long, rules string", uid="rules")
        found: list[list[tuple[Any, ...]]] = []
        writer = stream.foreach_batch(lambda df, _: found.append(sorted(map(tuple, df.collect()))))
        if not is_keyed:
            writer.side_output(stream.get_side_output(SEEN), lambda df, _: self.side.extend(df.collect()))
        writer.query_name("job").trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.directory / "checkpoint")).start().awaitTermination()
        return found


def test_every_instance_has_the_rules_of_a_batch_before_its_rows_and_keeps_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = RulesJob(spark, tmp_path)
    job.batch([("a", 1), ("b", 2), ("c", 3)], [("low", 1), ("high", 9)])
    job.batch([], [("low", None)])
    job.batch([("a", 5)], [])
    assert job.run() == [
        [
            ("a", 1, "*=2 high=9 low=1"), ("b", 2, "*=2 high=9 low=1"), ("c", 3, "*=2 high=9 low=1"),
            ("rule", 0, "*=1 low=1"), ("rule", 0, "*=2 high=9 low=1"),
            ("rule", 1, "*=1 low=1"), ("rule", 1, "*=2 high=9 low=1"),
        ],
        [("rule", 0, "*=3 high=9"), ("rule", 1, "*=3 high=9")],
        [("a", 6, "*=3 high=9")],
    ]  # fmt: skip


@pytest.mark.parametrize("changelog", [True, False])
def test_the_state_outlives_workers_and_another_parallelism(
    spark: SparkSession, tmp_path: Path, changelog: bool
) -> None:
    job = RulesJob(spark, tmp_path, changelog=changelog)
    job.batch([("a", 1)], [("low", 1), ("high", 9)])
    job.run()
    kill_state_workers(spark)
    job.parallelism, job.backend = 3, "rocksdb"
    job.batch([("a", 2), ("b", 7)], [])
    job.batch([], [("low", 2)])
    assert job.run() == [
        [("a", 3, "*=2 high=9 low=1"), ("b", 7, "*=2 high=9 low=1")],
        [("rule", partition, "*=3 high=9 low=2") for partition in range(3)],
    ]


@pytest.mark.parametrize("die_at", ["high", 13])
def test_instances_stay_alike_when_one_dies_in_the_midst(spark: SparkSession, tmp_path: Path, die_at: Any) -> None:
    job = RulesJob(spark, tmp_path, function=Checked(tmp_path / "died", die_at))
    job.batch([("a", 1)], [("low", 1)])
    job.batch([("a", 13), ("b", 2)], [("high", 9), ("low", None)])
    job.batch([], [("mid", 5)])
    found = job.run()
    assert (tmp_path / "died").exists()
    assert [row for row in found[1] if row[0] != "rule"] == [("a", 14, "*=3 high=9"), ("b", 2, "*=3 high=9")]
    assert found[2] == [("rule", 0, "*=4 high=9 mid=5"), ("rule", 1, "*=4 high=9 mid=5")]


@pytest.mark.spark_tasks
def test_a_batch_whose_partitions_read_other_broadcast_rows_is_executed_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed, calls = BroadcastInput.distributed, list[int]()

    def losing(self: BroadcastInput, rows: DataFrame, parallelism: int, *more: Any) -> DataFrame:
        calls.append(parallelism)
        found = distributed(self, rows, parallelism, *more)
        lost = f"{KEY_GROUP_COLUMN} > 0 AND {rows_column(1)}.name = 'high'"
        return found.where(f"{INPUT_COLUMN} = 0 OR NOT ({lost})") if len(calls) == 1 else found

    monkeypatch.setattr(BroadcastInput, "distributed", losing)
    job = RulesJob(spark, tmp_path)
    job.batch([("a", 1), ("b", 2)], [("low", 1), ("high", 9)])
    rows = [row for row in job.run()[0] if row[0] != "rule"]
    assert rows == [("a", 1, "*=2 high=9 low=1"), ("b", 2, "*=2 high=9 low=1")]
    assert calls == [2, 2]


def test_rows_without_keys_are_spread_and_their_side_output_is_written(spark: SparkSession, tmp_path: Path) -> None:
    """They hold a map, which Spark cannot hash."""
    job = RulesJob(spark, tmp_path, function=Spread())
    keys = sorted(f"key {i}" for i in range(40))
    job.batch([(key, i) for i, key in enumerate(keys)], [("low", 1)])
    job.batch([("again", 1)], [])
    first, second = job.run()
    assert [(key, rules) for key, _, rules in first] == [(key, "*=1 low=1") for key in keys]
    assert {partition for _, partition, _ in first} == {0, 1}
    assert [(key, rules) for key, _, rules in second] == [("again", "*=1 low=1")]
    assert sorted(row[0] for row in job.side) == ["again", *keys]


def test_all_instances_get_many_broadcast_elements_in_the_order_of_the_collection(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(spark)
    env.set_checkpoint_storage(tmp_path / "state").configure("materializer.mode", "off").set_parallelism(2)
    numbers = [i * 7919 % 25_013 for i in range(25_000)]
    own = env.from_collection(list(range(20)), Types.LONG())
    twice = env.from_collection(numbers, Types.LONG()).map(lambda x: x * 2, Types.LONG())
    stream: DataStream = own.connect(twice.broadcast(ORDER)).process(InOrder())
    with stream.execute_and_collect("order") as elements:
        found = sorted(elements, key=lambda element: element[3])
    assert [value for _, _, _, value in found] == list(range(20))
    assert {partition for partition, _, _, _ in found} == {0, 1}
    expected = reduce(order_sum, [x * 2 for x in numbers], 0)
    assert {(n, total) for _, n, total, _ in found} == {(25_000, expected)}


def test_the_programs_of_the_page_run(spark: SparkSession, tmp_path: Path) -> None:
    assert SparkSession.getActiveSession() is spark, "the programs find the session by themselves"
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks_of("docs/guide/broadcast.md", (ROOT / "docs" / "guide" / "broadcast.md").read_text()):
        text = block.text.replace("file:///var/lib/varvite", f"file://{tmp_path}/varvite")
        exec(compile(text, block.name, "exec", dont_inherit=True), names)
