"""Commands of the documents, run for real: the demo, the README's job, the submit script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.stores.kafka_broker import skip_without_kafka
from tests.tidy.pages.doc_blocks import ROOT, blocks_of

pytestmark = pytest.mark.spark
ROWS = [("N1", "IAH"), ("N2", "MIA"), ("N1", "BOS")]


def environment() -> dict[str, str]:
    """The environment of a user who has installed varvite in this very Python."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(p for p in paths if p), "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **own, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def run(command: list[str], timeout_s: float, **more: str) -> subprocess.CompletedProcess[str]:
    """Run to the end; what it printed is in the assertion's message if it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env={**environment(), **more}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=timeout_s, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done


@pytest.mark.long
def test_the_demo_ends_with_the_state_that_pandas_computes() -> None:
    done = run([sys.executable, "-m", "examples.flights", "--files", "8"], 400)
    assert "output rows equal what pandas computed" in " ".join(done.stdout.split())


@pytest.mark.long
def test_the_demo_survives_kills_of_every_kind_of_process() -> None:
    done = run([sys.executable, "-m", "examples.flights", "--crash", "--seed", "7", "--files", "24"], 600)
    output = " ".join(done.stdout.split())
    assert output.count("kill -9") >= 4
    assert "no row is missing or there twice" in output


@pytest.mark.long
@pytest.mark.kafka
def test_the_demo_of_kafka_counts_each_order_once() -> None:
    skip_without_kafka()
    done = run([sys.executable, "-m", "examples.orders", "--events", "100000", "--kills", "1"], 400)
    assert "kill -9 of the driver" in done.stdout
    assert "all 100,000 orders are counted once" in " ".join(done.stdout.split())


def readme_job(work: Path) -> str:
    """The README's job with the places of this test, and an end."""
    text = next(b.text for b in blocks_of("README.md", (ROOT / "README.md").read_text()) if b.language == "python")
    text = text.replace("/data/", f"{work}/").replace("file:///var/lib/varvite", f"file://{work}/varvite")
    return text.replace('writer.start("', 'writer.trigger(availableNow=True).start("')


def write_flights(work: Path) -> None:
    (work / "flights").mkdir()
    tailnums, dests = zip(*ROWS, strict=True)
    pq.write_table(pa.table({"tailnum": tailnums, "dest": dests}), work / "flights" / "1.parquet")


def counts(work: Path) -> list[tuple[str, int]]:
    table = ds.dataset(work / "counts", format="parquet", partitioning="hive", ignore_prefixes=["_", "."]).to_table()
    return sorted((r["tailnum"], r["n"]) for r in table.to_pylist())


@pytest.mark.long
def test_the_submit_script_runs_the_readme_job_with_a_sidecar_beside_it(tmp_path: Path) -> None:
    write_flights(tmp_path)
    job = tmp_path / "job.py"
    job.write_text(readme_job(tmp_path))
    script = ["deploy/spark_submit.sh", "--storage", f"file://{tmp_path}/varvite", "--job", "flights", "--"]
    conf = ["--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.ui.enabled=false"]
    varvite = tmp_path / "varvite-command"
    start = "from varvite.materializer.commands.cli import main; main()"
    varvite.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{start}" "$@"\n')
    varvite.chmod(0o755)
    done = run([*script, *conf, str(job)], 240, VARVITE=str(varvite))
    assert counts(tmp_path) == [("N1", 1), ("N1", 2), ("N2", 1)]
    assert (tmp_path / "varvite" / "flights" / "chain").is_dir()
    assert "flights" in done.stdout + done.stderr, "the sidecar says what it follows"
