"""COLLECT: the decisions about what a garbage collector may delete. Pure; `collector` reads and deletes.

The protocol is in `docs/internals/commit-protocol.md#collect`. Each decision stays right for ever, so a collector may
stall anywhere between reading and deleting:

* below `keep_from` no retained commit needs anything, and `keep_from` only rises along the chain;
* an object under `seg/<q>` or `pack/<q>` may only be named by `chain/<q>`, which never changes;
* a snapshot at or below the floor is never adopted again, and a later commit names an older snapshot only if its base
  already did, so the retained entries name all that will ever be needed;
* an upload that nobody published is given up by claiming its number, never by age alone, and only if the number is
  above the floor after that: below it the number may be free because the snapshot was published and collected;
* objects that a savepoint names are kept if the savepoint existed when the savepoints were listed, after the pins; a
  savepoint is made while its maker holds a pin.

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
    """The objects and snapshots that one retained entry names."""

    objects: frozenset[str]
    """Under `seg/` and `pack/`, of its own slot and older ones."""
    snapshots: frozenset[layout.SnapshotName]
    full_seq: int | None = None
    """Of a commit: the entries from this seq on name all that it needs."""
    is_import: bool = False
    """It is an import. Until a batch follows, another import may replace it."""


class SavepointNames(NamedTuple):
    """The objects that the savepoints keep."""

    objects: frozenset[str] = frozenset()
    """Under `chain/`, `seg/`, `pack/`, `snap/` and `snapdata/`."""
    tokens: frozenset[str] = frozenset()
    """The savepoints' tokens, which name the directories of their files."""

    @property
    def snapshots(self) -> frozenset[layout.SnapshotName]:
        """The snapshots among the objects."""
        descriptors = (name for name in self.objects if name.startswith(layout.SNAPSHOTS))
        return frozenset(layout.snapshot_name(name) for name in descriptors)


NOTHING_KEPT = SavepointNames()


class UploadGroup(NamedTuple):
    """The files of one upload, of a snapshot that nobody has published."""

    snapshot: layout.SnapshotName
    uid: str
    files: tuple[str, ...]


class SnapshotCollection(NamedTuple):
    """The steps of collecting snapshots, in this order."""

    descriptors: tuple[str, ...]
    """Names to delete first."""
    files: tuple[str, ...]
    """Names to delete after them."""
    abandoned: tuple[UploadGroup, ...]
    """Uploads whose numbers are to be claimed as aborted; their files go only if `may_delete_upload`."""


def kept_by(savepoints: Iterable[Savepoint]) -> SavepointNames:
    """The objects that these savepoints keep; the savepoints must have been listed after the pins."""
    held = tuple(savepoints)
    objects = frozenset(name for savepoint in held for name in savepoint.objects)
    return SavepointNames(objects, frozenset(savepoint.token for savepoint in held))


def retained_seqs(seqs: Iterable[int], head: Entry, keep_from: int) -> tuple[int, ...]:
    """The entries whose names count: from `keep_from` to the head."""
    return tuple(seq for seq in seqs if keep_from <= seq <= head.seq)


def suspect_seqs(
    seqs: Iterable[int], head: Entry, keep_from: int, kept: SavepointNames = NOTHING_KEPT
) -> tuple[int, ...]:
    """The entries below `keep_from` that no savepoint keeps: to be deleted if they are commits."""
    return tuple(seq for seq in seqs if seq < min(keep_from, head.seq) and layout.chain(seq) not in kept.objects)


def collect_chain(kinds: Mapping[int, EntryKind], rules: ProtocolRules = ALL_RULES) -> tuple[str, ...]:
    """The objects of those `suspect_seqs` that are commits, to be deleted. A fence is never deleted (I6)."""
    doomed = (seq for seq, kind in sorted(kinds.items()) if kind == "commit" or not rules.keep_fences)
    return tuple(layout.chain(seq) for seq in doomed)


def names_of(entry: Entry) -> EntryNames:
    """Everything that an entry names."""
    if not isinstance(entry, Commit):
        return EntryNames(frozenset(), frozenset())
    objects = {place.name for part in entry.parts for place in part.uploaded}
    objects |= {part.image_uploaded.name for part in entry.parts if part.image_uploaded is not None}
    objects |= {ref.data.name for ref in (*entry.log, *entry.images)}
    objects |= {file.name for tile in entry.tiles for file in tile.files}
    snapshots = {
        layout.SnapshotName(t.operator, t.low, t.high, t.snapshot) for t in entry.tiles if t.snapshot is not None
    }
    return EntryNames(frozenset(objects), frozenset(snapshots), entry.full.seq, entry.source is not None)


def named_snapshots(names: Mapping[int, EntryNames], bounds: RetentionBounds) -> frozenset[layout.SnapshotName]:
    """The snapshots that retained commits need, or that any later commit may need.

    A commit's full entry names all of its tiles, and the entries between the two name those that changed. Older entries
    may still be in the chain for other objects of their slots; the bases that they name were replaced since.

    Args:
        names: Of the entries from `keep_from` to the head.
        bounds: The head's, lowered by the pins.
    """
    first = _oldest_full(names, bounds.retained_from, default=0)
    return frozenset[layout.SnapshotName]().union(*(entry.snapshots for seq, entry in names.items() if seq >= first))


def _oldest_full(names: Mapping[int, EntryNames], retained_from: int, default: int) -> int:
    """The seq from which on entries name all that the commits from `retained_from` on need."""
    retained = [entry.full_seq for seq, entry in names.items() if seq >= retained_from]
    return min((seq for seq in retained if seq is not None), default=default)


def is_known(names: Mapping[int, EntryNames], head: Entry) -> bool:
    """Tell whether these are the names of all entries that show what the head's retained commits need.

    If not, another collector, which knows a newer head, had deleted some of them when the chain was listed. The objects
    that those entries name may still be needed, because later entries name only what has changed.
    """
    newest = newest_commit(head).seq
    if not newest:
        return head.seq in names
    first = _oldest_full(names, head.retained_from, default=newest)
    return newest in names and all(seq in names for seq in range(first, head.seq + 1))


def collect_slots(
    listed: Iterable[str],
    head_seq: int,
    keep_from: int,
    retained: Mapping[int, EntryNames],
    kept: SavepointNames = NOTHING_KEPT,
) -> tuple[str, ...]:
    """Select the objects under `seg/` and `pack/` to delete.

    Args:
        listed: Their names.
        head_seq: The head's; objects of later slots may be about to be named.
        keep_from: From `bounds_of`.
        retained: The names in the entries from `keep_from` to the head; an entry that is left out keeps its slot's
            objects.
        kept: The objects that the savepoints keep.
    """
    doomed = (name for name in listed if _is_garbage(name, head_seq, keep_from, retained))
    return tuple(name for name in doomed if name not in kept.objects)


def _is_garbage(name: str, head_seq: int, keep_from: int, retained: Mapping[int, EntryNames]) -> bool:
    slot = layout.slot_of(name).slot
    if slot < keep_from:
        return True
    return slot <= head_seq and slot in retained and name not in retained[slot].objects


def collect_snapshots(
    floors: Iterable[SnapshotFloor],
    named: frozenset[layout.SnapshotName],
    descriptors: Mapping[layout.SnapshotName, SnapshotDescriptor],
    files: Iterable[ObjectMeta],
    stale_before_s: float,
) -> SnapshotCollection:
    """Decide the collection of snapshots.

    Args:
        floors: The head's.
        named: The snapshots that the retained entries and the savepoints name.
        descriptors: All that were listed, after `files` were.
        files: Everything under `snapdata/`.
        stale_before_s: An unpublished upload whose newest file is older is to be given up. Seconds since the epoch, by
            the storage's clock; only a hint, because the claim decides.
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
    """Select the files under `savepointdata/` to delete: those of no savepoint.

    They must have been listed before the savepoints were: a writer of files holds a savepoint with their token.
    """
    return tuple(name for name in listed if layout.savepoint_token(name) not in kept.tokens)


def may_delete_upload(
    group: UploadGroup, won: bool, holder: SnapshotDescriptor | None, floors: Iterable[SnapshotFloor]
) -> bool:
    """Tell whether an upload's files may be deleted once its number was claimed as aborted.

    Args:
        group: The upload.
        won: True if this collector's claim won the number.
        holder: The descriptor that holds the number otherwise.
        floors: Of a head that was read after the claim. At or below the floor the upload may have been published, and
            its descriptor deleted, before the claim. The next run decides about its files by the names in entries.
    """
    if any(f.number >= group.snapshot.number for f in floors if (f.operator, f.low, f.high) == group.snapshot[:3]):
        return False
    return won or (holder is not None and (holder.status == "aborted" or holder.uid != group.uid))
