"""A storage with a committing job and materializers beside it, with a clock that the test moves."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.jobs.committing_job import CommittingJob, NumberedTokens, random_batch, restored_cells
from tests.jobs.state_model import KEY_GROUPS, BatchChanges
from tests.stores.manual_clock import ManualClock
from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.retention.snapshots import list_snapshots
from varvite.materializer.monitoring.events import Event, Materialized
from varvite.materializer.options.materializer_config import MaterializerConfig
from varvite.materializer.resources.bandwidth import TokenBucket
from varvite.materializer.resources.stop_signal import StopSignal
from varvite.materializer.resources.workspace import Workspace
from varvite.materializer.service.context import MaterializerContext
from varvite.materializer.service.loop import MaterializerService
from varvite.storage.format import layout
from varvite.storage.format.records import Commit, Link, SnapshotDescriptor, decode_record
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from pathlib import Path

    from varvite.storage.clock import Clock
    from varvite.storage.object_stores.contract import ObjectStore

INTERVAL_MS = 60_000
CONFIG = MaterializerConfig(
    storage_url="memory://x",
    interval_ms=INTERVAL_MS,
    log_bytes=None,
    log_batches=None,
    log_ratio=None,
    space_min_bytes=128 << 10,
    replay_ms=None,
    collect_ms=1_000,
    parallel=1,  # so that a seed gives the same run
)
IDLE = BatchChanges()


@dataclass
class Events:
    """Keeps what was reported."""

    all: list[Event] = field(default_factory=list)

    def report(self, event: Event) -> None:
        self.all.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.all if type(event) is kind]


class Sidecar:
    """A materializer in this process, and what it reported."""

    def __init__(
        self,
        world: World,
        root: ObjectStore,
        config: MaterializerConfig,
        place: str,
        clock: Clock | None = None,
        bytes_per_s: int | None = None,
    ) -> None:
        self.events = Events()
        self.stop = StopSignal()
        self.workspace = Workspace(world.directory / place)
        world.sidecars.append(self)
        tokens = NumberedTokens(f"materializer-{len(world.sidecars)}")
        clock = clock or world.clock
        bandwidth = None if bytes_per_s is None else TokenBucket(bytes_per_s, clock, self.stop)
        self.context = MaterializerContext(
            config=config,
            clock=clock,
            tokens=tokens,
            workspace=self.workspace,
            bandwidth=bandwidth,
            reporter=self.events,
            stop=self.stop,
        )
        self.service = MaterializerService(root, self.context)
        self._is_open = True

    def fold(self) -> bool:
        """Materialize whatever has a log, and collect."""
        return self.service.step(on_demand=True)

    def poll(self) -> bool:
        """Do what is due."""
        return self.service.step()

    def die(self) -> None:
        """End as SIGKILL does, but for the lock, which the system frees."""
        if self._is_open:
            self.workspace.close()
            self._is_open = False

    @property
    def materialized(self) -> list[Materialized]:
        return self.events.of(Materialized)


class World:
    """A storage with one job that commits, and materializers."""

    def __init__(self, directory: Path, root: ObjectStore | None = None, *, started: bool = True, **job: Any) -> None:
        """`root` is a memory store with the world's own clock if it is left out; `started`: the job has a run.

        `job` are fields of `CommittingJob`; its `name` is the directory. With `storage`, the job's store reads and
        writes as `job.json` says.
        """
        self.directory = directory
        self.clock = ManualClock()
        self.root = root or MemoryStore(clock=self.clock)
        self.store: ObjectStore = (JobStore if job.get("storage") else PrefixedStore)(self.root, job.get("name", "job"))
        self.job = CommittingJob(self.store, self.clock, **job)
        if started:
            self.job.start()
        self.rng = random.Random(7)
        self.sidecars: list[Sidecar] = []
        self._checks = 0

    def sidecar(
        self,
        config: MaterializerConfig = CONFIG,
        root: ObjectStore | None = None,
        place: str = "work",
        clock: Clock | None = None,
        bytes_per_s: int | None = None,
    ) -> Sidecar:
        """`clock` is the world's if it is left out; `bytes_per_s`: no limit."""
        return Sidecar(self, root or self.root, config, place, clock, bytes_per_s)

    def close(self) -> None:
        self.job.close()
        for sidecar in self.sidecars:
            sidecar.die()

    def commit(self, count: int = 1, **options: Any) -> None:
        """Random batches."""
        for _ in range(count):
            self.clock.advance(1)
            self.job.commit(random_batch(self.rng), **options)

    def wait_for_pack(self) -> None:
        """Until the pack that is made for the next commit is stored, or has failed, if there is one."""
        if self.job.run is not None:
            self.job.run._packs.settle()

    @property
    def reader(self) -> ChainReader:
        assert self.job.run is not None
        return ChainReader(self.store, self.job.run.record.job_id)

    def newest(self) -> Commit:
        head = self.reader.head()
        assert head is not None
        return head if isinstance(head, Commit) else self.reader.read_commit(head.commit).commit

    def check(self) -> None:
        """The newest commit and its parent restore to what the model says."""
        newest = self.newest()
        for link in (newest.link, newest.parent):
            self.check_commit(link)

    def check_commit(self, link: Link) -> None:
        """This commit restores to what the model says."""
        self._checks += 1
        found = restored_cells(self.store, self.reader.job_id, link, self.directory / f"check-{self._checks}")
        assert found == self.job.models[link].cells()

    def names(self, prefix: str) -> list[str]:
        return [meta.name for meta in self.store.list(prefix)]

    def log_length(self) -> int:
        """References that a restore of the newest commit replays."""
        return len(self.reader.load_line(self.newest().link, KEY_GROUPS).view.segments)

    def check_no_garbage(self) -> None:
        """Everything that is left is needed: by a retained commit, or by a snapshot that may still be adopted."""
        newest = self.newest()
        entries = [self.reader.read(seq).entry for seq in self.reader.list_seqs()]
        commits = [entry for entry in entries if isinstance(entry, Commit)]
        assert min(commit.seq for commit in commits) >= newest.keep_from
        named = {one.name for commit in commits for part in commit.parts for one in part.uploaded}
        named |= {ref.data.name for commit in commits for ref in (*commit.log, *commit.images)}
        listed = self.names(layout.SEGMENTS) + self.names(layout.PACKS)
        # A pack of a later slot is about to be named.
        assert {name for name in listed if layout.slot_of(name).slot <= newest.seq} <= named
        tiles = {(t.operator, t.low, t.high, t.snapshot) for commit in commits for t in commit.tiles}
        floors = {(f.operator, f.low, f.high): f.number for f in newest.floors}
        kept = list_snapshots(self.store)
        assert [n for n in kept if n.number <= floors.get(n[:3], 0) and n not in tiles] == []
        files = {file.name for n in kept for file in self.descriptor(n).files}
        assert set(self.names(layout.SNAPSHOT_FILES)) == files

    def descriptor(self, name: layout.SnapshotName) -> SnapshotDescriptor:
        return decode_record(self.store.get(layout.snapshot(*name)), SnapshotDescriptor, str(name))
