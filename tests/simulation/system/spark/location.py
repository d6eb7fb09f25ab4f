"""Spark's checkpoint location, simulated: offset log and commit log, and their files as `varvite restore` sees them.

Both logs are atomic and do not fail. Spark goes on where the offset log ends, as it really does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from tests.simulation.system.spark.engine import SparkError
from varvite.changelog.commit.base_decision import SparkProgress
from varvite.materializer.restore.spark_files import hash_offsets
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
        self.offsets.append(f"v1\n{{}}\n{json.dumps({'batch': batch, 'by': run})}\n".encode())

    def acknowledge(self, batch: int) -> None:
        """Write `commits/<batch>`."""
        if batch in self.acknowledged:
            raise SparkError(f"another query has acknowledged batch {batch}")
        assert batch == len(self.offsets) - 1, f"batch {batch} is acknowledged, {len(self.offsets)} are planned"
        self.acknowledged.add(batch)

    def source_hash(self, batch: int) -> str:
        """Of the end offsets of a batch."""
        return hash_offsets(self.offsets[batch], f"offsets/{batch}", batch)

    def progress(self, batch: int) -> SparkProgress:
        """Progress that the choice of the base needs."""
        previous = self.source_hash(batch - 1) if batch else None
        return SparkProgress(batch, self.query_id, self.source_hash(batch), previous)

    def begin_anew(self) -> None:
        """The query gets a new location."""
        self.queries += 1
        self.offsets.clear()
        self.acknowledged.clear()


class LocationFiles(WholeObjects):
    """The location as a store; whatever is moved aside in it is forgotten.

    Args:
        location: Whose files.
        pause: Called before each effect.
    """

    url = "memory://location"

    def __init__(self, location: CheckpointLocation, pause: Callable[[str], None]) -> None:
        self._location = location
        self._pause = pause

    def _files(self) -> dict[str, bytes]:
        location = self._location
        files = {"metadata": json.dumps({"id": location.query_id}).encode()}
        files |= {f"offsets/{batch}": data for batch, data in enumerate(location.offsets)}
        return files | {f"commits/{batch}": b"v1\n{}" for batch in location.acknowledged}

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
            log, _, batch = name.partition("/")
            if log == "commits":
                self._location.acknowledged.discard(int(batch))
                continue
            assert int(batch) == len(self._location.offsets) - 1, f"{name} goes before later ones"
            self._location.offsets.pop()
