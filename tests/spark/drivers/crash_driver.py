"""A driver process for crash tests: one run of a job over files; prints nothing when all is well.

`python -m tests.spark.drivers.crash_driver <directory> [<master> [<format>]]`; `VARVITE_FAIL_POINT` says where it dies.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.conftest import SETTINGS
from tests.spark.keyed_jobs import INPUT, OUTPUT, UID, Sums
from varvite import EmbeddedRocksDBStateBackend, StreamExecutionEnvironment


def main(directory: Path, master: str = "local[2,4]", file_format: str = "parquet") -> None:
    """Process everything in `directory/input`."""
    builder = SparkSession.builder.master(master).appName("varvite-crash")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.config("spark.local.dir", str(directory / "local")).getOrCreate()
    env = StreamExecutionEnvironment.get_execution_environment(spark)
    env.set_state_backend(EmbeddedRocksDBStateBackend()).enable_changelog_state_backend(True).set_parallelism(2)
    env.configure("execution.checkpointing.dir", str(directory / "state"))
    stream = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1).json(str(directory / "input"))
    sums = env.from_dataframe(stream).key_by("k").process(Sums(), OUTPUT, uid=UID)
    writer = sums.format(file_format).query_name("job").trigger(availableNow=True)
    writer.option("checkpointLocation", str(directory / "checkpoint")).start(str(directory / "out")).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
