"""The decisions that sinks of tables have in common: may this driver write, and what becomes of earlier rows?

A table notes a `TableNote` per job. Each run of a driver adds one to its number of runs before it reads the note, in a
transaction; each write compares that number in its own transaction. So once a run has begun, no older driver writes.

A table with a batch column can replace rows: those of the batch and of later ones go in the transaction that adds the
new ones. Without it (rows are merged by key, or the table is to have the output's columns alone) they cannot go, and a
batch that is executed again is refused.

Invariants: I6.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, LongType, MapType, NullType, StructField, StructType, VariantType

from varvite.changelog.commit.base_decision import RepeatedBatch, SinkCommit, WriteKind, decide_write
from varvite.spark_integration.connectors.output.rows import FrameRows, TableRows
from varvite.spark_integration.connectors.sink import Sink
from varvite.storage.errors import DidNotHappenError, FencedError, InvalidRequestError, LineageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from varvite.spark_integration.connectors.output.rows import OutputRows

_log: Final = logging.getLogger(__name__)
BATCH_COLUMN: Final = "batch_id"
TRIES: Final = 8
"""Commits of others, between our look at a table and our commit, that are borne with."""
_NO_KEYS: Final = (ArrayType, MapType, StructType, VariantType)


@dataclass(frozen=True, slots=True)
class TableNote:
    """The note of a job in a table."""

    runs: int = 0
    """Runs of drivers that have begun."""
    commit: SinkCommit | None = None
    """The last commit whose rows are there."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Settings that tables have."""

    keys: tuple[str, ...] = ()
    """Columns by which rows are merged; without any, rows are appended."""
    batch_column: str | None = BATCH_COLUMN
    """Column of the batch's id, which is added to the rows; None: rows cannot be replaced."""
    allow_repeats: bool = False
    """A batch that is executed again is merged or appended once more, where it would be refused."""
    partition_by: tuple[str, ...] = ()
    """Columns that partition a table that is made."""

    @property
    def repeated_batch(self) -> RepeatedBatch:
        """The fate of a batch that is written again."""
        if self.batch_column is not None or (self.keys and self.allow_repeats):
            return RepeatedBatch.REPLACED
        return RepeatedBatch.REFUSED

    def check_columns(self, schema: StructType) -> None:
        """Raise `InvalidRequestError` unless rows of these columns fit."""
        missing = [key for key in self.keys if key not in schema.names]
        if missing:
            raise InvalidRequestError(
                f"the key column {missing[0]!r} is not in the output, which has {', '.join(schema.names)}"
            )
        missing = [name for name in self.partition_by if name not in schema.names]
        if missing:
            raise InvalidRequestError(f"the partition column {missing[0]!r} is not in the output")
        for field in schema.fields:
            if field.name in self.keys and isinstance(field.dataType, _NO_KEYS):
                raise InvalidRequestError(f"key column `{field.name}` is of type {field.dataType.simpleString()}")
            if isinstance(field.dataType, NullType):
                raise InvalidRequestError(f"column `{field.name}` is of type void; give it a type")
            if self.batch_column is not None and field.name.lower() == self.batch_column.lower():
                raise InvalidRequestError(
                    f"the output has a column `{field.name}`, and the sink adds one of that name for the batch's id: "
                    "rename it, or give another batch_column"
                )

    def check_partitions(self, table: str, columns: Sequence[str]) -> None:
        """Raise `InvalidRequestError` if a table is partitioned by other columns than those that are given."""
        if self.partition_by and self.partition_by != tuple(columns):
            raise InvalidRequestError(
                f"table {table} is partitioned by {list(columns)}, not by {list(self.partition_by)}; leave "
                "partition_by out"
            )

    def constants(self, commit: SinkCommit) -> dict[str, int]:
        """Values of the columns that are added to the rows of a commit."""
        return {} if self.batch_column is None else {self.batch_column: commit.batch}

    def foreign_rows(self, table: str, whose: str = "are not this job's") -> InvalidRequestError:
        """The error for a table with rows of others, which a repeated batch would replace."""
        return InvalidRequestError(
            f"table {table} has rows that {whose}, and a batch that is executed again replaces rows by "
            f"`{self.batch_column}`: give an empty table, or batch_column=None"
        )

    def decide(self, note: TableNote, runs: int, commit: SinkCommit) -> WriteKind:
        """Decide on a write, in the transaction that writes.

        Args:
            note: In the table now.
            runs: Number of this run.
            commit: The commit to write.

        Raises:
            FencedError: A newer driver has begun.
            LineageError: The table has rows of this batch or of later ones, and they cannot go.
        """
        if note.runs != runs:
            raise FencedError(
                "a newer driver has begun to write to the table, and this one must end; or two sinks of this job have "
                f"the same table (run {note.runs}, this one is run {runs})",
                batch=commit.batch,
            )
        kind = decide_write(note.commit, commit)
        if kind is not WriteKind.REPLACE or self.batch_column is not None:
            return kind
        assert note.commit is not None  # noqa: S101  for the type checker
        if not self.allow_repeats:
            raise LineageError(
                f"the table holds the output up to batch {note.commit.batch} (seq {note.commit.seq}) already, batch "
                f"{commit.batch} was executed again (after `varvite restore`, say), and its rows cannot be taken out: "
                "set allow_repeats to write them once more, or give the job another table",
                batch=commit.batch,
            )
        _log.warning("rows of batch %d are written once more", commit.batch)
        return WriteKind.APPEND


def table_settings(
    keys: Sequence[str] | str,
    batch_column: str | None,
    *,
    allow_repeats: bool,
    partition_by: Sequence[str] | str = (),
) -> TableSettings:
    """The settings of a program's arguments: with keys there is no batch column."""
    names, partitions = ((each,) if isinstance(each, str) else tuple(each) for each in (keys, partition_by))
    return TableSettings(names, None if names else batch_column or None, allow_repeats, partitions)


class TableSink(Sink):
    """Writes each batch in one transaction with its commit. A kind of table implements the abstract methods."""

    brings_rows_to_driver = True

    settings: TableSettings

    def __init__(self, settings: TableSettings) -> None:
        self.settings = settings
        self._schema: StructType | None = None
        self._runs = 0
        self._held: SinkCommit | None = None

    @property
    def repeated_batch(self) -> RepeatedBatch:
        return self.settings.repeated_batch

    def check_columns(self, schema: StructType) -> None:
        self.settings.check_columns(schema)
        self._schema = schema

    def take_over(self) -> None:
        """Begin a run, after which no older driver writes; makes the table if there is none."""
        note = self._begin_run()
        self._runs, self._held = note.runs, note.commit

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        self._write(FrameRows(df), commit)

    def write_table(self, table: pa.Table, commit: SinkCommit) -> None:
        self._write(TableRows(table), commit)

    def last_committed(self) -> SinkCommit | None:
        return self._held

    def _write(self, rows: OutputRows, commit: SinkCommit) -> None:
        if not self._runs:
            raise InvalidRequestError("take_over() of the sink was not called before the first write")
        self._commit_rows(rows.last_by(self.settings.keys) if self.settings.keys else rows, commit)
        self._held = commit

    @property
    def _columns(self) -> StructType:
        """Columns of the output."""
        if self._schema is None:
            raise InvalidRequestError("check_columns() of the sink was not called before the start")
        return self._schema

    def _written(self) -> StructType:
        """The columns that are written."""
        if self.settings.batch_column is None:
            return self._columns
        return StructType([*self._columns.fields, StructField(self.settings.batch_column, LongType())])

    def _arrow(self) -> pa.Schema:
        """Columns of a table that is made. All may be null, as Spark's writers make them."""
        schema = to_arrow_schema(self._written(), timezone="UTC")
        return pa.schema([field.with_nullable(True) for field in schema])

    @abstractmethod
    def _begin_run(self) -> TableNote:
        """Count the run, and read the note as it is then."""

    @abstractmethod
    def _commit_rows(self, rows: OutputRows, commit: SinkCommit) -> None:
        """Write rows in a transaction with their commit, as `TableSettings.decide` says. Raises as `Sink.write`."""


def until_it_fits(attempt: Callable[[], bool], action: str) -> None:
    """Repeat an attempt until it is True: others have changed the table in between. Raises `DidNotHappenError`."""
    for _ in range(TRIES):
        if attempt():
            return
    raise DidNotHappenError(f"others have changed the table {TRIES} times while it was tried to {action}; stop them")


def check_table_columns(
    output: Mapping[str, Any], table: Mapping[str, Any], name: str, required: Iterable[str] = ()
) -> None:
    """Raise `InvalidRequestError` unless a table takes rows of these columns.

    Args:
        output: Columns of the rows and their types, as the table's system calls them.
        table: The same of the table. Columns that the rows lack become null.
        name: Of the table.
        required: Columns of the table that must not be null.
    """
    lines = [f"it has no column `{column}` ({kind})" for column, kind in output.items() if column not in table]
    lines += [
        f"column `{column}` is {table[column]}, and {kind} in the output"
        for column, kind in output.items()
        if column in table and table[column] != kind
    ]
    lines += [
        f"column `{column}` may not be null, and the output has none" for column in required if column not in output
    ]
    if lines:
        raise InvalidRequestError(
            f"table {name} does not take the output: {'; '.join(lines)}. Change the output or the table, or give "
            "another table"
        )
