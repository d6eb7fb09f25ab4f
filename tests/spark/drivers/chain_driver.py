"""A driver process for crash tests: a job whose progress is in the chain alone, with no checkpoint location.

`python -m tests.spark.drivers.chain_driver <directory> <batches> [<storage URL> <options as JSON>]`; it ends when so
many batches are in the output. `VARVITE_FAIL_POINT` says where it dies.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.conftest import SETTINGS
from tests.spark.rate_jobs import counted, rate_input
from varvite import StreamExecutionEnvironment


def main(directory: Path, batches: int, storage: str = "", options: str = "{}") -> None:
    """Run up to that batch."""
    builder = SparkSession.builder.master("local[2,4]").appName("varvite-chain")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.config("spark.local.dir", str(directory / "local")).getOrCreate()
    env = StreamExecutionEnvironment.get_execution_environment(spark)
    env.enable_changelog_state_backend(True).set_parallelism(2)
    env.configure("execution.checkpointing.dir", storage or str(directory / "state"))
    for key, value in json.loads(options).items():
        env.configure(key, value)
    writer = counted(env, rate_input(spark)).write_stream.format("parquet").query_name("rates")
    query = writer.start(str(directory / "out"))
    while not (directory / "out" / f"batch_id={batches - 1}").exists():
        if not query.isActive:
            raise query.exception() or AssertionError("the query has ended")
        time.sleep(0.02)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5])
