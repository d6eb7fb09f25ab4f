"""A job over a source whose offsets say all, so that its progress is in the chain alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from varvite import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment, ValueStateDescriptor
from varvite.common.typeinfo import Types
from varvite.datastream import DataStream

ROWS = 6
"""Of a batch."""
KEYS = 3
OUTPUT = "k bigint, n bigint, v bigint"


class Counter(KeyedProcessFunction):
    """Numbers the rows of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int, int]]:
        del ctx
        number = (self._count.value() or 0) + 1
        self._count.update(number)
        yield value.k, number, value.v


def rate_input(spark: SparkSession) -> DataFrame:
    """Six rows in each batch, of three keys in turn."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 1)
    return source.load().selectExpr(f"value % {KEYS} AS k", "value AS v")


def counted(env: StreamExecutionEnvironment, rows: DataFrame) -> DataStream:
    """The job."""
    return env.from_dataframe(rows).key_by("k").process(Counter(), OUTPUT, uid="counter")


def expected_rows(batches: int) -> list[tuple[int, int, int]]:
    """The output of so many batches, sorted."""
    return sorted((v % KEYS, v // KEYS + 1, v) for v in range(batches * ROWS))


class RateJob:
    """Runs of the job in one session, with a function as sink that keeps what it gets."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.calls: list[tuple[int, list[tuple[int, int, int]]]] = []
        """Batch and rows of each call of the sink."""
        self.name = "rates"

    def environment(self, **settings: Any) -> StreamExecutionEnvironment:
        env = StreamExecutionEnvironment.get_execution_environment(self.spark)
        env.enable_changelog_state_backend(True).configure("execution.checkpointing.dir", str(self.directory / "state"))
        for key, value in settings.items():
            env.configure(key, value)
        return env

    def start(self, location: Path | None = None, **options: Any) -> Any:
        """Start the query."""
        writer = counted(self.environment(), rate_input(self.spark)).write_stream.query_name(self.name)
        writer = writer.foreach_batch(self._keep)
        for key, value in options.items():
            writer = writer.option(key.replace("__", "."), value)
        if location is not None:
            writer = writer.option("checkpointLocation", str(location))
        return writer.start()

    def run(self, batches: int, location: Path | None = None, **options: Any) -> Any:
        """Run until so many batches more have reached the sink, and stop; answers the query."""
        wanted = len(self.calls) + batches
        query = self.start(location, **options)
        wait_for(query, lambda: len(self.calls) >= wanted, wanted)
        query.stop()
        return query

    @property
    def rows(self) -> list[tuple[int, int, int]]:
        """Rows of all batches, each of the last call for it, sorted."""
        return sorted(row for rows in dict(self.calls).values() for row in rows)

    @property
    def batches(self) -> list[int]:
        """Batches in the order of the calls."""
        return [batch for batch, _ in self.calls]

    def _keep(self, rows: DataFrame, batch: int) -> None:
        self.calls.append((batch, [tuple(row) for row in rows.collect()]))


def wait_for(query: Any, is_done: Any, what: object, timeout_s: float = 120) -> None:
    """Wait until something is so; raises what ends the query before."""
    deadline_s = time.monotonic() + timeout_s
    while not is_done():
        if not query.isActive:
            raise query.exception() or AssertionError(f"the query ended before {what}")
        assert time.monotonic() < deadline_s, what
        time.sleep(0.02)
