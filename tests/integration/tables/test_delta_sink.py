"""The Delta sink without Spark: merged, partitioned and plain tables, drivers beside one another, what is refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from tests.integration.outages import OUTAGES_S, moto_server, outage
from tests.integration.tables.delta_table import Table, s3_options, write
from tests.integration.tables.held_back import held_back
from tests.stores.s3_servers import S3Server
from varvite.changelog.commit.base_decision import RepeatedBatch
from varvite.spark_integration.connectors.tables import delta_sink, table_sink
from varvite.spark_integration.connectors.tables.delta_sink import DeltaSink
from varvite.spark_integration.connectors.tables.table_sink import TableSettings
from varvite.storage.errors import DidNotHappenError, FencedError, InvalidRequestError, LineageError
from varvite.testing.contracts.sink import commit


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(str(tmp_path / "table"))


@pytest.fixture
def merged(tmp_path: Path) -> Table:
    return Table(str(tmp_path / "merged"), keys="k")


def test_appended_rows_have_the_batch(table: Table) -> None:
    sink = table.open()
    write(sink, commit(0, 2), ("a", 1), ("a", 2))
    write(sink, commit(1, 3), ("b", 3))
    assert table.rows("k", "v", "batch_id") == [("a", 1, 0), ("a", 2, 0), ("b", 3, 1)]


def test_merged_rows_are_the_last_of_their_key(merged: Table) -> None:
    """Also within a batch, in whose order a function yields its counts."""
    sink = merged.open()
    write(sink, commit(0, 2), ("a", 1), ("b", 1), ("a", 2))
    write(sink, commit(1, 3), ("b", 2), ("c", 1), ("b", 3))
    write(sink, commit(2, 4))
    assert merged.rows() == [("a", 2), ("b", 3), ("c", 1)]
    assert merged.open().last_committed() == commit(2, 4)


def test_keys_of_several_columns_with_any_name(tmp_path: Path) -> None:
    columns = "Key A string, k.2 long, v' \" string"
    table = Table(str(tmp_path / "t"), columns, keys=["Key A", "k.2"])
    sink = table.open()
    write(sink, commit(0, 2), ("a", 1, "x"), ("a", 2, "x"), schema=columns)
    write(sink, commit(1, 3), ("a", 2, "y"), ("A", 2, "z"), schema=columns)
    assert table.rows() == [("A", 2, "z"), ("a", 1, "x"), ("a", 2, "y")]


def test_a_null_key_is_refused_and_nothing_is_written(merged: Table) -> None:
    """It would match no row, so each batch would add one."""
    sink = merged.open()
    write(sink, commit(0, 2), ("a", 1))
    with pytest.raises(InvalidRequestError, match="null in its key column `k`"):
        write(sink, commit(1, 3), ("b", 1), (None, 2))
    assert merged.rows() == [("a", 1)]


def test_a_repeated_batch_of_merged_rows_is_refused_or_merged_once_more(merged: Table) -> None:
    """Rows that the earlier execution has merged have replaced others, which are gone."""
    sink = merged.open()
    write(sink, commit(0, 2), ("a", 1))
    assert sink.repeated_batch is RepeatedBatch.REFUSED
    with pytest.raises(LineageError, match="allow_repeats"):
        write(merged.open(), commit(0, 4), ("a", 9))
    assert merged.rows() == [("a", 1)]
    again = merged.open(allow_repeats=True)
    assert again.repeated_batch is RepeatedBatch.REPLACED
    write(again, commit(0, 4), ("a", 9))
    assert merged.rows() == [("a", 9)]


def test_a_table_without_a_batch_column_has_the_columns_of_the_output(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "t"), batch_column=None)
    write(table.open(), commit(0, 2), ("a", 1))
    assert [field.name for field in table.table().schema().fields] == ["k", "v"]
    assert table.open().repeated_batch is RepeatedBatch.REFUSED
    with pytest.raises(LineageError, match="batch 0"):
        write(table.open(), commit(0, 4), ("a", 1))


def test_partitions_with_any_value(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "t"), partition_by="k")
    values = ["a/b=c %41", "", "é ", "x", None]
    write(table.open(), commit(0, 2), *((value, i) for i, value in enumerate(values)))
    write(table.open(), commit(0, 4), *((value, i + 10) for i, value in enumerate(values)))  # replaced in all
    assert table.table().metadata().partition_columns == ["k"]
    read = {v: k for k, v in table.rows()}
    assert read == {10: "a/b=c %41", 11: None, 12: "é ", 13: "x", 14: None}  # Delta has no empty partition value


def test_a_table_that_is_there_takes_columns_by_name_and_fills_up_with_nulls(table: Table) -> None:
    columns = pa.schema([("more", pa.float64()), ("v", pa.int64()), ("batch_id", pa.int64()), ("k", pa.string())])
    DeltaTable.create(table.path, columns)
    write(table.open(), commit(0, 2), ("a", 1))
    assert table.rows("k", "v", "more", "batch_id") == [("a", 1, None, 0)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([("k", pa.string()), ("v", pa.int64())], "no column `batch_id`"),
        ([("k", pa.string()), ("v", pa.int32()), ("batch_id", pa.int64())], "column `v` is integer, and long"),
        ([("k", pa.list_(pa.string())), ("v", pa.int64()), ("batch_id", pa.int64())], "column `k` is array<string>"),
    ],
)
def test_a_table_that_does_not_fit_is_an_error_at_the_start(
    table: Table, columns: list[tuple[str, pa.DataType]], message: str
) -> None:
    DeltaTable.create(table.path, pa.schema(columns))
    with pytest.raises(InvalidRequestError, match=message):
        table.sink().prepare(table.job)


def test_a_column_that_may_not_be_null_must_be_in_the_output(table: Table) -> None:
    fields = [("k", pa.string()), ("v", pa.int64()), ("batch_id", pa.int64())]
    schema = pa.schema([*fields, pa.field("must", pa.int64(), nullable=False)])
    DeltaTable.create(table.path, schema)
    with pytest.raises(InvalidRequestError, match="`must` may not be null"):
        table.sink().prepare(table.job)


@pytest.mark.parametrize(
    ("schema", "settings", "message"),
    [
        ("k string, Batch_Id long", {}, "batch_column"),
        ("k string", {"keys": "id"}, "key column 'id'"),
        ("k string", {"partition_by": "day"}, "partition column 'day'"),
        ("k array", {"keys": "k"}, "array<string>"),
        ("k string, n void", {}, "void"),
        ("k string, d interval", {}, "no type for column `d`"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_start(
    tmp_path: Path, schema: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        Table(str(tmp_path / "t"), schema, **settings).sink()


def test_a_table_partitioned_otherwise_is_refused(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "t"), partition_by="k")
    table.open()
    with pytest.raises(InvalidRequestError, match="partitioned by"):
        table.open(partition_by="v")
    write(table.open(partition_by=()), commit(0, 2), ("a", 1))


def test_a_table_that_forgets_transactions_is_refused(table: Table) -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("batch_id", pa.int64())])
    DeltaTable.create(table.path, schema, configuration={"delta.setTransactionRetentionDuration": "interval 1 hour"})
    with pytest.raises(InvalidRequestError, match="forgets transactions"):
        table.open()


def test_rows_of_others_are_not_replaced_with_a_batch(table: Table) -> None:
    """Batch ids of two jobs are the same numbers."""
    write(table.open(), commit(5, 7), ("a", 1))
    with pytest.raises(InvalidRequestError, match="another job has written"):
        table.open(job="f" * 32)
    foreign = Table(f"{table.path}-2")
    write_deltalake(foreign.path, pa.table({"k": ["x"], "v": [1], "batch_id": [7]}))
    with pytest.raises(InvalidRequestError, match="not this job's"):
        foreign.open()


def test_two_jobs_write_to_a_table_without_a_batch_column(tmp_path: Path) -> None:
    table = Table(str(tmp_path / "t"), batch_column=None)
    one, two = table.open(job="1" * 32), table.open(job="2" * 32)
    write(one, commit(0, 2), ("a", 1))
    write(two, commit(0, 2), ("b", 2))
    write(one, commit(1, 3), ("a", 3))
    assert table.rows() == [("a", 1), ("a", 3), ("b", 2)]
    assert table.open(job="2" * 32).last_committed() == commit(0, 2)


def test_the_note_outlives_compaction_vacuum_checkpoints_and_clean_up(table: Table) -> None:
    sink = table.open()
    for batch in range(3):
        write(sink, commit(batch, batch + 2), ("a", batch))
    other = table.table()
    other.optimize.compact()
    other.vacuum(0, dry_run=False, enforce_retention_duration=False)
    other.create_checkpoint()
    other.cleanup_metadata()
    assert table.open().last_committed() == commit(2, 4)
    write(table.open(), commit(1, 9), ("b", 1))
    assert table.rows() == [("a", 0), ("b", 1)]


def test_compaction_beside_the_job_disturbs_no_batch(table: Table) -> None:
    sink = table.open()
    for batch in range(6):
        write(sink, commit(batch, batch + 2), ("a", batch))
        table.table().optimize.compact()
    assert table.rows() == [("a", batch) for batch in range(6)]


@pytest.mark.parametrize("keys", [(), ("k",)])
@pytest.mark.parametrize("of_newer", ["batch", "start"])
def test_an_older_driver_that_wakes_up_between_its_look_and_its_commit_is_refused(
    tmp_path: Path, keys: tuple[str, ...], of_newer: str
) -> None:
    table = Table(str(tmp_path / "t"), keys=keys)
    older = table.open()
    write(older, commit(0, 2), ("a", 1))
    newer: list[DeltaSink] = []

    def meanwhile() -> None:
        newer.append(table.open())
        if of_newer == "batch":
            write(newer[0], commit(1, 4), ("a", 2))

    held_back(older, meanwhile)
    with pytest.raises(FencedError):
        write(older, commit(1, 3), ("z", 9))
    if of_newer == "start":
        write(newer[0], commit(1, 4), ("a", 2))
    assert table.rows() == [("a", 2)] if keys else [("a", 1), ("a", 2)]
    assert table.open().last_committed() == commit(1, 4)


@pytest.mark.parametrize("keys", [(), ("k",)])
def test_writers_of_others_between_look_and_commit_are_borne_with(tmp_path: Path, keys: tuple[str, ...]) -> None:
    table = Table(str(tmp_path / "t"), keys=keys, batch_column=None)
    sink = table.open()
    write(sink, commit(0, 2), ("a", 1))
    held_back(sink, lambda: write(table.open(job="2" * 32), commit(0, 2), ("b", 2)))
    write(sink, commit(1, 3), ("a", 3))
    assert table.rows() == ([("a", 3), ("b", 2)] if keys else [("a", 1), ("a", 3), ("b", 2)])


def test_two_writers_at_once_give_each_batch_once(table: Table) -> None:
    """Each takes the table over again and again, as drivers that are started twice."""
    refused: list[int] = []
    done = threading.Event()

    def run() -> None:
        while not done.is_set():
            try:
                sink = table.open()
                last = sink.last_committed()
                batch, seq = (0, 2) if last is None else (last.batch + 1, last.seq + 1)
                for i in range(5):
                    write(sink, commit(batch + i, seq + i), ("a", batch + i))
            except (FencedError, DidNotHappenError):
                refused.append(1)
            else:
                if batch > 40:
                    done.set()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    last = table.open().last_committed()
    assert last is not None
    assert [v for _, v in sorted(table.rows(), key=lambda row: row[1])] == list(range(last.batch + 1))


def test_two_sinks_of_a_job_on_one_table_end_with_an_error_that_says_so(table: Table) -> None:
    first = table.open()
    table.open()
    with pytest.raises(FencedError, match="two sinks of this job"):
        write(first, commit(0, 2), ("a", 1))


def test_a_table_that_changes_all_the_time_is_an_error(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = table.open()

    def refuse(*_: Any) -> None:
        raise CommitFailedError("others")

    monkeypatch.setattr(sink, "_write_rows", refuse)
    monkeypatch.setattr(table_sink, "TRIES", 3)
    with pytest.raises(DidNotHappenError, match="3 times"):
        write(sink, commit(0, 2), ("a", 1))


def test_a_store_that_is_not_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    options = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "x",
               "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "max_retries": 0}  # fmt: skip
    with pytest.raises(DidNotHappenError, match=r"could not open s3://nobody/t; start the query again") as raised:
        Table("s3://nobody/t", storage_options=options).open()
    assert "\x1b" not in str(raised.value)


@pytest.mark.s3
@pytest.mark.parametrize("server", ["moto_server", pytest.param("ceph_server", marks=pytest.mark.long)])
@pytest.mark.parametrize("keys", [(), ("k",)])
def test_a_table_on_s3(request: pytest.FixtureRequest, server: str, keys: tuple[str, ...]) -> None:
    s3: S3Server = request.getfixturevalue(server)
    table = Table(s3.new_location(), keys=keys, storage_options=s3_options(s3))
    older = table.open()
    write(older, commit(0, 2), ("a", 1))
    newer: list[DeltaSink] = []
    held_back(older, lambda: newer.append(table.open()))
    with pytest.raises(FencedError):
        write(older, commit(1, 3), ("z", 9))
    write(newer[0], commit(1, 4), ("a", 2))
    assert table.rows() == [("a", 2)] if keys else [("a", 1), ("a", 2)]
    assert table.open().last_committed() == commit(1, 4)


@pytest.mark.s3
@pytest.mark.parametrize("away_s", OUTAGES_S)
def test_a_store_that_is_away_for_a_while_is_waited_for(away_s: int) -> None:
    with moto_server() as server:
        table = Table("s3://away/table", storage_options=s3_options(server.s3))
        sink = table.open()
        write(sink, commit(0, 2), ("a", 1))
        with outage(away_s, server.end, server.start):
            write(sink, commit(1, 3), ("b", 2))
        assert table.rows() == [("a", 1), ("b", 2)]


def test_options_of_a_writer() -> None:
    options = {"keys": "a, b", "store.AWS_REGION": "eu-1", "Allow_Repeats": "true"}
    sink = delta_sink.delta_sink_of("/t", options, ["a"])
    assert sink.settings == TableSettings(("a", "b"), None, allow_repeats=True, partition_by=("a",))
    assert sink._options["AWS_REGION"] == "eu-1"
    assert delta_sink.delta_sink_of("/t", {}).settings == TableSettings()
    assert delta_sink.delta_sink_of("/t", {"batch_column": ""}).settings == TableSettings(batch_column=None)
    for options in ({"mergeSchema": "true"}, {"txnAppId": "x"}, {"allow_repeats": "maybe"}):
        with pytest.raises(InvalidRequestError, match=next(iter(options))):
            delta_sink.delta_sink_of("/t", options)
