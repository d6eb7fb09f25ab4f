"""`varvite-state` and `varvite-changelog` in a real session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

import varvite
from tests.jobs.committing_job import CommittingJob, NumberedTokens
from tests.jobs.materializer_world import World
from tests.jobs.started_job import native
from tests.jobs.state_model import KEYS, BatchChanges, key_group
from tests.stores.manual_clock import ManualClock
from tests.tidy.pages.doc_blocks import ROOT, blocks_of
from varvite import register_data_sources
from varvite.changelog.reading.key_hash import key_group_of_text
from varvite.changelog.retention.collector import Collector
from varvite.spark_integration.connectors.state_table.data_sources import PUSHDOWN
from varvite.storage.format import layout
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark


PAGE = "docs/operate/tools.md"
STORAGE = "file:///var/lib/varvite"


@pytest.mark.long
def test_the_programs_of_the_page_run(spark: SparkSession, tmp_path: Path) -> None:
    job = CommittingJob(PrefixedStore(LocalStore(str(tmp_path / "storage")), "flights"), ManualClock(), name="flights")
    job.start()
    for value in (1, 2, 3):
        job.commit(BatchChanges(totals={"a": value, "b": -value}))
    job.close()
    names = {"spark": spark, "varvite": varvite}
    before = spark.conf.get(PUSHDOWN)
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


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    """Filters are pushed down."""
    before = spark.conf.get(PUSHDOWN)
    register_data_sources(spark, push_filters=True)
    yield
    spark.conf.set(PUSHDOWN, before or "false")
    register_data_sources(spark)


@pytest.fixture
def sources(spark: SparkSession) -> None:
    """The data sources are registered."""
    register_data_sources(spark)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A job in `tmp_path / "storage"`."""
    world = World(tmp_path / "local", LocalStore(str(tmp_path / "storage")))
    (tmp_path / "local").mkdir(exist_ok=True)
    yield world
    world.close()


def frame(spark: SparkSession, path: Path, source: str, **options: str) -> DataFrame:
    return spark.read.format(source).options(job="job", **options).load(str(path / "storage"))


@pytest.mark.usefixtures("sources")
def test_state_and_changes_are_data_frames(spark: SparkSession, world: World, tmp_path: Path) -> None:
    world.commit(4)
    state = frame(spark, tmp_path, "varvite-state", operator="flights", state="by_name")
    found: dict[str, dict[str, int | None]] = {}
    for row in state.collect():
        found.setdefault(row["key"], {})[row["map_key"]] = row["value"]
        assert (row["seq"], row["batch"], row["operator"], row["state"]) == (
            world.newest().seq, 3, "flights", "by_name",
        )  # fmt: skip
    assert found == world.job.model.cells()["by_name"]
    assert state.rdd.getNumPartitions() == 2
    filtered = state.where("key_group >= 2 and key_group < 4 and value is not null").select("map_key").count()
    assert filtered == state.where("value is not null").where(sf.col("key_group").isin(2, 3)).count()
    changes = frame(spark, tmp_path, "varvite-changelog", operator="flights", state="total")
    latest = changes.where("batch >= 2")
    assert {row["batch"] for row in latest.collect()} == {2, 3}
    kept = latest.groupBy("key").agg(sf.max_by(sf.col("value"), sf.col("seq")).alias("value"))
    totals = world.job.model.cells()["total"]
    assert {row["key"]: row["value"] for row in kept.collect() if row["value"] is not None}.items() <= totals.items()


@pytest.mark.usefixtures("sources")
def test_a_savepoint_is_read_when_its_checkpoint_is_collected(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    """Tasks were told the checkpoint's seq, which is gone from the chain."""
    world.commit(3)
    seq, totals = world.newest().seq, world.job.model.cells()["total"]
    native(world)
    for _ in range(3):
        world.commit(3)
        world.sidecar().fold()
    world.commit(3)
    Collector(world.reader, world.clock, NumberedTokens("collector")).collect()
    assert world.newest().keep_from > seq
    options = {"state": "total", "checkpoint": "savepoint:before"}
    state = frame(spark, tmp_path, "varvite-state", **options)
    assert {row["key"]: row["value"] for row in state.collect()} == totals
    assert {row["seq"] for row in state.collect()} == {seq}
    changes = frame(spark, tmp_path, "varvite-changelog", **options).collect()
    assert {row["seq"] for row in changes} <= set(range(1, seq + 1))
    last = {row["key"]: row["value"] for row in sorted(changes, key=lambda row: row["seq"]) if row["op"] == "put"}
    assert last.keys() >= totals.keys()


@pytest.mark.usefixtures("sources")
def test_a_frame_reads_the_checkpoint_of_its_first_query_and_says_so_when_that_is_gone(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.job.commit(BatchChanges(totals={"a": 1}))
    state = frame(spark, tmp_path, "varvite-state", state="total")
    assert [row["value"] for row in state.collect()] == [1]
    world.job.commit(BatchChanges(totals={"a": 2}))
    assert [row["value"] for row in state.collect()] == [1], "Spark keeps the plan"
    assert [row["value"] for row in frame(spark, tmp_path, "varvite-state", state="total").collect()] == [2]
    for _ in range(2):
        world.commit(3)
        world.sidecar().fold()
    world.commit(3)
    Collector(world.reader, world.clock, NumberedTokens("collector")).collect()
    with pytest.raises(PySparkException, match=r"there is no checkpoint \d+.*load\(\) it anew"):
        state.collect()


@pytest.mark.usefixtures("sources")
def test_a_schema_that_is_not_the_state_s_is_told(spark: SparkSession, world: World, tmp_path: Path) -> None:
    world.job.commit(BatchChanges(totals={"a": 1}))
    source = spark.read.schema("key string, value bigint").format("varvite-state").options(job="job", state="total")
    with pytest.raises(PySparkException, match=r"InvalidRequestError: the columns are[^$]*load\(\) it anew, without"):
        source.load(str(tmp_path / "storage")).collect()


def _two_operators(world: World) -> None:
    """Batches 0 and 1 of operator `flights`, 2 of `second`, each segment an object of its own."""
    for value in (1, 2):
        world.job.commit(BatchChanges(totals=dict.fromkeys(KEYS, value)), upload=True)
    world.job.uid, world.job.idle = "second", ("flights",)
    world.job.commit(BatchChanges(totals=dict.fromkeys(KEYS, 3), events={"a": (False, ["x", "y"])}), upload=True)


def _damage(world: World, part: str) -> None:
    """Overwrite the segments with this in their names, so that reading one of them fails."""
    names = [name for name in world.names(layout.SEGMENTS) if part in name]
    assert names
    for name in names:
        world.store.put(name, b"not what was written")


@pytest.mark.long
@pytest.mark.usefixtures("pushing")
@pytest.mark.parametrize("source", ["varvite-state", "varvite-changelog"])
def test_filters_of_operator_state_and_key_group_decide_what_is_read(
    spark: SparkSession, world: World, tmp_path: Path, source: str
) -> None:
    """The partitions that they leave out are damaged, so they were not read."""
    _two_operators(world)

    def rows(*filters: Any) -> list[Row]:
        found = frame(spark, tmp_path, source)
        for one in filters:
            found = found.where(one)
        return found.collect()

    assert {(row["operator"], row["key"], row["value"]) for row in rows("state = 'events'")} == {
        ("second", '"a"', '"x"'), ("second", '"a"', '"y"')
    }  # fmt: skip
    assert {row["operator"] for row in rows()} == {"flights", "second"}
    own = "operator = 'flights' and state in ('total', 'none')"
    values = {1, 2} if source == "varvite-changelog" else {2}
    _damage(world, "/second/")
    assert {(row["operator"], row["state"], int(row["value"])) for row in rows(own)} == {
        ("flights", "total", value) for value in values
    }
    with pytest.raises(PySparkException, match="CorruptDataError"):
        rows()
    low = world.job.ranges[1][0]
    _damage(world, "/flights/00001-")
    assert {row["key"] for row in rows(own, f"key_group < {low}")} == {
        f'"{key}"' for key in KEYS if key_group(key) < low
    }
    assert {row["key_group"] for row in rows(own, sf.col("key_group").isin(0, low - 1))} <= {0, low - 1}
    assert rows("operator in ('nobody')") == []


@pytest.mark.long
@pytest.mark.usefixtures("pushing")
def test_a_filter_of_batches_decides_which_retained_checkpoints_and_changes_are_read(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    for value in (1, 2, 3):
        world.job.commit(BatchChanges(totals={"a": value}), upload=True)
    state = {"source": "varvite-state", "state": "total"}
    retained = {**state, "checkpoint": "retained"}
    changes = {"source": "varvite-changelog", "state": "total"}

    def rows(options: dict[str, str], condition: str = "true") -> list[tuple[int, int]]:
        found = frame(spark, tmp_path, **options).where(condition).collect()
        return sorted((row["batch"], row["value"]) for row in found)

    assert rows(retained) == [(1, 2), (2, 3)], "two checkpoints are retained"
    _damage(world, layout.segment(world.newest().seq, "flights", 0, "", 0).partition("/flights")[0])
    assert rows(retained, "batch in (0, 1)") == [(1, 2)]
    assert rows(changes, "batch <= 1") == [(0, 1), (1, 2)]
    assert rows(state, "batch = 1") == [], "the table is that of the newest checkpoint"
    for damaged in (retained, changes, state):
        with pytest.raises(PySparkException, match="CorruptDataError"):
            rows(damaged)


@pytest.mark.usefixtures("sources")
def test_options_decide_what_is_read_and_a_frame_may_be_used_again(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    """Pushed down, the filters of one query were those of the next one, and of both branches of a union."""
    _two_operators(world)
    state = frame(spark, tmp_path, "varvite-state", operator="flights", state="total")
    one, other = (state.where(sf.col("key_group") == key_group(key)) for key in ("a", "ab"))
    assert {row["key"] for row in one.collect()} & set(KEYS) == {k for k in KEYS if key_group(k) == key_group("a")}
    assert state.select("key").count() == len(KEYS)
    both = {row["key_group"] for row in one.union(other).collect()}
    assert both == {key_group("a"), key_group("ab")}
    _damage(world, "/second/")
    _damage(world, "/flights/00001-")
    last = world.job.ranges[0][1] - 1
    for source, batches in (("varvite-state", "0-"), ("varvite-changelog", "0-0")):
        found = frame(
            spark, tmp_path, source, operator="flights", state="total", keyGroups=f"0-{last}", batches=batches
        ).collect()
        assert {row["key"] for row in found} == {key for key in KEYS if key_group(key) <= last}
        assert {row["value"] for row in found} == ({2} if source == "varvite-state" else {1})
    for options in ({"keyGroups": "a"}, {"batches": "3-x"}, {"operator": "nobody"}, {"state": "nothing"}):
        with pytest.raises(PySparkException, match="InvalidRequestError"):
            frame(spark, tmp_path, "varvite-state", **options).collect()


def test_key_groups_that_tools_compute_are_those_of_spark(spark: SparkSession) -> None:
    strings = [*KEYS, "x" * 31, "x" * 32, "x" * 77]
    numbers = [0, 1, -1, 2**31 - 1, -(2**31)]
    longs = [*numbers, 2**63 - 1, -(2**63)]
    for kind, name, values in (("string", "string", strings), ("int", "int", numbers), ("bigint", "long", longs)):
        rows = spark.createDataFrame([(value,) for value in values], f"k {kind}")
        found = rows.selectExpr("k", "CAST(pmod(xxhash64(k), 128L) AS INT) AS g").collect()
        assert {row.k: row.g for row in found} == {v: key_group_of_text(name, str(v), 128) for v in values}
