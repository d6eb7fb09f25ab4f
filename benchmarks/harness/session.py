"""The Spark that all systems are measured on, and a process of its own for each of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "3g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""The same for every system: changelog checkpointing on RocksDB, no AQE, cheap checkpoint files."""


def session(more: Mapping[str, str] | None = None) -> Any:
    """A local session with two cores and these further properties."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("varvite-bench")
    for key, value in (CONF | dict(more or {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run_alone(module: str, *arguments: str) -> dict[str, Any] | None:
    """Run one case in a process of its own, so that no system inherits another's warm JVM or leftovers.

    Args:
        module: To be run with `--one` and the arguments; prints the case as JSON in its last line.
        arguments: Of `--one`.

    Returns:
        The case, or None if the process failed; then the end of its errors is on this one's standard error.
    """
    command = [sys.executable, "-m", module, "--one", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr[-4000:])
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])
