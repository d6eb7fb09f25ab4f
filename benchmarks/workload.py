"""The keyed count + sum workload: input files, and the same job for every system that is compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

from varve import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

INPUT = "key string, units long, price double"
OUTPUT = "key string, n long, total double"


@dataclass(frozen=True)
class Case:
    """One size of the workload: every batch has `rows` rows over `keys` keys."""

    rows: int
    keys: int
    state_keys: int = 0
    """Keys put into the state by a first batch that is not measured; 0: none."""


def write_input(directory: Path, case: Case, batches: int, seed: int = 7) -> None:
    """One Parquet file per batch, file names in batch order."""
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    keys = pa.array([f"key-{n:09d}" for n in range(max(case.keys, case.state_keys))])
    offset = 0
    if case.state_keys:
        _write(directory / "batch-00000.parquet", keys, np.arange(case.state_keys), rng)
        offset = 1
    for batch in range(batches):
        numbers = rng.permutation(np.arange(case.rows) % case.keys)
        _write(directory / f"batch-{batch + offset:05d}.parquet", keys, numbers, rng)


def _write(path: Path, keys: pa.Array, numbers: np.ndarray, rng: np.random.Generator) -> None:
    columns = {"key": keys.take(pa.array(numbers)), "units": rng.integers(100, size=len(numbers))}
    table = pa.table({**columns, "price": rng.random(len(numbers))})
    temporary = path.with_suffix(".tmp")
    pq.write_table(table, temporary)
    temporary.rename(path)


def source(spark: SparkSession, directory: Path) -> DataFrame:
    """The files as a stream, one per batch."""
    reader = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(directory))


class CountAndSum(KeyedProcessFunction):
    """varve: count and sum per key, row at a time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(
            ValueStateDescriptor("count_and_sum", Types.TUPLE([Types.LONG(), Types.DOUBLE()]))
        )

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002
        n, total = self.state.value() or (0, 0.0)
        n, total = n + 1, total + value.price
        self.state.update((n, total))
        yield value.key, n, total


def start_varve(
    spark: SparkSession,
    stream: DataFrame,
    work: Path,
    backend: HashMapStateBackend | EmbeddedRocksDBStateBackend,
    *,
    aggregate: bool = False,
) -> Any:
    """The job on varve, with a function of rows or with `aggregate`; answers varve's query handle."""
    env = StreamExecutionEnvironment.get_execution_environment(spark)
    env.set_state_backend(backend).enable_changelog_state_backend(True)
    env.configure("execution.checkpointing.dir", str(work / "state")).set_parallelism(2)
    keyed = env.from_dataframe(stream).key_by("key")
    if aggregate:
        counted = keyed.aggregate(n="count", total=("price", "sum"), uid="count")
    else:
        counted = keyed.process(CountAndSum(), OUTPUT, uid="count")
    writer = counted.foreach_batch(lambda rows, _: rows.write.format("noop").mode("overwrite").save())
    return (
        writer.query_name("smoke").option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True)
    ).start()


class RowProcessor(StatefulProcessor):
    """Spark's `transformWithState`: count and sum per key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("count_and_sum", "n long, total double")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        n, total = self.state.get() or (0, 0.0)
        for row in rows:
            n, total = n + 1, total + row.price
        self.state.update((n, total))
        yield Row(key=key[0], n=n, total=total)

    def close(self) -> None:
        pass


class PandasProcessor(RowProcessor):
    """The same for `transformWithStateInPandas`."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803
        import pandas as pd

        n, total = self.state.get() or (0, 0.0)
        for frame in rows:
            n, total = n + len(frame), total + float(frame["price"].sum())
        self.state.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})


def start_spark(stream: DataFrame, work: Path, system: str) -> StreamingQuery:
    """The job on one of Spark's own engines."""
    grouped = stream.groupBy("key")
    mode = "update"
    if system == "spark-transformWithState":
        rows = grouped.transformWithState(RowProcessor(), OUTPUT, "Update", "None")
    elif system == "spark-transformWithStateInPandas":
        rows = grouped.transformWithStateInPandas(PandasProcessor(), OUTPUT, "Update", "None")
    else:
        rows = grouped.agg(F.count("*").alias("n"), F.sum("price").alias("total"))
    writer = rows.writeStream.format("noop").outputMode(mode).queryName("smoke")
    return writer.option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True).start()


def start_floor(stream: DataFrame, work: Path) -> StreamingQuery:
    """No state at all: a pass-through `mapInArrow` in `foreachBatch`."""

    def pass_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    def sink(rows: DataFrame, _: int) -> None:
        rows.mapInArrow(pass_through, INPUT).write.format("noop").mode("overwrite").save()

    writer = stream.writeStream.foreachBatch(sink).queryName("smoke")
    return writer.option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True).start()
