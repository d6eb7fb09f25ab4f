"""Options of the Java processes that tests start, which live for seconds: starting and compiling is most of their work.

    python -m tests.short_lived_java

keeps the classes that Spark loads, as Java has prepared them, in a file beside this Python's packages (`make test` does
it once). Java ignores the file where it does not fit: another Java, other jars.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

__all__ = ["ARCHIVE", "set_java_options"]

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
VARIABLE = "JDK_JAVA_OPTIONS"
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# Warnings about a file that does not fit would go to the standard output, which others read.
QUIET = "-Xlog:disable -Xlog:all=error:stderr"


def set_java_options(environment: MutableMapping[str, str]) -> None:
    """Let the Java processes of an environment start fast, if it does not say itself how they are to run."""
    archive = f" -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else ""
    environment.setdefault(VARIABLE, f"{QUICK} {QUIET}{archive}")


def write_archive() -> None:
    """Run a small query, and let Java keep the classes when it ends."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ[VARIABLE] = f"{QUICK} {QUIET}"
    written = ARCHIVE.with_suffix(".written")
    settings = {
        "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={written}",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    with tempfile.TemporaryDirectory() as directory:
        counts = session.readStream.format("rate").load().groupBy("value").count()
        writer = counts.writeStream.outputMode("update").trigger(once=True).option("checkpointLocation", directory)
        writer.foreachBatch(lambda frame, _: frame.collect()).start().awaitTermination()
        session.range(10).mapInPandas(lambda frames: frames, "id long").collect()
    gateway: Any = session.sparkContext._gateway
    session.stop()
    gateway.proc.stdin.close()  # ends the process, as the end of this one would
    gateway.proc.wait()
    written.replace(ARCHIVE)


if __name__ == "__main__":
    write_archive()
