"""`varvite package` and `spark-submit`: a standalone cluster whose Python lacks varvite runs a job with state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyspark
import pytest
from click.testing import CliRunner

from tests.workers.standalone_cluster import StandaloneCluster, standalone_cluster
from varvite.materializer.commands.cli import main

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[3]
JOB = ROOT / "tests/spark/drivers/packaged_job.py"
BATCHES = [[("a", 1), ("b", 2), ("c", 3)], [("a", 10), ("d", 4)], [("b", 20), ("a", 100), ("c", 30)]]
EXPECTED = [
    ("a", 1, 1), ("a", 2, 11), ("a", 3, 111), ("b", 1, 2), ("b", 2, 22), ("c", 1, 3), ("c", 2, 33), ("d", 1, 4)
]  # fmt: skip


def bare_python(directory: Path) -> Path:
    """An interpreter without any packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=120)
    python = directory / "bin" / "python"
    for module in ("varvite", "pyarrow", "pyspark", "rocksdict"):
        done = subprocess.run(
            [python, "-c", f"import {module}"], env={}, cwd=directory, capture_output=True, check=False
        )
        assert b"ModuleNotFoundError" in done.stderr
    return python


def write_input(directory: Path) -> None:
    (directory / "input").mkdir()
    for number, rows in enumerate(BATCHES):
        path = directory / "input" / f"{number}.json"
        path.write_text("".join(json.dumps({"k": k, "v": v}) + "\n" for k, v in rows))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def submit(cluster: StandaloneCluster, packaged: dict[str, Any], python: Path, directory: Path) -> None:
    """The line that `varvite package` prints, with what belongs to this cluster."""
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-submit"), "--master", cluster.url, *settings]
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": str(python)}
    environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # The driver's machine has varvite; here as the test itself has it.
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    with (directory / "driver.log").open("ab") as log:
        done = subprocess.run(
            [*command, *packaged["spark_submit"], str(JOB), str(directory)],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=800,
            check=False,
        )
    assert done.returncode == 0, f"{(directory / 'driver.log').read_text()[-4000:]}\n{cluster.log_tail()}"


def test_a_job_runs_on_a_cluster_that_has_nothing_of_varvite(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["package", "--output", str(tmp_path / "lib"), "--json"])
    assert done.exit_code == 0, done.output
    packaged = json.loads(done.output)
    python = bare_python(tmp_path / "bare")
    write_input(tmp_path)
    with standalone_cluster(tmp_path / "cluster", workers=1, cores=2, python=str(python), python_path="") as cluster:
        submit(cluster, packaged, python, tmp_path)
    table = ds.dataset(tmp_path / "out", format="parquet", partitioning="hive", ignore_prefixes=["_", "."]).to_table()
    rows = table.to_pylist()
    assert sorted((r["k"], r["n"], r["total"]) for r in rows) == EXPECTED
    for row in rows:
        assert row["varvite"].endswith("/varvite.zip/varvite/__init__.py")
        assert "/varvite-environment/rocksdict/" in row["rocksdict"]
        assert row["prefix"] == str(tmp_path / "bare")
