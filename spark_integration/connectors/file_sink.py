"""Writes files, exactly once: each batch owns a subdirectory and replaces it as a whole.

```
<path>/batch_id=<N>/part-…            output of batch N; readers see `batch_id` as a partition column
<path>/_varvite/owner                 the directory's owner: job id and query id
<path>/_varvite/commit-<seq>          the output of the batch with this seq is complete
```

A batch is written to its directory in Spark's mode "overwrite". Then its commit marker is created, then older markers
are deleted. No marker is ever overwritten, since no seq is used twice; a torn one does not parse and is ignored. A
crash leaves no marker for the seq, then the batch is executed again and replaces its rows; or a marker, then the batch
is adopted.

Limits. A driver that is fenced while it writes may still finish that one write (I6), into the directory that its
successor replaces; make sure that it is dead before the next one starts. After an explicit rewind of the job,
directories of the abandoned batches stay visible until the job reaches their ids again and replaces them. A *new* query
(a new checkpoint location) counts its batches from 0 again and would replace the output of the old one; that is
refused. Files on a local disk are not synced: after a power loss Spark's files may be incomplete although their marker
exists.

No listing on the hot path: only `prepare` lists, and only `_varvite/`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from varvite.changelog.commit.base_decision import SinkCommit
from varvite.spark_integration.connectors.hadoop_files import DamagedFileError, HadoopDirectory
from varvite.spark_integration.connectors.sink import Sink
from varvite.spark_integration.connectors.spark_progress import SparkCheckpoint
from varvite.storage.errors import CorruptDataError, InvalidRequestError, InvariantError
from varvite.storage.format.frame import frame, unframe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

VERSION: Final = 1
MARKERS: Final = "_varvite"
"""Directory of the markers; Spark's readers ignore names that begin with `_`."""
OWNER: Final = f"{MARKERS}/owner"
_COMMIT: Final = re.compile(r"commit-(\d{20})")


class OutputOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of an output directory."""

    job_id: str
    query_id: str


class OutputCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The marker of a batch whose output is complete."""

    job_id: str
    batch: int
    seq: int


M = TypeVar("M", OutputOwner, OutputCommit)
_KINDS: Final[dict[type[OutputOwner | OutputCommit], bytes]] = {OutputOwner: b"OUTO", OutputCommit: b"OUTC"}


def commit_name(seq: int) -> str:
    """Name of the marker of a seq."""
    return f"{MARKERS}/commit-{seq:020d}"


def commit_seq(file: str) -> int | None:
    """The seq of a marker's file name below `_varvite/`; None for other files."""
    match = _COMMIT.fullmatch(file)
    return int(match[1]) if match else None


def encode_marker(marker: OutputOwner | OutputCommit) -> bytes:
    """A marker as the bytes of its file."""
    return frame(_KINDS[type(marker)], VERSION, msgspec.json.encode(marker))


def decode_marker(data: bytes, kind: type[M], object_name: str) -> M:
    """The marker in a file. Raises `CorruptDataError`, `IncompatibleError`."""
    opened = unframe(_KINDS[kind], VERSION, data, object_name)
    try:
        return msgspec.json.decode(opened.header, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptDataError(f"the marker does not parse: {error}", object_name=object_name) from error


FORMATS: Final = ("csv", "json", "orc", "parquet")


class FileSink(Sink):
    """Writes each batch to its subdirectory."""

    def __init__(
        self,
        spark: SparkSession,
        file_format: str,
        path: str,
        checkpoint_location: str,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Check the arguments; nothing is read or written yet.

        Args:
            spark: The user's session.
            file_format: csv, json, orc or parquet.
            path: Directory; any URL that Spark can write to.
            checkpoint_location: Spark's checkpoint location of the query.
            options: Options of Spark's writer for that format.

        Raises:
            InvalidRequestError: None of these formats, or no location.
        """
        self._format = check_format(file_format)
        self._path = path
        self._files = HadoopDirectory(spark, path)
        self._checkpoint = SparkCheckpoint(spark, checkpoint_location)
        self._options = dict(options or {})
        self._job_id = ""
        self._owner: OutputOwner | None = None
        self._last: SinkCommit | None = None
        self._markers: set[int] = set()

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
            self._check_owner(self._owner, self._checkpoint.known_query_id())
        self._read_markers()

    def last_committed(self) -> SinkCommit | None:
        return self._last

    def write(self, df: DataFrame, batch_id: int, seq: int) -> None:
        self._claim()
        writer = df.write.format(self._format).options(**self._options).mode("overwrite")
        writer.save(self._files.url(f"batch_id={batch_id}"))
        marker = OutputCommit(job_id=self._job_id, batch=batch_id, seq=seq)
        if not self._files.create(commit_name(seq), encode_marker(marker)):
            raise InvariantError(
                f"the output directory has a marker of seq {seq} already", batch=batch_id, object_name=commit_name(seq)
            )
        self._last = SinkCommit(batch_id, seq)
        for older in self._markers:
            self._files.delete(commit_name(older))
        self._markers = {seq}

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
        seqs = (commit_seq(file) for file in self._files.list_names(MARKERS))
        self._markers = {seq for seq in seqs if seq is not None}
        for seq in sorted(self._markers, reverse=True):
            marker = self._read(commit_name(seq), OutputCommit)
            if marker is not None:
                self._last = SinkCommit(marker.batch, marker.seq)
                return

    def _read(self, name: str, kind: type[M]) -> M | None:
        """A marker; None if there is none or it is torn. Raises `IncompatibleError`."""
        try:
            data = self._files.read(name)
            return None if data is None else decode_marker(data, kind, self._files.url(name))
        except (DamagedFileError, CorruptDataError):
            return None


def check_format(file_format: str) -> str:
    """Check the name of a format. Raises `InvalidRequestError`."""
    if file_format not in FORMATS:
        raise InvalidRequestError(
            f"format {file_format!r} is no file format of this sink; use one of {', '.join(FORMATS)}, or "
            "foreach_batch with a function that writes"
        )
    return file_format
