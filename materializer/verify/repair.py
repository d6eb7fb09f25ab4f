"""Repairing a job whose objects are damaged: its state is rebuilt by another way and written as new objects.

No object is rewritten. There are two ways in which a rebuilt state comes back into the chain, both those of every day:

* a *snapshot* of the commit before the newest, uploaded whole and published as the materializer does it. A job that
  runs adopts it with its next checkpoint, since it is built on the job's base; then nothing damaged is needed.
* an *entry* for a job that is stopped: an import of the job's own state (`varvite restore` of a savepoint writes the
  same). It fences a driver that still runs, and the next start goes on from it.

Invariants: I1, I5 (`storage.alternative_view`), I6, I7 (a pin keeps what is read; names are the snapshot's or the
entry's own), I8 (everything is verified as it is read).
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
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
from varvite.storage.transfer.upload import Uploader

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

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
    """The commit whose state it is."""


class Repair:
    """Repairs one job.

    Args:
        store: Rooted at `<root>/<job>`.
        record: The job's.
        damaged: Names of objects that are damaged or gone, as `verify` found them.
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
        """The retained ones, the newest first."""

    @property
    def is_needed(self) -> bool:
        """Whether the newest checkpoint cannot be restored as it is."""
        return bool(self.checkpoints) and not self.checkpoints[0].is_whole

    def publish_snapshots(self) -> tuple[Published, ...]:
        """Publish a snapshot of every base that the newest checkpoint cannot do with.

        Raises:
            InvalidRequestError: That is not possible; says what is.
            DidNotHappenError: The job has gone on too far; try again.
        """
        newest, final = self._newest_and_final()
        broken = [one for one in newest.ranges if not one.is_whole]
        # An empty base of a whole operator may be in parts, and is replaced as a whole.
        tiles = {(one.operator, one.tile.low, one.tile.high) for one in broken}
        wanted = [one for one in final.ranges if (one.operator, one.tile.low, one.tile.high) in tiles]
        found: list[Published] = []
        with self._pinned():
            for one in wanted:
                base = next(
                    r.tile for r in newest.ranges if (r.operator, r.low, r.high) == (one.operator, one.low, one.high)
                )
                if one.tile.at != base.at or final.link.seq <= base.at.seq:
                    raise DidNotHappenError(
                        "the newest checkpoint is the first with its base; let the job make another checkpoint, or "
                        "stop it and repair with --stopped"
                    )
                found.append(self._publish(one, final, base))
        return tuple(found)

    def write_entry(self, target: CheckpointHealth) -> Fence:
        """Write an entry with the state of a checkpoint, from which the next start goes on.

        Raises:
            InvalidRequestError: The checkpoint is lost.
            VarviteError: The chain or what the state is made of cannot be read.
        """
        if target.commit is None or not target.is_rebuildable:
            raise InvalidRequestError(
                f"checkpoint {target.link.seq} cannot be rebuilt; lost: {', '.join(target.lost)}; choose another"
            )
        run = JobRun(self._store, self._record, CommitPolicy(), self._clock, self._tokens)
        try:
            with self._pinned():
                return run.start_from(target.commit, None, lambda slot: self._rebuilt(target, slot), chosen_ahead=True)
        finally:
            run.close()

    def _newest_and_final(self) -> tuple[CheckpointHealth, CheckpointHealth]:
        """The newest checkpoint, and the one before it, whose state is final."""
        newest = self.checkpoints[0]
        if newest.problem or len(self.checkpoints) == 1 or newest.commit is None:
            why = newest.problem or "it is the only one"
            raise InvalidRequestError(
                f"checkpoint {newest.link.seq} cannot be repaired while the job runs: {why}; stop the job and repair "
                "with --stopped"
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
        """Keep all checkpoints that can be read."""
        oldest = next((one.commit for one in reversed(self.checkpoints) if one.commit is not None), None)
        if oldest is None:
            raise InvalidRequestError("no checkpoint can be read")
        pin = create_pin(self._reader, oldest, HOLDER, self._clock, self._tokens)
        try:
            yield
        finally:
            release_pin(self._reader, pin, self._clock)

    @contextmanager
    def _built(self, one: RangeHealth) -> Generator[tuple[Path, RocksDBStore]]:
        """The state of a range as a snapshot in a directory, and the store that wrote it."""
        if one.way is None:
            raise InvalidRequestError(f"{one.operator}[{one.low},{one.high}) is lost")
        target = RestoreTarget(operator=one.operator, key_type=one.key_type, low=one.low, high=one.high)
        with TemporaryDirectory(prefix="varvite-repair-") as name:
            place = Path(name)
            state = restore(one.way.view, target, self._store, place / "state")
            try:
                state.write_snapshot(place / "snapshot")
                yield place / "snapshot", state
            finally:
                state.close()

    def _uploaded(self, directory: Path, name_of: Callable[[int, str], str]) -> tuple[SnapshotFile, ...]:
        """The files of a snapshot, which are then durable under the names for their number and own name."""
        files = describe_snapshot(directory)
        named = tuple(
            SnapshotFile(f.file, name_of(number, f.file), f.size_bytes, f.crc32) for number, f in enumerate(files)
        )
        with Uploader(self._store, self._clock) as uploader:
            uploads = [uploader.submit_file(n.name, f.path) for n, f in zip(named, files, strict=True)]
            for upload in uploads:
                upload.result()
        return named

    def _publish(self, one: RangeHealth, final: CheckpointHealth, base: Tile) -> Published:
        """Publish a range's state at the final checkpoint, with no file but its own."""
        head = self._reader.head()
        wanted = layout.SnapshotName(one.operator, one.low, one.high, 0)
        number = next_number(head.floors if head else (), list_snapshots(self._store, one.operator), wanted)
        uid = self._tokens.token()
        with self._built(one) as (directory, state):
            files = self._uploaded(
                directory,
                lambda _, file: layout.snapshot_file(one.operator, one.low, one.high, number, uid, file),
            )
            descriptor = SnapshotDescriptor(
                status="published",
                job_id=self._record.job_id,
                token=self._tokens.token(),
                uid=uid,
                operator=one.operator,
                low=one.low,
                high=one.high,
                number=number,
                at=final.link,
                base=base.at,
                files=files,
                states=state.schemas,
                created_ms=self._clock.now_ms(),
            )
        if not publish(self._store, descriptor, self._clock).won:
            raise DidNotHappenError("a materializer was faster and has published another snapshot; try again")
        return Published(one.operator, one.low, one.high, number, final.link.seq)

    def _rebuilt(self, target: CheckpointHealth, slot: int) -> CopiedState:
        """The state of a checkpoint in objects of a slot."""
        tiles = [self._tile(one, target, slot, number) for number, one in enumerate(target.ranges)]
        with TemporaryDirectory(prefix="varvite-repair-") as scratch:
            copy = StateCopy(
                self._store,
                self._record.job_id,
                target=self._store,
                target_job_id=self._record.job_id,
                slot=slot,
                scratch=Path(scratch),
                clock=self._clock,
                tokens=self._tokens,
            )
            images = copy.copy_images(target.images or ())
        return CopiedState(tuple(tiles), (), (target.link,), images)

    def _tile(self, one: RangeHealth, target: CheckpointHealth, slot: int, number: int) -> Tile:
        tag = self._tokens.token()
        with self._built(one) as (directory, _):
            files = self._uploaded(directory, lambda index, _: layout.segment(slot, one.operator, number, tag, index))
        return Tile(operator=one.operator, low=one.low, high=one.high, at=target.link, files=files)


def rebuildable(checkpoints: Sequence[CheckpointHealth]) -> CheckpointHealth | None:
    """The newest checkpoint whose state can be had; None if there is none."""
    return next((one for one in checkpoints if one.is_rebuildable), None)
