"""The PostgreSQL sink against a real server, without Spark: tables, drivers side by side, a server that is away."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.integration.outages import OUTAGES_S, outage
from tests.integration.tables.delta_table import struct, write
from tests.stores.postgres_server import Server, running_server
from varvite.changelog.commit.base_decision import RepeatedBatch
from varvite.spark_integration.connectors.tables import postgres_sink
from varvite.spark_integration.connectors.tables.postgres_sink import PostgresSink
from varvite.storage.errors import DidNotHappenError, FencedError, InvalidRequestError, LineageError
from varvite.testing.contracts.sink import commit

pytestmark = pytest.mark.postgres


class Database:
    """A database, and the sinks of one job that write to it."""

    def __init__(self, conninfo: str, **settings: Any) -> None:
        self.conninfo, self.settings = conninfo, settings
        self.job = uuid.uuid4().hex
        self.sinks: list[PostgresSink] = []

    def sink(self, schema: str = "k string, v long", table: str = "t", **settings: Any) -> PostgresSink:
        """A sink that is not prepared."""
        self.sinks.append(PostgresSink(self.conninfo, table, **{**self.settings, **settings}))
        self.sinks[-1].check_columns(struct(schema))
        return self.sinks[-1]

    def open(self, schema: str = "k string, v long", *, job: str | None = None, **settings: Any) -> PostgresSink:
        """A sink as a new driver makes it."""
        sink = self.sink(schema, **settings)
        sink.prepare(job or self.job)
        sink.take_over()
        return sink

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def rows(self, columns: str = "k, v", table: str = "t") -> list[tuple[Any, ...]]:
        return self.execute(f"select {columns} from {table} order by {columns}")


@pytest.fixture
def database(postgres: Server) -> Iterator[Database]:
    database = Database(postgres.new_database())
    yield database
    for sink in database.sinks:
        sink.close()


def test_appended_rows_have_the_batch_and_merged_ones_are_the_last_of_their_key(database: Database) -> None:
    appended, merged = database.open(), database.open(table="m", keys="k")
    for sink in (appended, merged):
        write(sink, commit(0, 2), ("a", 1), ("b", 1), ("a", 2))
        write(sink, commit(1, 3), ("b", 2), ("c", 1), ("b", 3))
    assert database.rows("k, v, batch_id") == [
        ("a", 1, 0), ("a", 2, 0), ("b", 1, 0), ("b", 2, 1), ("b", 3, 1), ("c", 1, 1),
    ]  # fmt: skip
    assert database.rows(table="m") == [("a", 2), ("b", 3), ("c", 1)]


def test_names_of_any_kind_and_a_table_of_keys_alone(database: Database) -> None:
    database.execute('create schema "My schema"')
    columns = 'Key "A" string, k%s string, {v} long'
    sink = database.open(columns, table='My schema.my "table"', keys=['Key "A"', "k%s"])
    write(sink, commit(0, 2), ("a", "%", 1), ("a", "%", 2), schema=columns)
    write(sink, commit(1, 3), ("a", "x", 3), schema=columns)
    assert database.execute('select * from "My schema"."my ""table"""') == [("a", "%", 2), ("a", "x", 3)]
    keys = database.open("k string", table="keys", keys="k")
    for batch in range(2):
        write(keys, commit(batch, batch + 2), ("a",), ("b",), schema="k string")
    assert database.rows("k", "keys") == [("a",), ("b",)]


def test_a_repeated_batch_of_merged_rows_is_refused_or_merged_once_more(database: Database) -> None:
    write(database.open(keys="k"), commit(0, 2), ("a", 1))
    assert database.open(keys="k").repeated_batch is RepeatedBatch.REFUSED
    with pytest.raises(LineageError, match="allow_repeats"):
        write(database.open(keys="k"), commit(0, 4), ("a", 9))
    assert database.rows() == [("a", 1)]
    write(database.open(keys="k", allow_repeats=True), commit(0, 4), ("a", 9))
    assert database.rows() == [("a", 9)]


def test_rows_that_the_server_refuses_are_an_error_and_nothing_is_written(database: Database) -> None:
    sink = database.open(keys="k")
    with pytest.raises(InvalidRequestError, match="null in its key column"):
        write(sink, commit(0, 2), ("a", 1), (None, 2))
    with pytest.raises(InvalidRequestError, match="0x00"):  # PostgreSQL has no such text
        write(sink, commit(0, 2), ("a", 1), ("b\0", 2))
    assert database.rows() == []
    write(sink, commit(0, 2), ("a", 1))
    assert database.rows() == [("a", 1)]


@pytest.mark.parametrize(
    ("table", "settings", "message"),
    [
        ("k text, v bigint", {}, "no column `batch_id`"),
        ("k text, v integer, batch_id bigint", {}, "`v` is integer, and bigint"),
        ("k integer, v bigint, batch_id bigint", {}, "`k` is integer, and text"),
        ("k text, v bigint, batch_id bigint, must bigint not null", {}, "`must` may not be null"),
        ("k text, v bigint", {"keys": "k"}, "create unique index on t"),
        ("k text, v bigint", {"keys": ["k", "v"]}, r"create unique index on t \(k, v\)"),
    ],
)
def test_a_table_that_does_not_fit_is_an_error_at_the_start(
    database: Database, table: str, settings: dict[str, Any], message: str
) -> None:
    database.execute(f"create table t ({table})")
    with pytest.raises(InvalidRequestError, match=message):
        database.open(**settings)


def test_a_table_that_fits_is_used(database: Database) -> None:
    database.execute("create table t (id bigserial primary key, v numeric, k varchar(20) unique, more int default 7)")
    write(database.open(keys="k"), commit(0, 2), ("a", 1), ("b", 2))
    write(database.open(keys="k"), commit(1, 4), ("a", 3))
    assert database.rows("k, v, more") == [("a", 3, 7), ("b", 2, 7)]


def test_an_interval_is_refused_before_the_start(database: Database) -> None:
    with pytest.raises(InvalidRequestError, match="no type for column `d`"):
        database.sink("k string, d interval")


def test_rows_of_others_are_not_replaced_with_a_batch(database: Database) -> None:
    write(database.open(), commit(0, 2), ("a", 1))
    with pytest.raises(InvalidRequestError, match="not this job's"):
        database.open(job="f" * 32)
    database.execute("create table f as select 'x' k, 1::bigint v, 7::bigint batch_id")
    with pytest.raises(InvalidRequestError, match="not this job's"):
        database.open(table="f")
    plain = database.open(job="f" * 32, batch_column=None)
    write(plain, commit(0, 2), ("b", 2))
    write(database.open(), commit(0, 4), ("a", 3))
    assert database.rows() == [("a", 3), ("b", 2)]


def test_a_driver_that_stands_still_in_its_transaction_is_ended(database: Database) -> None:
    """It holds the lock, and no timeout of the server counts while COPY waits for rows."""
    older = database.open()
    write(older, commit(0, 2), ("a", 1))
    stands, goes_on, inner = threading.Event(), threading.Event(), older._copy
    raised: list[BaseException] = []

    def copy(*arguments: Any) -> None:
        inner(*arguments)
        stands.set()
        assert goes_on.wait(60)

    def run() -> None:
        try:
            write(older, commit(1, 3), ("z", 9))
        except Exception as error:  # noqa: BLE001  it is looked at below
            raised.append(error)

    older._copy = copy  # type: ignore[method-assign]
    thread = threading.Thread(target=run)
    thread.start()
    assert stands.wait(60)
    begin = time.monotonic()
    newer = database.open()
    assert time.monotonic() - begin < postgres_sink.IDLE_TIMEOUT_S / 2
    write(newer, commit(1, 5), ("a", 2))
    goes_on.set()
    thread.join(60)
    assert [type(error) for error in raised] == [FencedError]
    assert database.rows() == [("a", 1), ("a", 2)]


def test_two_writers_at_once_give_each_batch_once(database: Database) -> None:
    """Each takes the table over again and again, as drivers that are started twice."""
    done = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        while not done.is_set():
            try:
                sink = database.open()
                last = sink.last_committed()
                batch, seq = (0, 2) if last is None else (last.batch + 1, last.seq + 1)
                for i in range(5):
                    write(sink, commit(batch + i, seq + i), ("a", batch + i))
            except FencedError:
                pass
            except Exception as error:  # noqa: BLE001  it is looked at below
                errors.append(error)
                return
            else:
                if batch > 40:
                    done.set()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors
    last = database.open().last_committed()
    assert last is not None
    assert [v for (v,) in database.rows("v")] == list(range(last.batch + 1))


def test_a_lost_reply_of_a_commit_writes_nothing_twice(database: Database) -> None:
    sink = database.open()
    inner, calls = sink._try_to_commit, []

    def lost(*arguments: Any) -> None:
        inner(*arguments)
        calls.append(1)
        if len(calls) == 1:
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    sink._try_to_commit = lost  # type: ignore[method-assign]
    write(sink, commit(0, 2), ("a", 1))
    assert len(calls) == 2
    assert database.rows() == [("a", 1)]


@pytest.mark.parametrize("away_s", OUTAGES_S)
@pytest.mark.parametrize("keys", [(), ("k",)])
def test_a_server_that_is_away_for_a_while_is_waited_for(keys: tuple[str, ...], away_s: int) -> None:
    with running_server() as server:
        database = Database(server.new_database(), keys=keys)
        sink = database.open()
        write(sink, commit(0, 2), ("a", 1))
        with outage(away_s, server.end, server.start):
            write(sink, commit(1, 3), ("b", 2))
        assert database.rows() == [("a", 1), ("b", 2)]
        sink.close()


def test_a_server_that_stays_away_is_an_error_that_says_so(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_sink, "LIMIT_S", 1.0)
    with pytest.raises(DidNotHappenError, match="start the query again"):
        Database("postgresql://varvite@127.0.0.1:1/x").open()
    monkeypatch.setattr(postgres_sink, "LIMIT_S", 600.0)
    with pytest.raises(DidNotHappenError, match='database "nobody" does not exist'):
        Database(database.conninfo.rpartition("/")[0] + "/nobody").open()
