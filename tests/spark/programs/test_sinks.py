"""Sinks with real files: each batch replaces its own output, and the directory knows whose it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from varvite.changelog.commit.base_decision import SinkCommit
from varvite.spark_integration.connectors.file_sink import FORMATS, FileSink, OutputCommit, encode_marker
from varvite.spark_integration.connectors.sink import ForeachBatchSink, Sink
from varvite.storage.errors import CorruptDataError, IncompatibleError, InvalidRequestError, InvariantError
from varvite.storage.format.frame import frame

pytestmark = pytest.mark.spark

JOB = "0" * 32


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


@pytest.mark.parametrize("file_format", FORMATS)
def test_batches_are_written_and_read_as_partitions(
    spark: SparkSession, tmp_path: Path, checkpoint: Path, file_format: str
) -> None:
    sink = opened(spark, tmp_path, file_format=file_format)
    assert sink.last_committed() is None
    sink.write(rows(spark, 1, 2), 0, 2)
    sink.write(rows(spark, 3), 1, 3)
    assert read(spark, tmp_path, file_format) == [(0, 1), (0, 2), (1, 3)]
    assert sink.last_committed() == SinkCommit(1, 3)


def test_an_executed_again_batch_replaces_its_own_rows_only(
    spark: SparkSession, tmp_path: Path, checkpoint: Path
) -> None:
    sink = opened(spark, tmp_path)
    sink.write(rows(spark, 1), 0, 2)
    sink.write(rows(spark, 2, 3), 1, 3)
    again = opened(spark, tmp_path)
    again.write(rows(spark, 4), 1, 5)
    assert read(spark, tmp_path) == [(0, 1), (1, 4)]
    assert again.last_committed() == SinkCommit(1, 5)


def test_another_run_finds_the_last_commit(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    sink = opened(spark, tmp_path)
    sink.write(rows(spark, 1), 0, 2)
    sink.write(rows(spark, 2), 1, 3)
    assert opened(spark, tmp_path).last_committed() == SinkCommit(1, 3)
    assert len(markers(tmp_path)) == 1


def test_rows_without_a_marker_are_not_committed(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    """The driver died between the data and the marker."""
    sink = opened(spark, tmp_path)
    sink.write(rows(spark, 1), 0, 2)
    sink.write(rows(spark, 2), 1, 3)
    (tmp_path / "out" / "_varvite" / markers(tmp_path)[-1]).unlink()
    again = opened(spark, tmp_path)
    assert again.last_committed() is None
    again.write(rows(spark, 2), 1, 5)
    assert read(spark, tmp_path) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("keep_bytes", [0, 10, 60])
def test_a_torn_marker_does_not_count_and_is_cleared_away(
    spark: SparkSession, tmp_path: Path, checkpoint: Path, keep_bytes: int
) -> None:
    sink = opened(spark, tmp_path)
    sink.write(rows(spark, 1), 0, 2)
    torn = tmp_path / "out" / "_varvite" / f"commit-{3:020d}"
    torn.write_bytes(encode_marker(OutputCommit(job_id=JOB, batch=1, seq=3))[:keep_bytes])
    again = opened(spark, tmp_path)
    assert again.last_committed() == SinkCommit(0, 2)
    again.write(rows(spark, 2), 1, 4)
    assert markers(tmp_path) == [f"commit-{4:020d}"]


def test_the_newest_seq_counts_when_an_older_marker_was_left_behind(
    spark: SparkSession, tmp_path: Path, checkpoint: Path
) -> None:
    """Batch 7 of an abandoned line has a lower seq than batch 5 of the line after a rewind."""
    sink = opened(spark, tmp_path)
    sink.write(rows(spark, 1), 5, 9)
    old = OutputCommit(job_id=JOB, batch=7, seq=8)
    (tmp_path / "out" / "_varvite" / f"commit-{8:020d}").write_bytes(encode_marker(old))
    assert opened(spark, tmp_path).last_committed() == SinkCommit(5, 9)


def test_a_seq_cannot_be_written_twice(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    sink = opened(spark, tmp_path)
    sink.write(rows(spark, 1), 0, 2)
    with pytest.raises(InvariantError):
        sink.write(rows(spark, 1), 1, 2)


def test_a_directory_of_another_job_is_refused(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    opened(spark, tmp_path).write(rows(spark, 1), 0, 2)
    with pytest.raises(InvalidRequestError, match="another job"):
        opened(spark, tmp_path, job="f" * 32)
    assert read(spark, tmp_path) == [(0, 1)]


@pytest.mark.parametrize("metadata", ['{"id":"query-2"}', None], ids=["another-query", "not-started"])
def test_a_new_query_of_the_same_job_cannot_replace_old_output(
    spark: SparkSession, tmp_path: Path, checkpoint: Path, metadata: str | None
) -> None:
    opened(spark, tmp_path).write(rows(spark, 1), 0, 2)
    (checkpoint / "metadata").unlink()
    if metadata is not None:
        (checkpoint / "metadata").write_text(metadata)
    with pytest.raises(InvalidRequestError, match="counted from 0"):
        opened(spark, tmp_path)


def test_two_runs_that_both_found_a_new_directory_do_not_share_it(
    spark: SparkSession, tmp_path: Path, checkpoint: Path
) -> None:
    first, second = opened(spark, tmp_path), opened(spark, tmp_path, job="f" * 32)
    first.write(rows(spark, 1), 0, 2)
    with pytest.raises(InvalidRequestError, match="another job"):
        second.write(rows(spark, 2), 0, 2)
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
    opened(spark, tmp_path).write(rows(spark, 1), 0, 2)
    assert opened(spark, tmp_path).last_committed() == SinkCommit(0, 2)


def test_a_torn_owner_of_a_used_directory_is_corrupt(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    opened(spark, tmp_path).write(rows(spark, 1), 0, 2)
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
    sink.write(rows(spark, 1), 0, 2)
    sink.write(rows(spark).limit(0), 1, 3)
    assert read(spark, tmp_path) == [(0, 1)]
    assert opened(spark, tmp_path).last_committed() == SinkCommit(1, 3)


def test_writer_options_reach_the_files(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    sink = FileSink(spark, "csv", str(tmp_path / "out"), str(tmp_path / "checkpoint"), {"header": True, "sep": ";"})
    sink.prepare(JOB)
    sink.write(spark.sql("SELECT 1L AS a, 'x' AS b").coalesce(1), 0, 2)
    (file,) = (tmp_path / "out" / "batch_id=0").glob("*.csv")
    assert file.read_text() == "a;b\n1;x\n"


def test_an_unknown_format_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="foreach_batch"):
        FileSink(spark, "kafka", str(tmp_path), str(tmp_path))


def test_a_foreach_batch_sink_calls_the_function_and_knows_nothing(spark: SparkSession) -> None:
    seen: list[Any] = []
    sink: Sink = ForeachBatchSink(lambda df, batch: seen.append((df.collect(), batch)))
    sink.prepare(JOB)
    sink.write(rows(spark, 1), 7, 9)
    assert [(r[0].v, batch) for r, batch in seen] == [(1, 7)]
    assert sink.last_committed() is None
