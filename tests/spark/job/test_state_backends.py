"""State backends on real Spark: a store of the user's, the shared memory, and what is refused at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.keyed_jobs import BACKENDS, IN_MEMORY, KeyedJob, in_order, kill_state_workers
from tests.tidy.pages.doc_blocks import ROOT, blocks_of
from varvite import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    PredefinedOptions,
    StreamExecutionEnvironment,
)
from varvite.storage.errors import InvalidRequestError

pytestmark = pytest.mark.spark
SQLITE = CustomStateBackend("examples.sqlite_store:SQLiteStore", {"cache-mb": 4})


def high_memory() -> EmbeddedRocksDBStateBackend:
    backend = EmbeddedRocksDBStateBackend()
    backend.set_predefined_options(PredefinedOptions.SPINNING_DISK_OPTIMIZED_HIGH_MEM)
    return backend


@pytest.mark.long
def test_a_store_of_the_users_is_restored_and_exchanged_like_any_other(spark: SparkSession, tmp_path: Path) -> None:
    job = KeyedJob(spark, tmp_path, backend=SQLITE, conf={"state.backend.rocksdb.memory.fixed-per-tm": "8 mb"})
    starts: list[tuple[Any, bool]] = [
        (SQLITE, True), (SQLITE, True), (SQLITE, False), (high_memory(), True), (SQLITE, True),
    ]  # fmt: skip
    for i, (backend, changelog) in enumerate(starts):
        job.backend, job.changelog = backend, changelog
        job.add(("a", i), ("b", 1), (f"key-{i}", i), (None, i))
        job.add(("a", 10 * i), (None, i))
        how = job.restored(job.run())
        assert i == 0 or not IN_MEMORY & how.keys()
        kill_state_workers(spark)
    assert job.rows() == in_order(job.expected)


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"state.backend.type": "no.such:Store"}, "cannot be imported"),
        ({"state.backend.custom.options": "cache-mb:much"}, "failed: ValueError"),
        ({"state.backend.type": "rocksdb", "state.backend.rocksdb.memory.fixed-per-tm": "4 mb"}, "at least 8 mb"),
    ],
)
def test_a_backend_that_cannot_work_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, conf: dict[str, str], message: str
) -> None:
    job = KeyedJob(spark, tmp_path, backend=SQLITE, conf=conf)
    job.add(("a", 1))
    with pytest.raises(InvalidRequestError, match=message):
        job.start()
    assert not (tmp_path / "state").exists()


def test_the_environment_keeps_the_backend_object_and_what_comes_after_it(spark: SparkSession) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(spark)
    backend = EmbeddedRocksDBStateBackend()
    env.configure("state.backend.type", "hashmap").set_state_backend(backend)
    backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
    assert env.code_level().values == {
        "state.backend.type": "rocksdb",
        "state.backend.rocksdb.predefined-options": PredefinedOptions.FLASH_SSD_OPTIMIZED,
    }
    env.configure("state.backend.type", "hashmap")
    assert env.code_level().values["state.backend.type"] == "hashmap"
    env.set_state_backend(HashMapStateBackend())
    assert env.code_level().values == {"state.backend.type": "hashmap"}


def test_checkpoints_of_a_program_for_flink(spark: SparkSession, tmp_path: Path) -> None:
    """Interval and temporary storage as such a program sets them; the query runs and finds its state there."""
    job = KeyedJob(spark, tmp_path, backend=BACKENDS["hashmap"])
    job.add(("a", 1), ("b", 2))
    env = job.environment().enable_checkpointing(100)
    assert env.get_checkpoint_interval() == 100
    with pytest.warns(UserWarning, match="until the driver ends"):
        env.get_checkpoint_config().set_checkpoint_storage(JobManagerCheckpointStorage())
    location = env.get_checkpoint_config().get_checkpoint_storage()
    assert location is not None
    processed = env.from_dataframe(job.stream.read()).key_by("k").process(job.function, job.output, uid="sums")
    writer = processed.foreach_batch(job.collect).query_name("job")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        job.add(("a", 3))
        query.processAllAvailable()
    finally:
        query.stop()
    assert job.rows() == in_order(job.expected)
    assert (Path(location.get_checkpoint_path()) / "job" / "chain").is_dir()


def test_the_code_of_the_page_runs(spark: SparkSession) -> None:
    page = "docs/operate/state-backends.md"
    names: dict[str, Any] = {"spark": spark}
    for block in blocks_of(page, (ROOT / page).read_text()):
        exec(block.text, names)
    values = names["env"].code_level().values
    assert values["state.backend.type"] == "examples.sqlite_store:SQLiteStore"
    assert values["execution.checkpointing.dir"] == "s3://bucket/varvite"
    assert (values["execution.checkpointing.interval"], values["execution.checkpointing.num-retained"]) == (5_000, 20)
    assert values["state.backend.rocksdb.memory.fixed-per-tm"] == 1 << 30
