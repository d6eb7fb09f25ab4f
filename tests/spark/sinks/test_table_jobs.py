"""Jobs that write to tables."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from tests.integration.tables.iceberg_warehouse import Warehouse
from tests.spark.conftest import FileStream
from tests.spark.rate_jobs import wait_for
from tests.stores.postgres_server import Server
from tests.tidy.pages.doc_blocks import ROOT, blocks_of
from varvite import DeltaSink, KeyedProcessFunction, StreamExecutionEnvironment
from varvite.common import Row, Types
from varvite.datastream import DataStream
from varvite.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from varvite.storage.errors import InvalidRequestError

pytestmark = pytest.mark.spark


def order(number: int) -> dict[str, Any]:
    return {"customer": f"c{number % 3}", "day": f"day {number % 2}", "amount": number}


def totals(number: int) -> list[tuple[str, str, int]]:
    """The output for so many orders."""
    sums = {f"c{i}": 0 for i in range(3)}
    rows = []
    for each in map(order, range(number)):
        sums[each["customer"]] += each["amount"]
        rows.append((each["customer"], each["day"], sums[each["customer"]]))
    return sorted(rows)


def put_orders(directory: Path, begin: int, end: int) -> None:
    directory.mkdir(exist_ok=True)
    file = directory / f"{begin:05d}.json"
    file.with_suffix(".tmp").write_text("".join(json.dumps(order(i)) + "\n" for i in range(begin, end)))
    os.utime(file.with_suffix(".tmp"), (1_700_000_000 + begin, 1_700_000_000 + begin))
    file.with_suffix(".tmp").rename(file)


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    """Without the batch."""
    if not (path / "_delta_log").exists():
        return []
    table = DeltaTable(str(path)).to_pyarrow_table(columns=["customer", "day", "total"])
    return sorted(zip(*table.to_pydict().values(), strict=True))


def run_page(tmp_path: Path, table: str, number: Any, *, before: str = "", **replaced: str) -> None:
    """Run the page's program for a kind of table, twice: the second run goes on where the first has ended.

    Args:
        tmp_path: Of the test.
        table: A word of the program.
        number: Counts the orders in the output.
        before: A word of the program whose job it is, if it is not its own.
        replaced: Text of the program, and what is there instead.
    """
    page = blocks_of("docs/guide/tables.md", (ROOT / "docs" / "guide" / "tables.md").read_text())
    (program,) = [block for block in page if "run" in block.tags and table in block.text]
    text = "".join(block.text.partition("\nwriter =")[0] + "\n" for block in page if before and before in block.text)
    text += program.text
    for old, new in {"/data/": f"{tmp_path}/", **replaced}.items():
        text = text.replace(old, new)
    for end in (20, 40):
        put_orders(tmp_path / "orders", end - 20, end)
        names: dict[str, Any] = {"__name__": "page"}
        exec(compile(text, program.name, "exec", dont_inherit=True), names)
        wait_for(names["query"], lambda end=end: number() >= end, end)
        names["query"].stop()


def test_the_programs_of_the_page_run(spark: SparkSession, tmp_path: Path) -> None:
    run_page(tmp_path, "delta", lambda: len(rows_of(tmp_path / "totals")))
    assert rows_of(tmp_path / "totals") == totals(40)
    assert DeltaTable(str(tmp_path / "totals")).metadata().partition_columns == ["day"]


def test_the_program_for_iceberg_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Its job is that of the program for Delta."""
    warehouse = Warehouse(tmp_path)
    warehouse.catalog.close()
    properties = {**warehouse.properties}
    catalog = load_catalog("shop", **properties)
    catalog.create_namespace("shop")

    def read() -> list[tuple[Any, ...]]:
        if not catalog.table_exists("shop.totals"):
            return []
        names = ["customer", "day", "total"]
        table = catalog.load_table("shop.totals").scan(selected_fields=tuple(names)).to_arrow().select(names)
        return sorted(zip(*table.to_pydict().values(), strict=True))

    run_page(tmp_path, "IcebergSink", lambda: len(read()), before="delta")
    assert read() == totals(40)
    catalog.close()


@pytest.mark.postgres
def test_the_program_for_postgres_runs(spark: SparkSession, tmp_path: Path, postgres: Server) -> None:
    conninfo = postgres.new_database()
    expected = {
        end: sorted({c: t for c, _, t in sorted(totals(end), key=lambda row: row[2])}.items()) for end in (20, 40)
    }

    def read() -> list[tuple[Any, ...]]:
        with psycopg.connect(conninfo) as connection:
            there = connection.execute("select to_regclass('totals')").fetchall()[0][0]
            return connection.execute("select * from totals order by customer").fetchall() if there else []

    def number() -> int:
        return next((end for end in (40, 20) if read() == expected[end]), 0)

    run_page(tmp_path, "PostgresSink", number, **{"postgresql://user@localhost/shop": conninfo})
    assert read() == expected[40]


class Both(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value.k, value.v


@pytest.fixture
def processed(spark: SparkSession, tmp_path: Path, rows_of_k: FileStream) -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment(spark).set_checkpoint_storage(tmp_path / "state")
    return env.from_dataframe(rows_of_k.read()).key_by("k").process(Both(), "k string, v long", uid="both")


def test_a_query_ends_with_its_input_and_its_sink_may_be_used_again(processed: DataStream, tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path / "out"), keys="k")
    writer = processed.foreach_batch(sink).query_name("job").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    for _ in range(2):
        writer.start().awaitTermination()
    rows = DeltaTable(str(tmp_path / "out")).to_pyarrow_table().to_pylist()
    assert sorted((row["k"], row["v"]) for row in rows) == [("a", 3), ("b", 2), ("c", 4)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.format("delta").partitionBy("day"), "partition column 'day'"),
        (lambda w: w.format("delta").option("mergeSchema", "true"), "mergeSchema"),
        (lambda w: w.format("delta").option("keys", "id"), "key column 'id'"),
        (lambda w: w.format("kafka").partition_by(["k"]), "partition_by"),
        (lambda w: w.foreach_batch(lambda rows, batch: None).partition_by("k"), "partition_by"),
    ],
    ids=range(5),
)
def test_what_does_not_fit_is_an_error_of_start(
    processed: DataStream, tmp_path: Path, change: Any, message: str
) -> None:
    writer = change(processed.write_stream).query_name("job").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(InvalidRequestError, match=message):
        writer.start(str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_files_are_partitioned_as_spark_partitions_them(
    spark: SparkSession, processed: DataStream, tmp_path: Path
) -> None:
    writer = processed.write_stream.format("parquet").partitionBy("k").query_name("job").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out")).awaitTermination()
    written = spark.read.parquet(str(tmp_path / "out"))
    written.write.partitionBy("k").parquet(str(tmp_path / "sparks"))
    for directory in ("out", "sparks"):
        frame = spark.read.parquet(str(tmp_path / directory))
        assert sorted((row.k, row.v) for row in frame.where("k <> 'b'").collect()) == [("a", 1), ("a", 3), ("c", 4)]
    with pytest.raises(InvalidRequestError, match="partition column 'day'"):
        processed.write_stream.format("json").partition_by("day").query_name("other").option(
            "checkpointLocation", str(tmp_path / "c2")
        ).start(str(tmp_path / "out2"))


@pytest.mark.postgres
def test_elements_are_merged_by_pyflinks_jdbc_sink(spark: SparkSession, postgres: Server) -> None:
    """By the driver's way and by Spark's tasks; values of types that Spark does not have arrive as well."""
    conninfo = postgres.new_database()
    kind = Types.ROW([Types.INT(), Types.STRING(), Types.BIG_DEC()])
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:{conninfo.replace('varvite@', '')}")
    sink = JdbcSink.sink(
        "insert into t values (?, ?, ?) on conflict (k) do update set v = excluded.v, d = excluded.d",
        kind,
        options.with_user_name("varvite").build(),
    )
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("create table t (k int primary key, v text, d numeric)")
        for rows_max in (0, 1000):
            env = StreamExecutionEnvironment.get_execution_environment(spark).set_parallelism(1)
            env.configure("execution.small-batch.max-rows", rows_max)
            rows = [Row(1, "a", Decimal("1.50")), Row(2, "b", None), Row(1, f"c{rows_max}", Decimal(2))]
            env.from_collection(rows, kind).map(lambda row: row, kind).add_sink(sink)
            env.execute("jdbc")
            found = connection.execute("select * from t order by k").fetchall()
            assert found == [(1, f"c{rows_max}", Decimal(2)), (2, "b", None)]
