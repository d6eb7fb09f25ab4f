"""`JdbcSink` against a real PostgreSQL server, without Spark: values, repeated batches, a server that is away."""

from __future__ import annotations

import threading
import time
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.stores.postgres_server import Server, running_server
from varvite.common import Types
from varvite.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcExecutionOptions, JdbcSink
from varvite.storage.errors import DidNotHappenError, InvalidRequestError
from varvite.testing.contracts.sink import commit

pytestmark = pytest.mark.postgres

PAIR = Types.ROW([Types.INT(), Types.STRING()])
UPSERT = "insert into t (k, v) values (?, ?) on conflict (k) do update set v = excluded.v"


class Table:
    """A table of a new database."""

    def __init__(self, server: Server, columns: str = "k int primary key, v text") -> None:
        self.conninfo = server.new_database()
        self.execute(f"create table t ({columns})")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def sink(self, sql: str = UPSERT, kind: Any = PAIR, **execution: int) -> JdbcSink:
        url = f"jdbc:{self.conninfo.replace('varvite@', '')}"
        builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url).with_user_name("varvite")
        options = JdbcExecutionOptions.builder()
        for name, value in execution.items():
            getattr(options, f"with_{name}")(value)
        sink = JdbcSink.sink(sql, kind, builder.with_driver_name("org.postgresql.Driver").build(), options.build())
        sink.prepare("0" * 32)
        return sink

    def rows(self) -> list[tuple[Any, ...]]:
        return self.execute("select * from t order by 1")


def write(sink: JdbcSink, batch: int, *rows: tuple[Any, ...]) -> None:
    """Write elements as a job does: in the form that the sink's step gives them."""
    form, elements = sink.form(sink._elements)
    columns = elements.writer("").columns([form(row) for row in rows])
    sink.write_table(pa.table(columns, names=elements.schema.names), commit(batch, batch + 2))


def test_a_statement_is_executed_for_each_element_in_order(postgres: Server) -> None:
    table = Table(postgres)
    sink = table.sink(batch_size=2)
    write(sink, 0, (1, "a"), (2, "b"), (1, "c"), (3, None), (4, "50% '?'"))
    assert table.rows() == [(1, "c"), (2, "b"), (3, None), (4, "50% '?'")]
    write(sink, 1)
    write(sink, 0, (1, "a"), (2, "b"))
    assert table.rows()[0] == (1, "a"), "a batch that is executed again is written again, as in Flink"
    assert sink.last_committed() is None
    sink.close()
    sink.close()


def test_values_of_every_type_arrive(postgres: Server) -> None:
    fields = [
        (Types.BOOLEAN(), "boolean", True), (Types.SHORT(), "smallint", 1), (Types.LONG(), "bigint", 1 << 40),
        (Types.FLOAT(), "real", 1.5), (Types.DOUBLE(), "double precision", 0.1),
        (Types.BIG_DEC(), "numeric", Decimal("1.50")), (Types.SQL_DATE(), "date", date(2024, 2, 29)),
        (Types.SQL_TIMESTAMP(), "timestamp", datetime(2024, 2, 29, 1, 2, 3, 4)),  # noqa: DTZ001  as it is there
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "bytea", b"\x00\xff"),
        (Types.BASIC_ARRAY(Types.STRING()), "text[]", ["a", None]),
    ]  # fmt: skip
    columns = ", ".join(f"c{i} {kind}" for i, (_, kind, _) in enumerate(fields))
    table = Table(postgres, columns)
    sink = table.sink(
        f"insert into t values ({', '.join('?' * len(fields))})", Types.ROW([kind for kind, _, _ in fields])
    )
    values = tuple(value for _, _, value in fields)
    write(sink, 0, values, (None,) * len(fields))
    assert table.rows() == [values, (None,) * len(fields)]
    sink.close()


def test_a_batch_is_there_as_a_whole_or_not_at_all(postgres: Server) -> None:
    table = Table(postgres, "k int primary key, v text check (v <> 'bad')")
    sink = table.sink(batch_size=1)
    with pytest.raises(
        InvalidRequestError, match=r"refuses to write batch 0: .*violates check .*correct the statement"
    ):
        write(sink, 0, (1, "a"), (2, "bad"))
    assert table.rows() == []
    write(sink, 0, (1, "a"), (2, "b"))
    assert table.rows() == [(1, "a"), (2, "b")]
    sink.close()
    for sql, message in (("insert into nowhere values (?, ?)", "nowhere"), ("insert int t values (?, ?)", "syntax")):
        other = table.sink(sql)
        with pytest.raises(InvalidRequestError, match=message):
            write(other, 0, (1, "a"))
        other.close()


def test_a_server_that_is_away_is_tried_again() -> None:
    with running_server() as server:
        table = Table(server)
        sink = table.sink(max_retries=10)
        write(sink, 0, (1, "a"))
        server.end()

        def restart() -> None:
            time.sleep(1)
            server.start()

        starting = threading.Thread(target=restart)
        starting.start()
        write(sink, 1, (2, "b"))
        starting.join()
        assert table.rows() == [(1, "a"), (2, "b")]
        sink.close()
        again = table.sink(max_retries=0)
        server.end()
        with pytest.raises(DidNotHappenError, match="could not write batch 2; see that jdbc:postgresql://127"):
            write(again, 2, (3, "c"))
