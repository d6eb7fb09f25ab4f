"""Savepoints on real Spark: a job that starts from another one's, with another backend and parallelism."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from benchmarks.harness.servers.gcs import GcsServer
from tests.spark.conftest import FileStream
from tests.spark.drivers.varvite_command import command
from tests.spark.keyed_jobs import BACKENDS, KeyedJob, in_order
from tests.stores.s3_servers import S3Server
from tests.tidy.pages.doc_blocks import ROOT, blocks_of, commands_of
from varvite.materializer.commands.cli import main
from varvite.storage.errors import InvalidRequestError
from varvite.storage.object_stores.open import open_store

pytestmark = pytest.mark.spark


def test_a_job_starts_from_a_canonical_savepoint_with_another_backend_and_parallelism(
    spark: SparkSession, tmp_path: Path
) -> None:
    """2 → 3 → 1 partitions, hashmap → RocksDB, changelog on → off; the first job goes on, and is deleted in the end."""
    job = KeyedJob(spark, tmp_path)
    for i in range(3):
        job.add(("a", i), ("b", 10 * i), (f"key-{i}", i), (None, i))
    job.run()
    storage = str(tmp_path / "state")
    [made] = command("savepoint", "create", "job", "before", "--format", "canonical", "--storage", storage)
    assert (made["name"], made["format"], made["batch"]) == ("before", "canonical", 2)
    values = {key: list(held) for key, held in job.model.values.items()}
    job.add(("a", 1000))
    job.run()
    other = KeyedJob(
        spark, tmp_path, name="other", backend=BACKENDS["rocksdb"], changelog=False, parallelism=3,
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


def test_the_page_runs_from_top_to_bottom(spark: SparkSession, tmp_path: Path) -> None:
    """Its programs and its commands, in order."""
    assert SparkSession.getActiveSession() is spark, "the program finds the session by itself"
    for name, files in {"flights": [["N1", "N2"], ["N1"]], "later-flights": [["N1", "N3"]]}.items():
        stream = FileStream(spark, tmp_path / "data" / name, "tailnum string")
        for tails in files:
            stream.add(*[json.dumps({"tailnum": tail}) for tail in tails])
    page = "docs/operate/savepoints.md"
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks_of(page, (ROOT / page).read_text()):
        text = block.text.replace("/var/lib/varvite", f"{tmp_path}/state").replace("/data/", f"{tmp_path}/data/")
        if "run" in block.tags:
            exec(compile(text, block.name, "exec", dont_inherit=True), names)
        elif block.language == "console":
            for line in commands_of(replace(block, text=text)):
                done = CliRunner().invoke(main, line.split()[1:])
                assert done.exit_code == 0, done.output
    counts = {job: spark.read.json(f"{tmp_path}/data/counts/{job}").collect() for job in ("flights", "flights-2")}
    assert sorted((row.batch_id, row.tailnum, row.n) for row in counts["flights"]) == [
        (0, "N1", 1), (0, "N2", 1), (1, "N1", 2),
    ]  # fmt: skip
    assert sorted((row.tailnum, row.n) for row in counts["flights-2"]) == [("N1", 3), ("N3", 1)]
    commits = [line["batch"] for line in command("checkpoints", "flights", "--storage", f"{tmp_path}/state")]
    assert commits == [1, 0], "batch 1 was executed again on the checkpoint of batch 0"


@pytest.mark.long
@pytest.mark.s3
@pytest.mark.gcs
@pytest.mark.fixed_storage
def test_a_job_moves_to_another_kind_of_storage(
    spark: SparkSession, tmp_path: Path, moto_server: S3Server, gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 → Google: the new storage has the job's options, the old one the credentials of the environment."""
    old_url, options = moto_server.new_location(), gcs_server.storage_options()
    job = KeyedJob(spark, tmp_path, conf=moto_server.job_conf(old_url))
    for i in range(3):
        job.add(("a", i), ("b", 10 * i), (f"key-{i}", i), (None, i))
    job.run()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", moto_server.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", moto_server.secret)
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_server.endpoint_url)
    [made] = command("savepoint", "create", "job", "move", "--format", "canonical", "--storage", old_url)
    assert made["batch"] == 2
    moved = KeyedJob(spark, tmp_path, checkpoint="moved-checkpoint", source="moved-input", backend=BACKENDS["rocksdb"])
    moved.conf = {
        "execution.checkpointing.dir": gcs_server.new_location(),
        "execution.state-recovery.path": f"{old_url}/job/savepoints/move",
        **{f"storage.option.{name}": str(value) for name, value in options.items()},
    }
    moved.model.values = job.model.values
    for _ in range(2):
        moved.add(("a", 5), ("b", 6), ("new", 7), (None, 8))
        moved.run()
        store = open_store(old_url, moto_server.storage_options())
        store.delete([meta.name for meta in store.list("")])
    assert moved.rows() == in_order(moved.expected)


@pytest.mark.fixed_storage  # without a changelog its first batch writes files of its own
def test_a_clone_shares_the_objects_of_its_source(spark: SparkSession, tmp_path: Path) -> None:
    """Segments of their own and inline ones; the clone's state workers read both where they are."""
    job = KeyedJob(spark, tmp_path, conf={"checkpoint.inline-size-max": "0 b"})
    job.add(("a", 1), ("b", 2))
    job.run()
    job.conf = {}
    job.add(("a", 3), ("c", 4))
    job.run()
    other = KeyedJob(
        spark, tmp_path, name="other", parallelism=3, checkpoint="other-checkpoint", source="other-input",
        backend=BACKENDS["rocksdb"],
    )  # fmt: skip
    other.conf = {
        "execution.state-recovery.path": str(tmp_path / "state" / "job"),
        "execution.state-recovery.claim-mode": "clone",
    }
    other.model.values = {key: list(held) for key, held in job.model.values.items()}
    other.add(("a", 5), ("c", 6), ("d", 7))
    other.run()
    assert other.rows() == in_order(other.expected)
    assert not (tmp_path / "state" / "other" / "seg").exists()
    [hold] = command("savepoint", "list", "job", "--storage", str(tmp_path / "state"))
    assert (hold["format"], hold["holder"]) == ("hold", "clone other")


def test_a_start_from_nowhere_leaves_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    job = KeyedJob(spark, tmp_path, conf={"execution.savepoint.path": str(tmp_path / "nothing/savepoints/before")})
    job.add(("a", 1))
    with pytest.raises(InvalidRequestError, match="no savepoint"):
        job.start()
    assert not (tmp_path / "state" / "job" / "job.json").exists()
