"""Programs written for Spark's stateful operations, on Spark's own engine and on varvite: the same rows must come out.

What a processor yields tells its whole state, so equal rows are equal states; the last file makes every key tell it.
varvite's job is stopped and started in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import FileStream
from tests.spark.functions.processors import (
    OUTPUT,
    EveryMethod,
    FromInitialState,
    InPandas,
    ProcessingTime,
    Times,
    counted,
)
from tests.tidy.pages.doc_blocks import ROOT, blocks_of
from varvite import StreamExecutionEnvironment
from varvite.spark_integration.api.stream import DataStream, KeyedStream
from varvite.storage.errors import InvalidRequestError

pytestmark = pytest.mark.spark
INPUT = "k string, op string, n bigint, at timestamp"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
Rows = list[tuple[Any, ...]]


SPARK_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    # Otherwise the batches depend on how fast the test is.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


@pytest.fixture
def own_engine(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, with what Spark's stateful operations need."""
    before = {name: spark.conf.get(name) for name in SPARK_SETTINGS}
    for name, value in SPARK_SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value or "")


def add(stream: FileStream, *rows: tuple[Any, str, int, int]) -> None:
    """One file: (key, op, n, event time in seconds)."""
    at = [f"1970-01-01T{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}Z" for *_, s in rows]
    stream.add(*[json.dumps({"k": k, "op": op, "n": n, "at": t}) for (k, op, n, _), t in zip(rows, at, strict=True)])


def on_spark(stream: FileStream, work: Path, program: Callable[[DataFrame], DataFrame]) -> Rows:
    """Output of the program for the whole input, with the batch of each row."""
    received: Rows = []

    def keep(rows: DataFrame, batch: int) -> None:
        received.extend((batch, *row) for row in rows.collect())

    made = program(stream.read().withWatermark("at", "10 seconds"))
    writer = made.writeStream.foreachBatch(keep).trigger(availableNow=True).outputMode("append")
    writer.option("checkpointLocation", str(work / "spark")).start().awaitTermination()
    return received


def on_varvite(stream: FileStream, work: Path, program: Callable[[KeyedStream], DataStream]) -> Rows:
    """Output of one run of the job for new input."""
    received: Rows = []
    env = StreamExecutionEnvironment.get_execution_environment(stream._spark)
    env.configure("execution.checkpointing.dir", str(work / "state")).set_parallelism(2)
    env.configure("materializer.mode", "off").configure("pipeline.heartbeat.enabled", "false")
    made = program(env.from_dataframe(stream.read().withWatermark("at", "10 seconds")).key_by("k"))

    def keep(rows: DataFrame, batch: int) -> None:
        received.extend((batch, *row) for row in rows.collect())

    writer = made.foreach_batch(keep).query_name("job").trigger(availableNow=True)
    writer.option("checkpointLocation", str(work / "varvite")).start().awaitTermination()
    return received


def both(
    spark: SparkSession,
    work: Path,
    files: list[list[tuple[Any, str, int, int]]],
    own: Callable[[DataFrame], DataFrame],
    ours: Callable[[KeyedStream], DataStream],
) -> tuple[list[str], list[str]]:
    """Output of Spark and of varvite, in order; varvite's job is started anew after the second file."""
    stream = FileStream(spark, work / "input", INPUT)
    found: Rows = []
    for some in (files[:2], files[2:]):
        for rows in some:
            add(stream, *rows)
        found += on_varvite(stream, work, ours) if some else []
    expected = on_spark(stream, work, own)
    return sorted(map(repr, expected)), sorted(map(repr, found))


@pytest.mark.long
def test_every_method_in_event_time_gives_what_spark_gives(own_engine: SparkSession, tmp_path: Path) -> None:
    files: list[list[tuple[Any, str, int, int]]] = [
        [("a", "update", 1, 20), ("a", "list", 5, 21), ("b", "map", 1, 22), (None, "update", 2, 20),
         ("a", "rich", 3, 20)],
        [("a", "timer", 90, 40), ("b", "timer", 60, 100), ("a", "update", 2, 30), ("c", "timer", 50, 60),
         ("c", "untimer", 50, 60)],
        [("a", "clear", 0, 101), ("b", "rich", 1, 101), ("a", "update", 3, 95), ("d", "timer", 20, 102)],
        [("a", "map", 7, 130), ("d", "update", 4, 100), ("b", "list", 1, 130), ("late", "update", 1, 5),
         ("by own", "update", 1, 91)],
        [*((k, "tell", 0, 130) for k in ("a", "b", "c", "d", None)), ("late", "update", 1, 92),
         ("by own", "update", 1, 93)],
    ]  # fmt: skip
    expected, found = both(
        own_engine,
        tmp_path,
        files,
        lambda df: df.groupBy("k").transformWithState(EveryMethod(), OUTPUT, "append", "EventTime"),
        lambda s: s.transform_with_state(EveryMethod(), OUTPUT, "append", "EventTime", uid="all"),
    )
    assert found == expected
    assert all(any(f"'{what}'" in row for row in expected) for what in ("act", "rows", "timer"))
    assert not any("late" in row for row in expected)
    assert any("by own" in row for row in expected), "behind the batch's watermark, not behind that of the batch before"


SMALL: list[list[tuple[Any, str, int, int]]] = [
    [("a", "x", 1, 20), ("b", "x", 2, 30), (None, "x", 3, 20), ("a", "x", 7, 20)],
    [("a", "x", 5, 40), ("z", "x", 1, 50), ("z", "x", 2, 50)],
    [("a", "x", 6, 60), ("y", "x", 6, 60)],
]


def initial_state(spark: SparkSession) -> Any:
    rows = [("a", 10), ("z", 5), (None, 7)]
    return spark.createDataFrame(rows, "who string, start bigint").groupBy("who")


@pytest.mark.long
def test_rows_from_an_initial_state(own_engine: SparkSession, tmp_path: Path) -> None:
    initial = initial_state(own_engine)
    expected, found = both(
        own_engine,
        tmp_path,
        SMALL,
        lambda df: df.groupBy("k").transformWithState(FromInitialState(), OUTPUT, "append", "None", initial),
        lambda s: s.transform_with_state(FromInitialState(), OUTPUT, "append", "None", initial),
    )
    assert found == expected


@pytest.mark.long
def test_dataframes_from_an_initial_state(own_engine: SparkSession, tmp_path: Path) -> None:
    initial = initial_state(own_engine)
    expected, found = both(
        own_engine,
        tmp_path,
        SMALL,
        lambda df: df.groupBy("k").transformWithStateInPandas(InPandas(), OUTPUT, "append", "None", initial),
        lambda s: s.transform_with_state_in_pandas(InPandas(), OUTPUT, "append", "None", initial),
    )
    assert found == expected


@pytest.mark.long
def test_timers_of_processing_time(own_engine: SparkSession, tmp_path: Path) -> None:
    expected, found = both(
        own_engine,
        tmp_path,
        SMALL,
        lambda df: df.groupBy("k").transformWithState(ProcessingTime(), OUTPUT, "append", "ProcessingTime"),
        lambda s: s.transform_with_state(ProcessingTime(), OUTPUT, "append", "ProcessingTime"),
    )
    assert found == expected


def test_functions_of_apply_in_pandas_with_state(own_engine: SparkSession, tmp_path: Path) -> None:
    files: list[list[tuple[Any, str, int, int]]] = [
        [("a", "update", 1, 20), ("b", "update", 5, 21), ("a", "timer", 50, 22), (None, "timer", 90, 20)],
        [("a", "update", 2, 40), ("b", "clear", 0, 100), ("c", "timer", 60, 60), ("d", "timer", 90, 60)],
        [("a", "update", 2, 101), ("d", "untimer", 0, 110)],
        [("a", "timer", 110, 140), ("b", "timer", 130, 140), ("late", "update", 1, 5)],
        [(k, "tell", 0, 140) for k in ("a", "b", "c", "e")],
    ]
    state = "n bigint, at timestamp"
    expected, found = both(
        own_engine,
        tmp_path,
        files,
        lambda df: df.groupBy("k").applyInPandasWithState(counted, OUTPUT, state, "append", "EventTimeTimeout"),
        lambda s: s.apply_in_pandas_with_state(counted, OUTPUT, state, "append", "EventTimeTimeout"),
    )
    assert found == expected


@pytest.mark.long
def test_dataframes_have_the_time_zone_of_the_session(own_engine: SparkSession, tmp_path: Path) -> None:
    """The session's time zone need not be the local one."""
    output, zone = Times.OUTPUT, "spark.sql.session.timeZone"
    own_engine.conf.set(zone, "Asia/Tokyo")
    try:
        expected, found = both(
            own_engine,
            tmp_path,
            [[("a", "", 1, 20), ("b", "", 2, 7200)], [("a", "", 3, 30)], [("b", "", 4, 7300)]],
            lambda df: df.groupBy("k").transformWithStateInPandas(Times(), output, "append", "None"),
            lambda s: s.transform_with_state_in_pandas(Times(), output, "append", "None"),
        )
    finally:
        own_engine.conf.unset(zone)
    assert found == expected


def test_what_cannot_be_right_is_refused_at_its_line(own_engine: SparkSession, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(own_engine)
    rows = FileStream(own_engine, tmp_path / "input", INPUT).read()
    keyed = env.from_dataframe(rows).key_by("k")
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("takes an instance", lambda: keyed.transform_with_state(EveryMethod, OUTPUT)),  # type: ignore[arg-type]
        ("output mode", lambda: keyed.transform_with_state(EveryMethod(), OUTPUT, "complete")),
        ("no time mode", lambda: keyed.transform_with_state(EveryMethod(), OUTPUT, "append", "sometimes")),
        ("needs a watermark", lambda: keyed.transform_with_state(EveryMethod(), OUTPUT, "append", "EventTime")),
        ("no timestamp column", lambda: keyed.transform_with_state(EveryMethod(), OUTPUT, event_time_column="at")),
        ("grouped DataFrame", lambda: keyed.transform_with_state(EveryMethod(), OUTPUT, initial_state=rows)),  # type: ignore[arg-type]
        ("is a stream", lambda: keyed.transform_with_state(EveryMethod(), OUTPUT, initial_state=rows.groupBy("k"))),
        ("cast the columns", lambda: keyed.transform_with_state(
            EveryMethod(), OUTPUT, initial_state=initial_state(own_engine)._df.groupBy("start"))),
        ("needs a watermark", lambda: keyed.apply_in_pandas_with_state(
            counted, OUTPUT, "n int", "append", "EventTimeTimeout")),
        ("takes a function", lambda: keyed.apply_in_pandas_with_state(5, OUTPUT, "n int")),  # type: ignore[arg-type]
        ("give columns", lambda: keyed.apply_in_pandas_with_state(counted, OUTPUT, "int")),
        ("keyed by columns", lambda: env.from_dataframe(rows).key_by(len).transform_with_state(EveryMethod(), OUTPUT)),
        ("rows with columns", lambda: env.from_dataframe(rows).map(len).key_by(len).transform_with_state(
            EveryMethod(), OUTPUT)),
    ]  # fmt: skip
    for message, call in wrong:
        with pytest.raises(InvalidRequestError, match=message):
            call()


def test_the_program_of_the_documentation(spark: SparkSession, tmp_path: Path) -> None:
    blocks = blocks_of("docs/guide/spark-programs.md", (ROOT / "docs" / "guide" / "spark-programs.md").read_text())
    text = next(block.text for block in blocks if block.tags == ("run",))
    text = text.replace("/data/", f"{tmp_path}/").replace("file:///var/lib/varvite", f"file://{tmp_path}/varvite")
    text = text.replace('processingTime="10 seconds"', "availableNow=True")
    (tmp_path / "flights").mkdir()
    flights = pa.table({"tailnum": ["N1", "N2", "N1", "N1"], "dest": ["IAH", "MIA", "BOS", "IAH"]})
    pq.write_table(flights, tmp_path / "flights" / "1.parquet")
    names: dict[str, Any] = {}
    exec(compile(text, "docs/guide/spark-programs.md", "exec"), names)
    names["query"].awaitTermination()
    output = ds.dataset(tmp_path / "counts", format="parquet", partitioning="hive", ignore_prefixes=["_", "."])
    rows = sorted((row["tailnum"], row["n"], row["destinations"]) for row in output.to_table().to_pylist())
    assert rows == [("N1", 3, 2), ("N2", 1, 1)]
