"""Another parallelism at every restart, on real Spark: partitions clip what is stored, and rewrite none of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.drivers.varvite_command import command
from tests.spark.keyed_jobs import BACKENDS, KeyedJob, in_order, kill_state_workers
from varvite.storage.format import layout

pytestmark = pytest.mark.spark
PARALLELISMS = (2, 3, 8, 1)
KEYS = 40


def snapshot_files(job: KeyedJob) -> dict[str, int]:
    """Name → time of the last change, of all files of snapshots."""
    root = job.directory / "state" / "job"
    found = (path for area in (layout.SNAPSHOTS, layout.SNAPSHOT_FILES) for path in (root / area).rglob("*"))
    return {str(path.relative_to(root)): path.stat().st_mtime_ns for path in found if path.is_file()}


@pytest.mark.long
@pytest.mark.fixed_storage  # there is something to materialize
@pytest.mark.parametrize("backend", ["rocksdb", pytest.param("hashmap", marks=pytest.mark.rare)])
def test_a_job_restarts_with_2_then_3_then_8_partitions_and_then_with_1(
    spark: SparkSession, tmp_path: Path, backend: str
) -> None:
    job = KeyedJob(spark, tmp_path, backend=BACKENDS[backend], changelog=True)
    materialize = ["materialize", "--once", "--job", "job", "--storage", str(tmp_path / "state")]
    materialize += ["--working-directory", str(tmp_path / "work")]
    for number, parallelism in enumerate(PARALLELISMS):
        job.parallelism = parallelism
        job.add(*[(f"key-{key}", number) for key in range(0, KEYS, number + 1)], (None, number))
        job.add(("key-0", 10), (f"new-{number}", 11))
        before = snapshot_files(job)
        query = job.run()
        assert job.rows() == in_order(job.expected), f"with {parallelism} partitions"
        assert snapshot_files(job) == before, "the restart moves nothing that is stored"
        assert sum(job.restored(query).values()) == parallelism
        command(*materialize)
        job.add(("key-1", 12))
        [adopting] = job.run().checkpoint_statistics.history()
        assert adopting.log_commits <= 2, "a run of one batch adopts what is there when it begins"
        kill_state_workers(spark)
    assert job.rows() == in_order(job.expected)
