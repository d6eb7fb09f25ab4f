"""The Iceberg sink over a catalogue in SQLite, without Spark: tables, stale commits, drivers side by side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, ServiceUnavailableError
from pyiceberg.transforms import BucketTransform

from tests.integration.outages import OUTAGES_S, moto_server, outage
from tests.integration.tables.delta_table import struct, write
from tests.integration.tables.held_back import held_back
from tests.integration.tables.iceberg_warehouse import Warehouse
from tests.stores.postgres_server import running_server
from varvite.changelog.commit.base_decision import RepeatedBatch
from varvite.spark_integration.connectors.tables import iceberg_sink
from varvite.spark_integration.connectors.tables.iceberg_sink import IcebergSink
from varvite.storage.errors import DidNotHappenError, FencedError, InvalidRequestError, LineageError
from varvite.testing.contracts.sink import commit

COLUMNS = pa.schema([("k", pa.string()), ("v", pa.int64())])
WITH_BATCH = COLUMNS.append(pa.field("batch_id", pa.int64()))


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    warehouse = Warehouse(tmp_path)
    yield warehouse
    warehouse.close()


def test_appended_rows_have_the_batch(warehouse: Warehouse) -> None:
    sink = warehouse.open()
    write(sink, commit(0, 2), ("a", 1), ("a", 2))
    write(sink, commit(1, 3), ("b", 3))
    assert warehouse.rows("k", "v", "batch_id") == [("a", 1, 0), ("a", 2, 0), ("b", 3, 1)]


def test_merged_rows_are_the_last_of_their_key(warehouse: Warehouse) -> None:
    sink = warehouse.open(keys="k")
    write(sink, commit(0, 2), ("a", 1), ("b", 1), ("a", 2))
    write(sink, commit(1, 3), ("b", 2), ("c", 1), ("b", 3))
    write(sink, commit(2, 4), ("b", 3))  # which is there already
    write(sink, commit(3, 5))
    assert warehouse.rows() == [("a", 2), ("b", 3), ("c", 1)]
    assert warehouse.open(keys="k").last_committed() == commit(3, 5)


def test_a_repeated_batch_of_merged_rows_is_refused_or_merged_once_more(warehouse: Warehouse) -> None:
    write(warehouse.open(keys="k"), commit(0, 2), ("a", 1))
    assert warehouse.open(keys="k").repeated_batch is RepeatedBatch.REFUSED
    with pytest.raises(LineageError, match="allow_repeats"):
        write(warehouse.open(keys="k"), commit(0, 4), ("a", 9))
    write(warehouse.open(keys="k", allow_repeats=True), commit(0, 4), ("a", 9))
    assert warehouse.rows() == [("a", 9)]


def test_a_null_key_is_refused_and_nothing_is_written(warehouse: Warehouse) -> None:
    with pytest.raises(InvalidRequestError, match="null in its key column `k`"):
        write(warehouse.open(keys="k"), commit(0, 2), ("b", 1), (None, 2))
    assert warehouse.rows() == []


@pytest.mark.parametrize(("merges", "newer_rows"), [(False, 0), (False, 1), (True, 0)])
def test_a_stale_commit_is_refused_only_without_the_retries_of_pyiceberg(
    warehouse: Warehouse, *, merges: bool, newer_rows: int
) -> None:
    """It puts a commit that was refused onto the newer table: the note went back, and rows were there twice."""
    warehouse.catalog.create_table("d.t", COLUMNS)
    row = pa.Table.from_pylist([{"k": "a", "v": 1}], COLUMNS)
    warehouse.catalog.load_table("d.t").append(row)

    def stale(retries: str) -> None:
        older, newer = warehouse.catalog.load_table("d.t"), warehouse.catalog.load_table("d.t")
        newer.append(row.slice(0, newer_rows))  # an empty snapshot, as a start makes it, is enough
        older.metadata.properties["commit.retry.num-retries"] = retries
        with older.transaction() as transaction:
            if merges:
                transaction.upsert(row, join_cols=["k"])  # which changes nothing, and makes no snapshot
            transaction.append(row.slice(0, 0) if merges else row)
            transaction.set_properties({"note": "older"})

    with pytest.raises(CommitFailedException):
        stale("0")
    assert "note" not in warehouse.catalog.load_table("d.t").properties
    stale("4")
    assert warehouse.catalog.load_table("d.t").properties["note"] == "older"


@pytest.mark.parametrize("keys", [(), ("k",)])
@pytest.mark.parametrize("of_newer", ["batch", "start"])
def test_an_older_driver_that_wakes_up_between_its_look_and_its_commit_is_refused(
    warehouse: Warehouse, keys: tuple[str, ...], of_newer: str
) -> None:
    older = warehouse.open(keys=keys)
    write(older, commit(0, 2), ("a", 1))
    newer: list[IcebergSink] = []

    def meanwhile() -> None:
        newer.append(warehouse.open(keys=keys))
        if of_newer == "batch":
            write(newer[0], commit(1, 4), ("a", 2))

    held_back(older, meanwhile)
    with pytest.raises(FencedError):
        write(older, commit(1, 3), ("a", 1))
    if of_newer == "start":
        write(newer[0], commit(1, 4), ("a", 2))
    assert warehouse.rows() == [("a", 2)] if keys else [("a", 1), ("a", 2)]
    assert warehouse.open(keys=keys).last_committed() == commit(1, 4)


def test_commits_of_others_between_look_and_commit_are_borne_with(warehouse: Warehouse) -> None:
    sink = warehouse.open(batch_column=None)
    write(sink, commit(0, 2), ("a", 1))
    held_back(sink, lambda: write(warehouse.open(job="2" * 32, batch_column=None), commit(0, 2), ("b", 2)))
    write(sink, commit(1, 3), ("a", 3))
    assert warehouse.rows() == [("a", 1), ("a", 3), ("b", 2)]


def test_the_note_outlives_the_expiry_of_snapshots(warehouse: Warehouse) -> None:
    sink = warehouse.open()
    for batch in range(3):
        write(sink, commit(batch, batch + 2), ("a", batch))
    table = warehouse.catalog.load_table("d.t")
    for snapshot in table.snapshots()[:-1]:
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    assert warehouse.open().last_committed() == commit(2, 4)
    write(warehouse.open(), commit(1, 9), ("b", 1))
    assert warehouse.rows() == [("a", 0), ("b", 1)]


def test_a_partitioned_table_takes_rows(warehouse: Warehouse) -> None:
    table = warehouse.catalog.create_table("d.t", WITH_BATCH)
    with table.update_spec() as spec:
        spec.add_identity("k")
    write(warehouse.open(), commit(0, 2), ("a", 1), ("b", 2), (None, 3))
    write(warehouse.open(), commit(0, 4), ("a", 4), ("b", 5))
    assert warehouse.rows() == [("a", 4), ("b", 5)]


@pytest.mark.parametrize("keys", [(), ("k",)])
def test_a_table_that_is_made_is_partitioned(warehouse: Warehouse, keys: tuple[str, ...]) -> None:
    sink = warehouse.open(partition_by="k", keys=keys)
    write(sink, commit(0, 2), ("a", 1), ("b", 2))
    write(sink, commit(1, 3), ("a", 3), (None if not keys else "c", 4))
    expected = [("a", 3), ("b", 2), ("c", 4)] if keys else [("a", 1), ("a", 3), ("b", 2), (None, 4)]
    assert warehouse.rows() == expected
    table = warehouse.catalog.load_table("d.t")
    assert [str(field) for field in table.spec().fields] == ["1000: k: identity(1)"]
    write(warehouse.open(partition_by=["k"], keys=keys), commit(2, 4))
    assert warehouse.rows() == expected


def test_a_table_that_another_makes_in_between_is_taken(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    late = warehouse.sink(batch_column=None)
    late.prepare(warehouse.job)
    load, looks = late._loaded, iter([False])

    def loaded() -> Any:
        if next(looks, True):
            return load()
        write(warehouse.open(job="2" * 32, batch_column=None), commit(0, 2), ("b", 2))
        return None

    monkeypatch.setattr(late, "_loaded", loaded)
    late.take_over()
    write(late, commit(0, 2), ("a", 1))
    assert warehouse.rows() == [("a", 1), ("b", 2)]


def test_a_table_partitioned_otherwise_is_refused(warehouse: Warehouse) -> None:
    table = warehouse.catalog.create_table("d.t", WITH_BATCH)
    with table.update_spec() as spec:
        spec.add_field("k", BucketTransform(4), "bucket")
    with pytest.raises(InvalidRequestError, match=r"partitioned by \['bucket\[4\]\(k\)'\], not by \['k'\]"):
        warehouse.open(partition_by="k")
    with pytest.raises(InvalidRequestError, match="partition column 'day'"):
        warehouse.sink(partition_by="day")


@pytest.mark.parametrize(
    ("columns", "settings", "message"),
    [
        (COLUMNS, {}, "no column `batch_id`"),
        (WITH_BATCH.set(1, pa.field("v", pa.int32())), {}, "`v` is int, and long"),
        (WITH_BATCH.append(pa.field("must", pa.int64(), nullable=False)), {}, "`must` may not be null"),
    ],
    ids=["missing", "type", "required"],
)
def test_a_table_that_does_not_fit_is_an_error_at_the_start(
    warehouse: Warehouse, columns: pa.Schema, settings: dict[str, Any], message: str
) -> None:
    warehouse.catalog.create_table("d.t", columns)
    with pytest.raises(InvalidRequestError, match=message):
        warehouse.sink(**settings).prepare(warehouse.job)


def test_rows_of_others_are_not_replaced_with_a_batch(warehouse: Warehouse) -> None:
    write(warehouse.open(), commit(5, 7), ("a", 1))
    with pytest.raises(InvalidRequestError, match="not this job's"):
        warehouse.open(job="f" * 32)


def test_what_cannot_be_is_an_error_that_says_so(warehouse: Warehouse) -> None:
    with pytest.raises(InvalidRequestError, match="no type for column `d`"):
        warehouse.sink("k string, d interval")
    sink = IcebergSink("nobody.t", catalog="c", properties=warehouse.properties)
    sink.check_columns(struct("k string"))
    sink.prepare(warehouse.job)
    with pytest.raises(DidNotHappenError, match="nobody"):
        sink.take_over()
    sink.close()
    with pytest.raises(DidNotHappenError, match="start the query again"):
        IcebergSink("d.t", catalog="nobody").prepare(warehouse.job)


@pytest.mark.s3
@pytest.mark.parametrize("away_s", OUTAGES_S)
def test_a_store_that_is_away_for_a_while_is_waited_for(tmp_path: Path, away_s: int) -> None:
    with moto_server() as server:
        store = {
            "warehouse": "s3://away/warehouse", "s3.endpoint": server.s3.endpoint_url, "s3.region": "us-east-1",
            "s3.access-key-id": server.s3.key, "s3.secret-access-key": server.s3.secret,
        }  # fmt: skip
        warehouse = Warehouse(tmp_path, **store)
        sink = warehouse.open()
        write(sink, commit(0, 2), ("a", 1))
        with outage(away_s, server.end, server.start):
            write(sink, commit(1, 3), ("b", 2))
        assert warehouse.rows() == [("a", 1), ("b", 2)]
        warehouse.close()


@pytest.mark.postgres
@pytest.mark.parametrize("away_s", OUTAGES_S)
def test_a_catalogue_that_is_away_for_a_while_is_waited_for(tmp_path: Path, away_s: int) -> None:
    with running_server() as server:
        uri = server.new_database().replace("postgresql:", "postgresql+psycopg:")
        warehouse = Warehouse(tmp_path, uri=uri)
        sink = warehouse.open()
        write(sink, commit(0, 2), ("a", 1))
        with outage(away_s, server.end, server.start):
            write(sink, commit(1, 3), ("b", 2))
        warehouse.close()
        warehouse = Warehouse(tmp_path, uri=uri)  # connections of the other are broken
        assert warehouse.rows() == [("a", 1), ("b", 2)]
        warehouse.close()


@pytest.mark.postgres
def test_a_store_that_stays_away_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_sink, "AWAY_MAX_S", 1.0)
    with running_server() as server:
        uri = server.new_database().replace("postgresql:", "postgresql+psycopg:")
        warehouse = Warehouse(tmp_path, uri=uri)
        sink = warehouse.open()
        server.end()
        with pytest.raises(DidNotHappenError, match=r"write batch 0 to table d\.t; start the query again.*refused"):
            write(sink, commit(0, 2), ("a", 1))
        server.start()
        warehouse.close()
        job, warehouse = warehouse.job, Warehouse(tmp_path, uri=uri)
        write(warehouse.open(job=job), commit(0, 2), ("a", 1))
        assert warehouse.rows() == [("a", 1)]
        warehouse.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (requests.exceptions.ConnectionError("refused"), True),
        (requests.exceptions.ReadTimeout("slow"), True),
        (ConnectionResetError("reset"), True),
        (ServiceUnavailableError("busy"), True),
        (OSError("AWS Error NETWORK_CONNECTION during PutObject operation: curlCode: 7"), True),
        (OSError("AWS Error ACCESS_DENIED during PutObject operation"), False),
        (FileNotFoundError("gone"), False),
        (ForbiddenError("no"), False),
        (requests.exceptions.InvalidURL("x"), False),
    ],
)
def test_only_what_may_pass_is_tried_again(error: Exception, expected: bool) -> None:
    assert iceberg_sink.is_away(error) is expected
