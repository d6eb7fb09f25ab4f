"""The workloads, each written for every system that is compared: varvite, Spark's own engines, and no state at all.

* count-and-sum: a value per key, read and written for each row.
* map-update: a map of 20 categories per key; each row reads and writes the entry of its category.
* list-append: a list per key, to which each row adds its price; it is never read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

from benchmarks.workloads.input import INPUT
from varvite import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

ROW_FORM, PANDAS_FORM, JVM = "spark-transformWithState", "spark-transformWithStateInPandas", "spark-groupBy-agg"
QUERY = "benchmark"

Output = Iterator[tuple[Any, ...]]


class CountAndSum(KeyedProcessFunction):
    """varvite: count and sum per key, row at a time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(
            ValueStateDescriptor("count_and_sum", Types.TUPLE([Types.LONG(), Types.DOUBLE()]))
        )

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Output:  # noqa: ARG002
        n, total = self.state.value() or (0, 0.0)
        n, total = n + 1, total + value.price
        self.state.update((n, total))
        yield value.key, n, total


class SumByCategory(KeyedProcessFunction):
    """varvite: sum per key and category."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.totals = runtime_context.get_map_state(MapStateDescriptor("totals", Types.LONG(), Types.DOUBLE()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Output:  # noqa: ARG002
        total = (self.totals.get(value.category) or 0.0) + value.price
        self.totals.put(value.category, total)
        yield value.key, value.category, total


class CollectPrices(KeyedProcessFunction):
    """varvite: every price of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.prices = runtime_context.get_list_state(ListStateDescriptor("prices", Types.DOUBLE()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Output:  # noqa: ARG002
        self.prices.add(value.price)
        yield value.key, value.price


class CountAndSumProcessor(StatefulProcessor):
    """Spark's `transformWithState`: as `CountAndSum`."""

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


class PandasCountAndSumProcessor(CountAndSumProcessor):
    """The same for `transformWithStateInPandas`."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803
        import pandas as pd

        n, total = self.state.get() or (0, 0.0)
        for frame in rows:
            n, total = n + len(frame), total + float(frame["price"].sum())
        self.state.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})


class SumByCategoryProcessor(StatefulProcessor):
    """Spark's `transformWithState`: as `SumByCategory`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.totals = handle.getMapState("totals", "category long", "total double")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        for row in rows:
            held = self.totals.getValue((row.category,))
            total = (held[0] if held else 0.0) + row.price
            self.totals.updateValue((row.category,), (total,))
            yield Row(key=key[0], category=row.category, total=total)

    def close(self) -> None:
        pass


class CollectPricesProcessor(StatefulProcessor):
    """Spark's `transformWithState`: as `CollectPrices`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.prices = handle.getListState("prices", "price double")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        for row in rows:
            self.prices.appendValue((row.price,))
            yield Row(key=key[0], price=row.price)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Workload:
    """One task, in the form of each system."""

    name: str
    output: str
    """Columns of the result."""
    function: type[KeyedProcessFunction]
    """For varvite."""
    processor: type[StatefulProcessor]
    """For Spark."""


COUNT_AND_SUM = Workload("count-and-sum", "key string, n long, total double", CountAndSum, CountAndSumProcessor)
MAP_UPDATE = Workload("map-update", "key string, category long, total double", SumByCategory, SumByCategoryProcessor)
LIST_APPEND = Workload("list-append", "key string, price double", CollectPrices, CollectPricesProcessor)
WORKLOADS = {workload.name: workload for workload in (COUNT_AND_SUM, MAP_UPDATE, LIST_APPEND)}


@dataclass(frozen=True)
class Place:
    """Directories of a query's input, state and output."""

    stream: DataFrame
    work: Path
    """For checkpoints and state; the query's own."""


def start_varvite(
    spark: SparkSession,
    place: Place,
    workload: Workload,
    backend: HashMapStateBackend | EmbeddedRocksDBStateBackend,
    *,
    aggregate: bool = False,
) -> Any:
    """The workload on varvite, with a function of rows or with `aggregate`; answers varvite's query handle."""
    env = varvite_environment(spark, backend, str(place.work / "state"))
    result = varvite_rows(env.from_dataframe(place.stream), workload, aggregate=aggregate)
    return _started(result.foreach_batch(discard).query_name(QUERY), place)


def varvite_rows(stream: Any, workload: Workload, *, aggregate: bool) -> Any:
    """The workload of a stream on varvite."""
    keyed = stream.key_by("key")
    if aggregate:
        return keyed.aggregate(n="count", total=("price", "sum"), uid="workload")
    return keyed.process(workload.function(), workload.output, uid="workload")


def varvite_environment(
    spark: SparkSession, backend: HashMapStateBackend | EmbeddedRocksDBStateBackend, storage: str
) -> StreamExecutionEnvironment:
    """With the changelog, two partitions, and checkpoints at the URL `storage`."""
    env = StreamExecutionEnvironment.get_execution_environment(spark)
    env.set_state_backend(backend).enable_changelog_state_backend(True)
    return env.configure("execution.checkpointing.dir", storage).set_parallelism(2)


def discard(rows: DataFrame, _: int) -> None:
    """The sink of every query: computes the rows."""
    rows.write.format("noop").mode("overwrite").save()


def start_spark(place: Place, workload: Workload, system: str) -> StreamingQuery:
    """The workload on one of Spark's own engines; the pandas form and the JVM only count and sum."""
    rows = spark_rows(place.stream, workload, system)
    return _started(rows.writeStream.format("noop").outputMode("update").queryName(QUERY), place)


def spark_rows(stream: DataFrame, workload: Workload, system: str) -> DataFrame:
    """The workload of a stream on one of Spark's own engines."""
    grouped = stream.groupBy("key")
    if system == ROW_FORM:
        return grouped.transformWithState(workload.processor(), workload.output, "Update", "None")
    if system == PANDAS_FORM:
        return grouped.transformWithStateInPandas(PandasCountAndSumProcessor(), workload.output, "Update", "None")
    return grouped.agg(F.count("*").alias("n"), F.sum("price").alias("total"))


def start_floor(place: Place) -> StreamingQuery:
    """No state at all: a pass-through `mapInArrow` in `foreachBatch`."""

    def pass_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    def sink(rows: DataFrame, batch: int) -> None:
        discard(rows.mapInArrow(pass_through, INPUT), batch)

    return _started(place.stream.writeStream.foreachBatch(sink).queryName(QUERY), place)


def _started(writer: Any, place: Place) -> Any:
    """A query that ends when its input is used up."""
    return writer.option("checkpointLocation", str(place.work / "checkpoint")).trigger(availableNow=True).start()
