"""Repairs a job whose objects are damaged: rebuilds its state by another way and writes it as new objects.

No object is rewritten. A rebuilt state comes back into the chain in one of two ordinary ways:

* a *snapshot* of the commit before the newest, uploaded whole and published like the materializer's. A running job
  adopts it with its next checkpoint, since it is built on the job's base; then nothing damaged is needed.
* an *entry* for a stopped job: an import of the job's own state, as `varvite restore` of a savepoint writes it. It
  fences a driver that still runs, and the next start continues from it.

Invariants: I1, I5 (`varvite.materializer.verify.alternatives`), I6, I7 (a pin keeps the objects that are read; names of
new objects belong to the snapshot or the entry alone), I8 (everything is verified as it is read).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.commit.import_plan import CopiedState
from varvite.changelog.commit.run import JobRun
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.restore.files import describe_snapshot
from varvite.changelog.restore.restore import RestoreTarget, restore
from varvite.changelog.retention.pins import create_pin, release_pin
from varvite.changelog.retention.snapshots import list_snapshots, next_number, publish
from varvite.changelog.retention.state_copy import StateCopy
from varvite.materializer.verify.health import Examiner
from varvite.storage.errors import DidNotHappenError, InvalidRequestError
from varvite.storage.format import layout
from varvite.storage.format.records import SnapshotDescriptor, SnapshotFile, Tile
from varvite.storage.private_directories import TemporaryDirectory
from varvite.storage.transfer.upload import Uploader

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from pathlib import Path

    from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
    from varvite.materializer.verify.health import CheckpointHealth, RangeHealth
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import Fence, JobRecord
    from varvite.storage.object_stores.contract import ObjectStore

HOLDER = "varvite verify --repair"


class Published(NamedTuple):
    """A snapshot that the job will adopt."""

    operator: str
    low: int
    high: int
    number: int
    seq: int
    """The commit of its state."""


class Repair:
    """Repairs one job.

    Args:
        store: Rooted at `<root>/<job>`.
        record: The job's record.
        damaged: Names of objects that are damaged or missing, from `verify`.
        clock: For pins and uploads.
        tokens: For names.
    """

    def __init__(
        self, store: ObjectStore, record: JobRecord, damaged: Iterable[str], clock: Clock, tokens: TokenSource
    ) -> None:
        self._store = store
        self._record = record
        self._clock = clock
        self._tokens = tokens
        self._reader = ChainReader(store, record.job_id)
        self.checkpoints: tuple[CheckpointHealth, ...] = Examiner(
            self._reader, record.max_parallelism, damaged
        ).checkpoints()
        """The retained checkpoints, the newest first."""

    @property
    def is_needed(self) -> bool:
        """Is the newest checkpoint damaged, so that it cannot be restored as it is?"""
        return bool(self.checkpoints) and not self.checkpoints[0].is_whole

    def publish_snapshots(self) -> tuple[Published, ...]:
        """Publish a snapshot for every damaged base of the newest checkpoint.

        Raises:
            InvalidRequestError: That is not possible; the text says what to do instead.
            DidNotHappenError: The job has gone on too far; try again.
        """
        newest, final = self._newest_and_final()
        broken = [health for health in newest.ranges if not health.is_whole]
        # An empty base of a whole operator may be in parts, and is replaced as a whole.
        tiles = {(health.operator, health.tile.low, health.tile.high) for health in broken}
        to_build = [health for health in final.ranges if (health.operator, health.tile.low, health.tile.high) in tiles]
        published: list[Published] = []
        with self._pinned():
            for health in to_build:
                range_ = health.operator, health.low, health.high
                base = next(r.tile for r in newest.ranges if (r.operator, r.low, r.high) == range_)
                if health.tile.at != base.at or final.link.seq <= base.at.seq:
                    raise DidNotHappenError(
                        "the newest checkpoint is the first with its base; let the job make another checkpoint, or "
                        "stop it and repair with --stopped"
                    )
                published.append(self._publish(health, final, base))
        return tuple(published)

    def write_entry(self, target: CheckpointHealth) -> Fence:
        """Write an entry with the state of a checkpoint; the next start continues from it.

        Raises:
            InvalidRequestError: The checkpoint is lost.
            VarviteError: The chain, or an object of the state, cannot be read.
        """
        if target.commit is None or not target.is_rebuildable:
            raise InvalidRequestError(
                f"checkpoint {target.link.seq} cannot be rebuilt; lost: {', '.join(target.lost)}; choose another"
            )
        run = JobRun(self._store, self._record, CommitPolicy(), self._clock, self._tokens)
        try:
            with self._pinned():
                return run.start_from(target.commit, None, lambda slot: self._rebuild(target, slot), chosen_ahead=True)
        finally:
            run.close()

    def _newest_and_final(self) -> tuple[CheckpointHealth, CheckpointHealth]:
        """The newest checkpoint, and the one before it, whose state is final."""
        newest = self.checkpoints[0]
        if newest.problem or len(self.checkpoints) == 1 or newest.commit is None:
            reason = newest.problem or "it is the only one"
            raise InvalidRequestError(
                f"checkpoint {newest.link.seq} cannot be repaired while the job runs: {reason}; stop the job and "
                "repair with --stopped"
            )
        final = self.checkpoints[1]
        if newest.commit.parent != final.link or not final.is_rebuildable:
            raise InvalidRequestError(
                f"checkpoint {final.link.seq}, of which a snapshot would be made, is lost; stop the job and repair "
                "with --stopped, or start it from an older checkpoint"
            )
        if not newest.has_own_images:
            raise InvalidRequestError(
                "non-keyed state is damaged, which no snapshot holds; stop the job and use --stopped"
            )
        return newest, final

    @contextmanager
    def _pinned(self) -> Generator[None]:
        """Pin all checkpoints that can be read."""
        oldest = next((health.commit for health in reversed(self.checkpoints) if health.commit is not None), None)
        if oldest is None:
            raise InvalidRequestError("no checkpoint can be read")
        pin = create_pin(self._reader, oldest, HOLDER, self._clock, self._tokens)
        try:
            yield
        finally:
            release_pin(self._reader, pin, self._clock)

    @contextmanager
    def _build_snapshot(self, health: RangeHealth) -> Generator[tuple[Path, RocksDBStore]]:
        """Restore a range's state; yields the directory of its snapshot and the open store."""
        operator, low, high = health.operator, health.low, health.high
        if health.way is None:
            raise InvalidRequestError(f"{operator}[{low},{high}) is lost")
        target = RestoreTarget(operator=operator, key_type=health.key_type, low=low, high=high)
        with TemporaryDirectory("repair") as directory:
            state = restore(health.way.view, target, self._store, directory / "state")
            try:
                state.write_snapshot(directory / "snapshot")
                yield directory / "snapshot", state
            finally:
                state.close()

    def _upload(self, directory: Path, name_of: Callable[[int, str], str]) -> tuple[SnapshotFile, ...]:
        """Upload the files of a snapshot; `name_of` gives an object's name for a file's index and name."""
        files = describe_snapshot(directory)
        records = tuple(
            SnapshotFile(f.file, name_of(index, f.file), f.size_bytes, f.crc32) for index, f in enumerate(files)
        )
        with Uploader(self._store, self._clock) as uploader:
            uploads = [uploader.submit_file(r.name, f.path) for r, f in zip(records, files, strict=True)]
            for upload in uploads:
                upload.result()
        return records

    def _publish(self, health: RangeHealth, final: CheckpointHealth, base: Tile) -> Published:
        """Publish a range's state at the final checkpoint; it shares no file with another snapshot."""
        operator, low, high = health.operator, health.low, health.high
        head = self._reader.head()
        unnumbered = layout.SnapshotName(operator, low, high, 0)
        number = next_number(head.floors if head else (), list_snapshots(self._store, operator), unnumbered)
        uid = self._tokens.token()
        with self._build_snapshot(health) as (directory, state):
            files = self._upload(
                directory, lambda _, file: layout.snapshot_file(operator, low, high, number, uid, file)
            )
            descriptor = SnapshotDescriptor(
                status="published",
                job_id=self._record.job_id,
                token=self._tokens.token(),
                uid=uid,
                operator=operator,
                low=low,
                high=high,
                number=number,
                at=final.link,
                base=base.at,
                files=files,
                states=state.schemas,
                created_ms=self._clock.now_ms(),
            )
        if not publish(self._store, descriptor, self._clock).won:
            raise DidNotHappenError("a materializer was faster and has published another snapshot; try again")
        return Published(operator, low, high, number, final.link.seq)

    def _rebuild(self, target: CheckpointHealth, slot: int) -> CopiedState:
        """Write the state of a checkpoint into objects of a slot."""
        tiles = [self._write_tile(health, target, slot, number) for number, health in enumerate(target.ranges)]
        with TemporaryDirectory("repair") as scratch:
            copy = StateCopy(
                self._store,
                self._record.job_id,
                target=self._store,
                target_job_id=self._record.job_id,
                slot=slot,
                scratch=scratch,
                clock=self._clock,
                tokens=self._tokens,
            )
            images = copy.copy_images(target.images or ())
        return CopiedState(tuple(tiles), (), (target.link,), images)

    def _write_tile(self, health: RangeHealth, target: CheckpointHealth, slot: int, number: int) -> Tile:
        operator, tag = health.operator, self._tokens.token()
        with self._build_snapshot(health) as (directory, _):
            files = self._upload(directory, lambda index, _: layout.segment(slot, operator, number, tag, index))
        return Tile(operator=operator, low=health.low, high=health.high, at=target.link, files=files)


def newest_rebuildable(checkpoints: Sequence[CheckpointHealth]) -> CheckpointHealth | None:
    """The newest checkpoint whose state can be read; None if there is none."""
    return next((checkpoint for checkpoint in checkpoints if checkpoint.is_rebuildable), None)
