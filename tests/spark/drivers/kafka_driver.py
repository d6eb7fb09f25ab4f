"""A driver process for crash tests: a job from Kafka to Kafka, without a checkpoint location.

`python -m tests.spark.drivers.kafka_driver <directory> <servers> <source> <target>`; it runs until it is killed.
`VARVITE_FAIL_POINT` says where it dies.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.conftest import SETTINGS
from tests.spark.kafka.kafka_jobs import environment, kafka_rows, numbered
from tests.stores.kafka_broker import connector_jars


def main(directory: Path, servers: str, source: str, target: str) -> None:
    """Run until the process is killed."""
    builder = SparkSession.builder.master("local[2,4]").appName("varvite-kafka").config("spark.jars", connector_jars())
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.config("spark.local.dir", str(directory / "local")).getOrCreate()
    stream = numbered(environment(spark, str(directory / "state")), kafka_rows(spark, servers, source))
    writer = stream.write_stream.query_name("numbered").format("kafka").option("topic", target)
    writer.option("kafka.bootstrap.servers", servers).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:5])
