"""The decision to publish a snapshot of a range, to wait for the job, or to do nothing; pure.

Driver and materializer share the rule of adoption (`varvite.changelog.commit.adoption_rules`). While a published
snapshot can still be adopted, another one would only cost an upload. Once it cannot (the tile or the line moved on), a
new one is needed.

Invariants: I7 (files are shared only with the snapshot of the tile that is to be replaced, as ADOPT demands).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from varvite.changelog.commit.adoption_rules import is_adoptable
from varvite.materializer.monitoring.events import Skip
from varvite.storage.format.records import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from varvite.materializer.ranges import LogLength
    from varvite.storage.format.records import Link, SnapshotDescriptor, SnapshotFile, Tile


@dataclass(frozen=True)
class Publish:
    """Build and publish a snapshot."""

    number: int
    """The number to claim."""


@dataclass(frozen=True)
class RangeView:
    """A range on the chain."""

    tile: Tile
    """The tile of the newest commit that the range lies in."""
    floor: int
    """Only snapshots with a higher number may be adopted."""
    target: Link
    """The newest final commit; `ORIGIN` if there is none."""
    line: Collection[Link]
    """The commits of the target's line, the target included, from the tile's on."""
    tile_log: LogLength
    """The log of the whole tile after it, up to the target: a tile is replaced as a whole, so if one partition of it
    has changed, all are published."""
    changelog: bool = True
    """Does the job run with the changelog on?"""


def may_be_adopted(view: RangeView, snapshot: SnapshotDescriptor, tile_files: frozenset[str]) -> bool:
    """May the driver's next commit adopt this snapshot as the range's base?

    `tile_files` are the names in the descriptor of the tile's snapshot.
    """
    return is_adoptable(
        snapshot,
        (view.tile,),
        floor=view.floor,
        is_on_line=view.line.__contains__,
        files_of=lambda _tile: tile_files,
    )


def awaited_of(
    view: RangeView, snapshots: Iterable[SnapshotDescriptor], tile_files: frozenset[str]
) -> SnapshotDescriptor | None:
    """The published snapshot that the driver's next commit may take, if there is one.

    Args:
        view: The range.
        snapshots: The descriptors above the floor that could be read; a damaged one cannot be adopted.
        tile_files: File names in the descriptor of the tile's snapshot; empty if the job was set back to files of an
            import. A snapshot that shares files with the tile before that is never adopted.
    """
    return next((s for s in snapshots if may_be_adopted(view, s, tile_files)), None)


def skip_without_listing(view: RangeView, idle_batches: int | None) -> Skip | None:
    """The part of the decision that does not need the published snapshots; None: read them and decide.

    Args:
        view: The range.
        idle_batches: Commits without a change after which a snapshot is published all the same, because the line is
            kept from the oldest base on (I10); None: never.
    """
    if not view.changelog:
        return Skip.CHANGELOG_OFF
    if view.target == ORIGIN or view.target.seq <= view.tile.at.seq:
        return Skip.NOTHING_FINAL
    if view.tile_log.segments == 0 and (idle_batches is None or view.tile_log.batches < idle_batches):
        return Skip.NOTHING_CHANGED
    return None


def decide_publication(
    view: RangeView, numbers: Sequence[int], awaited: SnapshotDescriptor | None, idle_batches: int | None
) -> Publish | Literal[Skip.CHANGELOG_OFF, Skip.NOTHING_FINAL, Skip.NOTHING_CHANGED, Skip.AWAITING_ADOPTION]:
    """Decide to publish, or the reason to skip it.

    Args:
        view: The range.
        numbers: All snapshot numbers of the range that exist, aborted ones included.
        awaited: The snapshot of `awaited_of`.
        idle_batches: The same as in `skip_without_listing`.
    """
    skip = skip_without_listing(view, idle_batches)
    if skip is not None:
        return skip
    if awaited is not None:
        return Skip.AWAITING_ADOPTION
    return Publish(max([view.floor, *numbers]) + 1)


@dataclass(frozen=True)
class UploadPlan:
    """The files of a new snapshot: stored already, or to be uploaded."""

    reused: tuple[SnapshotFile, ...]
    """Stored files, with the earlier snapshot's names."""
    missing: tuple[SnapshotFile, ...]
    """Files to upload."""


def plan_upload(files: Iterable[SnapshotFile], earlier: Iterable[SnapshotFile]) -> UploadPlan:
    """Split the files of a new snapshot by whether an earlier one holds a file of the same name, size and CRC-32."""
    stored = {(f.file, f.size_bytes, f.crc32): f for f in earlier}
    reused: list[SnapshotFile] = []
    missing: list[SnapshotFile] = []
    for file in files:
        same = stored.get((file.file, file.size_bytes, file.crc32))
        if same is None:
            missing.append(file)
        else:
            reused.append(same)
    return UploadPlan(tuple(reused), tuple(missing))
