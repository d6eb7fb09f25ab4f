"""Checking everything that the retained checkpoints of a job need: checksums, references, and the state itself.

What is checked: `job.json`, the chain from the head's `keep_from` on, every retained commit of the head's line with its
segments (each row is decoded), its images and its tiles' snapshots (each file is read), snapshots that may still be
adopted, savepoints and pins. Then, as long as the log that a snapshot was made from is still there, that log is
replayed over the tile before it, and must give the snapshot's state, but for what has expired.

Nothing is changed but for one pin, which keeps what is looked at.

Invariants that are checked: I2 (tags), I5, I7 (all that is needed is there), I8.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from varvite.changelog.chain.invariants import violations_of_commit, violations_of_succession, violations_of_view
from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.chain.retention_bounds import bounds_of
from varvite.changelog.chain.view import LineView, own_segments
from varvite.changelog.operator_state.image_source import read_images
from varvite.changelog.reading.checkpoints import line_commits
from varvite.changelog.reading.columns import StateColumns
from varvite.changelog.reading.diff import Side, diff_stores, untracked
from varvite.changelog.reading.reader import StateReader
from varvite.changelog.restore.files import check_file, fetch_snapshot
from varvite.changelog.restore.restore import tile_files
from varvite.changelog.retention.pins import create_pin, list_all_pins, release_pin
from varvite.changelog.retention.snapshots import SnapshotReader
from varvite.changelog.segments.segment import decode_segments
from varvite.changelog.segments.source import check_reference
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.materializer.verify.savepoints import check_savepoint
from varvite.storage.errors import (
    CorruptDataError,
    DidNotHappenError,
    InvalidRequestError,
    MissingObjectError,
    RetryableError,
    VarviteError,
)
from varvite.storage.format import layout
from varvite.storage.format.records import ORIGIN, Savepoint, decode_record
from varvite.storage.job.record import read_job
from varvite.storage.transfer.slice_reader import read_slice

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from varvite.changelog.chain.view import StoredCommit
    from varvite.changelog.reading.diff import Track
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import (
        Commit,
        Entry,
        ObjectSlice,
        SegmentRef,
        SnapshotDescriptor,
        SnapshotFile,
        Tile,
    )
    from varvite.storage.object_stores.contract import ObjectStore

HOLDER: Final = "varvite verify"
DIFFERENCES_MAX: Final = 3
"""Rows that a problem names."""


class Problem(NamedTuple):
    """Something that is wrong."""

    object_name: str
    """The object, or the checkpoint or snapshot, that is concerned."""
    problem: str


@dataclass(slots=True)
class Verification:
    """What was checked and what was found."""

    job: str
    head_seq: int = 0
    entries: int = 0
    checkpoints: int = 0
    """Retained ones, which were checked with all that they name."""
    segments: int = 0
    segment_bytes: int = 0
    images: int = 0
    """Of non-keyed state."""
    snapshots: int = 0
    snapshot_files: int = 0
    snapshot_bytes: int = 0
    pins: int = 0
    savepoints: int = 0
    compared: int = 0
    """Snapshots whose state was compared with that of an older base and the log."""
    problems: list[Problem] = field(default_factory=list[Problem])
    damaged_savepoints: list[Savepoint] = field(default_factory=list["Savepoint"])
    """Those that need something damaged; one that cannot be read itself is only a problem."""

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.problems


class Verifier:
    """Checks one job; see `verify`."""

    def __init__(self, store: ObjectStore, name: str, clock: Clock, tokens: TokenSource, track: Track) -> None:
        self._store = store
        self._clock = clock
        self._tokens = tokens
        self._track = track
        self._checked: set[ObjectSlice | str] = set()
        self.found = Verification(job=name)

    def run(self) -> Verification:
        """Check the job. Storage errors that may pass (`RetryableError`) are raised, not reported."""
        with self._problem_of(layout.JOB):
            job = read_job(self._store)
            self._job_id, self._key_groups, self._begins_after = job.job_id, job.max_parallelism, job.begins_after
            self._chain = ChainReader(self._store, job.job_id)
            self._check_job()
        return self.found

    def _check_job(self) -> None:
        for one in list_all_pins(self._chain):
            with self._problem_of(layout.pin(one.name)):
                self.found.pins += 1
                if isinstance(one.pin, CorruptDataError):
                    raise one.pin
        with self._problem_of(layout.CHAIN):
            head = self._chain.head()
            if head is not None:
                self.found.head_seq = head.seq
                with self._retained(head) as commits:
                    self._check_entries(head)
                    self._check_commits(head, commits)
        for meta in self._track(list(self._store.list(layout.SAVEPOINTS)), "savepoints"):
            self._check_savepoint(meta.name)

    @contextmanager
    def _retained(self, head: Entry) -> Generator[list[StoredCommit]]:
        """The commits of the head's line that must be complete, the newest first, under a pin."""
        commits: list[StoredCommit] = []
        cut = bounds_of(head)
        with self._problem_of(layout.CHAIN):
            for stored in line_commits(self._chain):
                if not cut.is_complete(stored.commit):
                    break
                commits.append(stored)
            else:
                self._check_end(commits)
        pin = None
        while commits and pin is None:
            try:
                pin = create_pin(self._chain, commits[-1].commit, HOLDER, self._clock, self._tokens)
            except DidNotHappenError:
                commits.pop()  # the job went on, and this one is not retained any more
        try:
            yield commits
        finally:
            if pin is not None:
                release_pin(self._chain, pin, self._clock)

    def _check_end(self, commits: Sequence[StoredCommit]) -> None:
        """The line ends where its next commit is collected, or at the beginning."""
        head, before = self._chain.head(), commits[-1].commit.parent if commits else ORIGIN
        if head is not None and before != ORIGIN and before.seq >= head.keep_from:
            self.found.problems.append(
                Problem(layout.chain(before.seq), "the line goes on here, but the entry is gone")
            )

    def _check_savepoint(self, name: str) -> None:
        with self._problem_of(name, may_be_gone=True):
            savepoint = decode_record(self._store.get(name), Savepoint, name)
            if layout.is_hold(savepoint.name):
                return  # it may go at any time; what a clone needs is checked with the clone
            self.found.savepoints += 1
            self.found.damaged_savepoints.append(savepoint)
            with self._problem_of(name):
                check_savepoint(self._chain, savepoint, self._checked)
                self.found.damaged_savepoints.remove(savepoint)

    def _check_entries(self, head: Entry) -> None:
        seqs = [seq for seq in self._chain.list_seqs(max(0, head.keep_from - 1)) if seq <= head.seq]
        before: Entry | None = None
        for seq in self._track(seqs, "entries of the chain"):
            entry = None
            with self._problem_of(layout.chain(seq), may_be_gone=True):
                entry = self._chain.read(seq).entry
                self.found.entries += 1
                if before is not None and before.seq == seq - 1:
                    self._check_succession(entry, before)
            before = entry

    def _check_succession(self, entry: Entry, before: Entry) -> None:
        violations = violations_of_succession(entry, before)
        head = self._chain.head() if violations else None
        if head is not None and before.seq >= head.keep_from:  # else a stale run may have filled a hole
            self._violated(entry.seq, violations)

    def _violated(self, seq: int, violations: Sequence[str]) -> None:
        self.found.problems += [Problem(layout.chain(seq), violation) for violation in violations]

    def _check_commits(self, head: Entry, commits: Sequence[StoredCommit]) -> None:
        views: list[LineView] = []
        tags: dict[SegmentRef, str] = {}
        for stored in self._track(commits, "checkpoints"):
            with self._problem_of(layout.chain(stored.commit.seq)):
                views.append(self._chain.load_line(stored.commit.link, self._key_groups).view)
                self._violated(stored.commit.seq, violations_of_view(views[-1], stored.commit))
                self.found.checkpoints += 1
            tags.update(_own_tags(stored))
        for stored, parent in pairwise(commits):
            self._violated(stored.commit.seq, violations_of_commit(stored.commit, parent.commit))
        segments = dict.fromkeys(ref for view in views for ref in view.segments)
        segments.update(dict.fromkeys(ref for stored in commits for ref in own_segments(stored)))
        for ref in self._track(list(segments), "segments"):
            with self._problem_of(ref.data.name):
                self._check_segment(ref, tags.get(ref))
        images = dict.fromkeys(image for view in views for image in view.images)
        for image in self._track(list(images), "non-keyed state"):
            with self._problem_of(image.data.name):
                read_images(self._store, [image])
                self.found.images += 1
        tiles = {(t.operator, t.low, t.high, t.at, t.snapshot): t for view in views for t in view.tiles}
        line = views[0] if views else LineView(max_parallelism=self._key_groups)
        self._check_snapshots(head, commits, list(tiles.values()), line)

    def _check_segment(self, ref: SegmentRef, tag: str | None) -> None:
        data = read_slice(self._store, ref.data)
        for segment in decode_segments(data, ref.data.name):
            check_reference(segment, ref)
            # The log before the job's chain began is that of the job whose state it was started from.
            is_ours = ref.seq_first <= self._begins_after or segment.header.job_id == self._job_id
            if not is_ours or tag not in (None, segment.header.tag):
                raise CorruptDataError(
                    f"the segment is of job id {segment.header.job_id}, attempt {segment.header.tag}; the checkpoint "
                    f"names {self._job_id}, attempt {tag}; see `varvite verify JOB --repair`",
                    object_name=ref.data.name,
                )
            segment.changes()
        self._checked.add(ref.data)
        self.found.segments += 1
        self.found.segment_bytes += ref.data.length

    def _check_snapshots(
        self, head: Entry, commits: Sequence[StoredCommit], tiles: Sequence[Tile], line: LineView
    ) -> None:
        named: dict[str, SnapshotFile] = {}
        for tile in self._track(tiles, "bases"):
            with self._problem_of(f"{tile.operator}[{tile.low},{tile.high})#{tile.snapshot}"):
                files = tile_files(self._store, tile)
                named.update({file.name: file for file in files})
                self.found.snapshots += bool(files)
        needed = frozenset(named)
        descriptors = self._descriptors(head, tiles)
        named.update({file.name: file for one in descriptors for file in one.files})
        damaged: set[str] = set()
        for file in self._track(list(named.values()), "files of snapshots"):
            with self._problem_of(file.name, may_be_gone=file.name not in needed):
                damaged.add(file.name)
                self._check_file(file)
                damaged.remove(file.name)
        for one in self._track(descriptors, "snapshots against the log"):
            if damaged.isdisjoint(file.name for file in one.files):
                if commits and line.holds(one.at):
                    self._compare(one, commits[-1].commit)
            else:
                self._check_candidate(one, damaged - needed)

    def _descriptors(self, head: Entry, tiles: Sequence[Tile]) -> list[SnapshotDescriptor]:
        """The published snapshots that are tiles or may become some."""
        reader = SnapshotReader(self._store, self._job_id)
        wanted = {layout.SnapshotName(t.operator, t.low, t.high, t.snapshot) for t in tiles if t.snapshot is not None}
        floors = {(f.operator, f.low, f.high): f.number for f in head.floors}
        found: list[SnapshotDescriptor] = []
        for meta in self._store.list(layout.SNAPSHOTS):
            name = layout.snapshot_name(meta.name)
            if name in wanted or name.number > floors.get(name[:3], 0):
                with self._problem_of(meta.name, may_be_gone=name not in wanted):
                    descriptor = reader.read(name)
                    if descriptor.status == "published":
                        self.found.snapshots += name not in wanted
                        found.append(descriptor)
        return found

    def _check_candidate(self, one: SnapshotDescriptor, gone: set[str]) -> None:
        """A snapshot that no checkpoint names may be collected at any time, but its descriptor goes first."""
        lost = [file.name for file in one.files if file.name in gone]
        name = layout.snapshot(one.operator, one.low, one.high, one.number)
        known = {problem.object_name for problem in self.found.problems}
        if lost and known.isdisjoint(lost) and any(meta.name == name for meta in self._store.list(name)):
            self.found.problems.append(Problem(lost[0], f"the file is gone, but {name} still lists it"))

    def _check_file(self, file: SnapshotFile) -> None:
        check_file(self._store, file)
        self._checked.add(file.name)
        self.found.snapshot_files += 1
        self.found.snapshot_bytes += file.size_bytes

    def _compare(self, one: SnapshotDescriptor, kept: Commit) -> None:
        """Replay what the snapshot was made from, if it is still there, and compare."""
        name = layout.snapshot(one.operator, one.low, one.high, one.number)
        # Commits that the pin does not keep may be collected at any time; damaged entries are noted already.
        with self._problem_of(name, may_be_gone=one.at.seq < kept.seq):
            commit = self._chain.read_commit(one.at).commit
            reader = StateReader(self._store, commit, pin=False)
            tiles = reader.view.tiles_for(one.operator, one.low, one.high)
            if all(tile.at.seq < one.at.seq for tile in tiles):
                self._compare_stores(one, reader, name)
                self.found.compared += 1

    def _compare_stores(self, one: SnapshotDescriptor, reader: StateReader, name: str) -> None:
        own = reader.layout(one.operator)
        with TemporaryDirectory(prefix="varvite-") as scratch, reader.restored(own, one.low, one.high) as replayed:
            fetch_snapshot(self._store, one.files, Path(scratch) / "snapshot")
            snapshot = RocksDBStore.open_existing(Path(scratch) / "snapshot", read_only=True)
            try:
                for schema in own.states:
                    columns = StateColumns(own.key_type, schema)
                    sides = (Side(replayed, reader.time), Side(snapshot, reader.time))
                    found = list(islice(diff_stores(*sides, columns, own.uid), DIFFERENCES_MAX))
                    if found:
                        told = ", ".join(f"{d.name!r}: {d.before} and {d.after}" for d in found)
                        raise CorruptDataError(
                            f"state {schema.name!r} of checkpoint {one.at.seq} is not what the log gives; the first "
                            f"rows (log and snapshot): {told}; see `varvite verify JOB --repair`, and report this",
                            object_name=name,
                        )
            finally:
                snapshot.close()

    @contextmanager
    def _problem_of(self, name: str, *, may_be_gone: bool = False) -> Generator[None]:
        """Note an error as a problem of the object it names, or of this one."""
        try:
            yield
        except MissingObjectError as error:
            if not may_be_gone:
                self._note(name, error)
        except DidNotHappenError as error:
            if not (may_be_gone and isinstance(error.__cause__, MissingObjectError)):  # so a reader tells that it is
                raise
        except (RetryableError, InvalidRequestError):
            raise
        except VarviteError as error:
            self._note(name, error)

    def _note(self, name: str, error: VarviteError) -> None:
        problem = Problem(str(error.context.get("object_name", name)), error.message)
        if problem not in self.found.problems:
            self.found.problems.append(problem)


def verify(store: ObjectStore, name: str, clock: Clock, tokens: TokenSource, track: Track = untracked) -> Verification:
    """Check a job.

    Args:
        store: Rooted at `<root>/<job>`.
        name: Of the job, for the report.
        clock: For the pin.
        tokens: For the pin.
        track: Is told of the progress.
    """
    return Verifier(store, name, clock, tokens, track).run()


def _own_tags(stored: StoredCommit) -> Iterable[tuple[SegmentRef, str]]:
    """The commit's own segments, each with the tag of the attempt that won."""
    tags = {(part.operator, part.low): part.tag for part in stored.commit.parts}
    return [(ref, tags[ref.operator, ref.low]) for ref in own_segments(stored)]
