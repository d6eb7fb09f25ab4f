"""The driver process of the demo: a Spark session, the job, and a line of JSON for every checkpoint."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import click
from pyspark.sql import SparkSession

from examples.flights.job import start
from examples.flights.storage import Storage

POLL_S = 0.2


def session(work: Path) -> SparkSession:
    """Spark on two cores of this machine; a failed task is tried again, as on a cluster."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.local.dir": str(work / "spark"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={work / 'spark'}",
        "spark.sql.warehouse.dir": str(work / "spark" / "warehouse"),
    }
    builder = SparkSession.builder.master("local[2,8]").appName("varvite-flights")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write_new(query: Any, path: Path, written: int) -> int:
    """Append the statistics of checkpoints that are not in the file yet; answers how many are."""
    history = query.checkpoint_statistics.as_rows()
    with path.open("a") as lines:
        for row in history[written:]:
            lines.write(json.dumps(row) + "\n")
    return len(history)


@click.command()
@click.argument("work", type=click.Path(path_type=Path))
def main(work: Path) -> None:
    """Run the job on the files in WORK/input until all are processed."""
    spark = session(work)
    query = start(spark, work, Storage.read(work))
    written = 0
    while query.isActive:
        time.sleep(POLL_S)
        written = write_new(query, work / "checkpoints.jsonl", written)
    query.awaitTermination()
    write_new(query, work / "checkpoints.jsonl", written)
    spark.stop()


if __name__ == "__main__":
    main()
