"""Spark's checkpoint location, simulated: offset log and commit log, and their files as `varvite restore` sees them.

Both logs are atomic and do not fail. Spark goes on where the offset log ends, as it really does. The source reads
files: its offsets are numbers in a log of its own, which says who planned what.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from tests.simulation.system.spark.engine import SparkError
from varvite.changelog.commit.base_decision import SparkProgress
from varvite.materializer.restore.batch_input import input_identity, is_identified
from varvite.storage.errors import InvariantError, MissingObjectError
from varvite.storage.object_stores.contract import ObjectMeta
from varvite.storage.object_stores.whole_objects import WholeObjects


class CheckpointLocation:
    """See the module; `job` is part of the query's id."""

    def __init__(self, job: str) -> None:
        self._job = job
        self.queries = 1
        """Queries that have had a location; each but the last one's is gone."""
        self.offsets: list[bytes] = []
        """Files of the offset log, by batch."""
        self.source_log: list[bytes] = []
        """Files of the source's log, by number; setting the location back leaves them, as it really does."""
        self.acknowledged: set[int] = set()
        """Batches of the commit log."""

    @property
    def query_id(self) -> str:
        return f"{self._job}-{self.queries}"

    @property
    def acked(self) -> int:
        """Batches up to the newest of the commit log."""
        return max(self.acknowledged, default=-1) + 1

    @property
    def next_batch(self) -> int:
        """The batch that Spark executes next: the newest planned batch, unless it is acknowledged."""
        newest = len(self.offsets) - 1
        return newest if newest >= 0 and newest not in self.acknowledged else newest + 1

    @property
    def is_torn(self) -> bool:
        """True if somebody has begun to set it back and not ended."""
        return len(self.offsets) - self.acked > 1 or len(self.acknowledged) < self.acked

    def plan(self, batch: int, run: str) -> None:
        """Write `offsets/<batch>`; a run that meets another one's ends."""
        if batch < len(self.offsets):
            raise SparkError(f"another query has planned batch {batch}")
        assert batch == len(self.offsets)
        self.source_log.append(source_entry(len(self.source_log), run))
        self.offsets.append(f"v1\n{{}}\n{json.dumps({'logOffset': len(self.source_log) - 1})}\n".encode())

    def acknowledge(self, batch: int) -> None:
        """Write `commits/<batch>`."""
        if batch in self.acknowledged:
            raise SparkError(f"another query has acknowledged batch {batch}")
        assert batch == len(self.offsets) - 1, f"batch {batch} is acknowledged, {len(self.offsets)} are planned"
        self.acknowledged.add(batch)

    def files(self) -> dict[str, bytes]:
        """All files, by name."""
        files = {"metadata": json.dumps({"id": self.query_id}).encode()}
        files |= {f"offsets/{batch}": data for batch, data in enumerate(self.offsets)}
        files |= {f"sources/0/{number}": data for number, data in enumerate(self.source_log)}
        return files | {f"commits/{batch}": b"v1\n{}" for batch in self.acknowledged}

    def source_hash(self, batch: int) -> str:
        """Identity of what a batch reads."""
        return _identity(self.files(), batch)

    def progress(self, batch: int) -> SparkProgress:
        """Progress that the choice of the base needs."""
        return progress_of(self.files(), self.query_id, batch)

    def planned_with_other_files(self, batch: int) -> dict[str, bytes]:
        """The files of a location that was set back before that batch, and has planned it from other files since."""
        files = self.files()
        number = json.loads(self.offsets[batch].splitlines()[2])["logOffset"]
        return files | {f"sources/0/{number}": source_entry(number, "nobody")}

    def run(self, name: str) -> LocationRun:
        """Spark's side of one run, which begins with what the location says."""
        return LocationRun(self, name)

    def begin_anew(self) -> None:
        """The query gets a new location."""
        self.queries += 1
        self.source_log.clear()
        self.offsets.clear()
        self.acknowledged.clear()


class LocationRun:
    """The query of one run, which writes each log at once."""

    def __init__(self, location: CheckpointLocation, name: str) -> None:
        self._location = location
        self._name = name
        self.next_batch = location.next_batch
        self.is_planned = self.next_batch < len(location.offsets)

    def plan(self, batch: int) -> None:
        self._location.plan(batch, self._name)

    def acknowledge(self, batch: int) -> None:
        self._location.acknowledge(batch)


class FilesByName:
    """Files by name, as the product reads them."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def read(self, name: str) -> bytes | None:
        return self._files.get(name)

    def list_names(self, name: str) -> list[str]:
        return [file.rpartition("/")[2] for file in self._files if file.startswith(f"{name}/")]

    def url(self, name: str) -> str:
        return name


def source_entry(number: int, run: str) -> bytes:
    """An entry of the source's log: one file, which a run has planned."""
    return f"v1\n{json.dumps({'path': f'file-of-{run}', 'timestamp': 1, 'batchId': number})}".encode()


def progress_of(files: Mapping[str, bytes], query_id: str, batch: int) -> SparkProgress:
    """Progress in a location with these files."""
    previous = _identity(files, batch - 1) if batch else None
    return SparkProgress(batch, query_id, _identity(files, batch), previous, is_identified(FilesByName(files), batch))


def _identity(files: Mapping[str, bytes], batch: int) -> str:
    identity = input_identity(FilesByName(files), batch)
    assert identity is not None
    return identity


class StoredFiles(WholeObjects):
    """Files of a location as `varvite restore` opens it; whatever is moved aside in it is forgotten.

    Args:
        files: Returns them.
        pause: Called before each effect.
    """

    url = "memory://location"

    def __init__(self, files: Callable[[], dict[str, bytes]], pause: Callable[[str], None]) -> None:
        self._files = files
        self._pause = pause

    def get(self, name: str) -> bytes:
        found = self._files().get(name)
        if found is None:
            raise MissingObjectError(f"there is no file {name}", object_name=name)
        return found

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        files = self._files()
        return [ObjectMeta(n, len(files[n]), 0.0) for n in sorted(files) if n.startswith(prefix) and n > start_after]

    def put(self, name: str, data: bytes) -> None:
        assert name.startswith("_varvite/")
        assert data in self._files().values()

    def put_if_absent(self, name: str, data: bytes) -> bool:
        raise InvariantError("nothing here is created conditionally", object_name=name)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._pause(f"delete {name}")
            self._files().pop(name, None)


class LocationFiles(StoredFiles):
    """The same of a location that makes its files anew from what Spark has planned and acknowledged."""

    def __init__(self, location: CheckpointLocation, pause: Callable[[str], None]) -> None:
        super().__init__(location.files, pause)
        self._location = location

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._pause(f"delete {name}")
            log, _, batch = name.partition("/")
            if log == "commits":
                self._location.acknowledged.discard(int(batch))
                continue
            assert int(batch) == len(self._location.offsets) - 1, f"{name} goes before later ones"
            self._location.offsets.pop()
