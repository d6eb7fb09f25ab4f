"""Spark's `console`, `memory` and `foreach` on a writer, beside Spark's own on the same rows."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from tests.spark.conftest import FileStream
from varvite import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment, Types, ValueStateDescriptor
from varvite.spark_integration.api.writer import StreamWriter
from varvite.storage.errors import InvalidRequestError

pytestmark = pytest.mark.spark
LONG = "a long text that is longer than twenty characters"


class Numbering(KeyedProcessFunction[str, Row, tuple[str, int]]):
    """Yields each key with the number of its rows so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield ctx.get_current_key(), number


class NoteRow:
    """A function of a row, which writes it to a file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, row: Row) -> None:
        lines = [["open", 0], ["process", row.asDict()], ["close", None]]
        (self.directory / uuid.uuid4().hex).write_text(json.dumps(lines))


class Calls:
    """Notes its calls in files, as it is called in Spark's tasks."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, partition_id: int, epoch_id: int) -> bool:
        self.lines: list[Any] = [["open", epoch_id]]
        return True

    def process(self, row: Row) -> None:
        self.lines.append(["process", row.asDict()])

    def close(self, error: Exception | None) -> None:
        self.lines.append(["close", error])
        (self.directory / uuid.uuid4().hex).write_text(json.dumps(self.lines))


def calls_in(directory: Path) -> list[Any]:
    """Opened epochs with rows, each row, and the errors that `close` got."""
    notes = [json.loads(path.read_text()) for path in directory.iterdir()]
    for note in notes:
        assert (note[0][0], note[-1]) == ("open", ["close", None])
    return sorted((note[0][1], line[1]["k"], line[1]["n"]) for note in notes for line in note[1:-1])


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> FileStream:
    files = FileStream(spark, tmp_path / "input", "k string, v long")
    files.add(row("a", 1), row("b", 2))
    files.add(row("a", 3), row("a", 4), row(LONG, 5))
    return files


def row(key: str, value: int) -> str:
    return json.dumps({"k": key, "v": value})


def numbered_writer(stream: FileStream, tmp_path: Path) -> StreamWriter:
    rows = stream.read()
    env = StreamExecutionEnvironment.get_execution_environment(rows.sparkSession).set_parallelism(2)
    env.configure("execution.checkpointing.dir", str(tmp_path / "state")).configure("materializer.mode", "off")
    numbered = env.from_dataframe(rows).key_by("k").process(Numbering(), "k string, n long", uid="numbering")
    return numbered.write_stream


def run(writer: StreamWriter, tmp_path: Path, name: str = "job") -> None:
    writer = writer.query_name(name).option("checkpointLocation", str(tmp_path / "location"))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_the_console_shows_batches_as_spark_does(
    stream: FileStream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(numbered_writer(stream, tmp_path).format("console").option("numRows", 2), tmp_path)
    text = capsys.readouterr().out
    rule = "-" * 43
    assert text.count(f"{rule}\nBatch: ") == 2
    assert "\n|  k|  n|\n" in text
    assert "a long text that ...|" in text
    assert "only showing top 2 rows" in text


def test_the_console_shows_whole_values_if_it_is_told_to(
    stream: FileStream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(numbered_writer(stream, tmp_path).format("console").option("truncate", "false"), tmp_path)
    assert f"|{LONG}|" in capsys.readouterr().out


def test_the_view_in_memory_has_all_rows(spark: SparkSession, stream: FileStream, tmp_path: Path) -> None:
    run(numbered_writer(stream, tmp_path).format("memory"), tmp_path, "in_memory")
    expected = [("a", 1), ("a", 2), ("a", 3), (LONG, 1), ("b", 1)]
    assert sorted(map(tuple, spark.sql("select * from in_memory").collect())) == expected
    assert spark.table("in_memory").schema.simpleString() == "struct<k:string,n:bigint>"
    stream.add(row("b", 6))
    run(numbered_writer(stream, tmp_path).format("memory"), tmp_path, "in_memory")
    assert [tuple(row) for row in spark.sql("select * from in_memory").collect()] == [("b", 2)]


@pytest.mark.parametrize("kind", ["object", "function"])
def test_foreach_calls_what_spark_calls(stream: FileStream, tmp_path: Path, kind: str) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for directory in (ours, theirs):
        directory.mkdir()

    make = Calls if kind == "object" else NoteRow
    run(numbered_writer(stream, tmp_path).foreach(make(ours)), tmp_path)
    called = calls_in(ours)
    assert len(called) == 5
    own = stream.read().selectExpr("k", "v as n").writeStream.foreach(make(theirs)).trigger(availableNow=True)
    own.option("checkpointLocation", str(tmp_path / "spark")).start().awaitTermination()
    assert [(epoch, k) for epoch, k, _ in called] == [(epoch, k) for epoch, k, _ in calls_in(theirs)]


def test_what_does_not_fit_is_refused_before_the_query_starts(stream: FileStream, tmp_path: Path) -> None:
    for writer, error in (
        (numbered_writer(stream, tmp_path).format("console").option("rows", 3), "numRows and truncate"),
        (numbered_writer(stream, tmp_path).format("console").option("numRows", "all"), "number of rows"),
        (numbered_writer(stream, tmp_path).format("memory").option("path", "/x"), "has no path"),
    ):
        with pytest.raises(InvalidRequestError, match=error):
            run(writer, tmp_path)
    with pytest.raises(InvalidRequestError, match="view with the name of the query"):
        run(numbered_writer(stream, tmp_path).format("memory"), tmp_path, "a-b")


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    """Name of a table that is not there."""
    name = f"t_{uuid.uuid4().hex}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def to_table(writer: StreamWriter, directory: Path, name: str, **arguments: Any) -> None:
    writer = writer.trigger(availableNow=True).option("checkpointLocation", str(directory / "checkpoint"))
    writer.toTable(name, queryName="numbered", **arguments).awaitTermination()


@pytest.mark.parametrize("file_format", [None, "json"])
def test_a_table_of_the_catalogue_is_made_and_written_as_by_spark(
    spark: SparkSession, stream: FileStream, tmp_path: Path, table: str, file_format: str | None
) -> None:
    expected: list[tuple[Any, ...]] = []
    for number in range(2):
        stream.add(json.dumps({"k": "later", "v": number}))
        to_table(numbered_writer(stream, tmp_path), tmp_path, table, format=file_format)
        seen = spark.sql(f"SELECT k, n FROM {table}").collect()
        assert len(seen) > len(expected), "rows of the second run are seen by a session that has read the table"
        expected = [tuple(row) for row in seen]
    assert sorted(n for k, n in expected if k == "later") == [1, 2]
    assert spark.table(table).columns == ["k", "n", "batch_id"]
    own = stream.read().writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "own"))
    own.toTable(f"{table}_own").awaitTermination()
    assert spark.table(f"{table}_own").count() == len(expected)
    spark.sql(f"DROP TABLE {table}_own")


def test_a_partitioned_table_that_is_there_is_written(
    spark: SparkSession, stream: FileStream, tmp_path: Path, table: str
) -> None:
    spark.sql(f"CREATE TABLE {table} (n BIGINT, k STRING, batch_id INT) USING parquet PARTITIONED BY (k, batch_id)")
    to_table(numbered_writer(stream, tmp_path), tmp_path, table)
    assert "k=" in spark.table(table).inputFiles()[0]
    counts = spark.sql(f"SELECT k, max(n) FROM {table} GROUP BY k").collect()
    assert len(counts) > 1
    with pytest.raises(InvalidRequestError, match=r"partitioned by \['k'\], not by \['n'\]"):
        to_table(numbered_writer(stream, tmp_path), tmp_path, table, partitionBy="n")


def test_what_is_no_table_of_files_is_refused(
    spark: SparkSession, stream: FileStream, tmp_path: Path, table: str
) -> None:
    with pytest.raises(InvalidRequestError, match="writeTo"):
        to_table(numbered_writer(stream, tmp_path), tmp_path, table, format="delta")
    assert not spark.catalog.tableExists(table)
    spark.range(1).createOrReplaceTempView(f"{table}_view")
    with pytest.raises(InvalidRequestError, match="view is no table of files"):
        to_table(numbered_writer(stream, tmp_path), tmp_path, f"{table}_view")
    spark.catalog.dropTempView(f"{table}_view")
    spark.sql(f"CREATE TABLE {table} (k STRING, n STRING) USING parquet")
    with pytest.raises(InvalidRequestError, match="has the columns"):
        to_table(numbered_writer(stream, tmp_path), tmp_path, table)
