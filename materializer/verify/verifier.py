"""Checks everything that the retained checkpoints of a job need: checksums, references, and the state itself.

Checked are `job.json`, the chain from the head's `keep_from` on, snapshots that may still be adopted, savepoints, holds
and pins. Of every commit of the head's line that is retained, be it by a pin alone: its segments (each row is decoded),
its images and its tiles' snapshots (each file is read). Then, as long as the log that a snapshot was made from still
exists, that log is replayed over the tile before it, and must give the snapshot's state, except for expired values.

Nothing is changed except for one pin, which protects the checked objects.

Checked invariants: I2 (tags), I5, I7 (all needed objects exist), I8.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, pairwise
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
from varvite.changelog.restore.files import check_file, fetch_snapshot, reading_fetched
from varvite.changelog.restore.restore import tile_files
from varvite.changelog.retention.pins import Retention, create_pin, list_all_pins, readable_pins, release_pin
from varvite.changelog.retention.snapshots import SnapshotReader
from varvite.changelog.segments.segment import decode_segments
from varvite.changelog.segments.source import check_reference
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.materializer.verify.savepoints import check_savepoint
from varvite.storage.errors import (
    CorruptDataError,
    DidNotHappenError,
    IncompatibleError,
    InvalidRequestError,
    MissingObjectError,
    RetryableError,
    VarviteError,
)
from varvite.storage.format import layout
from varvite.storage.format.identity import check_record
from varvite.storage.format.records import ORIGIN, Savepoint, decode_record
from varvite.storage.job.record import read_job
from varvite.storage.private_directories import TemporaryDirectory
from varvite.storage.transfer.slice_reader import read_slice

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from varvite.changelog.chain.view import StoredCommit
    from varvite.changelog.reading.diff import Track
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import (
        Commit,
        Entry,
        Link,
        ObjectSlice,
        Pin,
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
    """A damaged or missing object."""

    object_name: str
    """The object, or the checkpoint or snapshot, with the problem."""
    problem: str


@dataclass(slots=True)
class Verification:
    """Counts of checked objects, and the problems."""

    job: str
    head_seq: int = 0
    entries: int = 0
    checkpoints: int = 0
    """Retained checkpoints, checked with everything that they name."""
    segments: int = 0
    segment_bytes: int = 0
    images: int = 0
    """Images of non-keyed state."""
    snapshots: int = 0
    snapshot_files: int = 0
    snapshot_bytes: int = 0
    pins: int = 0
    savepoints: int = 0
    compared: int = 0
    """Snapshots whose state was compared with that of an older base and the log."""
    problems: list[Problem] = field(default_factory=list[Problem])
    damaged_savepoints: list[Savepoint] = field(default_factory=list["Savepoint"])
    """Savepoints that need a damaged object; one whose manifest cannot be read is only a problem."""
    whole_savepoints: list[Savepoint] = field(default_factory=list["Savepoint"])

    @property
    def ok(self) -> bool:
        """Were no problems found?"""
        return not self.problems


class Verifier:
    """Checks one job (`verify`)."""

    def __init__(self, store: ObjectStore, name: str, clock: Clock, tokens: TokenSource, track: Track) -> None:
        self._store = store
        self._clock = clock
        self._tokens = tokens
        self._track = track
        self._checked: set[ObjectSlice | str] = set()
        self.report = Verification(job=name)

    def run(self) -> Verification:
        """Check the job. Transient storage errors (`RetryableError`) are raised, not reported."""
        with self._problem_of(layout.JOB):
            job = read_job(self._store)
            self._job_id, self._key_groups, self._begins_after = job.job_id, job.max_parallelism, job.begins_after
            self._chain = ChainReader(self._store, job.job_id)
            self._check_job()
        return self.report

    def _check_job(self) -> None:
        with self._problem_of(layout.CHAIN):
            head = self._chain.head()
            if head is not None:
                self.report.head_seq = head.seq
                pins = self._check_pins()  # after the head: what they keep then, they keep
                with self._retained(Retention(bounds_of(head), pins)) as commits:
                    self._check_entries(head, bounds_of(head, pins).keep_from)
                    self._check_commits(head, commits)
        for meta in self._track(list(self._store.list(layout.SAVEPOINTS)), "savepoints"):
            self._check_savepoint(meta.name)

    def _check_pins(self) -> tuple[Pin, ...]:
        pins: list[Pin] = []
        for stored in list_all_pins(self._chain):
            with self._problem_of(layout.pin(stored.name)):
                self.report.pins += 1
                if isinstance(stored.pin, CorruptDataError):
                    raise stored.pin
                pins.append(stored.pin)
        return tuple(pins)

    @contextmanager
    def _retained(self, retention: Retention) -> Generator[list[StoredCommit]]:
        """The commits of the head's line that must be complete, the newest first, under a pin."""
        commits: list[StoredCommit] = []
        oldest: StoredCommit | None = None
        with self._problem_of(layout.CHAIN):
            for oldest in line_commits(self._chain, down_to=retention.complete_from):
                if retention.is_complete(oldest.commit):
                    commits.append(oldest)
            if oldest is not None:
                self._check_end(oldest.commit.parent)
        pin = None
        while commits and pin is None:
            try:
                pin = create_pin(self._chain, commits[-1].commit, HOLDER, self._clock, self._tokens)
            except DidNotHappenError:
                commits.pop()  # the job went on, and this commit is not retained any more
        try:
            yield commits
        finally:
            if pin is not None:
                release_pin(self._chain, pin, self._clock)

    def _check_end(self, before: Link) -> None:
        """Check that the line ends where its next commit may be collected, or at the beginning."""
        head = self._chain.head()
        if head is None or before == ORIGIN:
            return
        if before.seq >= Retention(bounds_of(head), readable_pins(self._chain)).complete_from:
            self.report.problems.append(
                Problem(layout.chain(before.seq), "the line goes on here, but the entry is gone")
            )

    def _check_savepoint(self, name: str) -> None:
        with self._problem_of(name, may_be_gone=True):
            savepoint = decode_record(self._store.get(name), Savepoint, name)
            check_record(savepoint, name, self._job_id)
            if layout.is_hold(savepoint.name):
                self._check_hold(name, savepoint)
                return
            self.report.savepoints += 1
            self.report.damaged_savepoints.append(savepoint)
            with self._problem_of(name):
                check_savepoint(self._chain, savepoint, self._checked)
                self.report.damaged_savepoints.remove(savepoint)
                self.report.whole_savepoints.append(savepoint)

    def _check_hold(self, name: str, hold: Savepoint) -> None:
        """Check what a copy or a clone needs, unless the hold is deleted meanwhile, which may happen at any time."""
        with self._problem_of(name):
            try:
                check_savepoint(self._chain, hold, self._checked)
            except (CorruptDataError, IncompatibleError):
                if any(meta.name == name for meta in self._store.list(name)):
                    raise

    def _check_entries(self, head: Entry, keep_from: int) -> None:
        seqs = [seq for seq in self._chain.list_seqs(max(0, keep_from - 1)) if seq <= head.seq]
        before: Entry | None = None
        for seq in self._track(seqs, "entries of the chain"):
            entry = None
            with self._problem_of(layout.chain(seq), may_be_gone=True):
                entry = self._chain.read(seq).entry
                self.report.entries += 1
                if before is not None and before.seq == seq - 1:
                    self._check_succession(entry, before)
            before = entry

    def _check_succession(self, entry: Entry, before: Entry) -> None:
        violations = violations_of_succession(entry, before)
        head = self._chain.head() if violations else None
        if head is not None and before.seq >= head.keep_from:  # else a stale run may have filled a hole
            self._report_violations(entry.seq, violations)

    def _report_violations(self, seq: int, violations: Sequence[str]) -> None:
        self.report.problems += [Problem(layout.chain(seq), violation) for violation in violations]

    def _check_commits(self, head: Entry, commits: Sequence[StoredCommit]) -> None:
        views: list[LineView] = []
        tags: dict[SegmentRef, str] = {}
        for stored in self._track(commits, "checkpoints"):
            with self._problem_of(layout.chain(stored.commit.seq)):
                views.append(self._chain.load_line(stored.commit.link, self._key_groups).view)
                self._report_violations(stored.commit.seq, violations_of_view(views[-1], stored.commit))
                self.report.checkpoints += 1
            tags.update(_own_tags(stored))
        for stored, parent in pairwise(commits):
            if stored.commit.parent != parent.commit.link:  # a commit between them is not retained
                continue
            self._report_violations(stored.commit.seq, violations_of_commit(stored.commit, parent.commit))
        segments = dict.fromkeys(ref for view in views for ref in view.segments)
        segments.update(dict.fromkeys(ref for stored in commits for ref in own_segments(stored)))
        for ref in self._track(list(segments), "segments"):
            with self._problem_of(ref.data.name):
                self._check_segment(ref, tags.get(ref))
        images = dict.fromkeys(image for view in views for image in view.images)
        for image in self._track(list(images), "non-keyed state"):
            with self._problem_of(image.data.name):
                read_images(self._store, [image])
                self.report.images += 1
        tiles = {(t.operator, t.low, t.high, t.at, t.snapshot): t for view in views for t in view.tiles}
        line = views[0] if views else LineView(max_parallelism=self._key_groups)
        self._check_snapshots(head, commits, list(tiles.values()), line)

    def _check_segment(self, ref: SegmentRef, tag: str | None) -> None:
        data = read_slice(self._store, ref.data)
        for segment in decode_segments(data, ref.data.name):
            check_reference(segment, ref)
            # The log before the job's chain began belongs to the job whose state it was started from.
            is_ours = ref.seq_first <= self._begins_after or segment.header.job_id == self._job_id
            if not is_ours or tag not in (None, segment.header.tag):
                raise CorruptDataError(
                    f"the segment is of job id {segment.header.job_id}, attempt {segment.header.tag}; the checkpoint "
                    f"names {self._job_id}, attempt {tag}; see `varvite verify JOB --repair`",
                    object_name=ref.data.name,
                )
            segment.changes()
        self._checked.add(ref.data)
        self.report.segments += 1
        self.report.segment_bytes += ref.data.length

    def _check_snapshots(
        self, head: Entry, commits: Sequence[StoredCommit], tiles: Sequence[Tile], line: LineView
    ) -> None:
        all_files: dict[str, SnapshotFile] = {}
        for tile in self._track(tiles, "bases"):
            with self._problem_of(f"{tile.operator}[{tile.low},{tile.high})#{tile.snapshot}"):
                files = tile_files(self._store, tile)
                all_files.update({file.name: file for file in files})
                self.report.snapshots += bool(files)
        needed = frozenset(all_files)
        descriptors = self._descriptors(head, tiles)
        all_files.update({file.name: file for snapshot in descriptors for file in snapshot.files})
        damaged: set[str] = set()
        for file in self._track(list(all_files.values()), "files of snapshots"):
            with self._problem_of(file.name, may_be_gone=file.name not in needed):
                damaged.add(file.name)
                self._check_file(file)
                damaged.remove(file.name)
        for snapshot in self._track(descriptors, "snapshots against the log"):
            if damaged.isdisjoint(file.name for file in snapshot.files):
                if commits and line.holds(snapshot.at):
                    self._compare(snapshot, commits[-1].commit)
            else:
                self._check_candidate(snapshot, damaged - needed)

    def _descriptors(self, head: Entry, tiles: Sequence[Tile]) -> list[SnapshotDescriptor]:
        """The published snapshots that are tiles or may become tiles."""
        reader = SnapshotReader(self._store, self._job_id)
        in_use = {layout.SnapshotName(t.operator, t.low, t.high, t.snapshot) for t in tiles if t.snapshot is not None}
        floors = {(f.operator, f.low, f.high): f.number for f in head.floors}
        descriptors: list[SnapshotDescriptor] = []
        for meta in self._store.list(layout.SNAPSHOTS):
            name = layout.snapshot_name(meta.name)
            if name in in_use or name.number > floors.get(name[:3], 0):
                with self._problem_of(meta.name, may_be_gone=name not in in_use):
                    descriptor = reader.read(name)
                    if descriptor.status == "published":
                        self.report.snapshots += name not in in_use
                        descriptors.append(descriptor)
        return descriptors

    def _check_candidate(self, snapshot: SnapshotDescriptor, gone: set[str]) -> None:
        """Check that a snapshot which no checkpoint names has its files, unless its descriptor was collected first."""
        lost = [file.name for file in snapshot.files if file.name in gone]
        name = layout.snapshot(snapshot.operator, snapshot.low, snapshot.high, snapshot.number)
        reported = {problem.object_name for problem in self.report.problems}
        if lost and reported.isdisjoint(lost) and any(meta.name == name for meta in self._store.list(name)):
            self.report.problems.append(Problem(lost[0], f"the file is gone, but {name} still lists it"))

    def _check_file(self, file: SnapshotFile) -> None:
        check_file(self._store, file)
        self._checked.add(file.name)
        self.report.snapshot_files += 1
        self.report.snapshot_bytes += file.size_bytes

    def _compare(self, snapshot: SnapshotDescriptor, kept: Commit) -> None:
        """Replay the base and log that the snapshot was made from, if they still exist, and compare."""
        name = layout.snapshot(snapshot.operator, snapshot.low, snapshot.high, snapshot.number)
        # Commits that the pin does not keep may be collected at any time; damaged entries are noted already.
        with self._problem_of(name, may_be_gone=snapshot.at.seq < kept.seq):
            commit = self._chain.read_commit(snapshot.at).commit
            reader = StateReader(self._store, commit, pin=False)
            tiles = reader.view.tiles_for(snapshot.operator, snapshot.low, snapshot.high)
            if all(tile.at.seq < snapshot.at.seq for tile in tiles):
                self._compare_stores(snapshot, reader, name)
                self.report.compared += 1

    def _compare_stores(self, descriptor: SnapshotDescriptor, reader: StateReader, name: str) -> None:
        operator = reader.layout(descriptor.operator)
        low, high = descriptor.low, descriptor.high
        scratch, replaying = TemporaryDirectory("verify"), reader.restored(operator, low, high)
        with scratch as directory, reading_fetched(name), replaying as replayed:
            fetch_snapshot(self._store, descriptor.files, directory / "snapshot")
            snapshot = RocksDBStore.open_existing(directory / "snapshot", read_only=True)
            try:
                for schema in operator.states:
                    columns = StateColumns(operator.key_type, schema)
                    sides = (Side(replayed, reader.time), Side(snapshot, reader.time))
                    differences = list(islice(diff_stores(*sides, columns, operator.uid), DIFFERENCES_MAX))
                    if differences:
                        rows = ", ".join(f"{d.name!r}: {d.before} and {d.after}" for d in differences)
                        raise CorruptDataError(
                            f"state {schema.name!r} of checkpoint {descriptor.at.seq} differs from its log; the first "
                            f"rows (log and snapshot): {rows}; see `varvite verify JOB --repair`, and report this",
                            object_name=name,
                        )
            finally:
                snapshot.close()

    @contextmanager
    def _problem_of(self, name: str, *, may_be_gone: bool = False) -> Generator[None]:
        """Report an error as a problem of the object that it names, or else of `name`."""
        try:
            yield
        except MissingObjectError as error:
            if not may_be_gone:
                self._note(name, error)
        except DidNotHappenError as error:
            if not (may_be_gone and isinstance(error.__cause__, MissingObjectError)):  # a reader raises it so
                raise
        except (RetryableError, InvalidRequestError):
            raise
        except VarviteError as error:
            self._note(name, error)

    def _note(self, name: str, error: VarviteError) -> None:
        problem = Problem(str(error.context.get("object_name", name)), error.message)
        if problem not in self.report.problems:
            self.report.problems.append(problem)


def verify(store: ObjectStore, name: str, clock: Clock, tokens: TokenSource, track: Track = untracked) -> Verification:
    """Check a job.

    Args:
        store: Rooted at `<root>/<job>`.
        name: The job's name, for the report.
        clock: For the pin.
        tokens: For the pin.
        track: Called with the objects to check, to show progress.
    """
    return Verifier(store, name, clock, tokens, track).run()


def _own_tags(stored: StoredCommit) -> Iterable[tuple[SegmentRef, str]]:
    """The commit's own segments, each with the tag of the attempt that won."""
    tags = {(part.operator, part.low): part.tag for part in stored.commit.parts}
    return [(ref, tags[ref.operator, ref.low]) for ref in own_segments(stored)]
