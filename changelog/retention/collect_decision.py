"""GC: what may be deleted, as pure decisions on what was read (design 7a). `collector` does the reading and deleting.

Everything decided here stays right for ever, so a collector may stall anywhere between reading and deleting:

* below the cut no retained commit needs anything, and the cut only rises along the chain;
* an object under `seg/<q>` or `pack/<q>` may only be named by `chain/<q>`, which never changes;
* a snapshot at or below the floor is never adopted again, and a later commit names an older snapshot only if its base
  already did, so the retained entries name all that will ever be needed;
* an upload that nobody published is given up by claiming its number, never by age alone, and only if the number is
  above the floor after that: below it the number may be free because the snapshot was published and collected;
* what a savepoint names is kept as long as it was there when the savepoints were listed, after the pins; a savepoint
  is made while its maker holds a pin.

Invariants: I7.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from varvite.changelog.chain.reader import EntryKind, newest_commit
from varvite.changelog.commit.rules import ALL_RULES
from varvite.storage.format import layout
from varvite.storage.format.records import Commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varvite.changelog.chain.retention_bounds import RetentionBounds
    from varvite.changelog.commit.rules import ProtocolRules
    from varvite.storage.format.records import Entry, Savepoint, SnapshotDescriptor, SnapshotFloor
    from varvite.storage.object_stores.contract import ObjectMeta


class EntryNames(NamedTuple):
    """What one retained entry names."""

    objects: frozenset[str]
    """Under `seg/` and `pack/`, those of its own slot and older ones."""
    snapshots: frozenset[layout.SnapshotName]
    full_seq: int | None = None
    """Of a commit: from this seq on entries name all that it needs."""
    is_import: bool = False
    """It is the copy of a state that a job starts from; until a batch follows, another one may take its place."""


class SavepointNames(NamedTuple):
    """What the savepoints keep."""

    objects: frozenset[str] = frozenset()
    """Under `chain/`, `seg/`, `pack/`, `snap/` and `snapdata/`."""
    tokens: frozenset[str] = frozenset()
    """Their own, which name the directories of their files."""

    @property
    def snapshots(self) -> frozenset[layout.SnapshotName]:
        """The snapshots among the objects."""
        found = (name for name in self.objects if name.startswith(layout.SNAPSHOTS))
        return frozenset(layout.snapshot_name(name) for name in found)


NOTHING_KEPT = SavepointNames()


class UploadGroup(NamedTuple):
    """The files of one upload, of a snapshot that nobody has published."""

    snapshot: layout.SnapshotName
    uid: str
    files: tuple[str, ...]


class SnapshotCollection(NamedTuple):
    """What to do about snapshots, in this order."""

    descriptors: tuple[str, ...]
    """Delete these first."""
    files: tuple[str, ...]
    """Then these."""
    abandoned: tuple[UploadGroup, ...]
    """Claim each number as aborted, and delete the files only if `may_delete_upload`."""


def kept_by(savepoints: Iterable[Savepoint]) -> SavepointNames:
    """What these savepoints keep; they must have been listed after the pins."""
    held = tuple(savepoints)
    objects = frozenset(name for savepoint in held for name in savepoint.objects)
    return SavepointNames(objects, frozenset(savepoint.token for savepoint in held))


def retained_seqs(seqs: Iterable[int], head: Entry, cut: int) -> tuple[int, ...]:
    """The entries whose names count: from the cut to the head."""
    return tuple(seq for seq in seqs if cut <= seq <= head.seq)


def suspect_seqs(seqs: Iterable[int], head: Entry, cut: int, kept: SavepointNames = NOTHING_KEPT) -> tuple[int, ...]:
    """The entries below the cut that no savepoint keeps: to be deleted if they are commits."""
    return tuple(seq for seq in seqs if seq < min(cut, head.seq) and layout.chain(seq) not in kept.objects)


def collect_chain(kinds: Mapping[int, EntryKind], rules: ProtocolRules = ALL_RULES) -> tuple[str, ...]:
    """Which of the `suspect_seqs` to delete, given their kinds: commits. A fence is never deleted (I6)."""
    doomed = (seq for seq, kind in sorted(kinds.items()) if kind == "commit" or not rules.keep_fences)
    return tuple(layout.chain(seq) for seq in doomed)


def names_of(entry: Entry) -> EntryNames:
    """Everything that an entry names."""
    if not isinstance(entry, Commit):
        return EntryNames(frozenset(), frozenset())
    objects = {one.name for part in entry.parts for one in part.uploaded}
    objects |= {one.image_uploaded.name for one in entry.parts if one.image_uploaded is not None}
    objects |= {ref.data.name for ref in (*entry.log, *entry.images)}
    objects |= {file.name for tile in entry.tiles for file in tile.files}
    snapshots = {
        layout.SnapshotName(t.operator, t.low, t.high, t.snapshot) for t in entry.tiles if t.snapshot is not None
    }
    return EntryNames(frozenset(objects), frozenset(snapshots), entry.full.seq, entry.source is not None)


def named_snapshots(names: Mapping[int, EntryNames], cut: RetentionBounds) -> frozenset[layout.SnapshotName]:
    """The snapshots that retained commits need, or any later one will.

    A commit's full entry names all of its tiles, and those between the two what has changed. What is older may still be
    in the chain for the sake of other objects of its slots; the bases that it names were replaced since.

    Args:
        names: Of the entries from the cut to the head.
        cut: From where on commits are retained.
    """
    first = _oldest_full(names, cut.retained_from, default=0)
    return frozenset[layout.SnapshotName]().union(*(one.snapshots for seq, one in names.items() if seq >= first))


def _oldest_full(names: Mapping[int, EntryNames], retained_from: int, default: int) -> int:
    """From which seq on entries name all that the commits from `retained_from` on need."""
    retained = (one.full_seq for seq, one in names.items() if seq >= retained_from and one.full_seq is not None)
    return min(retained, default=default)


def is_known(names: Mapping[int, EntryNames], head: Entry) -> bool:
    """Whether these are the names of all entries that tell what the head's retained commits need.

    If not, the chain was listed when another collector, which knows a newer head, had deleted some of them: what they
    name may still be needed, because entries since then name only what has changed.
    """
    newest = newest_commit(head).seq
    if not newest:
        return head.seq in names
    first = _oldest_full(names, head.retained_from, default=newest)
    return newest in names and all(seq in names for seq in range(first, head.seq + 1))


def collect_slots(
    listed: Iterable[str],
    head_seq: int,
    cut: int,
    retained: Mapping[int, EntryNames],
    kept: SavepointNames = NOTHING_KEPT,
) -> tuple[str, ...]:
    """Which of the objects under `seg/` and `pack/` to delete.

    Args:
        listed: Their names.
        head_seq: The head's; objects of later slots may be about to be named.
        cut: From `bounds_of`.
        retained: What the entries from cut to head name; an entry that is left out keeps its slot's objects.
        kept: What the savepoints keep.
    """
    doomed = (name for name in listed if _is_garbage(name, head_seq, cut, retained))
    return tuple(name for name in doomed if name not in kept.objects)


def _is_garbage(name: str, head_seq: int, cut: int, retained: Mapping[int, EntryNames]) -> bool:
    slot = layout.slot_of(name).slot
    if slot < cut:
        return True
    return slot <= head_seq and slot in retained and name not in retained[slot].objects


def collect_snapshots(
    floors: Iterable[SnapshotFloor],
    named: frozenset[layout.SnapshotName],
    descriptors: Mapping[layout.SnapshotName, SnapshotDescriptor],
    files: Iterable[ObjectMeta],
    stale_before_s: float,
) -> SnapshotCollection:
    """What to do about snapshots.

    Args:
        floors: The head's.
        named: What the retained entries and the savepoints name.
        descriptors: All that were listed, after `files` were.
        files: Everything under `snapdata/`.
        stale_before_s: An unpublished upload whose newest file is older (seconds since the epoch, the storage's
            clock) is to be given up; only a hint, the claim decides.
    """
    floor_of = {(f.operator, f.low, f.high): f.number for f in floors}
    kept = {n: d for n, d in descriptors.items() if n in named or n.number > floor_of.get(n[:3], 0)}
    needed = {file.name for d in kept.values() for file in d.files}
    doomed: list[str] = []
    unpublished: dict[tuple[layout.SnapshotName, str], list[ObjectMeta]] = defaultdict(list)
    for meta in files:
        upload = layout.snapshot_upload(meta.name)
        if meta.name in needed:
            continue
        if upload.snapshot in descriptors or upload.snapshot.number <= floor_of.get(upload.snapshot[:3], 0):
            doomed.append(meta.name)
        else:
            unpublished[upload.snapshot, upload.uid].append(meta)
    abandoned = (
        UploadGroup(snapshot, uid, tuple(m.name for m in metas))
        for (snapshot, uid), metas in sorted(unpublished.items())
        if max(m.modified_s for m in metas) < stale_before_s
    )
    gone = (layout.snapshot(*n) for n in sorted(set(descriptors) - set(kept)))
    return SnapshotCollection(tuple(gone), tuple(doomed), tuple(abandoned))


def collect_savepoint_files(listed: Iterable[str], kept: SavepointNames) -> tuple[str, ...]:
    """Which of the files under `savepointdata/` to delete: those of no savepoint.

    They must have been listed before the savepoints were: who writes files holds a savepoint with their token.
    """
    return tuple(name for name in listed if layout.savepoint_token(name) not in kept.tokens)


def may_delete_upload(
    group: UploadGroup, won: bool, holder: SnapshotDescriptor | None, floors: Iterable[SnapshotFloor]
) -> bool:
    """Whether an upload's files may go once its number was claimed as aborted.

    Args:
        group: The upload.
        won: Whether this collector's claim won the number.
        holder: Who holds the number otherwise.
        floors: Of a head that was read after the claim. At or below the floor the upload may have been published, and
            its descriptor deleted, before the claim: the next run decides about its files by what is named.
    """
    if any(f.number >= group.snapshot.number for f in floors if (f.operator, f.low, f.high) == group.snapshot[:3]):
        return False
    return won or (holder is not None and (holder.status == "aborted" or holder.uid != group.uid))
