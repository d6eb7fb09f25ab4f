"""Local recovery under Spark: the options reach the state workers, and a query finds what the one before has left."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.keyed_jobs import BACKENDS, KeyedJob, in_order, kill_state_workers

pytestmark = pytest.mark.spark


@pytest.mark.fixed_storage  # no materialization
def test_a_query_goes_on_with_the_state_that_is_on_the_host(spark: SparkSession, tmp_path: Path) -> None:
    conf = {
        "execution.state-recovery.from-local": "true",
        "execution.checkpointing.local-backup.dirs": str(tmp_path / "local"),
        "execution.checkpointing.local-backup.flush-interval": "0",
    }
    job = KeyedJob(spark, tmp_path, backend=BACKENDS["rocksdb"], changelog=True, conf=conf)
    for batch in range(3):
        job.add(*[(f"key-{i}", batch) for i in range(20)])
    job.run()
    copies = sorted((tmp_path / "local").glob("varvite-*/*/*/*/0/CURRENT"))
    assert copies
    kill_state_workers(spark)
    job.add(("key-1", 5))
    assert set(job.restored(job.run())) <= {"caught-up", "current"}
    assert sorted((tmp_path / "local").glob("varvite-*/*/*/*/*/CURRENT")) == copies
    assert job.rows() == in_order(job.expected)
