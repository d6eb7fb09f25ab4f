"""Rows that are joined with an anchor: the same partitions and order, one shuffle, whatever executors it names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses

from tests.spark.keyed_jobs import INPUT, KeyedJob, in_order
from tests.spark.programs.test_broadcast import RulesJob
from varvite.spark_integration.driver import batch_executor
from varvite.spark_integration.driver.operator_executor import keyed_input
from varvite.spark_integration.driver.placement.anchor import Anchor
from varvite.spark_integration.driver.placement.anchors import MERGE_SETTINGS, Anchors
from varvite.spark_integration.driver.placement.decision import Executor, JoinForm
from varvite.spark_integration.driver.placement.spark_internals import LiveExecutors
from varvite.spark_integration.driver.placement.standbys import StandbyCopies
from varvite.spark_integration.elements.side_by_side import side_by_side
from varvite.spark_integration.messages.protocol import KEY_COLUMN, KEY_GROUP_COLUMN
from varvite.spark_integration.plan.broadcast_input import BroadcastInput

pytestmark = pytest.mark.spark
PARTITIONS, KEY_GROUPS = 5, 32
NOWHERE = [Executor(str(number), f"host-{number}") for number in range(2)]
"""Executors that the session does not have: Spark then runs the tasks where it can."""


@pytest.fixture(params=JoinForm, ids=lambda form: form.value)
def anchor(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Anchor]:
    """An anchor of either form, that spills early."""
    settings = {**dict.fromkeys(MERGE_SETTINGS, "4"), "spark.sql.sortMergeJoinExec.buffer.spill.threshold": "16"}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield Anchor(spark, [NOWHERE[p % 2] for p in range(PARTITIONS)], request.param)
    for key in settings:
        spark.conf.unset(key)


def in_partitions(rows: DataFrame) -> list[tuple[Any, ...]]:
    """Every row with its partition, in order."""
    return [tuple(row) for row in rows.select("*", F.spark_partition_id()).collect()]


def test_rows_are_in_the_partitions_and_in_the_order_that_they_have_without_an_anchor(
    spark: SparkSession, anchor: Anchor
) -> None:
    rows = spark.range(0, 2000, 1, 1).selectExpr(
        "CONCAT('key-', id % 7) AS k", "id AS v", "IF(id % 3 = 0, NULL, id) AS n"
    )
    plain = keyed_input(rows, ["k"], PARTITIONS, KEY_GROUPS)
    anchored = keyed_input(rows, ["k"], PARTITIONS, KEY_GROUPS, anchor)
    assert anchored.columns == plain.columns
    assert in_partitions(anchored) == in_partitions(plain)


def test_every_partition_has_a_task_also_without_rows(spark: SparkSession, anchor: Anchor) -> None:
    rows = keyed_input(spark.createDataFrame([("a", 1)], INPUT), ["k"], PARTITIONS, KEY_GROUPS, anchor)

    def numbered(batches: Any) -> Any:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        count = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"p": [context.partitionId()], "n": [count]})

    for frame, total in ((rows, 1), (rows.where("v > 1"), 0)):
        found = {row.p: row.n for row in frame.mapInArrow(numbered, "p long, n long").collect()}
        assert set(found) == set(range(PARTITIONS))
        assert sum(found.values()) == total


def test_an_anchor_serves_every_operator_of_a_chain(spark: SparkSession, anchor: Anchor) -> None:
    rows = spark.range(0, 100, 1, 1).selectExpr("CAST(id AS STRING) AS k", "id AS v")
    chains: list[list[Any]] = []
    for each in (None, anchor):
        first = keyed_input(rows, ["k"], PARTITIONS, KEY_GROUPS, each).drop(KEY_GROUP_COLUMN)
        chains.append(in_partitions(keyed_input(first, ["v"], PARTITIONS, KEY_GROUPS, each)))
    assert sorted(chains[0]) == sorted(chains[1])
    assert len(chains[0]) == 100


def test_broadcast_rows_come_first_and_all_in_order(spark: SparkSession, anchor: Anchor) -> None:
    own = spark.range(0, 300, 1, 1).selectExpr("id AS v")
    rules = spark.range(0, 9, 1, 1).selectExpr("CONCAT('rule-', id) AS name")
    rows = side_by_side([own, rules]).selectExpr("*", f"CAST(hash(*) AS STRING) AS {KEY_COLUMN}")
    distribution = BroadcastInput(keyed=True, rows=own.schema)
    plain = distribution.distributed(rows, PARTITIONS, KEY_GROUPS)
    anchored = distribution.distributed(rows, PARTITIONS, KEY_GROUPS, anchor)
    assert anchored.columns == plain.columns
    assert in_partitions(anchored) == in_partitions(plain)


class Elsewhere(LiveExecutors):
    """Executors that come and go, and are not there."""

    def __init__(self) -> None:
        self.looks = 0

    def usable(self) -> frozenset[Executor]:
        self.looks += 1
        return frozenset(NOWHERE if self.looks % 3 else NOWHERE[:1])


@pytest.fixture(params=JoinForm, ids=lambda form: form.value)
def anchored_jobs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """Jobs of the local session are placed as on a cluster whose executors change all the time."""
    live = Elsewhere()

    class Placing(Anchors):
        @classmethod
        def create(cls, session: SparkSession, job: str, copies: Callable[[], StandbyCopies]) -> Anchors:
            return Anchors(session, job, live, request.param, copies)

    monkeypatch.setattr(batch_executor, "Anchors", Placing)
    return live


@pytest.mark.spark_tasks
@pytest.mark.long
def test_a_jobs_results_do_not_depend_on_what_its_anchors_ask_for(
    spark: SparkSession, tmp_path: Path, anchored_jobs: Elsewhere
) -> None:
    job = KeyedJob(spark, tmp_path, parallelism=3)
    for batch in range(5):
        job.add(*[(f"key-{k}", 10 * batch - k) for k in (3, 1, 2, 1)])

    def sink(rows: DataFrame, batch: int) -> None:
        """It uses the rows twice: a copy of the plan must find the cached answer as well."""
        assert rows.alias("a").join(rows.alias("b"), "k").count() == 6
        job.collect(rows, batch)

    job.run(sink)
    assert job.rows() == in_order(job.expected)
    assert anchored_jobs.looks == 5


@pytest.mark.spark_tasks
@pytest.mark.long
def test_broadcast_rows_and_aggregates_are_the_same_with_anchors(
    spark: SparkSession, tmp_path: Path, anchored_jobs: Elsewhere
) -> None:
    rules = RulesJob(spark, tmp_path / "rules")
    rules.batch([("a", 1), ("b", 2)], [("low", 1), ("high", 9)])
    rules.batch([("a", 5)], [])
    found = rules.run()
    assert [row for row in found[0] if row[0] != "rule"] == [("a", 1, "*=2 high=9 low=1"), ("b", 2, "*=2 high=9 low=1")]
    assert found[1] == [("a", 6, "*=2 high=9 low=1")]

    job = KeyedJob(spark, tmp_path / "totals")
    for values in ([1, 2, 3], [10]):
        job.add(*[("a", v) for v in values])
    totals: list[list[Any]] = []
    stream = job.environment().from_dataframe(job.stream.read()).key_by("k")
    writer = stream.aggregate(uid="totals", total=("v", "sum")).foreach_batch(
        lambda rows, _: totals.append([tuple(row) for row in rows.collect()])
    )
    writer.query_name("totals").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert totals == [[("a", 6)], [("a", 16)]]
    assert anchored_jobs.looks == 4
