"""Writes files, exactly once: every attempt has files of its own, and Spark's log of the directory says which count.

```
<path>/batch_id=<N>/attempt-<seq>-<token>/part-…   output of batch N; `batch_id` is a partition column
<path>/batch_id=<N>/<column>=<value>/attempt-<seq>-<token>/part-…   the same, if it has other partition columns, too
<path>/_spark_metadata/<n>                         the files that count, as Spark's own file sink says it
<path>/_varvite/owner                              the directory's owner: job id and query id
<path>/_varvite/writer-<seq>-<token>               a driver run has begun to write with this commit
<path>/_varvite/commit-<seq>-<token>               the output of the batch with this commit is complete
```

A batch is written to its attempt's directory. One entry of the log makes its files count, all at once. Then the marker
of the commit is created, and older markers are deleted. A crash before the marker: the batch is executed again, and
what it left does not count. After it: the batch is adopted.

The first write of a run notes the run as a writer, takes the files of this and later batches out of the log, and adds
an entry, be it empty. A driver that was replaced (I6) knows one number of the log for its next entry, which is taken
then: its files never count, and it deletes them and ends. If it was faster its entry is one of those that are taken
out. Who reads without Spark's log (a glob, DuckDB, pandas) sees such files until they are deleted: by the fenced driver
itself, by its successor with the first batch, and every `CLEAN_EVERY` batches after it.

Limits. Spark's way of creating an entry is what refuses the second of two drivers; a file system without an atomic
rename (S3 by Hadoop's S3A) leaves a moment between its look and its write. After an explicit rewind, files of the
abandoned batches count until the job writes its next batch. A *new* query (a new checkpoint location) counts its
batches from 0 again and would replace the output of the old one; that is refused. Paths in Spark's log are absolute,
so a directory cannot be moved. Files on a local disk are not synced: after a power loss Spark's files may be incomplete
although they count.

No listing on the hot path, but of the attempt's own directory.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote

import msgspec
from pyspark.sql.types import ArrayType, MapType, StructType

from varvite.changelog.commit.base_decision import SinkCommit
from varvite.spark_integration.connectors.files.parquet_file import EncodedFile, ParquetEncoder
from varvite.spark_integration.connectors.files.spark_file_log import DIRECTORY, LoggedFile, SparkFileLog
from varvite.spark_integration.connectors.hadoop_files import DamagedFileError, HadoopDirectory
from varvite.spark_integration.connectors.sink import Sink
from varvite.spark_integration.connectors.spark_progress import SparkCheckpoint
from varvite.storage.errors import CorruptDataError, DidNotHappenError, FencedError, InvalidRequestError
from varvite.storage.fail_point import fail_point
from varvite.storage.format.frame import decode_json, frame, unframe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from varvite.spark_integration.connectors.hadoop_files import FileInfo

VERSION: Final = 1
MARKERS: Final = "_varvite"
"""Directory of the markers; Spark's readers ignore names that begin with `_`."""
OWNER: Final = f"{MARKERS}/owner"
CLEAN_EVERY: Final = 8
"""Batches with output between two looks for files that a replaced driver has left."""
ENTRY_TRIES: Final = 4
"""Entries that replaced drivers may add while one is added: each can add one."""
_COMMIT: Final = re.compile(r"commit-(\d{20})(?:-([0-9a-f]+))?")
_WRITER: Final = re.compile(r"writer-(\d{20})-([0-9a-f]+)")
_ATTEMPT: Final = re.compile(r"attempt-(\d{20})-[0-9a-f]+")
_PLACE: Final = re.compile(r"/(batch_id=(\d+)/(?:[^/]+=[^/]*/)*?[^/]+)(?:/[^/]+)?$")
"""At the end of a file's URI: the directory of its attempt, and its batch. Older versions wrote without attempts."""
_NESTED: Final = re.compile(r"(?:[^/]+=[^/]*/)+attempt-(\d{20})-[0-9a-f]+")
"""An attempt's directory below those of partition columns, all below the batch's."""
NO_SUCCESS_FILE: Final = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


class OutputOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of an output directory."""

    job_id: str
    query_id: str


class OutputCommit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The marker of a batch whose output is complete."""

    job_id: str
    batch: int
    seq: int
    token: str = ""
    """Empty: written by an older version."""


M = TypeVar("M", OutputOwner, OutputCommit)
_KINDS: Final[dict[type[OutputOwner | OutputCommit], bytes]] = {OutputOwner: b"OUTO", OutputCommit: b"OUTC"}


def commit_name(commit: SinkCommit) -> str:
    """Name of the marker of a commit whose output is complete."""
    return f"{MARKERS}/commit-{_number(commit)}"


def writer_name(commit: SinkCommit) -> str:
    """Name of the marker of a run whose first output is that of a commit."""
    return f"{MARKERS}/writer-{_number(commit)}"


def attempt_directory(commit: SinkCommit) -> str:
    """Name of the directory of a commit's files."""
    return f"batch_id={commit.batch}/attempt-{_number(commit)}"


def _number(commit: SinkCommit) -> str:
    return f"{commit.seq:020d}-{commit.token}"


def batch_of(file: LoggedFile) -> int:
    """The batch that a file is of. Raises `CorruptDataError`."""
    return int(_place_of(file)[2])


def _place_of(file: LoggedFile) -> re.Match[str]:
    match = _PLACE.search(file.path)
    if match is None:
        raise CorruptDataError(
            "the output directory's log names a file of no batch; give the job another directory",
            object_name=file.path,
        )
    return match


def encode_marker(marker: OutputOwner | OutputCommit) -> bytes:
    """A marker as the bytes of its file."""
    return frame(_KINDS[type(marker)], VERSION, msgspec.json.encode(marker))


def decode_marker(data: bytes, kind: type[M], object_name: str) -> M:
    """The marker in a file. Raises `CorruptDataError`, `IncompatibleError`."""
    opened = unframe(_KINDS[kind], VERSION, data, object_name)
    return decode_json(opened.header, kind, "the marker", object_name)


FORMATS: Final = ("csv", "json", "orc", "parquet")
TEXT: Final = "text"
"""Lines, which only `row_file_sink` writes."""


class FileSink(Sink):
    """Writes each batch to a directory of its attempt."""

    def __init__(
        self,
        spark: SparkSession,
        file_format: str,
        path: str,
        checkpoint_location: str,
        options: Mapping[str, Any] | None = None,
        *,
        partition_by: Sequence[str] = (),
        begun_query_id: str | None = None,
    ) -> None:
        """Check the arguments; nothing is read or written yet.

        Args:
            spark: The user's session.
            file_format: csv, json, orc or parquet.
            path: Directory; any URL that Spark can write to.
            checkpoint_location: Spark's checkpoint location of the query.
            partition_by: Columns whose values name directories, as with Spark's `partitionBy`.
            begun_query_id: Id of a query that has begun, and whose location is empty until it starts.
            options: Options of Spark's writer for that format.

        Raises:
            InvalidRequestError: None of these formats, or no location.
        """
        self._format = file_format if file_format == TEXT else check_format(file_format)
        self._path = path
        self._files = HadoopDirectory(spark, path)
        self._checkpoint = SparkCheckpoint(spark, checkpoint_location)
        self._begun_query_id = begun_query_id
        self._partition_by = list(partition_by)
        self._options = dict(options or {})
        self._spark = spark
        self._encoder: ParquetEncoder | None = None
        self._job_id = ""
        self._owner: OutputOwner | None = None
        self._last: SinkCommit | None = None
        self._markers: dict[str, int] = {}
        """Files of the markers of earlier commits and runs → seq."""
        self._log: SparkFileLog | None = None
        """Of this run, which has written."""
        self._first = SinkCommit(0, 0)
        """The first that the run has written: a replaced driver may still write files of the same batch."""
        self._has_files = False
        self._writes = 0

    def check_columns(self, schema: StructType) -> None:
        missing = [name for name in self._partition_by if name not in schema.names]
        if missing:
            raise InvalidRequestError(f"the partition column {missing[0]!r} is not in the output")
        if self._partition_by and set(self._partition_by) == set(schema.names):
            raise InvalidRequestError("all columns are partition columns, so files would have none; leave one out")
        for field in schema.fields:
            if field.name in self._partition_by and isinstance(field.dataType, (ArrayType, MapType, StructType)):
                raise InvalidRequestError(f"partition column `{field.name}` is of type {field.dataType.simpleString()}")

    def prepare(self, job_id: str) -> None:
        """Read the owner and the markers of the directory.

        Raises:
            InvalidRequestError: It belongs to another job or query, or is in use without a marker of varvite.
            CorruptDataError: The owner's file does not parse.
        """
        self._job_id = job_id
        self._owner = self._read(OWNER, OutputOwner)
        if self._owner is None:
            self._check_unused()
        else:
            self._check_owner(self._owner, self._begun_query_id or self._checkpoint.known_query_id())
        self._read_markers()

    def last_committed(self) -> SinkCommit | None:
        return self._last

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        """Write the files, and make them count. Raises `FencedError` if a newer driver has begun to write."""
        self._write(commit, is_empty=lambda: _is_empty(df), write_files=lambda: self._write_files(df, commit))

    def write_table(self, table: pa.Table, commit: SinkCommit) -> None:
        """Write one file without Spark, if it would be like Spark's; otherwise as `write`."""
        if self._encoder is None:
            self._encoder = ParquetEncoder.create(self._spark, self._format, self._options)
        data = None if self._partition_by else self._encoder.encode(table)
        if data is None:
            super().write_table(table, commit)
            return
        file = EncodedFile(self._encoder.name(commit.token), data)
        self._write(commit, is_empty=lambda: not table.num_rows, write_files=lambda: self._write_encoded(file, commit))

    def _write(
        self, commit: SinkCommit, is_empty: Callable[[], bool], write_files: Callable[[], list[LoggedFile]]
    ) -> None:
        if commit == self._last:
            return
        self._claim()
        is_first = self._log is None
        log = self._begin(commit) if self._log is None else self._log
        # The first file shows readers the columns.
        files = [] if self._has_files and is_empty() else write_files()
        fail_point("driver.in_sink")
        if files or is_first:
            self._add_entry(log, files, commit)
        self._has_files = self._has_files or bool(files)
        self._note(commit)
        self._writes += bool(files)
        if files and self._writes % CLEAN_EVERY == 0:
            self._clean(self._first)

    def _begin(self, commit: SinkCommit) -> SparkFileLog:
        """Begin the run's first write: files of this batch and of later ones count no more, whoever wrote them.

        A newer driver notes itself before it adds its first entry. So an entry that is read before this looks for such
        notes is none of a newer driver.
        """
        self._files.create(writer_name(commit), b"")
        log = SparkFileLog(self._files)
        self._check_newest(commit)
        if log.is_new and self._last is not None:
            log.append(self._files_of_an_older_version())
        self._has_files = self._remove(log, commit)
        # A marker of a line that a restored backup has replaced would hide this one.
        self._delete_markers(at_least=commit.seq)
        self._clean(commit)
        self._first, self._log = commit, log
        return log

    def _write_files(self, df: DataFrame, commit: SinkCommit) -> list[LoggedFile]:
        directory = attempt_directory(commit)
        writer = df.write.format(self._format).options(**NO_SUCCESS_FILE, **self._options).mode("append")
        if self._partition_by:
            self._delete_attempt(commit)  # of an earlier call for the same commit
            writer = writer.partitionBy(*self._partition_by)
        writer.save(self._files.url(directory))
        return self._partitioned_files(directory) if self._partition_by else self._listed_files(directory)

    def _partitioned_files(self, directory: str) -> list[LoggedFile]:
        """Move the attempt's directory below those of the partition columns, and list its files.

        Spark finds no columns above a directory that is none of a column.
        """
        batch, _, attempt = directory.partition("/")
        names = (self._name_below(directory, info) for info in self._files.list_files(directory))
        leaves = sorted({name.rpartition("/")[0] for name in names if is_data(name)})
        for leaf in leaves:
            self._files.make_directory(f"{batch}/{leaf}")
            self._files.move(f"{directory}/{leaf}", f"{batch}/{leaf}/{attempt}")
        self._files.delete(directory)
        return [file for leaf in leaves for file in self._listed_files(f"{batch}/{leaf}/{attempt}")]

    def _delete_attempt(self, commit: SinkCommit) -> None:
        """Delete the directories of the attempt with this commit."""
        directory = attempt_directory(commit)
        self._files.delete(directory)
        batch, _, attempt = directory.partition("/")
        for place, _ in self._nested_attempts(batch):
            if place.endswith(f"/{attempt}"):
                self._files.delete(f"{batch}/{place}")

    def _nested_attempts(self, batch: str) -> set[tuple[str, int]]:
        """(directory, seq) of the attempts at a batch that lie below directories of partition columns."""
        if not self._partition_by:
            return set()
        names = (self._name_below(batch, info) for info in self._files.list_files(batch))
        return {(match[0], int(match[1])) for match in map(_NESTED.match, names) if match}

    @staticmethod
    def _name_below(directory: str, info: FileInfo) -> str:
        return unquote(info.url).rpartition(f"/{directory}/")[2]

    def _write_encoded(self, file: EncodedFile, commit: SinkCommit) -> list[LoggedFile]:
        directory = attempt_directory(commit)
        name = f"{directory}/{file.name}"
        self._files.make_directory(directory)
        if not self._files.create_whole(name, file.data):  # of an earlier call for the same commit
            self._files.delete(name)
            self._files.create_whole(name, file.data)
        return self._listed_files(directory)

    def _listed_files(self, directory: str) -> list[LoggedFile]:
        infos = [info for info in self._files.list_files(directory) if is_data(info.url)]
        return [LoggedFile.of(info) for info in sorted(infos)]

    def _add_entry(self, log: SparkFileLog, files: list[LoggedFile], commit: SinkCommit) -> None:
        for _ in range(ENTRY_TRIES):
            if log.append(files):
                return
            log.reload()
            try:
                self._check_newest(commit)
            except FencedError:
                self._delete_attempt(commit)
                raise
            self._remove(log, commit)
        raise DidNotHappenError(
            f"others have added entries to {self._files.url(DIRECTORY)} {ENTRY_TRIES} times; stop them",
            batch=commit.batch,
        )

    def _check_newest(self, commit: SinkCommit) -> None:
        """Raise `FencedError` if a newer run has begun to write since this one was prepared."""
        for name, seq in self._listed(_WRITER):
            if name not in self._markers and seq > commit.seq:
                raise FencedError(
                    f"a newer driver writes to {self._path} since its commit {seq}; this one must end",
                    batch=commit.batch,
                    object_name=self._files.url(f"{MARKERS}/{name}"),
                )

    def _note(self, commit: SinkCommit) -> None:
        """Create the marker of a commit whose output is complete, and delete older ones."""
        marker = OutputCommit(job_id=self._job_id, batch=commit.batch, seq=commit.seq, token=commit.token)
        self._files.create(commit_name(commit), encode_marker(marker))
        self._last = commit
        self._delete_markers(at_least=0)
        self._markers = {commit_name(commit).rpartition("/")[2]: commit.seq}

    def _delete_markers(self, *, at_least: int) -> None:
        """Delete the known markers from a seq on."""
        for name, seq in list(self._markers.items()):
            if seq >= at_least:
                self._files.delete(f"{MARKERS}/{name}")
                del self._markers[name]

    def _remove(self, log: SparkFileLog, commit: SinkCommit) -> bool:
        """Take the files of this batch and of later ones out of the log, and delete them; True if others are left."""
        removed, left = log.remove(lambda file: self._batch_of(file) >= commit.batch)
        self._delete_files(removed)
        return left > 0

    def _batch_of(self, file: LoggedFile) -> int:
        return batch_of(file)

    def _delete_files(self, files: list[LoggedFile]) -> None:
        """Delete files that count no more, with the directories of their attempts."""
        for place in sorted({_place_of(file)[1] for file in files}):
            self._files.delete(unquote(place))

    def _clean(self, commit: SinkCommit) -> None:
        """Delete what older attempts at a batch have left, which count in no entry."""
        directory = f"batch_id={commit.batch}"
        for match in map(_ATTEMPT.fullmatch, list(self._files.list_names(directory))):
            if match and int(match[1]) < commit.seq:
                self._files.delete(f"{directory}/{match[0]}")
        for place, seq in self._nested_attempts(directory):
            if seq < commit.seq:
                self._files.delete(f"{directory}/{place}")

    def _files_of_an_older_version(self) -> list[LoggedFile]:
        """Files of a directory that has no log yet: all of its batches count."""
        names = [name for name in self._files.list_names() if name.startswith("batch_id=")]
        infos = chain.from_iterable(map(self._files.list_files, names))
        return [LoggedFile.of(info) for info in sorted(infos) if is_data(info.url)]

    def _listed(self, kind: re.Pattern[str]) -> list[tuple[str, int]]:
        """(file, seq) of the markers of a kind."""
        matches = map(kind.fullmatch, list(self._files.list_names(MARKERS)))
        return [(match[0], int(match[1])) for match in matches if match]

    def _claim(self) -> None:
        """Write the owner, before the first output."""
        if self._owner is not None:
            return
        query_id = self._checkpoint.query_id()
        owner = OutputOwner(job_id=self._job_id, query_id=query_id)
        present = self._read(OWNER, OutputOwner)
        if present is not None:
            self._check_owner(present, query_id)
        else:
            self._files.delete(OWNER)  # torn by a crash, as in `_check_unused`
            self._files.create(OWNER, encode_marker(owner))
        self._owner = owner

    def _check_owner(self, owner: OutputOwner, query_id: str | None) -> None:
        if owner.job_id != self._job_id:
            raise InvalidRequestError(
                f"{self._path} holds the output of another job (id {owner.job_id}); give this job its own directory"
            )
        if owner.query_id != query_id:
            raise InvalidRequestError(
                f"{self._path} holds the output of an earlier query of this job (id {owner.query_id}, now "
                f"{query_id or 'a new one'}): batches are counted from 0 again and would replace it; use the old "
                "checkpointLocation, or another directory"
            )

    def _check_unused(self) -> None:
        """Check that a directory without a readable owner holds nothing else than an owner that a crash tore."""
        foreign = next((n for n in self._files.list_names() if n != MARKERS and not n.startswith(".")), None)
        if foreign is None:
            return
        if self._exists(OWNER):
            raise CorruptDataError(
                "the file that says whose output directory this is does not parse; if the directory belongs to this "
                "job, empty the directory or put the file back",
                object_name=self._files.url(OWNER),
            )
        raise InvalidRequestError(
            f"{self._path} is in use ({foreign} is in it) and not by varvite; give a directory that is new or empty"
        )

    def _exists(self, name: str) -> bool:
        directory, _, file = name.rpartition("/")
        return file in self._files.list_names(directory)

    def _read_markers(self) -> None:
        """Read the commit with the highest seq, and remember all markers, which the next commit deletes."""
        commits = self._listed(_COMMIT)
        self._markers = dict([*commits, *self._listed(_WRITER)])
        for name, _ in sorted(commits, key=lambda pair: pair[1], reverse=True):
            marker = self._read(f"{MARKERS}/{name}", OutputCommit)
            if marker is not None:
                self._last = SinkCommit(marker.batch, marker.seq, marker.token)
                return

    def _read(self, name: str, kind: type[M]) -> M | None:
        """A marker; None if there is none or it is torn. Raises `IncompatibleError`."""
        try:
            data = self._files.read(name)
            return None if data is None else decode_marker(data, kind, self._files.url(name))
        except (DamagedFileError, CorruptDataError):
            return None


def check_format(file_format: str) -> str:
    """The name of a format in lower case, as Spark ignores case. Raises `InvalidRequestError`."""
    file_format = file_format.lower()
    if file_format not in FORMATS:
        raise InvalidRequestError(
            f"format {file_format!r} is no file format of this sink; use one of {', '.join(FORMATS)}, or "
            "foreach_batch with a function that writes"
        )
    return file_format


def _is_empty(df: DataFrame) -> bool:
    """Does the plan say that there are no rows? No job is run to see."""
    java_frame: Any = df._jdf  # noqa: SLF001  there is no public way to a plan's bounds
    plan = java_frame.queryExecution().analyzed()
    rows_max = plan.maxRows()
    return bool(rows_max.isDefined()) and rows_max.get() == 0


def is_data(url: str) -> bool:
    """Is it a file of rows, by its name?"""
    return not url.rpartition("/")[2].startswith(("_", "."))
