"""A job whose objects are encrypted and whose log is elsewhere, on real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.keyed_jobs import KeyedJob, in_order, kill_state_workers
from varvite.storage.errors import IncompatibleError, MissingKeyError
from varvite.storage.object_stores.encrypted.sealed_object import is_sealed

ENCRYPT = "storage.encryption.key-provider"
SPREAD = {"checkpoint.inline-size-max": "0 b", "state.changelog.dstl.dfs.batch.persist-size-threshold": "0 b"}
"""Each segment is an object of its own."""
LOG = {"state.changelog.storage": "examples.sqlite_log:open_log"}


@pytest.mark.fixed_storage  # the sidecar of other tests has no key
def test_an_encrypted_job_restarts_rotates_its_key_and_needs_it(spark: SparkSession, tmp_path: Path) -> None:
    base_path = {"state.changelog.dstl.dfs.base-path": str(tmp_path / "fast")}
    job = KeyedJob(spark, tmp_path, conf={ENCRYPT: "tests.stores.key_vault:OldVault", **base_path, **SPREAD})
    job.add(("a", 1), ("b", 2))
    job.add(("a", 3))
    job.run()
    kill_state_workers(spark)
    job.conf = {ENCRYPT: "tests.stores.key_vault:Vault"}
    job.add(("a", 4), *[(f"key-{i}", i) for i in range(8)])
    job.run()
    assert job.rows() == in_order(job.expected)
    files = [path for root in ("state", "fast") for path in (tmp_path / root).rglob("*") if path.is_file()]
    assert {path.name for path in files if not is_sealed(path.read_bytes())} == {"job.json"}
    assert list((tmp_path / "fast").iterdir())
    assert not (tmp_path / "state" / "job" / "seg").exists()
    for wrong in ({}, {ENCRYPT: "tests.stores.key_vault:WrongVault"}):
        job.conf = wrong
        with pytest.raises(MissingKeyError):
            job.run()
    job.conf = LOG
    with pytest.raises(IncompatibleError, match="keeps its log data at"):
        job.run()


def test_a_relative_path_means_the_drivers_directory_to_state_workers_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uploads came to be below the workers' own directory, and the checkpoints named what was not there."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    job = KeyedJob(spark, tmp_path, changelog=True, conf={"execution.checkpointing.dir": "relative-state", **SPREAD})
    job.add(("a", 1), ("b", 2))
    job.run()
    assert list((tmp_path / "here" / "relative-state" / "job" / "seg").rglob("*-*"))
    kill_state_workers(spark)
    job.add(("a", 3))
    job.run()
    assert job.rows() == in_order(job.expected)
