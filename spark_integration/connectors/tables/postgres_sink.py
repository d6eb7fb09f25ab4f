"""A sink that writes to a PostgreSQL table: rows and the batch's commit in one transaction.

A table of commits has a row per job and output. A write locks that row, compares it, writes the rows by COPY, changes
it and commits. The start of a driver ends the connections that older drivers of the job have for this output: one that
stands still in a transaction would hold the lock.

Invariants: I6, I10 (rows are written in pieces).
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.pandas.types import to_arrow_schema

from varvite.changelog.commit.base_decision import SinkCommit, WriteKind
from varvite.spark_integration.connectors.output.rows import CheckedRows
from varvite.spark_integration.connectors.tables.postgres_columns import column_types, csv_pieces
from varvite.spark_integration.connectors.tables.table_sink import (
    BATCH_COLUMN,
    TableNote,
    TableSink,
    check_table_columns,
    table_settings,
)
from varvite.storage.clock import SystemClock
from varvite.storage.errors import DidNotHappenError, InvalidRequestError
from varvite.storage.fail_point import fail_point

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql.types import StructType

    from varvite.spark_integration.connectors.output.rows import OutputRows
    from varvite.storage.clock import Clock

_log: Final = logging.getLogger(__name__)
COMMIT_TABLE: Final = "varvite_commits"
LIMIT_S: Final = 120.0
"""Time for the server to come back."""
PAUSE_S: Final = 0.5
CONNECT_TIMEOUT_S: Final = 10
IDLE_TIMEOUT_S: Final = 60
"""Time after which the server ends a transaction in which nothing happens, and its lock."""
_VARCHAR: Final = "character varying"
_STAGE: Final = "varvite_rows"
_MAKING: Final = 0x76617276
"""Number of the lock of those that make tables."""
_COMMIT_COLUMNS: Final = (
    "job text, output text, runs bigint not null, batch_column text not null, batch bigint, seq bigint, token text, "
    "primary key (output, job)"
)


class PostgresSink(TableSink):
    """Writes to a PostgreSQL table, exactly once; makes the table if there is none.

    Args:
        conninfo: The database, as libpq has it: `postgresql://user@host/database`, or `host=... dbname=...`.
        table: Name of the table, perhaps with its schema's before a dot.
        keys: Columns by which rows are merged: the last row of a key counts. A table that is there needs a unique
            index on them. Without any, rows are appended.
        batch_column: Column of the batch's id, which is added to appended rows so that they can be replaced.
            None: the table has the columns of the output alone.
        commit_table: The table that notes the last commit of each job; it is made.
        allow_repeats: Without a batch column: write a batch that is executed again once more, and do not refuse it.
    """

    def __init__(
        self,
        conninfo: str,
        table: str,
        *,
        keys: Sequence[str] | str = (),
        batch_column: str | None = BATCH_COLUMN,
        commit_table: str = COMMIT_TABLE,
        allow_repeats: bool = False,
    ) -> None:
        super().__init__(table_settings(keys, batch_column, allow_repeats=allow_repeats))
        self._conninfo, self._name, self._commits_name = conninfo, table, commit_table
        self._job = ""
        self._connection: Any = None
        self._clock: Clock = SystemClock()

    def check_columns(self, schema: StructType) -> None:
        super().check_columns(schema)
        for field in schema.fields:
            column_types(field.dataType, field.name)

    def prepare(self, job_id: str) -> None:
        """Connect, and make the tables if there are none.

        Raises:
            InvalidRequestError: The table does not fit, or the client is not installed.
        """
        try:
            import psycopg  # noqa: F401  is it there?
        except ImportError:
            raise InvalidRequestError(
                "a PostgreSQL sink needs the package psycopg in the driver: pip install 'varvite[postgres]'"
            ) from None
        self._job = job_id
        self._retry(self._make_tables, f"open table {self._name}")

    def close(self) -> None:
        connection, self._connection, self._runs = self._connection, None, 0
        if connection is not None:
            connection.close()

    def _begin_run(self) -> TableNote:
        return self._retry(self._try_to_begin, f"begin a run on table {self._name}")

    def _commit_rows(self, rows: OutputRows, commit: SinkCommit) -> None:
        self._retry(lambda: self._try_to_commit(rows, commit), f"write batch {commit.batch} to table {self._name}")

    def _try_to_begin(self) -> TableNote:
        with self._connected().transaction():
            self._execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s"
                " and datname = current_database() and usename = current_user and pid <> pg_backend_pid()",
                self._application(),
            )
            self._execute(
                "insert into {commits} as c values (%s, %s, 1, %s) on conflict (output, job) do update"
                " set runs = c.runs + 1, batch_column = excluded.batch_column",
                self._job, self._output(), self.settings.batch_column or "",
            )  # fmt: skip
            if self.settings.batch_column is not None:
                self._check_owner()
            return self._note()

    def _try_to_commit(self, rows: OutputRows, commit: SinkCommit) -> None:
        with self._connected().transaction():
            kind = self.settings.decide(self._note(), self._runs, commit)
            if kind is WriteKind.NOTHING:
                return
            if kind is WriteKind.REPLACE:
                self._execute("delete from {table} where {batch} >= {first}", first=commit.batch)
            arrow = to_arrow_schema(self._written(), timezone="UTC")
            checked = CheckedRows(rows, arrow, self.settings.constants(commit), self.settings.keys)
            fail_point("driver.in_sink")
            if self.settings.keys:
                self._merge(checked)
            else:
                self._copy("{table}", checked)
            self._execute(
                "update {commits} set batch = %s, seq = %s, token = %s where output = %s and job = %s",
                *commit, self._output(), self._job,
            )  # fmt: skip

    def _merge(self, rows: CheckedRows) -> None:
        self._execute("create temporary table {stage} on commit drop as select {columns} from {table} where false")
        self._copy("{stage}", rows)
        insert = "insert into {table} ({columns}) select {columns} from {stage} on conflict ({keys}) do "
        has_others = set(self._written().names) > set(self.settings.keys)
        self._execute(f"{insert} update set {{updates}}" if has_others else f"{insert} nothing")

    def _copy(self, target: str, rows: CheckedRows) -> None:
        with self._connection.cursor().copy(self._sql(f"copy {target} ({{columns}}) from stdin (format csv)")) as copy:
            for piece in csv_pieces(rows.batches()):
                copy.write(piece)

    def _make_tables(self) -> None:
        connection = self._connected()
        with connection.transaction():
            # Two that make a table at the same time would meet in the catalogue.
            self._execute("select pg_advisory_xact_lock(%s)", _MAKING)
            if not self._is_there(self._commits_name):
                self._execute(f"create table {{commits}} ({_COMMIT_COLUMNS})")
            if not self._is_there(self._name):
                self._make_table()
            self._check_table()

    def _is_there(self, table: str) -> bool:
        return self._execute("select to_regclass(%s)", _quoted(table))[0][0] is not None

    def _make_table(self) -> None:
        columns = [
            self._sql("{name} {type}", name=_name(field.name), type=_text(column_types(field.dataType, field.name)[0]))
            for field in self._written().fields
        ]
        if self.settings.keys:
            columns.append(self._sql("primary key ({keys})"))
        self._execute("create table {table} ({definitions})", definitions=_text(", ").join(columns))
        if self.settings.batch_column is not None:
            self._execute("create index on {table} ({batch})")

    def _check_table(self) -> None:
        """Raise `InvalidRequestError` unless rows of the output fit into the table as they are."""
        from psycopg import errors

        of_table, required = {}, []
        for name, kind, is_required in self._execute(
            "select attname, format_type(atttypid, atttypmod), attnotnull and not atthasdef and attidentity = ''"
            " from pg_attribute where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped",
            self._output(),
        ):
            of_table[name] = _VARCHAR if kind.startswith(_VARCHAR) else kind
            required += [name] if is_required else []
        allowed = {field.name: column_types(field.dataType, field.name) for field in self._written().fields}
        output = {name: of_table[name] if of_table.get(name) in types else types[0] for name, types in allowed.items()}
        check_table_columns(output, of_table, self._name, required)
        if self.settings.keys:
            try:
                self._execute(
                    "explain insert into {table} ({columns}) select {columns} from {table} where false"
                    " on conflict ({keys}) do nothing"
                )
            except errors.InvalidColumnReference:
                keys = ", ".join(self.settings.keys)
                raise InvalidRequestError(
                    f"table {self._name} has no unique index on its keys: create unique index on {self._name} ({keys})"
                ) from None

    def _check_owner(self) -> None:
        """Raise `InvalidRequestError` if others have rows in the table that a repeated batch would replace."""
        others = self._execute(
            "select 1 from {commits} where output = %s and job <> %s and batch_column <> ''", self._output(), self._job
        )
        if others or (self._note().commit is None and self._execute("select 1 from {table} limit 1")):
            raise self.settings.foreign_rows(self._name)

    def _note(self) -> TableNote:
        """The note of the job, which is locked for others until the transaction ends."""
        rows = self._execute(
            "select runs, batch, seq, token from {commits} where output = %s and job = %s for update",
            self._output(), self._job,
        )  # fmt: skip
        if not rows:
            return TableNote()
        runs, batch, seq, token = rows[0]
        return TableNote(runs, None if batch is None else SinkCommit(batch, seq, token))

    def _output(self) -> str:
        """The table's name as SQL has it."""
        return _quoted(self._name)

    def _application(self) -> str:
        """The name of a driver's connection, by which its successor ends it."""
        return f"varvite-{hashlib.sha256(f'{self._job} {self._output()}'.encode()).hexdigest()[:40]}"

    def _connected(self) -> Any:
        import psycopg

        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._conninfo,
                autocommit=True,
                application_name=self._application(),
                connect_timeout=CONNECT_TIMEOUT_S,
                options=f"-c idle_in_transaction_session_timeout={IDLE_TIMEOUT_S}s -c TimeZone=UTC "
                f"-c lock_timeout={IDLE_TIMEOUT_S + 10}s -c DateStyle=ISO -c client_min_messages=warning",
            )
        return self._connection

    def _execute(self, statement: str, *values: Any, **parts: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement answers."""
        cursor = self._connected().execute(self._sql(statement, **parts), values or None)
        return cursor.fetchall() if cursor.description else []

    def _sql(self, statement: str, **parts: Any) -> Any:
        """A statement with names, and other parts, in the place of what stands in braces."""
        names, comma = self._written().names, _text(", ")
        updates = [_text("{0} = excluded.{0}").format(_name(n)) for n in names if n not in self.settings.keys]
        return _text(statement).format(
            table=_name(*self._name.split(".")),
            commits=_name(*self._commits_name.split(".")),
            stage=_name(_STAGE),
            columns=comma.join(map(_name, names)),
            keys=comma.join(map(_name, self.settings.keys)),
            updates=comma.join(updates),
            batch=_name(self.settings.batch_column or BATCH_COLUMN),
            **parts,
        )

    def _retry(self, call: Callable[[], Any], action: str) -> Any:
        """Call until the server is there. Raises `DidNotHappenError`, or `InvalidRequestError` for what it refuses."""
        import psycopg

        deadline_s = self._clock.monotonic_s() + LIMIT_S
        while True:
            try:
                return call()
            except (
                psycopg.OperationalError,
                psycopg.InterfaceError,
                psycopg.errors.IdleInTransactionSessionTimeout,
            ) as error:
                self._drop_connection()
                if self._clock.monotonic_s() >= deadline_s or _is_final(error):
                    raise DidNotHappenError(
                        f"PostgreSQL could not {action}; see that the server can be reached, and start the query "
                        f"again: {_line(error)}"
                    ) from error
                _log.warning("PostgreSQL could not %s, it is tried again: %s", action, _line(error))
                self._clock.sleep(PAUSE_S)
            except psycopg.Error as error:
                self._drop_connection()
                raise InvalidRequestError(f"PostgreSQL refuses to {action}: {_line(error)}") from error

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # it is of no use any more, whatever it says
                connection.close()


def _text(statement: str) -> Any:
    """A part of a statement."""
    from psycopg import sql

    make: Any = sql.SQL  # which takes literals alone, for type checkers
    return make(statement)


def _name(*parts: str) -> Any:
    """A name in a statement."""
    from psycopg import sql

    return sql.Identifier(*parts)


def _quoted(table: str) -> str:
    return ".".join('"{}"'.format(part.replace('"', '""')) for part in table.split("."))


def _is_final(error: Exception) -> bool:
    """Will the server give the same answer again?"""
    state = getattr(error, "sqlstate", None)
    if state is None:  # the connection was refused, perhaps with the server's words
        return any(word in str(error) for word in ("authentication", "does not exist", "no pg_hba.conf entry"))
    return state.startswith(("28", "3D"))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
