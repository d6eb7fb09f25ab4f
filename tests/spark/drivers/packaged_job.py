"""A job for clusters that have nothing of varvite: `spark-submit ... packaged_job.py <directory>`.

It stands alone, as a user's program does: executors cannot import anything of the tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row, SparkSession

from varvite import (
    EmbeddedRocksDBStateBackend,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

OUTPUT = "k string, n long, total long, varvite string, rocksdict string, prefix string"


class Totals(KeyedProcessFunction[str, Row, tuple[Any, ...]]):
    """Number and sum of a key's rows, and the places of the modules."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        import rocksdict

        import varvite

        self.n.update((self.n.value() or 0) + 1)
        self.total.update((self.total.value() or 0) + value.v)
        yield value.k, self.n.value(), self.total.value(), varvite.__file__, rocksdict.__file__, sys.prefix


def main(directory: str) -> None:
    """Process everything in `directory/input`, a file per batch."""
    spark = SparkSession.builder.getOrCreate()
    env = StreamExecutionEnvironment.get_execution_environment(spark)
    env.set_state_backend(EmbeddedRocksDBStateBackend()).enable_changelog_state_backend(True).set_parallelism(2)
    env.configure("execution.checkpointing.dir", f"{directory}/state")
    stream = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1).json(f"{directory}/input")
    totals = env.from_dataframe(stream).key_by("k").process(Totals(), OUTPUT, uid="totals")
    writer = totals.format("parquet").query_name("totals").trigger(availableNow=True)
    writer.option("checkpointLocation", f"{directory}/checkpoint").start(f"{directory}/out").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
