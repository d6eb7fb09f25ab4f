"""A driver process for crash tests: a job from Kafka to Kafka or to a table, without a checkpoint location.

`python -m tests.spark.drivers.kafka_driver <directory> <servers> <source> <sink> <target>`; it runs until it is killed.
`VARVITE_FAIL_POINT` says where it dies.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.integration.tables.iceberg_warehouse import Warehouse
from tests.spark.conftest import SETTINGS
from tests.spark.kafka.kafka_jobs import environment, kafka_rows, numbered
from tests.stores.kafka_broker import connector_jars
from varvite import DeltaSink, IcebergSink, PostgresSink, Sink


def table_sink(kind: str, target: str) -> Sink:
    """The sink of a table; `target` is its place."""
    if kind == "delta":
        return DeltaSink(target)
    if kind == "iceberg":
        return IcebergSink("d.t", catalog="c", properties=Warehouse(Path(target)).properties)
    return PostgresSink(target, "output")


def main(directory: Path, servers: str, source: str, sink: str, target: str) -> None:
    """Run until the process is killed."""
    builder = SparkSession.builder.master("local[2,4]").appName("varvite-kafka").config("spark.jars", connector_jars())
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.config("spark.local.dir", str(directory / "local")).getOrCreate()
    stream = numbered(environment(spark, str(directory / "state")), kafka_rows(spark, servers, source))
    if sink == "kafka":
        writer = stream.write_stream.format("kafka").option("topic", target).option("kafka.bootstrap.servers", servers)
    else:
        writer = stream.foreach_batch(table_sink(sink, target))
    writer.query_name("numbered").start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:6])
