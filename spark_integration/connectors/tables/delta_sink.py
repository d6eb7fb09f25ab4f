"""A sink that writes to a Delta table without the JVM, by delta-rs.

The note of the job is in application transactions of the commit that adds the rows: `varvite:<job>:runs`, `batch`,
`seq`, and the two halves of `token`. A commit to a snapshot fails if another one with one of these ids has been made
since. So what was compared in the snapshot still holds at the commit (delta-rs itself compares no versions).

Invariants: I6, I10 (rows are written in pieces).
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

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
from varvite.spark_integration.options.format_options import read_truth
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, MayHaveHappenedError
from varvite.storage.fail_point import fail_point

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from varvite.spark_integration.connectors.output.rows import OutputRows

OWNER: Final = "varvite:owner"
"""Application whose version stands for the job that alone may write batch ids to the table."""
_EXPIRY: Final = "delta.setTransactionRetentionDuration"
_PATIENCE: Final = {"max_retries": "1000", "retry_timeout": "120s"}
"""By default delta-rs gives up after 10 times, which are over in two seconds where connections are refused."""
_OPTION: Final = "store."
_ARGUMENTS: Final = ("keys", "batch_column", "allow_repeats")
_COLORS: Final = re.compile("\x1b\\[[0-9;]*m")


class DeltaSink(TableSink):
    """Writes to a Delta table, exactly once; makes the table if there is none.

    Args:
        path: Directory or URL of the table.
        keys: Columns by which rows are merged: the last row of a key counts. Without any, rows are appended.
        partition_by: Columns that partition a table that is made.
        batch_column: Column of the batch's id, which is added to appended rows so that they can be replaced.
            None: the table has the columns of the output alone.
        storage_options: Options of delta-rs for the store, such as `AWS_REGION`.
        allow_repeats: Without a batch column: write a batch that is executed again once more, and do not refuse it.
    """

    def __init__(
        self,
        path: str,
        *,
        keys: Sequence[str] | str = (),
        partition_by: Sequence[str] | str = (),
        batch_column: str | None = BATCH_COLUMN,
        storage_options: Mapping[str, Any] | None = None,
        allow_repeats: bool = False,
    ) -> None:
        settings = table_settings(keys, batch_column, allow_repeats=allow_repeats, partition_by=partition_by)
        super().__init__(settings)
        self._path = str(path)
        self._options = {**_PATIENCE, **{key: str(value) for key, value in (storage_options or {}).items()}}
        self._app = ""
        self._owner = 0
        self._table: Any = None
        """The table as of the snapshot that is compared."""

    def check_columns(self, schema: StructType) -> None:
        """Check the columns, with the library. Raises `InvalidRequestError`, also if it is not installed."""
        _library()
        super().check_columns(schema)
        for field in self._arrow():
            try:
                _delta_types(pa.schema([field]))
            except Exception as error:  # delta-rs raises no class of its own
                raise InvalidRequestError(f"Delta has no type for column `{field.name}` ({field.type})") from error

    def prepare(self, job_id: str) -> None:
        """Open the table, and check it. Raises `InvalidRequestError`."""
        self._app, self._owner = f"varvite:{job_id}", int(job_id[:15], 16)
        self._table = self._opened()
        if self._table is not None:
            self._check_table()

    def close(self) -> None:
        self._table, self._runs = None, 0

    def _begin_run(self) -> TableNote:
        until_it_fits(self._try_to_begin, f"begin a run on {self._path}")
        return self._note()

    def _try_to_begin(self) -> bool:
        from deltalake import DeltaTable, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        self._table = self._opened()
        if self._table is None:
            try:
                with _translated("make", self._path, takes_delta_errors=False):
                    self._table = DeltaTable.create(
                        self._path,
                        self._arrow(),
                        mode="error",
                        partition_by=list(self.settings.partition_by) or None,
                        storage_options=self._options,
                        commit_properties=self._properties(runs=1),
                    )
            except DeltaError as error:
                self._table = self._opened()
                if self._table is None:
                    raise _translation(error, "make", self._path) from error
                return False
            return True
        self._check_table()
        try:
            with _translated("begin a run on", self._path):
                write_deltalake(
                    self._table,
                    self._table_schema().empty_table(),
                    mode="append",
                    commit_properties=self._properties(runs=self._note().runs + 1),
                )
        except CommitFailedError:
            return False
        return True

    def _commit_rows(self, rows: OutputRows, commit: SinkCommit) -> None:
        until_it_fits(lambda: self._try_to_commit(rows, commit), f"write batch {commit.batch} to {self._path}")

    def _try_to_commit(self, rows: OutputRows, commit: SinkCommit) -> bool:
        from deltalake.exceptions import CommitFailedError

        with _translated("read", self._path):
            self._table.update_incremental()
        kind = self.settings.decide(self._note(), self._runs, commit)
        if kind is WriteKind.NOTHING:
            return True
        checked = CheckedRows(rows, self._table_schema(), self.settings.constants(commit), self.settings.keys)
        fail_point("driver.in_sink")
        try:
            with _translated("write to", self._path, rows=checked, may_have_happened=True):
                self._write_rows(checked, kind, commit)
        except CommitFailedError:
            return False
        return True

    def _write_rows(self, rows: CheckedRows, kind: WriteKind, commit: SinkCommit) -> None:
        from deltalake import write_deltalake

        properties = self._properties(runs=self._runs, commit=commit)
        if self.settings.keys:
            on = " and ".join(f"target.{_quoted(key)} = source.{_quoted(key)}" for key in self.settings.keys)
            merger = self._table.merge(
                rows.reader(), on, source_alias="source", target_alias="target", commit_properties=properties
            )
            merger.when_matched_update_all().when_not_matched_insert_all().execute()
            if rows.rows_read:
                return  # a merge of no rows commits nothing
        if kind is WriteKind.REPLACE:
            predicate = f"{_quoted(str(self.settings.batch_column))} >= {commit.batch}"
            write_deltalake(
                self._table, rows.reader(), mode="overwrite", predicate=predicate, commit_properties=properties
            )
        else:
            write_deltalake(self._table, rows.reader(), mode="append", commit_properties=properties)

    def _properties(self, *, runs: int, commit: SinkCommit | None = None) -> Any:
        """Properties of a commit that note these values."""
        from deltalake import CommitProperties, Transaction

        transactions = [
            Transaction(f"{self._app}:{name}", version) for name, version in versions_of(runs, commit).items()
        ]
        if self.settings.batch_column is not None:
            transactions.append(Transaction(OWNER, self._owner))
        return CommitProperties(app_transactions=transactions)

    def _note(self) -> TableNote:
        return note_of(lambda name: self._table.transaction_version(f"{self._app}:{name}"))

    def _opened(self) -> Any:
        """The table as it is now; None if there is none."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            with _translated("open", self._path):
                return DeltaTable(self._path, storage_options=self._options)
        except TableNotFoundError:
            return None

    def _table_schema(self) -> pa.Schema:
        return pa.schema(self._table.schema())

    def _check_table(self) -> None:
        """Raise `InvalidRequestError` unless this job can write its rows to the table."""
        schema, metadata = self._table.schema(), self._table.metadata()
        required = [field.name for field in schema.fields if not field.nullable]
        check_table_columns(_delta_types(self._arrow()), _delta_types(schema), self._path, required)
        self.settings.check_partitions(self._path, metadata.partition_columns)
        if metadata.configuration.get(_EXPIRY):
            raise InvalidRequestError(
                f"table {self._path} forgets transactions ({_EXPIRY}), and with them which batch it holds; unset that"
            )
        if self.settings.batch_column is not None:
            self._check_owner()

    def _check_owner(self) -> None:
        owner = self._table.transaction_version(OWNER)
        if owner == self._owner or (owner is None and not self._table.count()):
            return
        others = "another job has written" if owner is not None else "are not this job's"
        raise self.settings.foreign_rows(self._path, others)


def delta_sink_of(path: str, options: Mapping[str, Any], partition_by: Sequence[str] = ()) -> DeltaSink:
    """The sink of a writer's options. Raises `InvalidRequestError` for one that it does not have."""
    arguments: dict[str, Any] = {}
    of_store: dict[str, Any] = {}
    for key, value in options.items():
        name = key.lower()
        if name.startswith(_OPTION):
            of_store[key[len(_OPTION) :]] = value
        elif name not in _ARGUMENTS:
            raise InvalidRequestError(
                f"option {key!r} is not one of a Delta sink: keys, batch_column, allow_repeats, and those of delta-rs "
                f"for the store behind {_OPTION} (Spark's writers for Delta are not used)"
            )
        elif name == "keys":
            arguments[name] = [part.strip() for part in str(value).split(",") if part.strip()]
        elif name == "allow_repeats":
            arguments[name] = read_truth(key, value)
        else:
            arguments[name] = None if value is None or not str(value) else str(value)
    return DeltaSink(path, partition_by=partition_by, storage_options=of_store, **arguments)


def _library() -> None:
    try:
        import deltalake  # noqa: F401  is it there?
    except ImportError:
        raise InvalidRequestError(
            "a Delta sink needs the package deltalake in the driver: pip install 'varvite[delta]'"
        ) from None


def _delta_types(schema: Any) -> dict[str, str]:
    """Columns and types of a schema of Arrow or Delta, without what may be null."""
    from deltalake import Schema

    delta = Schema.from_arrow(schema) if isinstance(schema, pa.Schema) else schema
    return {field.name: _without_nullability(field.type) for field in delta.fields}


def _without_nullability(kind: Any) -> str:
    from deltalake.schema import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{f.name}: {_without_nullability(f.type)}' for f in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_without_nullability(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{_without_nullability(kind.key_type)}, {_without_nullability(kind.value_type)}>"
    return str(kind.type)


def _quoted(column: str) -> str:
    escaped = column.replace('"', '""')
    return f'"{escaped}"'


def versions_of(runs: int, commit: SinkCommit | None) -> dict[str, int]:
    """The versions of a job's applications that note these values. Versions are signed numbers of 64 bits."""
    if commit is None:
        return {"runs": runs}
    token = bytes.fromhex(commit.token)
    high, low = (int.from_bytes(half, "big", signed=True) for half in (token[:8], token[8:]))
    return {"runs": runs, "batch": commit.batch, "seq": commit.seq, "token-high": high, "token-low": low}


def note_of(version: Callable[[str], int | None]) -> TableNote:
    """The note in versions, which a function answers by their names."""
    batch = version("batch")
    if batch is None:
        return TableNote(version("runs") or 0)
    seq, high, low = (version(name) or 0 for name in ("seq", "token-high", "token-low"))
    token = b"".join(half.to_bytes(8, "big", signed=True) for half in (high, low)).hex()
    return TableNote(version("runs") or 0, SinkCommit(batch, seq, token))


@contextmanager
def _translated(
    action: str,
    path: str,
    *,
    rows: CheckedRows | None = None,
    takes_delta_errors: bool = True,
    may_have_happened: bool = False,
) -> Iterator[None]:
    """Translate what delta-rs raises inside of the block, but for conflicts and a table that is not there.

    Args:
        action: The attempt.
        path: Of the table.
        rows: If reading them has failed, that is raised.
        takes_delta_errors: Translate errors of Delta, and not of the store alone.
        may_have_happened: An error of the store leaves open if the commit was made.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

    try:
        yield
    except (CommitFailedError, TableNotFoundError):
        raise
    except (DeltaError, OSError) as error:
        if rows is not None and rows.error is not None:
            raise rows.error from None
        if isinstance(error, DeltaError) and not takes_delta_errors:
            raise
        raise _translation(error, action, path, may_have_happened=may_have_happened) from error


def _translation(
    error: Exception, action: str, path: str, *, may_have_happened: bool = False
) -> DidNotHappenError | MayHaveHappenedError:
    text = " ".join(_COLORS.sub("", str(error)).split())
    if may_have_happened and isinstance(error, OSError):
        return MayHaveHappenedError(
            f"delta-rs could not {action} {path}, and the next start finds out if it did: {text}"
        )
    return DidNotHappenError(f"delta-rs could not {action} {path}; start the query again: {text}")
