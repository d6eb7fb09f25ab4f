"""A sink that writes to an Iceberg table without the JVM, by pyiceberg.

The note of the job is a property of the table, `varvite.<job>`, which is set in the commit that adds the rows. Each
commit makes a snapshot, be it an empty one: the catalogue refuses a commit whose table has another current snapshot
than ours. A commit that changes properties alone would pass. pyiceberg puts a commit that was refused onto the newer
table by itself, without our comparison, so its retries are switched off for this handle. Ours begin with a new look.

Invariants: I6, I10 (appended rows are written in pieces).
"""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from varvite.changelog.commit.base_decision import SinkCommit, WriteKind
from varvite.spark_integration.connectors.output.rows import CheckedRows
from varvite.spark_integration.connectors.tables.table_sink import (
    BATCH_COLUMN,
    TableNote,
    TableSink,
    check_table_columns,
    table_settings,
    until_it_fits,
)
from varvite.storage.clock import SystemClock
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, VarviteError
from varvite.storage.fail_point import fail_point

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from varvite.spark_integration.connectors.output.rows import OutputRows

_log: Final = logging.getLogger(__name__)
OWNER: Final = "varvite.owner"
"""Property: the job that alone may write batch ids to the table."""
AWAY_MAX_S: Final = 120.0
"""Time for the catalogue and the store to come back."""
PAUSE_S: Final = 1.0
_RETRIES: Final = "commit.retry.num-retries"
_AWAY: Final = (
    "NETWORK_CONNECTION", "SLOW_DOWN", "SERVICE_UNAVAILABLE", "INTERNAL_FAILURE", "REQUEST_TIMEOUT", "curlCode",
)  # fmt: skip
"""In Arrow's messages for a store that cannot be reached. The class of the error does not say it."""
_AWAY_CLASSES: Final = frozenset({"ConnectionError", "ConnectTimeout", "ReadTimeout", "ChunkedEncodingError"})
_MADE_WITH: Final = {
    # Each commit writes the list of all snapshots anew, and old lists would stay.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_NAMES: Final = {
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.large_string(): "string",
    pa.large_binary(): "binary",
}
"""Arrow's types that Iceberg does not tell from others."""


class CatalogAwayError(DidNotHappenError):
    """The catalogue or the store cannot be reached now."""


class IcebergSink(TableSink):
    """Writes to an Iceberg table, exactly once; makes the table if there is none.

    Args:
        table: Name of the table, with its namespace's before the dot.
        catalog: Name of the catalogue.
        properties: Of the catalogue, as pyiceberg's `load_catalog` takes them; others are in its configuration.
        keys: Columns by which rows are merged: the last row of a key counts. Without any, rows are appended.
        partition_by: Columns whose values partition a table that is made.
        batch_column: Column of the batch's id, which is added to appended rows so that they can be replaced.
            None: the table has the columns of the output alone.
        allow_repeats: Without a batch column: write a batch that is executed again once more, and do not refuse it.
    """

    def __init__(
        self,
        table: str,
        *,
        catalog: str = "default",
        properties: Mapping[str, str] | None = None,
        keys: Sequence[str] | str = (),
        partition_by: Sequence[str] | str = (),
        batch_column: str | None = BATCH_COLUMN,
        allow_repeats: bool = False,
    ) -> None:
        settings = table_settings(keys, batch_column, allow_repeats=allow_repeats, partition_by=partition_by)
        super().__init__(settings)
        self._name, self._catalog_name = table, catalog
        self._catalog_properties = dict(properties or {})
        self._job = ""
        self._catalog: Any = None
        self._clock = SystemClock()

    def check_columns(self, schema: StructType) -> None:
        super().check_columns(schema)
        for field in self._arrow():
            if pa.types.is_duration(field.type) or field.type == pa.month_day_nano_interval():
                raise InvalidRequestError(f"Iceberg has no type for column `{field.name}` ({field.type})")

    def prepare(self, job_id: str) -> None:
        """Open the table, and check it. Raises `InvalidRequestError`, also if the library is not installed."""
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError:
            raise InvalidRequestError(
                "an Iceberg sink needs the package pyiceberg in the driver: pip install 'varvite[iceberg]'"
            ) from None
        self._job = job_id
        with _translated(f"open table {self._name}"):
            self._catalog = load_catalog(self._catalog_name, **self._catalog_properties)
            table = self._loaded()
        if table is not None:
            self._check_table(table)

    def close(self) -> None:
        catalog, self._catalog, self._runs = self._catalog, None, 0
        if catalog is not None:
            catalog.close()

    def _begin_run(self) -> TableNote:
        until_it_fits(self._try_to_begin, f"begin a run on table {self._name}")
        return self._note(self._loaded())

    def _try_to_begin(self) -> bool:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        with _translated(f"begin a run on table {self._name}"):
            table = self._loaded()
            if table is None:
                with suppress(CommitFailedException, TableAlreadyExistsError):
                    self._create()
                return False
            self._check_table(table)
            note = self._note(table)
            return self._committed(table, TableNote(note.runs + 1, note.commit), None, WriteKind.APPEND)

    def _create(self) -> None:
        creation = self._catalog.create_table_transaction(self._name, self._arrow(), properties=_MADE_WITH)
        with creation.update_spec() as spec:
            for column in self.settings.partition_by:
                spec.add_identity(column)
        creation.commit_transaction()

    def _commit_rows(self, rows: OutputRows, commit: SinkCommit) -> None:
        action = f"write batch {commit.batch} to table {self._name}"
        deadline_s = self._clock.monotonic_s() + AWAY_MAX_S
        while True:
            try:
                until_it_fits(lambda: self._try_to_commit(rows, commit, action), action)
            except CatalogAwayError as error:
                if self._clock.monotonic_s() >= deadline_s:
                    raise
                _log.warning("it is tried again: %s", error)
                self._clock.sleep(PAUSE_S)
            else:
                return

    def _try_to_commit(self, rows: OutputRows, commit: SinkCommit, action: str) -> bool:
        with _translated(action):
            table = self._loaded()
        if table is None:
            raise DidNotHappenError(f"table {self._name} is gone; put it back, or give the job another table")
        kind = self.settings.decide(self._note(table), self._runs, commit)
        if kind is WriteKind.NOTHING:
            return True
        checked = CheckedRows(rows, table.schema().as_arrow(), self.settings.constants(commit), self.settings.keys)
        fail_point("driver.in_sink")
        with _translated(action, checked):
            return self._committed(table, TableNote(self._runs, commit), checked, kind)

    def _committed(self, table: Any, note: TableNote, rows: CheckedRows | None, kind: WriteKind) -> bool:
        """Commit rows with a note; False if others have committed since the table was loaded."""
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ValidationException

        properties = {f"varvite.{self._job}": encoded(note)}
        if self.settings.batch_column is not None:
            properties[OWNER] = self._job
        try:
            transaction = table.transaction()
            self._write_rows(transaction, rows, kind, note)
            transaction.set_properties(properties)
            transaction.commit_transaction()
        except (CommitFailedException, ValidationException, CommitStateUnknownException):
            return False  # whichever it is, the next look at the table says
        return True

    def _write_rows(self, transaction: Any, rows: CheckedRows | None, kind: WriteKind, note: TableNote) -> None:
        from pyiceberg import expressions

        empty = transaction.table_metadata.schema().as_arrow().empty_table()
        if rows is None:
            transaction.append(empty)
        elif self.settings.keys:
            table = rows.reader().read_all()
            if table.num_rows:
                transaction.upsert(table, join_cols=list(self.settings.keys))
            transaction.append(empty)  # rows that are there already make no snapshot
        elif kind is WriteKind.REPLACE and note.commit is not None:
            at_least: Any = expressions.GreaterThanOrEqual  # whose arguments type checkers do not see
            replaced = at_least(str(self.settings.batch_column), note.commit.batch)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Delete operation did not match any records")
                transaction.overwrite(self._in_form(transaction, rows), overwrite_filter=replaced)
        else:
            transaction.append(self._in_form(transaction, rows))

    @staticmethod
    def _in_form(transaction: Any, rows: CheckedRows) -> pa.RecordBatchReader | pa.Table:
        """The rows in pieces; pyiceberg takes those of a partitioned table only as a whole."""
        reader = rows.reader()
        return reader if transaction.table_metadata.spec().is_unpartitioned() else reader.read_all()

    def _loaded(self) -> Any:
        """The table as it is now; None if there is none."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        table.metadata.properties[_RETRIES] = "0"  # of this object alone, it is not stored
        return table

    def _note(self, table: Any) -> TableNote:
        text = table.properties.get(f"varvite.{self._job}")
        return TableNote() if text is None else decoded(text)

    def _check_table(self, table: Any) -> None:
        """Raise `InvalidRequestError` unless this job can write its rows to the table."""
        arrow = table.schema().as_arrow()
        output = {field.name: _type_name(field.type) for field in self._arrow()}
        of_table = {field.name: _type_name(field.type) for field in arrow}
        check_table_columns(output, of_table, self._name, [field.name for field in arrow if not field.nullable])
        self.settings.check_partitions(self._name, _partition_columns(table))
        if self.settings.batch_column is None:
            return
        owner = table.properties.get(OWNER)
        if owner != self._job and (owner is not None or table.scan().count()):
            raise self.settings.foreign_rows(self._name)


def encoded(note: TableNote) -> str:
    """A note as a property."""
    return msgspec.json.encode([note.runs, note.commit]).decode()


def decoded(text: str) -> TableNote:
    """The note in a property."""
    runs, commit = msgspec.json.decode(text)
    return TableNote(runs, None if commit is None else SinkCommit(*commit))


def _partition_columns(table: Any) -> list[str]:
    """The columns that partition a table, those of a transform with its name, such as `bucket[16](k)`."""
    schema = table.schema()
    columns = [(str(field.transform), schema.find_column_name(field.source_id)) for field in table.spec().fields]
    return [name if transform == "identity" else f"{transform}({name})" for transform, name in columns]


def _type_name(kind: pa.DataType) -> str:
    """The name of Iceberg's type."""
    if isinstance(kind, pa.StructType):
        return f"struct<{', '.join(f'{field.name}: {_type_name(field.type)}' for field in kind)}>"
    if isinstance(kind, pa.MapType):
        return f"map<{_type_name(kind.key_type)}, {_type_name(kind.item_type)}>"
    if isinstance(kind, (pa.ListType, pa.LargeListType)):
        return f"list<{_type_name(kind.value_type)}>"
    return _NAMES.get(kind, str(kind))


def is_away(error: Exception) -> bool:
    """Can the catalogue or the store not be reached now, so that another try may succeed?"""
    from pyiceberg.exceptions import ServerError, ServiceUnavailableError, TooManyRequestsError

    if isinstance(error, (ServerError, ServiceUnavailableError, TooManyRequestsError)):
        return True
    if isinstance(error, OSError):  # so are those of `requests`, which are no `ConnectionError` of Python
        is_known = isinstance(error, (ConnectionError, TimeoutError)) or type(error).__name__ in _AWAY_CLASSES
        return is_known or any(word in str(error) for word in _AWAY)
    # A catalogue in a database: an error of the connection, which was lost or not made, has no code of the server.
    cause = getattr(error, "orig", None)
    is_without_code = any(getattr(cause, code, "") is None for code in ("sqlstate", "pgcode"))
    return is_without_code or bool(getattr(error, "connection_invalidated", False))


@contextmanager
def _translated(action: str, rows: CheckedRows | None = None) -> Iterator[None]:
    """Translate what pyiceberg and its catalogue raise inside of the block; an error of the rows stays as it is."""
    try:
        yield
    except VarviteError:
        raise
    except Exception as error:
        if rows is not None and rows.error is not None:
            raise rows.error from None
        text = " ".join(str(error).split())
        kind = CatalogAwayError if is_away(error) else DidNotHappenError
        raise kind(f"pyiceberg could not {action}; start the query again: {text}") from error
