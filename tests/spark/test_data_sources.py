"""`varve-state` and `varve-changelog` in a real session."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import varve
from tests.committing_job import CommittingJob
from tests.doc_blocks import ROOT, blocks_of
from tests.manual_clock import ManualClock
from tests.materializer_world import World
from tests.state_model import BatchChanges
from varve import register_data_sources
from varve.spark_integration.data_sources import PUSHDOWN
from varve.storage.local_store import LocalStore
from varve.storage.prefixed_store import PrefixedStore

pytestmark = pytest.mark.spark


PAGE = "docs/tools.md"
STORAGE = "file:///var/lib/varve"


def test_the_programs_of_the_page_run(spark: SparkSession, tmp_path: Path) -> None:
    job = CommittingJob(PrefixedStore(LocalStore(str(tmp_path / "storage")), "flights"), ManualClock(), name="flights")
    job.start()
    for value in (1, 2, 3):
        job.commit(BatchChanges(totals={"a": value, "b": -value}))
    job.close()
    before = spark.conf.get(PUSHDOWN)
    names = {"spark": spark, "varve": varve}
    try:
        for block in blocks_of(PAGE, (ROOT / PAGE).read_text()):
            if block.language == "python" and "run" not in block.tags:
                text = block.text.replace(STORAGE, str(tmp_path / "storage")).replace(
                    "/tmp/totals", str(tmp_path / "t")
                )
                exec(compile(text, block.name, "exec", dont_inherit=True), names)
        assert spark.read.parquet(str(tmp_path / "t")).count() == 2
    finally:
        spark.conf.set(PUSHDOWN, before or "false")


def test_state_and_changes_are_data_frames(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path / "local", LocalStore(str(tmp_path / "storage")))
    world.commit(4)
    before = spark.conf.get(PUSHDOWN)
    register_data_sources(spark)
    try:
        options = {"job": "job", "operator": "flights"}
        read = spark.read.format("varve-state").options(**options).option("state", "by_name")
        state = read.load(str(tmp_path / "storage"))
        found: dict[str, dict[str, int | None]] = {}
        for row in state.collect():
            found.setdefault(row["key"], {})[row["map_key"]] = row["value"]
        assert found == world.job.model.cells()["by_name"]
        assert state.rdd.getNumPartitions() == 2
        filtered = state.where("key_group >= 2 and key_group < 4 and value is not null").select("map_key").count()
        assert filtered == state.where("value is not null").where(sf.col("key_group").isin(2, 3)).count()
        changes = spark.read.format("varve-changelog").options(**options).option("state", "total")
        latest = changes.load(str(tmp_path / "storage")).where("batch >= 2")
        assert {row["batch"] for row in latest.collect()} == {2, 3}
        kept = latest.groupBy("key").agg(sf.max_by(sf.col("value"), sf.col("seq")).alias("value"))
        totals = world.job.model.cells()["total"]
        assert {
            row["key"]: row["value"] for row in kept.collect() if row["value"] is not None
        }.items() <= totals.items()
    finally:
        spark.conf.set(PUSHDOWN, before or "false")
        world.close()
