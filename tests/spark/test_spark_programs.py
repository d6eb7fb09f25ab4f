"""Programs written for Spark's stateful operations, on Spark's own engine and on varve: the same rows must come out.

What a processor yields tells its whole state, so equal rows are equal states; the last file makes every key tell it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import FileStream
from tests.spark.spark_processors import OUTPUT, EveryMethod
from varve import StreamExecutionEnvironment
from varve.spark_integration.streams import DataStream, KeyedStream

pytestmark = pytest.mark.spark
INPUT = "k string, op string, n bigint, at timestamp"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
Rows = list[tuple[Any, ...]]


@pytest.fixture
def spark_rocksdb(spark: SparkSession) -> Iterator[SparkSession]:
    name = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(name)
    spark.conf.set(name, ROCKSDB)
    yield spark
    spark.conf.set(name, before or "")


def stream_of(spark: SparkSession, directory: Path) -> FileStream:
    return FileStream(spark, directory, INPUT)


def add(stream: FileStream, *rows: tuple[Any, str, int, int]) -> None:
    """One file: (key, op, n, event time in seconds)."""
    at = [f"1970-01-01T{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}Z" for *_, s in rows]
    stream.add(*[json.dumps({"k": k, "op": op, "n": n, "at": t}) for (k, op, n, _), t in zip(rows, at, strict=True)])


def on_spark(stream: FileStream, work: Path, program: Callable[[DataFrame], DataFrame], mode: str = "append") -> Rows:
    """What the program makes of the whole input."""
    received: Rows = []

    def keep(rows: DataFrame, batch: int) -> None:
        received.extend((batch, *row) for row in rows.collect())

    made = program(stream.read().withWatermark("at", "10 seconds"))
    writer = made.writeStream.foreachBatch(keep).trigger(availableNow=True).outputMode(mode)
    writer.option("checkpointLocation", str(work / "spark")).start().awaitTermination()
    return received


def on_varve(stream: FileStream, work: Path, program: Callable[[KeyedStream], DataStream]) -> Rows:
    """What one run of the job makes of what is new in the input."""
    received: Rows = []
    env = StreamExecutionEnvironment.get_execution_environment(stream._spark)
    env.enable_changelog_state_backend(True)
    env.configure("execution.checkpointing.dir", str(work / "state")).set_parallelism(2)
    env.configure("materializer.mode", "off")
    made = program(env.from_dataframe(stream.read().withWatermark("at", "10 seconds")).key_by("k"))

    def keep(rows: DataFrame, batch: int) -> None:
        received.extend((batch, *row) for row in rows.collect())

    writer = made.foreach_batch(keep).query_name("job").trigger(availableNow=True)
    writer.option("checkpointLocation", str(work / "varve")).start().awaitTermination()
    return received


def in_order(rows: Rows) -> list[str]:
    """The rows without their batches, in an order of their own."""
    return sorted(repr(row[1:]) for row in rows)


def test_every_method_in_event_time_gives_what_spark_gives(spark_rocksdb: SparkSession, tmp_path: Path) -> None:
    files: list[list[tuple[Any, str, int, int]]] = [
        [("a", "update", 1, 20), ("a", "list", 5, 21), ("b", "map", 1, 22), (None, "update", 2, 20), ("a", "rich", 3, 20)],
        [("a", "timer", 90, 40), ("b", "timer", 60, 100), ("a", "update", 2, 30), ("c", "timer", 50, 60),
         ("c", "untimer", 50, 60)],
        [("a", "clear", 0, 101), ("b", "rich", 1, 101), ("a", "update", 3, 50), ("d", "timer", 20, 102)],
        [("a", "map", 7, 130), ("d", "update", 4, 100), ("b", "list", 1, 130)],
        [(k, "tell", 0, 130) for k in ("a", "b", "c", "d", None)],
    ]  # fmt: skip
    whole, growing = stream_of(spark_rocksdb, tmp_path / "a"), stream_of(spark_rocksdb, tmp_path / "b")
    for rows in files:
        add(whole, *rows)
    expected = on_spark(
        whole, tmp_path, lambda df: df.groupBy("k").transformWithState(EveryMethod(), OUTPUT, "append", "EventTime")
    )
    found: Rows = []
    for some in (files[:2], files[2:], []):
        for rows in some:
            add(growing, *rows)
        time.sleep(1.1)  # a heartbeat is due every second
        found += on_varve(
            growing, tmp_path, lambda s: s.transform_with_state(EveryMethod(), OUTPUT, "append", "EventTime", uid="all")
        )
    assert in_order(found) == in_order(expected)
    assert {row[2] for row in expected} == {"act", "rows", "timer"}
