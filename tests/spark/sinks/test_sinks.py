"""Sinks with real files: every attempt has its own, Spark's log says which count, the directory knows whose it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from varvite.changelog.commit.base_decision import SinkCommit
from varvite.spark_integration.connectors.files.file_sink import (
    CLEAN_EVERY,
    FORMATS,
    FileSink,
    OutputCommit,
    OutputOwner,
    attempt_directory,
    commit_name,
    encode_marker,
)
from varvite.spark_integration.connectors.several_sinks import OutputSinks, SeveralSinks
from varvite.spark_integration.connectors.sink import ForeachBatchSink, Sink
from varvite.storage.errors import CorruptDataError, FencedError, IncompatibleError, InvalidRequestError
from varvite.storage.format.frame import frame
from varvite.testing.contracts import SinkContract
from varvite.testing.contracts.sink import commit

pytestmark = pytest.mark.spark

JOB = "0" * 32


class Directory:
    """An output directory of Parquet files, as `SinkContract` wants it."""

    def __init__(self, spark: SparkSession, tmp_path: Path) -> None:
        self._spark = spark
        self._tmp_path = tmp_path

    def open(self) -> Sink:
        return opened(self._spark, self._tmp_path)

    def values(self) -> list[int]:
        """As Spark reads them, and as somebody who reads all files."""
        values = sorted(value for _, value in read(self._spark, self._tmp_path))
        files = (self._tmp_path / "out").glob("batch_id=*/*/*.parquet")
        assert sorted(v for file in files for v in pq.read_table(file).column("v").to_pylist()) == values
        return values


class TestFileSink(SinkContract):
    @pytest.fixture
    def output(self, spark: SparkSession, tmp_path: Path, checkpoint: Path) -> Directory:
        return Directory(spark, tmp_path)


class Partitioned(FileSink):
    """Adds two columns to partition by."""

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        super().write(df.selectExpr("v", "v % 2 p", "if(v = 5, null, concat('a/b=c %é:', v % 3)) q"), commit)


class PartitionedDirectory(Directory):
    """The same with partition columns."""

    def open(self) -> Sink:
        location, out = str(self._tmp_path / "checkpoint"), str(self._tmp_path / "out")
        sink = Partitioned(self._spark, "parquet", out, location, partition_by=["p", "q"])
        sink.prepare(JOB)
        return sink

    def values(self) -> list[int]:
        if not any((self._tmp_path / "out").glob("batch_id=*/**/*.parquet")):
            return []
        found = self._spark.read.parquet(str(self._tmp_path / "out")).collect()
        assert all(row.p == row.v % 2 for row in found)
        assert {row.q for row in found} <= {"a/b=c %é:0", "a/b=c %é:1", "a/b=c %é:2", None}
        values = sorted(row.v for row in found)
        files = (self._tmp_path / "out").glob("batch_id=*/p=*/q=*/attempt-*/*.parquet")
        assert sorted(v for file in files for v in pq.ParquetFile(file).read()["v"].to_pylist()) == values
        assert not any((self._tmp_path / "out").glob("batch_id=*/attempt-*"))
        return values


@pytest.mark.long
class TestPartitionedFileSink(SinkContract):
    @pytest.fixture
    def output(self, spark: SparkSession, tmp_path: Path, checkpoint: Path) -> Directory:
        return PartitionedDirectory(spark, tmp_path)


@pytest.mark.parametrize("step", ["_begin", "_partitioned_files"])
def test_a_driver_that_stood_still_with_partitions_doubles_nothing(
    spark: SparkSession, tmp_path: Path, checkpoint: Path, step: str
) -> None:
    directory = PartitionedDirectory(spark, tmp_path)
    directory.open().write(rows(spark, 1), commit(0, 2))

    def take_over() -> None:
        directory.open().write(rows(spark, 4, 5), commit(1, 6))

    older = paused(directory.open(), step, take_over)  # type: ignore[arg-type]
    with pytest.raises(FencedError):
        older.write(rows(spark, 2, 3), commit(1, 4))
    assert directory.values() == [1, 4, 5]


def test_what_a_killed_driver_left_in_partitions_goes(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    """In its own directory, or moved already."""
    directory = PartitionedDirectory(spark, tmp_path)
    for number, step in enumerate(["_partitioned_files", "_add_entry"]):
        sink = directory.open()

        def die(*_: Any) -> None:
            raise KeyboardInterrupt

        setattr(sink, step, die)
        with pytest.raises(KeyboardInterrupt):
            sink.write(rows(spark, 7, 8), commit(0, 2 + number))
    directory.open().write(rows(spark, 1), commit(0, 9))
    assert directory.values() == [1]


@pytest.mark.parametrize(
    ("columns", "message"), [(["x"], "'x' is not in the output"), (["v", "w"], "all columns"), (["w"], "array<bigint>")]
)
def test_partition_columns_that_cannot_be_are_refused(
    spark: SparkSession, tmp_path: Path, columns: list[str], message: str
) -> None:
    sink = FileSink(spark, "parquet", str(tmp_path / "out"), str(tmp_path / "c"), partition_by=columns)
    with pytest.raises(InvalidRequestError, match=message):
        sink.check_columns(spark.range(1).selectExpr("id v", "array(id) w").schema)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint location of a query that has been started."""
    location = tmp_path / "checkpoint"
    location.mkdir()
    (location / "metadata").write_text('{"id":"query-1"}')
    return location


def rows(spark: SparkSession, *values: int) -> DataFrame:
    given = ",".join(f"({v}L)" for v in values) or "(0L)"
    return spark.sql(f"SELECT v FROM VALUES {given} AS t(v)").coalesce(1)


def opened(spark: SparkSession, tmp_path: Path, job: str = JOB, file_format: str = "parquet") -> FileSink:
    sink = FileSink(spark, file_format, str(tmp_path / "out"), str(tmp_path / "checkpoint"))
    sink.prepare(job)
    return sink


def read(spark: SparkSession, tmp_path: Path, file_format: str = "parquet") -> list[tuple[int, int]]:
    """(batch, value) of everything that a reader sees."""
    found = spark.read.format(file_format).schema("v long, batch_id long").load(str(tmp_path / "out")).collect()
    return sorted((row.batch_id, row.v) for row in found)


def markers(tmp_path: Path) -> list[str]:
    return sorted(p.name for p in (tmp_path / "out" / "_varvite").glob("commit-*"))


def marker(*commits: SinkCommit) -> list[str]:
    return [commit_name(made).rpartition("/")[2] for made in commits]


@pytest.mark.parametrize("file_format", FORMATS)
def test_batches_are_written_and_read_as_partitions(
    spark: SparkSession, tmp_path: Path, checkpoint: Path, file_format: str
) -> None:
    sink = opened(spark, tmp_path, file_format=file_format)
    assert sink.last_committed() is None
    sink.write(rows(spark, 1, 2), commit(0, 2))
    sink.write(rows(spark, 3), commit(1, 3))
    assert read(spark, tmp_path, file_format) == [(0, 1), (0, 2), (1, 3)]
    assert sink.last_committed() == commit(1, 3)


def test_an_executed_again_batch_replaces_its_own_rows_only(
    spark: SparkSession, tmp_path: Path, checkpoint: Path
) -> None:
    sink = opened(spark, tmp_path)
    sink.write(rows(spark, 1), commit(0, 2))
    sink.write(rows(spark, 2, 3), commit(1, 3))
    again = opened(spark, tmp_path)
    again.write(rows(spark, 4), commit(1, 5))
    assert read(spark, tmp_path) == [(0, 1), (1, 4)]
    assert again.last_committed() == commit(1, 5)


def test_another_run_finds_the_last_commit(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    sink = opened(spark, tmp_path)
    sink.write(rows(spark, 1), commit(0, 2))
    sink.write(rows(spark, 2), commit(1, 3))
    assert opened(spark, tmp_path).last_committed() == commit(1, 3)
    assert len(markers(tmp_path)) == 1


def test_rows_without_a_marker_are_not_committed(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    """The driver died between the data and the marker."""
    sink = opened(spark, tmp_path)
    sink.write(rows(spark, 1), commit(0, 2))
    sink.write(rows(spark, 2), commit(1, 3))
    (tmp_path / "out" / "_varvite" / markers(tmp_path)[-1]).unlink()
    again = opened(spark, tmp_path)
    assert again.last_committed() is None
    again.write(rows(spark, 2), commit(1, 5))
    assert read(spark, tmp_path) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("keep_bytes", [0, 10, 60])
def test_a_torn_marker_does_not_count_and_is_cleared_away(
    spark: SparkSession, tmp_path: Path, checkpoint: Path, keep_bytes: int
) -> None:
    sink = opened(spark, tmp_path)
    sink.write(rows(spark, 1), commit(0, 2))
    torn = tmp_path / "out" / commit_name(commit(1, 3))
    torn.write_bytes(encode_marker(OutputCommit(job_id=JOB, batch=1, seq=3, token="3"))[:keep_bytes])
    again = opened(spark, tmp_path)
    assert again.last_committed() == commit(0, 2)
    again.write(rows(spark, 2), commit(1, 4))
    assert markers(tmp_path) == marker(commit(1, 4))


def test_the_newest_seq_counts_when_an_older_marker_was_left_behind(
    spark: SparkSession, tmp_path: Path, checkpoint: Path
) -> None:
    """Batch 7 of an abandoned line has a lower seq than batch 5 of the line after a rewind."""
    sink = opened(spark, tmp_path)
    sink.write(rows(spark, 1), commit(5, 9))
    old = OutputCommit(job_id=JOB, batch=7, seq=8)
    (tmp_path / "out" / "_varvite" / f"commit-{8:020d}").write_bytes(encode_marker(old))
    assert opened(spark, tmp_path).last_committed() == commit(5, 9)


def paused(sink: FileSink, method: str, meanwhile: Callable[[], object]) -> FileSink:
    """The sink's driver stands still once after this step, and something happens meanwhile."""
    step, steps = getattr(sink, method), [meanwhile]

    def call(*args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs)
        if steps:
            steps.pop()()
        return result

    setattr(sink, method, call)
    return sink


STEPS = ["_claim", "_begin", "_write_files", "_check_newest"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_empty", [False, True], ids=["rows", "empty"])
def test_a_driver_that_stood_still_inside_of_write_doubles_nothing(
    spark: SparkSession, tmp_path: Path, checkpoint: Path, step: str, is_empty: bool
) -> None:
    """A successor takes over, executes the batch again and goes on; then the older driver wakes up."""
    first = opened(spark, tmp_path)
    first.write(rows(spark, 1), commit(0, 2))
    first.write(rows(spark, 2), commit(1, 3))

    def take_over() -> None:
        newer = opened(spark, tmp_path)
        newer.write(rows(spark, 4).limit(0 if is_empty else 9), commit(2, 6))
        newer.write(rows(spark, 5), commit(3, 7))

    older = paused(opened(spark, tmp_path), step, take_over)
    with pytest.raises(FencedError):
        older.write(rows(spark, 3), commit(2, 4))
    expected = [(0, 1), (1, 2), *([] if is_empty else [(2, 4)]), (3, 5)]
    assert read(spark, tmp_path) == expected
    Directory(spark, tmp_path).values()
    assert opened(spark, tmp_path).last_committed() == commit(3, 7)


@pytest.mark.parametrize("step", ["_write_files", "_add_entry"])
def test_a_driver_that_died_inside_of_write_leaves_nothing_that_counts(
    spark: SparkSession, tmp_path: Path, checkpoint: Path, step: str
) -> None:
    opened(spark, tmp_path).write(rows(spark, 1), commit(0, 2))

    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        paused(opened(spark, tmp_path), step, die).write(rows(spark, 2), commit(1, 3))
    again = opened(spark, tmp_path)
    assert again.last_committed() == commit(0, 2)
    again.write(rows(spark, 3), commit(1, 5))
    assert read(spark, tmp_path) == [(0, 1), (1, 3)]
    assert [path.name for path in (tmp_path / "out" / "batch_id=1").iterdir()] == [
        attempt_directory(commit(1, 5)).rpartition("/")[2]
    ]


def test_files_that_a_replaced_driver_leaves_later_go_with_a_later_batch(
    spark: SparkSession, tmp_path: Path, checkpoint: Path
) -> None:
    """It was killed after it woke up. A glob sees its files for a while, Spark never."""
    sink = opened(spark, tmp_path)
    sink.write(rows(spark, 1), commit(0, 2))
    rows(spark, 9).write.parquet(str(tmp_path / "out" / attempt_directory(commit(0, 1))))
    foreign = tmp_path / "out" / "batch_id=0" / "notes.txt"
    foreign.write_text("of somebody else")
    for batch in range(1, CLEAN_EVERY + 1):
        sink.write(rows(spark, batch), commit(batch, batch + 2))
        assert (0, 9) not in read(spark, tmp_path)
    assert not (tmp_path / "out" / attempt_directory(commit(0, 1))).exists()
    assert foreign.exists()


def test_batches_without_rows_leave_no_files(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    """A job with timers has one a second, be its input quiet for weeks."""
    sink = opened(spark, tmp_path)
    sink.write(rows(spark, 1), commit(0, 2))
    before = {path for path in (tmp_path / "out").rglob("*") if "_varvite" not in str(path)}
    for batch in range(1, 30):
        sink.write(rows(spark, 1).limit(0), commit(batch, batch + 2))
    assert {path for path in (tmp_path / "out").rglob("*") if "_varvite" not in str(path)} == before
    assert markers(tmp_path) == marker(commit(29, 31))


def test_a_log_of_many_batches_is_compacted_and_read(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    sink = opened(spark, tmp_path)
    for batch in range(23):
        sink.write(rows(spark, batch), commit(batch, batch + 2))
    assert read(spark, tmp_path) == [(batch, batch) for batch in range(23)]
    log = tmp_path / "out" / "_spark_metadata"
    assert (log / "9.compact").exists()
    assert (log / "19.compact").exists()
    again = opened(spark, tmp_path)
    again.write(rows(spark, 100), commit(12, 40))
    again.write(rows(spark, 101), commit(13, 41))
    assert read(spark, tmp_path) == [*((batch, batch) for batch in range(12)), (12, 100), (13, 101)]


def test_a_stream_reads_each_row_once(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    sink = opened(spark, tmp_path)
    seen: list[int] = []

    def follow() -> None:
        stream = spark.readStream.schema("v long, batch_id long").parquet(str(tmp_path / "out"))
        writer = stream.writeStream.foreachBatch(lambda df, _: seen.extend(row.v for row in df.collect()))
        query = writer.option("checkpointLocation", str(tmp_path / "reader")).trigger(availableNow=True).start()
        query.awaitTermination()

    for batch in range(12):
        sink.write(rows(spark, batch), commit(batch, batch + 2))
        if batch % 4 == 3:
            follow()
    assert sorted(seen) == list(range(12))


def test_a_directory_of_an_older_version_goes_on(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    """It has no log: all of its files count, but for those of the batch that comes again."""
    out = tmp_path / "out"
    for batch in range(3):
        rows(spark, batch).write.parquet(str(out / f"batch_id={batch}"))
    (out / "_varvite").mkdir()
    (out / "_varvite" / "owner").write_bytes(encode_marker(OutputOwner(job_id=JOB, query_id="query-1")))
    old = OutputCommit(job_id=JOB, batch=1, seq=3)
    (out / "_varvite" / f"commit-{3:020d}").write_bytes(encode_marker(old))
    sink = opened(spark, tmp_path)
    assert sink.last_committed() == SinkCommit(1, 3)
    sink.write(rows(spark, 7), commit(2, 5))
    assert read(spark, tmp_path) == [(0, 0), (1, 1), (2, 7)]


def test_several_sinks_hold_a_batch_if_all_do(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    """The earlier one may have it alone: then the batch is executed again, and replaced there."""
    places = [tmp_path / name for name in ("a", "b")]
    for place in places:
        place.mkdir()
        (place / "checkpoint").mkdir()
        (place / "checkpoint" / "metadata").write_text('{"id":"query-1"}')
    first, second = (opened(spark, place) for place in places)
    several = [SeveralSinks((first, second)), OutputSinks(((None, first), (0, second)))]
    several[0].write(rows(spark, 1), commit(0, 2))
    assert [both.last_committed() for both in several] == [commit(0, 2)] * 2
    first.write(rows(spark, 2), commit(1, 3))
    assert [both.last_committed() for both in several] == [None] * 2


def test_a_directory_of_another_job_is_refused(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    opened(spark, tmp_path).write(rows(spark, 1), commit(0, 2))
    with pytest.raises(InvalidRequestError, match="another job"):
        opened(spark, tmp_path, job="f" * 32)
    assert read(spark, tmp_path) == [(0, 1)]


@pytest.mark.parametrize("metadata", ['{"id":"query-2"}', None], ids=["another-query", "not-started"])
def test_a_new_query_of_the_same_job_cannot_replace_old_output(
    spark: SparkSession, tmp_path: Path, checkpoint: Path, metadata: str | None
) -> None:
    opened(spark, tmp_path).write(rows(spark, 1), commit(0, 2))
    (checkpoint / "metadata").unlink()
    if metadata is not None:
        (checkpoint / "metadata").write_text(metadata)
    with pytest.raises(InvalidRequestError, match="counted from 0"):
        opened(spark, tmp_path)


def test_two_runs_that_both_found_a_new_directory_do_not_share_it(
    spark: SparkSession, tmp_path: Path, checkpoint: Path
) -> None:
    first, second = opened(spark, tmp_path), opened(spark, tmp_path, job="f" * 32)
    first.write(rows(spark, 1), commit(0, 2))
    with pytest.raises(InvalidRequestError, match="another job"):
        second.write(rows(spark, 2), commit(0, 2))
    assert read(spark, tmp_path) == [(0, 1)]


@pytest.mark.parametrize("foreign", ["_spark_metadata/0", "part-00000.parquet", "batch_id=0/part-0.parquet"])
def test_a_directory_in_use_by_others_is_refused(
    spark: SparkSession, tmp_path: Path, checkpoint: Path, foreign: str
) -> None:
    file = tmp_path / "out" / foreign
    file.parent.mkdir(parents=True)
    file.write_text("x")
    with pytest.raises(InvalidRequestError, match="not by varvite"):
        opened(spark, tmp_path)


def test_a_torn_owner_of_an_unused_directory_is_replaced(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    own = tmp_path / "out" / "_varvite"
    own.mkdir(parents=True)
    (own / "owner").write_bytes(b"varve\0OUTO")
    opened(spark, tmp_path).write(rows(spark, 1), commit(0, 2))
    assert opened(spark, tmp_path).last_committed() == commit(0, 2)


def test_a_torn_owner_of_a_used_directory_is_corrupt(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    opened(spark, tmp_path).write(rows(spark, 1), commit(0, 2))
    (tmp_path / "out" / "_varvite" / "owner").write_bytes(b"varve\0OUTO")
    with pytest.raises(CorruptDataError, match="owner"):
        opened(spark, tmp_path)


def test_an_owner_of_a_newer_version_is_incompatible(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    own = tmp_path / "out" / "_varvite"
    own.mkdir(parents=True)
    (own / "owner").write_bytes(frame(b"OUTO", 2, b"{}"))
    with pytest.raises(IncompatibleError):
        opened(spark, tmp_path)


def test_an_empty_batch_leaves_a_commit_and_no_rows(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    sink = opened(spark, tmp_path)
    sink.write(rows(spark, 1), commit(0, 2))
    sink.write(rows(spark).limit(0), commit(1, 3))
    assert read(spark, tmp_path) == [(0, 1)]
    assert opened(spark, tmp_path).last_committed() == commit(1, 3)


def test_writer_options_reach_the_files(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    sink = FileSink(spark, "csv", str(tmp_path / "out"), str(tmp_path / "checkpoint"), {"header": True, "sep": ";"})
    sink.prepare(JOB)
    sink.write(spark.sql("SELECT 1L AS a, 'x' AS b").coalesce(1), commit(0, 2))
    (file,) = (tmp_path / "out" / attempt_directory(commit(0, 2))).glob("*.csv")
    assert file.read_text() == "a;b\n1;x\n"


def test_an_unknown_format_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="foreach_batch"):
        FileSink(spark, "kafka", str(tmp_path), str(tmp_path))


def test_a_foreach_batch_sink_calls_the_function_and_knows_nothing(spark: SparkSession) -> None:
    seen: list[Any] = []
    sink: Sink = ForeachBatchSink(lambda df, batch: seen.append((df.collect(), batch)))
    sink.prepare(JOB)
    sink.write(rows(spark, 1), commit(7, 9))
    assert [(r[0].v, batch) for r, batch in seen] == [(1, 7)]
    assert sink.last_committed() is None
