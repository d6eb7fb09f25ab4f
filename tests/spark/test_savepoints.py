"""Savepoints on real Spark: a job that starts from another one's, with another backend and parallelism."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from tests.spark.keyed_jobs import BACKENDS, KeyedJob, in_order
from varve.materializer.cli import main
from varve.storage.errors import InvalidRequestError

pytestmark = pytest.mark.spark


def command(*arguments: str) -> list[Any]:
    """What `varve` prints as JSON lines."""
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("form", "backend", "changelog"), [("native", "rocksdb", True), ("canonical", "hashmap", False)]
)
def test_a_job_starts_from_a_savepoint_with_another_backend_and_parallelism(
    spark: SparkSession, tmp_path: Path, form: str, backend: str, changelog: bool
) -> None:
    """2 → 3 → 1 partitions; the first job goes on, and is deleted in the end."""
    job = KeyedJob(spark, tmp_path)
    for i in range(3):
        job.add(("a", i), ("b", 10 * i), (f"key-{i}", i), (None, i))
    job.run()
    storage = str(tmp_path / "state")
    [made] = command("savepoint", "create", "job", "before", "--format", form, "--storage", storage)
    assert (made["name"], made["format"], made["batch"]) == ("before", form, 2)
    values = {key: list(held) for key, held in job.model.values.items()}
    job.add(("a", 1000))
    job.run()
    other = KeyedJob(
        spark, tmp_path, name="other", backend=BACKENDS[backend], changelog=changelog, parallelism=3,
        checkpoint="other-checkpoint", source="other-input",
    )  # fmt: skip
    other.conf = {"execution.savepoint.path": f"{storage}/job/savepoints/before"}
    other.model.values = values
    other.add(("a", 5), ("b", 6), ("new", 7), (None, 8))
    other.run()
    shutil.rmtree(tmp_path / "state" / "job")
    other.parallelism = 1
    other.add(("a", 9), ("key-0", 10))
    other.run()
    assert other.rows() == in_order(other.expected)


def test_a_start_from_nowhere_leaves_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    job = KeyedJob(spark, tmp_path, conf={"execution.savepoint.path": str(tmp_path / "nothing/savepoints/before")})
    job.add(("a", 1))
    with pytest.raises(InvalidRequestError, match="no savepoint"):
        job.start()
    assert not (tmp_path / "state" / "job" / "job.json").exists()
