"""A job and its materializer in one process, in simulated time: real operators, chain, folds and collections, no Spark.

The job is an `OperatorHarness`, whose batches commit through the driver's own code. Beside it a `MaterializerService`
polls once per batch, with the policy and the limits of a sidecar; its clock is the job's processing time. So an hour
of batches takes a minute, and every interval passes as often as in that hour.
"""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self
from unittest.mock import patch

from varvite.changelog.chain.view import LineView
from varvite.changelog.commit.adopt_decision import TileSnapshot, decide_adoption
from varvite.changelog.commit.plan import NOTHING_ADOPTED, Adoption
from varvite.changelog.retention.snapshots import SnapshotReader
from varvite.materializer.monitoring.events import Collected, Event, Failed, JobFailed, Materialized
from varvite.materializer.options.materializer_config import MaterializerConfig
from varvite.materializer.resources.stop_signal import StopSignal
from varvite.materializer.resources.workspace import Workspace
from varvite.materializer.service.context import MaterializerContext
from varvite.materializer.service.loop import MaterializerService
from varvite.spark_integration.driver.snapshot_watch import POLL_S, RARE_POLL_S, LookPause
from varvite.spark_integration.harness import job as harness_job
from varvite.spark_integration.harness.plan import JOB
from varvite.storage.clock import SystemTokens
from varvite.storage.format.records import SnapshotDescriptor, SnapshotFloor
from varvite.storage.object_stores.contract import ObjectStore
from varvite.storage.object_stores.memory import MemoryStore
from varvite.testing import OperatorHarness

START_MS = 1_700_000_000_000


class SimulatedClock:
    """The time of the job; it moves with its batches alone."""

    def __init__(self) -> None:
        self.time_ms = START_MS

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_s(self) -> float:
        return self.time_ms / 1000

    def sleep(self, seconds: float) -> None:
        """Nobody has to wait."""


class EventLog:
    """Keeps what a materializer reports; a failure ends the benchmark."""

    def __init__(self) -> None:
        self.materialized: list[Materialized] = []
        self.collected: list[Collected] = []

    def report(self, event: Event) -> None:
        if isinstance(event, Materialized):
            self.materialized.append(event)
        elif isinstance(event, Collected):
            self.collected.append(event)
        elif isinstance(event, (Failed, JobFailed)):
            raise RuntimeError(f"the materializer failed: {event.error}")  # noqa: TRY004  not about a type


class SimulatedJob:
    """The job and its materializer; use it in a `with` statement.

    Args:
        directory: For working state.
        build: The program, as of `OperatorHarness`.
        input_type: Of its elements.
        stores: (the job's, the materializer's) root of the storage; None: in memory.
        materializes: Whether there is a materializer.
        materializer: Settings of it that are not the defaults.
        options: Of `OperatorHarness`.
    """

    def __init__(
        self,
        directory: Path,
        build: Callable[..., Any],
        input_type: Any,
        *,
        stores: tuple[ObjectStore, ObjectStore] | None = None,
        materializes: bool = True,
        materializer: Mapping[str, Any] = MappingProxyType({}),
        **options: Any,
    ) -> None:
        self.clock = SimulatedClock()
        memory = stores or (MemoryStore(clock=self.clock),) * 2
        self.root = memory[0]
        self.events = EventLog()
        with patch.object(harness_job, "MemoryStore", lambda clock: self.root):  # noqa: ARG005  its clock is ours
            self.harness = OperatorHarness(build, input_type, processing_time=START_MS, **options)
        self._job = self.harness._job  # noqa: SLF001  a job without Spark, which the harness does not show
        self._job._adoption = self._adoption  # noqa: SLF001
        self._snapshots = SnapshotReader(self._job._store, self._job._run.record.job_id)  # noqa: SLF001
        self._found: tuple[SnapshotDescriptor, ...] = ()
        self._tile_files: dict[TileSnapshot, frozenset[str]] = {}
        self._looked_s = 0.0
        self._pause = LookPause()
        self._stack = ExitStack()
        self._stack.callback(self.harness.close)
        self._service = self._materializer(directory, memory[1], materializer) if materializes else None

    def _materializer(self, directory: Path, root: ObjectStore, settings: Mapping[str, Any]) -> MaterializerService:
        config = MaterializerConfig(storage_url=root.url, job=JOB, **settings)
        workspace = self._stack.enter_context(Workspace(directory / "materializer"))
        context = MaterializerContext(
            config=config,
            clock=self.clock,
            tokens=SystemTokens(),
            workspace=workspace,
            reporter=self.events,
            stop=StopSignal(),
        )
        service = MaterializerService(root, context)
        self._stack.callback(service.close)
        return service

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def batch(
        self, elements: Any, timestamps: list[int | None] | None = None, *, watermark_ms: int | None = None
    ) -> None:
        """A batch of one second, then a poll of the materializer."""
        self.clock.time_ms += 1_000
        self._job._run._packs.settle()  # noqa: SLF001  a second passes, in which a pack is stored
        self.harness.process_batch(elements, timestamps, processing_time=self.clock.time_ms, watermark=watermark_ms)
        self.harness.output.clear()
        if self._service is not None:
            self._service.step()

    def stored_bytes(self) -> Counter[str]:
        """Content of the storage, by the directory below the job: chain, seg, pack, snapdata and so on."""
        found: Counter[str] = Counter()
        for meta in self.root.list(f"{JOB}/"):
            found[meta.name.split("/", 2)[1]] += meta.size_bytes
        return found

    def snapshot_bytes(self, directory: Path) -> int:
        """Size of snapshots of exactly the state that there is; the directory must not exist."""
        directory.mkdir(parents=True)
        for number, state in zip(itertools.count(), self._job._states, strict=False):  # noqa: SLF001
            if state.backend is not None:
                state.backend.store.write_snapshot(directory / f"{number}")
        found = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
        shutil.rmtree(directory)
        return found

    def _adoption(self, view: LineView, floors: tuple[SnapshotFloor, ...]) -> Adoption:
        """The replacement of `SnapshotWatch`: it looks as often, by this clock."""
        waited_s = self.clock.monotonic_s() - self._looked_s
        if waited_s >= self._pause.seconds(POLL_S, RARE_POLL_S):
            before, self._looked_s = self._found, self.clock.monotonic_s()
            self._tile_files = self._snapshots.tile_files(view)
            self._found = self._snapshots.candidates(floors)
            is_new = any(descriptor not in before for descriptor in self._found)
            self._pause = self._pause.after(waited_s, is_new=is_new)
        if not self._found:
            return NOTHING_ADOPTED
        job_id = self._job._run.record.job_id  # noqa: SLF001
        return decide_adoption(view, floors, self._found, self._tile_files, job_id)
