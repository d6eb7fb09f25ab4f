"""Sinks of tables with rows of Spark: the contract of sinks, types, and how the rows come to the driver."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from tests.integration.tables.delta_table import Table, s3_options
from tests.integration.tables.iceberg_warehouse import Warehouse
from tests.stores.postgres_server import Server
from tests.stores.s3_servers import S3Server
from varvite.spark_integration.connectors.output.rows import FrameRows, TableRows, estimated_bytes
from varvite.spark_integration.connectors.output.table import output_table
from varvite.spark_integration.connectors.tables.delta_sink import DeltaSink
from varvite.spark_integration.connectors.tables.iceberg_sink import IcebergSink
from varvite.spark_integration.connectors.tables.postgres_sink import PostgresSink
from varvite.testing.contracts import SinkContract
from varvite.testing.contracts.sink import commit

pytestmark = pytest.mark.spark


class Delta:
    """A Delta table, as `SinkContract` wants it."""

    def __init__(self, path: str, **settings: Any) -> None:
        self._table = Table(path, "v long", **settings)

    def open(self) -> DeltaSink:
        return self._table.open()

    def values(self) -> list[int]:
        return [v for (v,) in self._table.rows("v")]


class TestDelta(SinkContract):
    @pytest.fixture
    def output(self, tmp_path: Path) -> Delta:
        return Delta(str(tmp_path / "table"))


@pytest.mark.long
class TestPartitionedDelta(SinkContract):
    @pytest.fixture
    def output(self, tmp_path: Path) -> Delta:
        return Delta(str(tmp_path / "table"), partition_by="v")


@pytest.mark.long
class TestDeltaWithoutBatchColumn(SinkContract):
    @pytest.fixture
    def output(self, tmp_path: Path) -> Delta:
        return Delta(str(tmp_path / "table"), batch_column=None)


class TestMergedDelta(SinkContract):
    @pytest.fixture
    def output(self, tmp_path: Path) -> Delta:
        return Delta(str(tmp_path / "table"), keys="v")


class Postgres:
    """A table of a new database, as `SinkContract` wants it."""

    def __init__(self, server: Server, **settings: Any) -> None:
        self._conninfo, self._settings = server.new_database(), settings
        self._job = uuid.uuid4().hex
        self.sinks: list[PostgresSink] = []

    def open(self) -> PostgresSink:
        self.sinks.append(PostgresSink(self._conninfo, "t", **self._settings))
        self.sinks[-1].check_columns(StructType([StructField("v", LongType())]))
        self.sinks[-1].prepare(self._job)
        self.sinks[-1].take_over()
        return self.sinks[-1]

    def values(self) -> list[int]:
        with psycopg.connect(self._conninfo) as connection:
            return [v for (v,) in connection.execute("select v from t order by v").fetchall()]

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()


@pytest.mark.postgres
class TestPostgres(SinkContract):
    @pytest.fixture
    def output(self, postgres: Server) -> Iterator[Postgres]:
        output = Postgres(postgres)
        yield output
        output.close()


@pytest.mark.postgres
class TestMergedPostgres(SinkContract):
    @pytest.fixture
    def output(self, postgres: Server) -> Iterator[Postgres]:
        output = Postgres(postgres, keys="v")
        yield output
        output.close()


class Iceberg:
    """An Iceberg table, as `SinkContract` wants it."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.warehouse, self._settings = Warehouse(home), settings

    def open(self) -> IcebergSink:
        return self.warehouse.open("v long", **self._settings)

    def values(self) -> list[int]:
        return [v for (v,) in self.warehouse.rows("v")]


class TestIceberg(SinkContract):
    @pytest.fixture
    def output(self, tmp_path: Path) -> Iterator[Iceberg]:
        output = Iceberg(tmp_path)
        yield output
        output.warehouse.close()


@pytest.mark.long
class TestMergedIceberg(SinkContract):
    @pytest.fixture
    def output(self, tmp_path: Path) -> Iterator[Iceberg]:
        output = Iceberg(tmp_path, keys="v")
        yield output
        output.warehouse.close()


@pytest.mark.long
@pytest.mark.s3
class TestDeltaOnS3(SinkContract):
    @pytest.fixture
    def output(self, moto_server: S3Server) -> Delta:
        return Delta(moto_server.new_location(), storage_options=s3_options(moto_server))


COLUMNS = [
    "cast(id as boolean) bo", "cast(id as byte) i1", "cast(id as short) i2", "cast(id as int) i4", "id i8",
    "cast(id as float) f4", "if(id = 1, double('NaN'), id / 3) f8", "cast(id as decimal(38, 18)) d1",
    "cast(id as decimal(5, 2)) d2", "if(id = 2, '', concat('é,\"\\n', id)) st", "cast(cast(id as string) as binary) bi",
    "date_add(date'1969-12-30', cast(id as int)) da", "timestamp_micros(id - 1) ts",
    "cast(timestamp_micros(id * 1000001) as timestamp_ntz) nt", "if(id = 1, null, array(id, null)) ar",
    "map(cast(id as string), id) ma", "named_struct('a', id, 'b', array(named_struct('c', timestamp_micros(id)))) sr",
]  # fmt: skip


def written(spark: SparkSession, table: Table, rows: DataFrame, way: str) -> None:
    sink = table.open()
    if way == "write":
        sink.write(rows, commit(0, 2))
    else:
        sink.write_table(output_table(rows.schema, [rows.toArrow().to_batches()]), commit(0, 2))


def test_every_type_is_in_iceberg_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(4).selectExpr(*COLUMNS)
    warehouse = Warehouse(tmp_path)
    sink = IcebergSink("d.t", catalog="c", properties=warehouse.properties)
    sink.check_columns(rows.schema)
    sink.prepare(uuid.uuid4().hex)
    sink.take_over()
    sink.write(rows, commit(0, 2))
    sink.close()
    read = warehouse.catalog.load_table("d.t").scan().to_arrow().select(rows.columns).sort_by("i8").to_pylist()
    expected = output_table(rows.schema, [rows.toArrow().to_batches()]).sort_by("i8").to_pylist()
    assert repr(read) == repr(expected)
    warehouse.close()


@pytest.mark.postgres
def test_every_type_is_in_postgres_as_it_was(spark: SparkSession, postgres: Server) -> None:
    rows = spark.range(4).selectExpr(*COLUMNS)
    sink = PostgresSink(postgres.new_database(), "t", batch_column=None)
    sink.check_columns(rows.schema)
    sink.prepare(uuid.uuid4().hex)
    sink.take_over()
    sink.write(rows, commit(0, 2))
    sink.close()
    with psycopg.connect(sink._conninfo, options="-c TimeZone=UTC") as connection:
        read = connection.execute("select * from t order by i8").fetchall()
    expected = output_table(rows.schema, [rows.toArrow().to_batches()]).sort_by("i8").to_pylist()
    for values, row in zip(read, expected, strict=True):
        row["ma"] = dict(row["ma"])
        row["sr"]["b"] = [{"c": str(each["c"])} for each in row["sr"]["b"]]
        zones = [repr(each).replace("zoneinfo.ZoneInfo(key='UTC')", "utc") for each in (values, tuple(row.values()))]
        assert zones[0].replace("datetime.timezone.utc", "utc") == zones[1].replace("datetime.timezone.utc", "utc")


@pytest.mark.parametrize("way", ["write", "write_table"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_every_type_comes_back_as_it_was(spark: SparkSession, tmp_path: Path, way: str, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = spark.range(4).selectExpr(*COLUMNS)
        table = Table(str(tmp_path / "t"))
        table.schema = rows.schema
        written(spark, table, rows, way)
        expected = output_table(rows.schema, [rows.toArrow().to_batches()]).sort_by("i8").to_pylist()
        assert repr(table.table().to_pyarrow_table(columns=rows.columns).sort_by("i8").to_pylist()) == repr(expected)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_rows_come_partition_by_partition_or_at_once(spark: SparkSession) -> None:
    """Rows that Spark keeps have a known size; of others it only knows that they may be many."""
    rows = spark.range(0, 1000, 1, 4).selectExpr("id", "repeat('x', 100) text").persist()
    try:
        rows.count()
        kept = rows.where("id % 2 = 0")
        assert estimated_bytes(kept) < 200_000
        spark.sparkContext.setJobGroup("pieces", "")
        at_once = list(FrameRows(kept).batches())
        assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("pieces")) == 1
        in_pieces = list(FrameRows(kept, small_bytes=0).batches())
        assert [batch.num_rows for batch in in_pieces] == [125] * 4
        assert at_once[0].schema == in_pieces[0].schema
        assert sorted(v for batch in in_pieces for v in batch.column("id").to_pylist()) == list(range(0, 1000, 2))
    finally:
        rows.unpersist()
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["at_once", "in_pieces", "table"])
def test_the_last_row_of_each_key(spark: SparkSession, form: str) -> None:
    """In the order of the partition that has the key."""
    rows = spark.range(0, 100, 1, 1).selectExpr("id % 7 `k.1`", "concat('x', id % 2) k2", "id v", "map('a', id) m")
    form_rows = TableRows(rows.toArrow()) if form == "table" else FrameRows(rows, 0 if form == "in_pieces" else 1 << 60)
    batches = list(form_rows.last_by(["k.1", "k2"]).batches())
    assert sorted(v for batch in batches for v in batch.column("v").to_pylist()) == list(range(86, 100))
    assert all(dict(m) == {"a": v} for b in batches for m, v in zip(*(b[c].to_pylist() for c in "mv"), strict=True))


def test_an_error_of_a_task_is_raised_as_it_is_and_nothing_is_written(spark: SparkSession, tmp_path: Path) -> None:
    """delta-rs, which reads the rows, would make another of it, and a lost block would not be seen as one."""
    table = Table(str(tmp_path / "t"), "v long")
    sink = table.open()
    rows = spark.range(0, 10, 1, 3).selectExpr("if(id = 9, raise_error('lost'), id) v").selectExpr("cast(v as long) v")
    for small_bytes in (0, 1 << 60):
        with pytest.raises(Exception, match="lost") as raised:
            sink._write(FrameRows(rows, small_bytes), commit(0, 2))
        assert type(raised.value).__module__.startswith(("pyspark", "py4j"))
    assert table.rows() == []
