"""The rule for adopting a snapshot: one decision for the materializer that publishes it and the driver that adopts it.

A snapshot may replace tiles if all of this holds:

* it is published, and its number is above the floor of its range;
* its `base` is the `at` of each tile that it replaces, so it contains all that they do; a tile that was replaced
  meanwhile makes the snapshot useless;
* its own `at` is newer than those tiles;
* its own `at` is on the line (same seq *and* token);
* each of its files is its own upload or is named by the snapshot of a tile that it replaces. Only those are safe from
  a stalled collector: a tile of the base entry can never have been given up.

The materializer asks this of one range and its tile, as of the newest commit that it has read; the driver asks it of
all tiles that the snapshot replaces, as of the commit that the next batch is executed on. So both say the same of the
same chain, and the materializer waits exactly for what the driver takes.

Invariants: I5 (a tile holds what those before it did), I7 (a snapshot names no file that may be deleted).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from varvite.storage.format import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varvite.storage.format.records import Link, SnapshotDescriptor, Tile


def is_adoptable(
    snapshot: SnapshotDescriptor,
    replaced: Sequence[Tile],
    *,
    floor: int,
    is_on_line: Callable[[Link], bool],
    files_of: Callable[[Tile], frozenset[str]],
) -> bool:
    """Tell whether the next commit may adopt the snapshot in place of these tiles.

    Args:
        snapshot: Of this job.
        replaced: The tiles that intersect its range; none if the job no longer has its operator.
        floor: Only numbers above it may be adopted; 0 if the range has no floor.
        is_on_line: Tells whether a commit is on the line.
        files_of: Object names that the descriptor of a tile's snapshot names; none if it is not known.
    """
    if snapshot.status != "published" or snapshot.number <= floor or not replaced:
        return False
    if any(tile.at != snapshot.base or tile.at.seq >= snapshot.at.seq for tile in replaced):
        return False
    if not is_on_line(snapshot.at):
        return False
    shared = shared_files(snapshot)
    return not shared or shared <= frozenset[str]().union(*map(files_of, replaced))


def shared_files(snapshot: SnapshotDescriptor) -> frozenset[str]:
    """Names of its files that were not uploaded for it: a snapshot that it replaces must name them."""
    own_files = layout.snapshot_file(snapshot.operator, snapshot.low, snapshot.high, snapshot.number, snapshot.uid, "")
    return frozenset(f.name for f in snapshot.files if not f.name.startswith(own_files))
