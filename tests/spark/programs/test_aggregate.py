"""`KeyedStream.aggregate` and `VectorizedProcessFunction` on real Spark: results equal those of `groupBy().agg()`."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that every PySpark program uses

from tests.spark.conftest import FileStream
from tests.spark.job.test_job import kill_state_workers
from tests.spark.job.test_job_faults import newest_commit
from tests.spark.keyed_jobs import BACKENDS
from varvite import (
    Aggregation,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    VectorizedProcessFunction,
)
from varvite.spark_integration.operators.aggregation.map_side_combine import MapSideCombining, Way
from varvite.storage.errors import UserFunctionError

pytestmark = pytest.mark.spark
pc: Any = pyarrow.compute

SCHEMA = (
    "k string, k2 int, i int, l long, d double, f float, dec decimal(10,2), wide decimal(38,10), s string, b binary, "
    "t timestamp, tn timestamp_ntz, day date, flag boolean, st struct<a:int,b:string>"
)
NUMBERS = ("i", "l", "d", "f", "dec", "wide")
ORDERED = (*NUMBERS, "s", "b", "t", "tn", "day", "flag")


def maybe(rng: random.Random, value: Any) -> Any:
    return None if rng.random() < 0.2 else value


def random_row(rng: random.Random) -> tuple[Any, ...]:
    """A row with nulls everywhere; its floating-point numbers add up exactly in any order."""
    doubles = [float("nan"), float("inf"), -0.0, 1e6, *[rng.randrange(-999, 999) / 4 for _ in range(8)]]
    values = (
        rng.choice("abcdefg"), rng.randrange(2), rng.randrange(-1000, 1000), rng.randrange(-(10**12), 10**12),
        rng.choice(doubles), rng.choice([float("nan"), 0.5, 2.0, -1.25, 8.0]),
        Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-2), Decimal(rng.randrange(-(10**30), 10**30)).scaleb(-10),
        rng.choice(["x", "yy", "zzz", "é", ""]), rng.choice([b"", b"\0", b"ab"]),
        datetime(2024, rng.randrange(1, 13), 3, rng.randrange(24), tzinfo=UTC),
        datetime(1969, rng.randrange(1, 13), 1, 1, 2, 3, rng.randrange(999)),  # noqa: DTZ001 - a wall clock's
        date(2024, rng.randrange(1, 13), 1), rng.random() < 0.5,
        (maybe(rng, rng.randrange(2)), maybe(rng, rng.choice("pq"))),
    )  # fmt: skip
    return tuple(maybe(rng, value) for value in values)


Both = dict[str, tuple[Any, Column]]
"""Output column → the aggregation for varvite, and for Spark."""


def combined() -> Both:
    """Spark's aggregates before the shuffle, of every column that it takes."""
    both: Both = {"n": ("count", F.count("*"))}
    both |= {f"{c} count": ((c, "count"), F.count(c)) for c in (*ORDERED, "st")}
    both |= {f"{c} min": ((c, "min"), F.min(c)) for c in ORDERED}
    both |= {f"{c} max": ((c, "max"), F.max(c)) for c in ORDERED}
    both |= {f"{c} sum": ((c, "sum"), F.sum(c)) for c in NUMBERS}
    return both | {f"{c} avg": ((c, "avg"), F.avg(c)) for c in NUMBERS}


def exactly_combined() -> Both:
    """Aggregates that are combined in Arrow with any values: not sums that might not fit, nor NaN compared."""
    left_out = {"wide sum", "wide avg", *(f"{c} {function}" for c in "df" for function in ("min", "max"))}
    return {name: given for name, given in combined().items() if name not in left_out}


def every() -> Both:
    """All functions; Spark would shuffle the rows for distinct ones, and forget their order: they are apart."""
    both = combined()
    for c in (*ORDERED, "st"):
        both[f"{c} first"] = (c, "first"), F.first(c)
        both[f"{c} last"] = Aggregation("last", c), F.last(c)
        both[f"{c} first value"] = Aggregation("first", c, ignore_nulls=True), F.first(c, ignorenulls=True)
        both[f"{c} last value"] = Aggregation("last", c, ignore_nulls=True), F.last(c, ignorenulls=True)
    largest = {c: F.slice(F.sort_array(F.collect_list(c), asc=False), 1, 3) for c in ORDERED}
    return both | {f"{c} top": ((c, "top", 3), column) for c, column in largest.items()}


def distinct() -> Both:
    """Counts of different values."""
    return {f"{c} distinct": ((c, "count_distinct"), F.countDistinct(c)) for c in (*ORDERED, "st")}


def write_input(spark: SparkSession, directory: Path, batches: int) -> list[Path]:
    """Parquet files of one stream, in order; the second has no rows."""
    rng = random.Random(3)
    files: list[Path] = []
    for i in range(batches):
        rows = [] if i == 1 else [random_row(rng) for _ in range(60)]
        spark.createDataFrame(rows, SCHEMA).coalesce(1).write.parquet(str(directory / f"made-{i}"))
        (directory / "input").mkdir(exist_ok=True)
        made = next((directory / f"made-{i}").glob("*.parquet"))
        os.utime(made, (1_700_000_000 + i, 1_700_000_000 + i))
        files.append(made.rename(directory / "input" / f"{i}.parquet"))
    return files


def environment(spark: SparkSession, directory: Path, backend: Any, *, changelog: bool = True) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment(spark)
    env.set_state_backend(backend).enable_changelog_state_backend(changelog)
    env.configure("execution.checkpointing.dir", str(directory / "state")).set_parallelism(2)
    return env.configure("materializer.mode", "off")


def comparable(value: Any) -> Any:
    """The value; NaN, which equals nothing, as a word."""
    if isinstance(value, list):
        return [comparable(element) for element in value]
    return "NaN" if isinstance(value, float) and value != value else value  # noqa: PLR0124


def by_key(rows: list[Any]) -> dict[Any, dict[str, Any]]:
    return {tuple(row[:2]): {name: comparable(row[name]) for name in row.__fields__} for row in rows}


def combining_always(monkeypatch: pytest.MonkeyPatch, way: Way | None) -> list[int]:
    """Combine the rows of every batch, not only after one with many rows per key. How many are shuffled is noted."""
    rows_read: list[int] = []
    after = MapSideCombining.after

    def seen(combining: MapSideCombining, summaries: Any) -> None:
        rows_read.append(sum(own.total("rows_in") for own in summaries))
        after(combining, summaries)

    monkeypatch.setattr(MapSideCombining, "after", seen)
    if way is not None:
        monkeypatch.setattr(MapSideCombining, "way", lambda _, uid: way if uid else None)
    return rows_read


@pytest.mark.long
@pytest.mark.spark_tasks
@pytest.mark.parametrize(
    ("make", "way"),
    [
        (combined, Way.SPARK),
        (exactly_combined, Way.ARROW),
        (every, None),
        pytest.param(combined, Way.ARROW, marks=pytest.mark.rare),
        pytest.param(distinct, None, marks=pytest.mark.rare),
    ],
)
def test_aggregates_are_sparks_also_over_restarts_killed_workers_and_other_backends(
    spark: SparkSession, tmp_path: Path, make: Callable[[], Both], way: Way | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key by key and batch by batch, against `groupBy().agg()` over all files so far."""
    rows_read = combining_always(monkeypatch, way)
    lives = [(HashMapStateBackend(), True), (EmbeddedRocksDBStateBackend(), True), (HashMapStateBackend(), False)]
    ours = {name: given for name, (given, _) in make().items()}
    theirs = [column.alias(name) for name, (_, column) in make().items()]
    files = write_input(spark, tmp_path, 4)
    received: dict[int, list[Any]] = {}
    schemas: list[Any] = []

    def sink(rows: DataFrame, batch: int) -> None:
        received[batch] = rows.collect()
        schemas.append(rows.schema)

    watched = tmp_path / "watched"
    watched.mkdir()
    for i, (backend, changelog) in enumerate(lives):
        for file in files[:2] if i == 0 else [files[i + 1]]:
            file.rename(watched / file.name)
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(watched))
        keyed = environment(spark, tmp_path, backend, changelog=changelog).from_dataframe(stream).key_by("k", "k2")
        writer = keyed.aggregate(ours, uid="aggregates").foreach_batch(sink).query_name("job")
        checkpoint = str(tmp_path / "checkpoint")
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
        kill_state_workers(spark)
    inputs = [spark.read.schema(SCHEMA).parquet(str(watched / file.name)) for file in files]
    for batch, rows in received.items():
        so_far = reduce(DataFrame.union, inputs[: batch + 1]).coalesce(1)
        keys = {tuple(row) for row in inputs[batch].select("k", "k2").distinct().collect()}
        expected = so_far.groupBy("k", "k2").agg(*theirs)
        want = {key: row for key, row in by_key(expected.collect()).items() if key in keys}
        found = by_key(rows)
        assert found.keys() == want.keys()
        assert [(k, c, found[k][c], v) for k, row in want.items() for c, v in row.items() if found[k][c] != v] == []
        types = [(f.name, f.dataType.simpleString()) for f in expected.schema]
        assert [(f.name, f.dataType.simpleString()) for f in schemas[0]] == types
    assert sorted(received) == [0, 1, 2, 3]
    assert received[1] == [], "a batch without rows changes no key"
    is_combined = way is Way.SPARK or make is exactly_combined
    assert [rows for rows in rows_read if rows] == [len(received[i]) if is_combined else 60 for i in (0, 2, 3)]


@pytest.mark.spark_tasks
@pytest.mark.parametrize("way", [None, *Way])
def test_the_watermark_is_that_of_the_rows_before_they_were_combined(
    spark: SparkSession, tmp_path: Path, way: Way | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_read = combining_always(monkeypatch, way)
    source = FileStream(spark, tmp_path / "input", "k string, v long")
    source.add(*[json.dumps({"k": k, "v": v}) for k, v in (("a", 5), ("a", 100), ("a", 7), ("b", 50))])
    rows = source.read().withColumn("at", F.timestamp_seconds("v"))
    stream = environment(spark, tmp_path, HashMapStateBackend()).from_dataframe(rows).with_watermark("at", "10 seconds")
    received: list[Any] = []
    writer = stream.key_by("k").aggregate(uid="totals", total=("v", "sum"))
    writer = writer.foreach_batch(lambda rows, _: received.extend(rows.collect())).query_name("job")
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert newest_commit(tmp_path).watermark_ms == 90_000
    assert sorted(map(tuple, received)) == [("a", 112), ("b", 50)]
    assert rows_read[0] == (4 if way is None else 2)


@pytest.mark.spark_tasks
@pytest.mark.parametrize("way", [None, *Way])
def test_extremes_of_times_are_sparks_in_another_time_zone(
    spark: SparkSession, tmp_path: Path, way: Way | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Combined before the shuffle they came with the session's time zone, and did not fit those of the state."""
    combining_always(monkeypatch, way)
    source = FileStream(spark, tmp_path / "input", "k string, at timestamp, day timestamp_ntz")
    for times in (("2024-03-10T06:59:59Z", "2024-11-03T05:30:00Z"), ("2020-01-01T00:00:00Z", "2024-07-01T00:00:00Z")):
        source.add(*[json.dumps({"k": k, "at": time, "day": time[:-1]}) for k in "ab" for time in times])
    received: dict[int, list[Any]] = {}
    aggregates = {f"{function}_{c}": (c, function) for function in ("min", "max") for c in ("at", "day")}
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        stream = environment(spark, tmp_path, HashMapStateBackend()).from_dataframe(source.read())
        extremes = stream.key_by("k").aggregate(aggregates, uid="extremes")
        writer = extremes.foreach_batch(lambda rows, batch: received.update({batch: rows.collect()})).query_name("job")
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()
        rows = spark.read.schema("k string, at timestamp, day timestamp_ntz").json(str(source.directory))
        columns = [getattr(F, function)(c).alias(name) for name, (c, function) in aggregates.items()]
        expected = rows.groupBy("k").agg(*columns).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert sorted(map(tuple, received[1])) == sorted(map(tuple, expected))


class Running(VectorizedProcessFunction):
    """Count of rows per key, by batch or by key; input by Spark's own batches."""

    input_bytes_max = 1

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_batch(self, batch: pa.RecordBatch, ctx: VectorizedProcessFunction.Context) -> Iterator[pa.Table]:
        if pc.any(pc.equal(batch.column("v"), 13)).as_py():
            raise ArithmeticError("13 is unlucky")
        keys = ctx.keys()
        positions = pa.array(keys.positions)
        rows = pa.table({"p": positions}).group_by("p").aggregate([([], "count_all")]).sort_by("p")
        self.count.put_many(keys, pc.add(self.count.get_many(keys).fill_null(0), rows.column("count_all")))
        ctx.set_current_key(0)
        assert self.count.value() == self.count.get_many(keys)[0].as_py()
        yield pa.table({"n": self.count.get_many(keys).cast(pa.int32()), "k": keys.array})
        yield pa.table({"n": pa.array([], pa.int64()), "k": pa.array([], pa.string())})


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_vectorised_function_keeps_state_and_its_error_leaves_none(
    spark: SparkSession, tmp_path: Path, backend: str
) -> None:
    source = FileStream(spark, tmp_path / "input", "k string, v long")
    source.add('{"k": "a", "v": 1}', '{"k": "b", "v": 2}', '{"k": "a", "v": 3}')
    source.add('{"k": "a", "v": 1}', '{"k": null, "v": 2}')
    received: list[Any] = []

    def run() -> None:
        env = environment(spark, tmp_path, BACKENDS[backend])
        counted = env.from_dataframe(source.read()).key_by("k").process(Running(), "k string, n long", uid="count")
        writer = counted.foreach_batch(lambda rows, _: received.extend(rows.collect())).query_name("running")
        checkpoint = str(tmp_path / "checkpoint")
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()

    run()
    source.add('{"k": "a", "v": 5}', '{"k": "a", "v": 13}')
    with pytest.raises(UserFunctionError, match="13 is unlucky"):
        run()
    last = max((tmp_path / "input").glob("*.json"))
    text, times = last.read_text().replace("13", "14"), last.stat()
    last.write_text(text)
    os.utime(last, (times.st_atime, times.st_mtime))
    run()
    assert sorted(map(tuple, received), key=str) == [("a", 2), ("a", 3), ("a", 5), ("b", 1), (None, 1)]
