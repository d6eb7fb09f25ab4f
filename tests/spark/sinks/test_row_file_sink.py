"""PyFlink's `FileSink`, exactly once: the contract of sinks, killed and replaced drivers, readers of directories."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from varvite.changelog.commit.base_decision import SinkCommit
from varvite.common import Encoder
from varvite.datastream.connectors.file_system import BucketAssigner, FileSink, OutputFileConfig
from varvite.spark_integration.connectors.files import row_file_sink
from varvite.spark_integration.connectors.files.row_file_sink import RowFileSink
from varvite.spark_integration.connectors.output.table import output_table
from varvite.spark_integration.connectors.sink import Sink
from varvite.storage.errors import FencedError, InvalidRequestError
from varvite.testing.contracts import SinkContract
from varvite.testing.contracts.sink import commit

pytestmark = pytest.mark.spark

JOB = "0" * 32


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint location of Spark's with a query id."""
    location = tmp_path / "checkpoint"
    location.mkdir()
    (location / "metadata").write_text('{"id":"11111111-2222-3333-4444-555555555555"}')
    return location


class OfNumbers:
    """The sink for rows with a column `v`."""

    def __init__(self, sink: RowFileSink) -> None:
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def write(self, df: DataFrame, at: SinkCommit) -> None:
        self._sink.write(df.selectExpr("cast(v as string) value"), at)

    def write_table(self, table: pa.Table, at: SinkCommit) -> None:
        lines = pa.RecordBatch.from_pydict({"value": table["v"].cast(pa.string()).combine_chunks()})
        self._sink.write_table(output_table(StructType([StructField("value", StringType())]), [[lines]]), at)


class Directory:
    """An output directory, as `SinkContract` wants it."""

    def __init__(self, spark: SparkSession, tmp_path: Path, pattern: str = "'b'HH-mm-ss-SSS") -> None:
        self._spark, self._tmp_path, self._pattern = spark, tmp_path, pattern

    def open(self) -> Any:
        builder = FileSink.for_row_format(str(self._tmp_path / "out"), Encoder.simple_string_encoder())
        builder.with_output_file_config(OutputFileConfig("pre fix-1-2", "-7.txt"))
        sink = builder.with_bucket_assigner(BucketAssigner(self._pattern)).build()
        plan: Any = SimpleNamespace(checkpoint_location=str(self._tmp_path / "checkpoint"), begun_query_id=None)
        sink.bind(self._spark, plan)
        sink.prepare(JOB)
        return OfNumbers(sink)

    def values(self) -> list[int]:
        """As Spark reads them, and as somebody who reads all files."""
        out = self._tmp_path / "out"
        files = [p for p in out.rglob("pre fix-*-7.txt") if not any(part[0] in "._" for part in p.parts[-2:])]
        values = sorted(int(line) for file in files for line in file.read_text().splitlines())
        assert all(file.stat().st_size for file in files), "a batch without rows has no file"
        if files:
            lines = self._spark.read.option("recursiveFileLookup", "true").text(str(out)).collect()
            assert sorted(int(row.value) for row in lines) == values
        return values


class TestRowFileSink(SinkContract):
    @pytest.fixture
    def output(self, spark: SparkSession, tmp_path: Path, checkpoint: Path) -> Directory:
        return Directory(spark, tmp_path)


@pytest.mark.long
class TestRowFileSinkWithoutBuckets(SinkContract):
    @pytest.fixture
    def output(self, spark: SparkSession, tmp_path: Path, checkpoint: Path) -> Directory:
        return Directory(spark, tmp_path, "")


def rows(spark: SparkSession, *values: int) -> DataFrame:
    return SinkContract.rows(spark, *values)


def die(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["_logged", "_add_entry", "_note"])
def test_what_a_killed_driver_left_goes_with_the_next_one(
    spark: SparkSession, tmp_path: Path, checkpoint: Path, step: str
) -> None:
    directory = Directory(spark, tmp_path)
    directory.open().write(rows(spark, 1), commit(0, 2))
    sink = directory.open()
    setattr(sink._sink, step, die)
    with pytest.raises(KeyboardInterrupt):
        sink.write(rows(spark, 7, 8), commit(1, 4))
    directory.open().write(rows(spark, 2), commit(1, 6))
    assert directory.values() == [1, 2]
    assert not list((tmp_path / "out").glob(".attempt-*"))


def test_what_a_killed_driver_left_of_a_later_batch_goes_after_a_restore(
    spark: SparkSession, tmp_path: Path, checkpoint: Path
) -> None:
    directory = Directory(spark, tmp_path)
    sink = directory.open()
    for batch in range(3):
        sink.write(rows(spark, batch), commit(batch, batch + 2))
    sink._sink._add_entry = die
    with pytest.raises(KeyboardInterrupt):
        sink.write(rows(spark, 3), commit(3, 5))
    directory.open().write(rows(spark, 10), commit(1, 8))
    assert directory.values() == [0, 10]


def test_a_driver_that_stood_still_deletes_its_files_and_ends(
    spark: SparkSession, tmp_path: Path, checkpoint: Path
) -> None:
    directory = Directory(spark, tmp_path)
    directory.open().write(rows(spark, 1), commit(0, 2))
    older = directory.open()
    logged = older._sink._logged

    def wake_up_late() -> Any:
        directory.open().write(rows(spark, 4, 5), commit(1, 6))
        return logged()

    older._sink._logged = wake_up_late
    with pytest.raises(FencedError):
        older.write(rows(spark, 2, 3), commit(1, 4))
    assert directory.values() == [1, 4, 5]


def test_a_large_batch_is_written_by_spark(
    spark: SparkSession, tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_file_sink, "FILE_MAX_BYTES", 10)
    table = pa.RecordBatch.from_pydict({"v": pa.array(range(100), pa.int64())})
    sink = Directory(spark, tmp_path).open()
    sink.write_table(pa.Table.from_batches([table]), commit(0, 2))
    assert Directory(spark, tmp_path).values() == list(range(100))


def test_lines_with_their_own_line_ends_are_as_they_are(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    sink: Sink = Directory(spark, tmp_path).open()._sink
    sink.write(spark.sql("select 'a\\nb' value union all select ''"), commit(0, 2))
    files = [file.read_text() for file in (tmp_path / "out").rglob("pre fix-*")]
    assert sorted("".join(files)) == sorted("a\nb\n\n")
    assert any("a\nb\n" in text for text in files)


def test_another_jobs_directory_and_rows_are_refused(spark: SparkSession, tmp_path: Path, checkpoint: Path) -> None:
    sink = Directory(spark, tmp_path).open()
    sink.write(rows(spark, 1), commit(0, 2))
    with pytest.raises(InvalidRequestError, match="another job"):
        sink._sink.prepare("1" * 32)
    with pytest.raises(InvalidRequestError, match="sink_to"):
        sink._sink.check_columns(rows(spark, 1).schema)
