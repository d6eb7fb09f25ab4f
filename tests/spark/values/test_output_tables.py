"""The output of a small batch as a table: as a DataFrame, as a file of Parquet, and divided into side outputs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, NullType, StringType, StructField, StructType

from varvite.spark_integration.connectors.files.file_sink import FileSink
from varvite.spark_integration.connectors.files.parquet_file import ParquetEncoder
from varvite.spark_integration.connectors.output.table import (
    TableDataFrame,
    dataframe_of,
    output_table,
    partition_rows,
    table_of_output,
)
from varvite.spark_integration.elements.side_by_side import rows_of_output, side_output_fields, with_side_outputs
from varvite.testing.contracts.sink import commit

pytestmark = pytest.mark.spark

ALL_TYPES = """
    id, cast(id as tinyint) b, cast(id as smallint) s, cast(id as int) i, cast(id as float) f, id / 3.0D d,
    cast(id / 7 as decimal(7, 2)) small, cast(id / 7 as decimal(30, 9)) large, id = 1 yes, concat('x', id) text,
    cast(concat('y', id) as binary) bytes, date'1582-10-04' day, timestamp'1890-03-10 02:30:00.000001' at,
    timestamp_ntz'2024-03-10 02:30:00.5' local, array(id, null) list, map(concat('k', id), named_struct('a.b', id)) map,
    named_struct('x', id, 'at', array(timestamp'2024-11-03 01:30:00')) struct, cast(null as string) nothing
"""


def test_a_file_that_arrow_writes_reads_as_one_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"query-1"}')
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        df = spark.sql(f"SELECT {ALL_TYPES} FROM range(5)")
        schema = df.schema.toNullable()
        table = output_table(schema, [df.toArrow().to_batches()])
        sink = FileSink(spark, "parquet", str(tmp_path / "out"), str(tmp_path / "checkpoint"))
        sink.prepare("0" * 32)
        sink.write(spark.createDataFrame(df.collect(), schema).coalesce(1), commit(0, 2))
        sink.write_table(table, commit(1, 3))
        sink.write_table(table.slice(0, 0), commit(2, 4))
        whole = spark.read.parquet(str(tmp_path / "out"))
        assert whole.schema.names == [*schema.names, "batch_id"]
        sparks, arrows = (whole.where(f"batch_id = {batch}").drop("batch_id").orderBy("id") for batch in (0, 1))
        assert sparks.schema == arrows.schema == schema
        assert sparks.collect() == arrows.collect() == df.orderBy("id").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    paths = [next((tmp_path / "out").glob(f"batch_id={batch}/*/*.parquet")) for batch in (0, 1)]
    footers = [pq.read_metadata(path) for path in paths]
    assert ["parquet-mr" in footer.created_by for footer in footers] == [True, False]
    assert [path.name.split("-c000")[1] for path in paths] == [".snappy.parquet"] * 2
    assert all(path.name.startswith("part-00000-") for path in paths)


@pytest.mark.parametrize(
    ("file_format", "options", "conf"),
    [
        ("json", {}, {}),
        ("parquet", {"parquet.block.size": "1024"}, {}),
        ("parquet", {"compression": "lz4"}, {}),
        ("parquet", {}, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"}),
        ("parquet", {}, {"spark.sql.files.maxRecordsPerFile": "2"}),
    ],
)
def test_a_table_is_written_by_spark_where_its_file_would_be_another(
    spark: SparkSession, file_format: str, options: dict[str, str], conf: dict[str, str]
) -> None:
    before = {key: spark.conf.get(key) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        encoder = ParquetEncoder.create(spark, file_format, options)
    finally:
        for key, value in before.items():
            spark.conf.set(key, str(value))
    numbers = StructType([StructField("v", LongType())])
    table = output_table(numbers, [[pa.RecordBatch.from_pydict({"v": [1]})]])
    assert encoder.encode(table) is None
    assert ParquetEncoder.create(spark, "parquet", {"compression": "zstd"}).encode(table) is not None
    void = StructType([StructField("v", NullType())])
    assert ParquetEncoder("snappy").encode(output_table(void, [[pa.RecordBatch.from_pydict({"v": [None]})]])) is None


def test_a_table_without_rows_is_a_dataframe_without_rows(spark: SparkSession) -> None:
    """Columns without a chunk made PySpark fail where they hold times, after the commit."""
    schema = spark.sql(f"SELECT {ALL_TYPES} FROM range(1)").schema.toNullable()
    table = output_table(schema, [[], []])
    for empty in (table, table.slice(0, 0), table.filter(pa.array([], pa.bool_()))):
        df = dataframe_of(empty)
        assert df.collect() == []
        assert df.schema == schema
    sides = StructType([*schema.fields, *side_output_fields([schema])])
    for number in (None, 0):
        assert dataframe_of(table_of_output(output_table(sides, [[]]), number)).schema == schema


@pytest.mark.parametrize("rows", [0, 5])
def test_a_table_is_a_dataframe_as_of_spark(spark: SparkSession, rows: int) -> None:
    """Answers that Spark does not give are those that it would give."""
    conf = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
    }
    before = {key: spark.conf.get(key) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        df = spark.sql(f"SELECT {ALL_TYPES} FROM range(0, {rows}, 1, 1)")
        schema = df.schema.toNullable()
        df = spark.createDataFrame(df.collect(), schema).coalesce(1)
        made = dataframe_of(output_table(schema, [df.toArrow().to_batches()]))
        assert isinstance(made, TableDataFrame)
        assert made.schema == df.schema
        assert made.columns == df.columns
        assert made.count() == df.count() == rows
        assert made.isEmpty() == df.isEmpty()
        assert made.toArrow() == df.toArrow()
        assert made.toPandas().equals(df.toPandas())
        assert list(made.toPandas().dtypes) == list(df.toPandas().dtypes)
        assert made._java is None, "nothing so far needed Spark"
        assert made.collect() == df.collect()
        assert made.where("id > 2").select("struct.x", made["text"]).collect() == (
            df.where("id > 2").select("struct.x", df["text"]).collect()
        )
        made.createOrReplaceTempView("made")
        assert spark.sql("SELECT max(large) FROM made").collect() == df.agg({"large": "max"}).collect()
        spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
        assert made.toArrow() == df.toArrow()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
        spark.catalog.dropTempView("made")
        for key, value in before.items():
            spark.conf.set(key, str(value))


def test_side_outputs_of_a_table_are_those_of_the_dataframe(spark: SparkSession) -> None:
    main = StructType([StructField("v", LongType())])
    side = StructType([StructField("text", StringType())])
    schema = StructType([*main.fields, *side_output_fields([side])])
    batches = [
        pa.RecordBatch.from_arrays(
            with_side_outputs(
                [pa.array(numbers, pa.int64())],
                [pa.array([{"text": t} for t in texts], pa.struct({"text": pa.string()}))],
            ),
            names=schema.names,
        )
        for numbers, texts in (([1, 2], ["a"]), ([], ["b", "c"]), ([3], []))
    ]
    table = output_table(schema, [[batch] for batch in batches])
    df = dataframe_of(table)
    for number, counts in ((None, [2, 0, 1]), (0, [1, 2, 0])):
        rows, expected = table_of_output(table, number), rows_of_output(df, number)
        assert dataframe_of(rows).collect() == expected.collect()
        assert dataframe_of(rows).schema == expected.schema
        assert partition_rows(rows) == counts
