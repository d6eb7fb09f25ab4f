"""The job, and the process that runs it: python -m examples.orders.job DIRECTORY SERVERS MASTER BATCH_ROWS."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from pyspark.sql import Row, SparkSession

from examples.orders.broker import connector_jars
from varvite import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment, Types, ValueStateDescriptor

JOB, ORDERS, TOTALS = "orders", "orders", "totals"


class Totals(KeyedProcessFunction):
    """Yields, after each order, how much its customer has ordered so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.TUPLE([Types.LONG(), Types.LONG()])))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, str]]:
        orders, cents = self.total.value() or (0, 0)
        orders, cents = orders + 1, cents + value.cents
        self.total.update((orders, cents))
        yield ctx.get_current_key(), msgspec.json.encode([orders, cents]).decode()


def main(directory: Path, servers: str, master: str, batch_rows: str) -> None:
    """Run until the process is ended."""
    spark = (
        SparkSession.builder.master(master)
        .appName("varvite-orders")
        .config("spark.jars", connector_jars())
        .config("spark.local.dir", str(directory / "spark"))
        .config("spark.deploy.maxExecutorRetries", "-1")  # executors may be killed as often as one likes
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", ORDERS)
    orders = kafka.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", batch_rows).load()
    orders = orders.selectExpr("cast(key as string) customer", "cast(cast(value as string) as long) cents")
    env = StreamExecutionEnvironment.get_execution_environment(spark).enable_changelog_state_backend(True)
    env.configure("execution.checkpointing.dir", str(directory / "state"))
    totals = env.from_dataframe(orders).key_by("customer").process(Totals(), "key string, value string", uid="totals")
    writer = totals.write_stream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", TOTALS)
    writer.query_name(JOB).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:5])
