"""The note of the last commit whose sink is done, for sinks that do not say what they hold.

Format: docs/reference/formats/checkpoint-location.md.

The chain says that a batch is durable, and not that its sink was called. Where Spark writes its logs rarely, its commit
log does not say so either. So each run notes it: on a local disk after each batch, elsewhere when it ends. A note that
is lost, or of an earlier commit, means that the last batch is executed once more: at least once.

Invariants: I8 (a frame with magic, version and checksums), I9 (a note is a cache).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from varvite.storage.errors import CorruptDataError, IncompatibleError, VarviteError
from varvite.storage.format.frame import decode_json, frame, unframe
from varvite.storage.format.records import Link
from varvite.storage.object_stores.local.files import complete_or_absent

if TYPE_CHECKING:
    from varvite.spark_integration.connectors.hadoop_files import HadoopDirectory

_log: Final = logging.getLogger(__name__)
KIND: Final = b"SNKN"
VERSION: Final = 1
NOTE: Final = "_varvite/sink"
"""Name in the checkpoint location."""


class DoneCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The commit whose rows the sink has."""

    seq: int
    token: str


def encode_note(commit: Link) -> bytes:
    """The bytes of the note."""
    return frame(KIND, VERSION, msgspec.json.encode(DoneCommit(seq=commit.seq, token=commit.token)))


def decode_note(data: bytes, object_name: str) -> Link:
    """The note of these bytes. Raises `CorruptDataError`, `IncompatibleError`."""
    opened = unframe(KIND, VERSION, data, object_name)
    done = decode_json(opened.header, DoneCommit, "the note", object_name)
    return Link(done.seq, done.token)


class SinkNote:
    """The note in a checkpoint location.

    Args:
        files: The location.
        directory: A local directory for the note instead: of a location that goes with the run.
    """

    def __init__(self, files: HadoopDirectory, directory: Path | None = None) -> None:
        self._files = files
        location = files.local_path
        in_location = None if location is None else location / NOTE
        self._path = in_location if directory is None else directory / Path(NOTE).name
        self._unwritten: Link | None = None

    def read(self) -> Link | None:
        """The commit whose sink is done; None if no run has said so, or the note is damaged."""
        try:
            if self._path is None:
                data = self._files.read(NOTE)
            else:
                data = self._path.read_bytes() if self._path.is_file() else None
            return None if data is None else decode_note(data, str(self._path or self._files.url(NOTE)))
        except (CorruptDataError, IncompatibleError, OSError) as error:
            _log.warning("the last batch is executed once more, because the note of its sink cannot be read: %s", error)
            return None

    def done(self, commit: Link) -> None:
        """The sink has the rows of a commit."""
        if self._path is None:
            self._unwritten = commit
            return
        try:
            if not self._path.parent.is_dir():
                self._path.parent.mkdir(parents=True)
            with complete_or_absent(self._path) as part:
                part.write_bytes(encode_note(commit))
        except (OSError, VarviteError) as error:
            _log.warning("a start after this batch may write its rows once more: %s", error)

    def close(self) -> None:
        """Write what is not written yet: the run ends. May be called twice."""
        commit, self._unwritten = self._unwritten, None
        if commit is None:
            return
        try:
            self._files.make_directory(NOTE.rpartition("/")[0])
            self._files.replace_whole(NOTE, encode_note(commit))
        except VarviteError as error:
            _log.warning("the next start may write the rows of the last batch once more: %s", error)
