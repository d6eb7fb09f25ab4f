"""Spark's checkpoint location as a cache of the chain, simulated: Spark writes its logs in a run's first batch only.

Each run has Spark's memory of its own. What it writes in its first batch comes late, if at all. The location may be
lost, be of an earlier time, or be new for each run, as the seed says.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.simulation.system.spark.location import FilesByName
from varvite.spark_integration.connectors.spark_progress import SparkCheckpoint
from varvite.storage.format.records import Link

if TYPE_CHECKING:
    from tests.simulation.system.scheduler import Process, Scheduler

Files = dict[str, bytes]


class CachedLocation:
    """The locations of one job's runs, on one machine.

    Args:
        job: Part of the query's id.
        scheduler: For what Spark writes late.
        rng: What happens to the location.
        is_private: The job names none: each run has its own.
    """

    def __init__(self, job: str, scheduler: Scheduler, rng: random.Random, *, is_private: bool) -> None:
        self._job = job
        self._scheduler = scheduler
        self._rng = rng
        self.is_private = is_private
        self.files: Files = {}
        self.note: Link | None = None
        """The note of the sink, which is on the machine."""
        self._earlier: list[tuple[Files, Link | None]] = []
        self._queries = count(1)
        self.query_id = ""
        """Of the query that has acknowledged a batch."""
        self.acked = 0
        """Batches that Spark has acknowledged."""
        self.is_torn = False
        self._plans = count()

    def before_a_run(self, *, is_chosen: bool) -> str:
        """The location that the next run finds; `is_chosen`: an operator has set the job back.

        Before a batch is acknowledged it stays: two runs of a new job would leave it to the query of the wrong one, and
        that is an error for people.
        """
        self._earlier.append((dict(self.files), self.note))
        if self.is_private:
            self.files = {}
        event = self._rng.random()
        if event < 0.1:
            self.note = None
        if is_chosen or self.is_private or not self.acked:
            return "private" if self.is_private else "kept"
        if event < 0.3:
            self.files = {}
            return "lost"
        if event < 0.5:
            files, self.note = self._rng.choice(self._earlier)
            self.files = dict(files)
            return "stale"
        return "kept"

    def run(self, files: Files, name: str, process: Process) -> SparkRun:
        """Spark's side of one run, which begins with what its location says."""
        return SparkRun(self, files, name, process, self._scheduler)

    def new_query(self) -> str:
        return f"{self._job}-{next(self._queries)}"

    def new_plan(self, run: str) -> bytes:
        """Offsets that no other plan has."""
        return f"v1\n{{}}\n{json.dumps({'rows of': run, 'up to': next(self._plans)})}".encode()

    def set_back(self, batches: int) -> None:
        """An operator has set the job back to so many batches."""
        self.acked = min(self.acked, batches)

    def begin_anew(self) -> None:
        """The job gets a new location, and the query begins at batch 0."""
        self.files, self.acked, self.query_id = {}, 0, ""
        self._earlier.clear()


class SparkRun:
    """The query of one run: what Spark has in memory, and what it writes."""

    def __init__(
        self, location: CachedLocation, files: Files, name: str, process: Process, scheduler: Scheduler
    ) -> None:
        self._location = location
        self._files = files
        self._name = name
        self._process = process
        self._scheduler = scheduler
        if "metadata" not in files:
            files["metadata"] = json.dumps({"id": location.new_query()}).encode()
        self._query_id = json.loads(files["metadata"])["id"]
        self._log = {int(file.split("/")[1]): data for file, data in files.items() if file.startswith("offsets/")}
        acknowledged = {int(file.split("/")[1]) for file in files if file.startswith("commits/")}
        newest = max(self._log, default=-1)
        self.is_planned = newest >= 0 and newest not in acknowledged
        self.next_batch = newest if self.is_planned else newest + 1
        self._is_first = True

    def plan(self, batch: int) -> None:
        self._log[batch] = self._location.new_plan(self._name)
        if self._is_first:
            self._write_late(f"offsets/{batch}", self._log[batch])

    def acknowledge(self, batch: int) -> None:
        self._location.acked = max(self._location.acked, batch + 1)
        self._location.query_id = self._query_id
        if self._is_first:
            self._write_late(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
            self._is_first = False

    def offsets(self, batch: int) -> bytes | None:
        return self._log.get(batch)

    def _write_late(self, name: str, data: bytes) -> None:
        def write() -> None:
            self._scheduler.sleep(self._location._rng.random() * 30)
            self._files.setdefault(name, data)

        self._scheduler.start(self._process, "spark-log", write)


class RunningRun:
    """In the place of `RunningQuery`: the query of a run, once it has begun."""

    def __init__(self) -> None:
        self.spark: SparkRun | None = None

    def offsets(self, batch: int) -> bytes | None:
        return None if self.spark is None else self.spark.offsets(batch)

    def writes_rarely(self) -> bool:
        return self.spark is not None


class MachineNote:
    """In the place of `SinkNote`."""

    def __init__(self, location: CachedLocation, pause: Callable[[str], None]) -> None:
        self._location = location
        self._pause = pause

    def read(self) -> Link | None:
        self._pause("read note")
        return self._location.note

    def done(self, commit: Link) -> None:
        self._pause("note")
        self._location.note = commit

    def close(self) -> None:
        """Nothing is held back."""


class CachedCheckpoint(SparkCheckpoint):
    """The product's, over files in memory."""

    def __init__(self, location: CachedLocation, pause: Callable[[str], None]) -> None:
        files: Any = FileDirectory(location.files, pause)
        self.files = files
        self._in_memory = {}


class FileDirectory(FilesByName):
    """In the place of `HadoopDirectory`."""

    location = "memory://location"

    def __init__(self, files: Files, pause: Callable[[str], None]) -> None:
        super().__init__(files)
        self._written = files
        self._pause = pause

    def delete(self, name: str) -> None:
        self._pause(f"delete {name}")
        self._written.pop(name, None)

    def make_directory(self, name: str) -> None:
        """There are none."""

    def replace_whole(self, name: str, data: bytes) -> None:
        self._pause(f"write {name}")
        self._written[name] = data
