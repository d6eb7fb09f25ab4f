"""The garbage collector: reads, lets `collect_decision` decide, deletes. Any number may run, and stall anywhere (I7).

The order of reading matters: the head first, then the pins, then the files of savepoints, then the savepoints, then
everything else; uploads before descriptors. Objects that refer to others are deleted before those, so that an
interrupted run leaves only garbage behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from varvite.changelog.chain.reader import in_parallel, newest_commit
from varvite.changelog.chain.retention_bounds import bounds_of
from varvite.changelog.retention.collect_decision import (
    EntryNames,
    SavepointNames,
    UploadGroup,
    collect_chain,
    collect_savepoint_files,
    collect_slots,
    collect_snapshots,
    is_known,
    kept_by,
    may_delete_upload,
    named_snapshots,
    names_of,
    retained_seqs,
    suspect_seqs,
)
from varvite.changelog.retention.pins import list_pins
from varvite.changelog.retention.savepoints import list_savepoints
from varvite.changelog.retention.snapshots import SnapshotReader, publish
from varvite.storage.errors import CorruptDataError, IncompatibleError, MissingObjectError
from varvite.storage.fail_point import fail_point
from varvite.storage.format import layout
from varvite.storage.format.records import SnapshotDescriptor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varvite.changelog.chain.reader import ChainReader, EntryKind
    from varvite.changelog.chain.retention_bounds import RetentionBounds
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import Entry, Link

DELETE_NAMES_MAX: Final = 1000
"""Names per delete call: the limit of S3's batch delete."""
UPLOAD_GRACE_S: Final = 24 * 3600.0
"""An upload that is not published within this time is given up; a slower one only loses its work."""


@dataclass(frozen=True, slots=True)
class CollectReport:
    """The objects that a run deleted, or would have deleted."""

    head_seq: int = 0
    cut: int = 0
    raced: bool = False
    """Another collector was ahead, so this one deleted nothing."""
    entries: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()
    """Under `seg/` and `pack/`."""
    descriptors: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Under `snapdata/`."""
    savepoint_files: tuple[str, ...] = ()
    """Under `savepointdata/`: of savepoints that are gone, or were never finished."""
    aborted: tuple[str, ...] = ()
    """Descriptors claimed for uploads that were given up."""
    shares: bool = True
    """A retained entry or a savepoint names another job's objects, or the next entry may. True if nothing was
    collected, because it is not known then."""
    unreadable: tuple[str, ...] = ()
    """Damaged entries below `keep_from`; they are left alone."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the deleted objects, in order."""
        return (*self.entries, *self.segments, *self.descriptors, *self.files, *self.savepoint_files)

    @property
    def deleted(self) -> int:
        """Number of the deleted objects."""
        return len(self.names)


class Collector:
    """Collects one job's garbage; for one thread at a time. Caches the names in entries, which never change."""

    def __init__(
        self,
        reader: ChainReader,
        clock: Clock,
        tokens: TokenSource,
        upload_grace_s: float = UPLOAD_GRACE_S,
        kinds: ChainReader | None = None,
    ) -> None:
        """`kinds` reads the kinds of entries that may be deleted, which never change; by default `reader` does."""
        self._reader = reader
        self._kind_reader = kinds or reader
        self._store = reader.store
        self._clock = clock
        self._tokens = tokens
        self._upload_grace_s = upload_grace_s
        self._snapshots = SnapshotReader(self._store, reader.job_id)
        self._names: dict[int, EntryNames] = {}
        self._fences: frozenset[int] = frozenset()
        self._head_seq = 0

    def collect(self, *, dry_run: bool = False, keep_from: int | None = None) -> CollectReport:
        """Collect once. Nothing is deleted or claimed if `dry_run`.

        Args:
            dry_run: Only report what would be deleted.
            keep_from: Also keep everything from this seq on, because this process still reads it.

        Raises `CorruptDataError` if a retained entry, a pin or a descriptor cannot be read: then no object is known to
        be garbage. Storage errors are raised; the next run continues where this one stopped.
        """
        head = self._reader.head(self._head_seq)
        if head is None:
            return CollectReport()
        self._head_seq = head.seq
        bounds = bounds_of(head, list_pins(self._reader))
        bounds = bounds if keep_from is None else bounds.down_to(keep_from)
        kept, savepoint_files = self._savepoints()
        seqs = self._reader.list_seqs()
        if not self._learn_names(retained_seqs(seqs, head, bounds.keep_from)) or not is_known(self._names, head):
            return CollectReport(head_seq=head.seq, cut=bounds.keep_from, raced=True)
        kinds, unreadable = self._kinds(suspect_seqs(seqs, head, bounds.keep_from, kept))
        entries = collect_chain(kinds)
        self._delete(entries, dry_run=dry_run)
        fail_point("materializer.during_truncate")
        listed = [meta.name for area in (layout.SEGMENTS, layout.PACKS) for meta in self._store.list(area)]
        segments = collect_slots(listed, head.seq, bounds.keep_from, self._names, kept)
        self._delete(segments, dry_run=dry_run)
        descriptors, files, aborted = self._collect_snapshots(head, bounds, kept, dry_run=dry_run)
        self._delete(savepoint_files, dry_run=dry_run)
        return CollectReport(
            head_seq=head.seq,
            cut=bounds.keep_from,
            entries=entries,
            segments=segments,
            descriptors=descriptors,
            files=files,
            savepoint_files=savepoint_files,
            aborted=aborted,
            shares=self._shares(newest_commit(head), kept),
            unreadable=unreadable,
        )

    def _shares(self, newest: Link, kept: SavepointNames) -> bool:
        names = self._names.get(newest.seq)
        if names is None or names.is_import:  # a start in progress may share objects for which it has just made a hold
            return True
        return any(map(layout.is_shared, kept.objects.union(*(n.objects for n in self._names.values()))))

    def _savepoints(self) -> tuple[SavepointNames, tuple[str, ...]]:
        """The objects that the savepoints keep, and the files of savepoints that are gone."""
        files = [meta.name for meta in self._store.list(layout.SAVEPOINT_FILES)]
        kept = kept_by(list_savepoints(self._store))
        return kept, collect_savepoint_files(files, kept)

    def _learn_names(self, seqs: Sequence[int]) -> bool:
        """Read the names in these entries; False if one is gone, because another collector is ahead."""
        new = [seq for seq in seqs if seq not in self._names]
        read = dict(zip(new, in_parallel(self._names_of, new), strict=True))
        names = {seq: entry for seq in seqs if (entry := self._names.get(seq) or read.get(seq)) is not None}
        self._names = names
        return len(names) == len(seqs)

    def _names_of(self, seq: int) -> EntryNames | None:
        try:
            return names_of(self._reader.read(seq).entry)
        except MissingObjectError:
            return None

    def _kinds(self, seqs: Sequence[int]) -> tuple[Mapping[int, EntryKind], tuple[str, ...]]:
        """The kinds of the entries below `keep_from`, and the names of those that cannot be read."""
        unknown = [seq for seq in seqs if seq not in self._fences]
        kinds: dict[int, EntryKind] = {}
        unreadable: list[str] = []
        for seq, kind in zip(unknown, in_parallel(self._kind, unknown), strict=True):
            if kind == "unreadable":
                unreadable.append(layout.chain(seq))
            elif kind is not None:
                kinds[seq] = kind
        fences = {seq for seq, kind in kinds.items() if kind == "fence"}
        self._fences = (self._fences & frozenset(seqs)) | fences
        return kinds, tuple(unreadable)

    def _kind(self, seq: int) -> EntryKind | Literal["unreadable"] | None:
        try:
            return self._kind_reader.read_kind(seq)
        except MissingObjectError:
            return None
        except (CorruptDataError, IncompatibleError):
            return "unreadable"

    def _collect_snapshots(
        self, head: Entry, bounds: RetentionBounds, kept: SavepointNames, *, dry_run: bool
    ) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        files = self._store.list(layout.SNAPSHOT_FILES)
        listed = self._snapshots.list_all()
        descriptors = {layout.SnapshotName(d.operator, d.low, d.high, d.number): d for d in listed}
        named = kept.snapshots | named_snapshots(self._names, bounds)
        stale_before_s = self._clock.now_ms() / 1000 - self._upload_grace_s
        plan = collect_snapshots(head.floors, named, descriptors, files, stale_before_s)
        self._delete(plan.descriptors, dry_run=dry_run)
        self._delete(plan.files, dry_run=dry_run)
        given_up = [group for group in plan.abandoned if dry_run or self._give_up(group)]
        late = tuple(name for group in given_up for name in group.files)
        self._delete(late, dry_run=dry_run)
        aborted = dict.fromkeys(layout.snapshot(*group.snapshot) for group in given_up)
        return plan.descriptors, plan.files + late, tuple(aborted)

    def _give_up(self, group: UploadGroup) -> bool:
        """Claim the upload's number as aborted, and tell whether its files may be deleted.

        The head is read after the claim. If the floor is below the number even then, no descriptor of that number can
        have been deleted, whose files newer snapshots may share; so the claim decides what the number is.
        """
        token = self._tokens.token()
        mark = SnapshotDescriptor(
            status="aborted",
            job_id=self._reader.job_id,
            token=token,
            uid=token,
            operator=group.snapshot.operator,
            low=group.snapshot.low,
            high=group.snapshot.high,
            number=group.snapshot.number,
            created_ms=self._clock.now_ms(),
        )
        outcome = publish(self._store, mark, self._clock)
        head = self._reader.head(self._head_seq)
        return head is not None and may_delete_upload(group, outcome.won, outcome.other, head.floors)

    def _delete(self, names: Sequence[str], *, dry_run: bool) -> None:
        for start in range(0, 0 if dry_run else len(names), DELETE_NAMES_MAX):
            self._store.delete(names[start : start + DELETE_NAMES_MAX])
