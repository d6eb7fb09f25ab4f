"""A query's progress in Spark's own checkpoint location: query id, offsets, committed batches (I11).

Read and written through the driver's JVM, with Spark's own file systems; `varvite.materializer.restore.spark_files`
parses the files. The offsets of the batch that runs come from Spark's memory: there they are even if Spark writes its
logs rarely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varvite.changelog.commit.base_decision import SparkProgress
from varvite.materializer.restore.batch_input import ReadOnce, input_identity, is_identified, written_once
from varvite.materializer.restore.location_content import LocationState
from varvite.materializer.restore.spark_files import query_id_of
from varvite.spark_integration.connectors.hadoop_files import DamagedFileError, HadoopDirectory
from varvite.spark_integration.connectors.heartbeats.source_marker import MARKER
from varvite.storage.errors import CorruptDataError, MissingObjectError
from varvite.storage.format.records import SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from varvite.materializer.restore.batch_input import LocationFiles
    from varvite.materializer.restore.location_content import LocationChange


class SparkCheckpoint:
    """A query's checkpoint location; every call reads it anew.

    Raises (all methods):
        CorruptDataError: A file does not parse.
        MayHaveHappenedError: The file system failed; try again.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        """Raises `InvalidRequestError` if Spark knows no file system for the location."""
        self.files = HadoopDirectory(spark, location)
        """The location's files."""
        self._in_memory: dict[str, bytes] = {}

    @property
    def location(self) -> str:
        """The location's full URL."""
        return self.files.location

    def query_id(self) -> str:
        """The query's id, constant for the location's life.

        Raises:
            MissingObjectError: Spark has not written it yet, or it is gone.
        """
        query_id = self.known_query_id()
        if query_id is None:
            raise MissingObjectError(
                "Spark's checkpoint location has no query metadata; restore the location",
                object_name=self.url("metadata"),
            )
        return query_id

    def known_query_id(self) -> str | None:
        """The query's id; None before the query's first start."""
        data = self.read("metadata")
        return None if data is None else query_id_of(data, self.url("metadata"))

    def source_hash(self, batch: int) -> str:
        """The identity of what a batch reads that Spark has planned, see `input_identity`.

        Raises:
            MissingObjectError: Spark has no offsets of that batch (any more).
            IncompatibleError: An unknown version of the offset log.
        """
        return self._identity(self, batch)

    def _identity(self, files: LocationFiles, batch: int) -> str:
        identity = input_identity(files, batch)
        if identity is None:
            raise MissingObjectError(
                "Spark's checkpoint location has no offsets of this batch; restore the location",
                batch=batch,
                object_name=self.url(f"offsets/{batch}"),
            )
        return identity

    def progress(self, batch: int) -> SparkProgress:
        """The input of the choice of a base, for the batch that Spark starts now. Raises as `source_hash`."""
        files = ReadOnce(self)
        return SparkProgress(
            batch=batch,
            query_id=self.query_id(),
            source_hash=self._identity(files, batch),
            previous_source_hash=input_identity(files, batch - 1) if batch > 0 else None,
            is_identified=is_identified(files, batch),
        )

    def hold_offsets(self, batch: int, data: bytes) -> None:
        """Take these for the content of `offsets/<batch>`, the batch that runs, and forget those before the last."""
        held = (f"offsets/{batch - 1}", f"offsets/{batch}")
        self._in_memory = {name: data for name, data in self._in_memory.items() if name in held}
        self._in_memory[held[1]] = data

    def source_files(self, batch: int) -> tuple[SourceFile, ...] | None:
        """The files that make a location from the offsets of a planned batch; None if more would be needed."""
        written = written_once(self, batch)
        if written is None:
            return None
        marker = self.read(MARKER)
        if marker is not None:
            written[MARKER] = marker
        return tuple(SourceFile(name, data) for name, data in written.items())

    def state(self, batch: int | None, *, is_private: bool) -> LocationState:
        """The location before a start; `batch` is that of the newest commit. Lists both logs."""
        offsets = None if batch is None else self.read(f"offsets/{batch}")
        return LocationState(
            query_id=self.known_query_id(),
            planned=frozenset(self._batches("offsets")),
            acknowledged=frozenset(self._batches("commits")),
            offsets=None if offsets is None else offsets.decode("utf-8", "replace"),
            is_private=is_private,
        )

    def change(self, change: LocationChange) -> None:
        """Delete and write files. Raises `MayHaveHappenedError`; the next start does it again."""
        for name in change.delete:
            self.files.delete(name)
        for directory in sorted({name.rpartition("/")[0] for name in change.write}):
            self.files.make_directory(directory)
        for name, data in change.write.items():
            self.files.replace_whole(name, data)

    def latest_planned_batch(self) -> int | None:
        """Highest batch with offsets; None before the first. Lists the offset log."""
        return self._highest("offsets")

    def latest_committed_batch(self) -> int | None:
        """Highest batch that Spark has acknowledged; None before the first. Lists the commit log."""
        return self._highest("commits")

    def is_caught_up(self) -> bool:
        """True if Spark has acknowledged the last batch that it has planned; False before the first."""
        committed = self.latest_committed_batch()
        return committed is not None and committed == self.latest_planned_batch()

    def list_names(self, name: str) -> Iterator[str]:
        """Names of the files in a directory below the location."""
        return self.files.list_names(name)

    def url(self, name: str) -> str:
        """Full URL of a file below the location."""
        return self.files.url(name)

    def _highest(self, directory: str) -> int | None:
        return max(self._batches(directory), default=None)

    def _batches(self, directory: str) -> list[int]:
        return [int(name) for name in self.list_names(directory) if name.isdecimal()]

    def read(self, name: str) -> bytes | None:
        """A file below the location; None if there is none."""
        if name in self._in_memory:
            return self._in_memory[name]
        try:
            return self.files.read(name)
        except DamagedFileError as error:
            raise CorruptDataError(
                f"a file of Spark's checkpoint location is damaged ({error}); restore the location",
                object_name=self.url(name),
            ) from None
