"""What Spark's own checkpoint location says of a query's progress: query id, offsets, committed batches (I11).

Spark's files, read as they lie there (v1 and v2 of the offset log, Spark 4.1 to 4.3):

```
metadata        {"id":"<query id>"}
offsets/<N>     v1 or v2
                {"batchWatermarkMs":…,"batchTimestampMs":…,"conf":{…}}      metadata of the batch
                v1: one line per source, its end offset as JSON, or "-"
                v2: <source name>:<end offset as JSON> per source
commits/<N>     exists: batch N is acknowledged
```

`source_hash` is over the end offsets only. The metadata line has the time at which Spark planned the batch and its
settings then; a batch that is planned again reads the same rows if its offsets are the same, whatever that line says.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from varve.spark_integration.hadoop_files import DamagedFileError, HadoopDirectory
from varve.storage.base_decision import SparkProgress
from varve.storage.errors import CorruptDataError, IncompatibleError, MissingObjectError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VERSIONS: Final = ("v1", "v2")
_HEAD_LINES: Final = 2


class _QueryMetadata(msgspec.Struct):
    """Spark's `metadata` file."""

    id: str


class SparkCheckpoint:
    """A query's checkpoint location; every call reads it anew.

    Raises (all methods):
        CorruptDataError: A file does not parse.
        MayHaveHappenedError: The file system failed; try again.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        """Raises `InvalidRequestError` if Spark knows no file system for the location."""
        self._files = HadoopDirectory(spark, location)

    @property
    def location(self) -> str:
        """The location's full URL."""
        return self._files.location

    def query_id(self) -> str:
        """The query's id, which stays the same for the location's life.

        Raises:
            MissingObjectError: Spark has not written it yet, or it is gone.
        """
        found = self.known_query_id()
        if found is None:
            raise MissingObjectError(
                "Spark's checkpoint location has no query metadata; restore the location",
                object_name=self._files.url("metadata"),
            )
        return found

    def known_query_id(self) -> str | None:
        """The query's id; None before the query's first start."""
        data = self._read("metadata")
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=_QueryMetadata).id
        except msgspec.DecodeError as error:
            raise CorruptDataError(
                f"Spark's query metadata does not parse ({error}); restore the checkpoint location",
                object_name=self._files.url("metadata"),
            ) from None

    def source_hash(self, batch: int) -> str:
        """sha256, hex, of the end offsets of a batch that Spark has planned.

        Raises:
            MissingObjectError: Spark has no offsets of that batch (any more).
            IncompatibleError: A version of the offset log that is not known.
        """
        found = self._source_hash(batch)
        if found is None:
            raise MissingObjectError(
                "Spark's checkpoint location has no offsets of this batch; restore the location",
                batch=batch,
                object_name=self._files.url(f"offsets/{batch}"),
            )
        return found

    def progress(self, batch: int) -> SparkProgress:
        """What the choice of the base needs, for the batch that Spark wants executed now. Raises as `source_hash`."""
        previous = self._source_hash(batch - 1) if batch > 0 else None
        return SparkProgress(
            batch=batch,
            query_id=self.query_id(),
            source_hash=self.source_hash(batch),
            previous_source_hash=previous,
        )

    def latest_planned_batch(self) -> int | None:
        """Highest batch that Spark has offsets of; None before the first. Lists the offset log."""
        return self._highest("offsets")

    def latest_committed_batch(self) -> int | None:
        """Highest batch that Spark has acknowledged; None before the first. Lists the commit log."""
        return self._highest("commits")

    def _highest(self, directory: str) -> int | None:
        return max((int(name) for name in self._files.list_names(directory) if name.isdecimal()), default=None)

    def _source_hash(self, batch: int) -> str | None:
        name = f"offsets/{batch}"
        data = self._read(name)
        if data is None:
            return None
        return hash_offsets(data, self._files.url(name), batch)

    def _read(self, name: str) -> bytes | None:
        try:
            return self._files.read(name)
        except DamagedFileError as error:
            raise CorruptDataError(
                f"a file of Spark's checkpoint location is damaged ({error}); restore the location",
                object_name=self._files.url(name),
            ) from None


def hash_offsets(data: bytes, object_name: str, batch: int) -> str:
    """sha256, hex, of the end offsets in an offset log file; see the module.

    Raises:
        CorruptDataError: It is no such file, or a torn one.
        IncompatibleError: A version that is not known.
    """
    lines = data.decode("utf-8", "replace").rstrip("\n").split("\n")
    version = lines[0].strip()
    if version.startswith("v") and version[1:].isdecimal() and version not in _VERSIONS:
        raise IncompatibleError(
            f"Spark's offset log has version {version}, this varve reads {_VERSIONS}; use a newer varve",
            batch=batch,
            object_name=object_name,
        )
    offsets = lines[_HEAD_LINES:]
    if version not in _VERSIONS or not offsets or not all(_is_offset(line, version) for line in offsets):
        raise CorruptDataError(
            "a file of Spark's offset log does not parse; restore the checkpoint location",
            batch=batch,
            object_name=object_name,
        )
    # Sources of v2 are known by name, so their order means nothing.
    ordered = offsets if version == "v1" else sorted(offsets)
    return hashlib.sha256("\n".join(ordered).encode()).hexdigest()


def _is_offset(line: str, version: str) -> bool:
    """Whether a line is a complete offset: `-`, a plain value, or JSON that parses."""
    offset = line.partition(":")[2] if version == "v2" else line
    if not offset.strip():
        return False
    if offset[0] not in "{[":
        return True
    try:
        msgspec.json.decode(offset)
    except msgspec.DecodeError:
        return False
    return True
