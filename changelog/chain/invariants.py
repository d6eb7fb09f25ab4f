"""Executable invariants of the chain: pure functions over entries and views, each of which lists what is violated.

They are for checks beside the protocol, which must not need them: the simulation's oracle asks after every entry,
`varvite verify` of every retained commit, and a driver after each of its commits if the environment variable
`VARVITE_CHECK_INVARIANTS` is 1 (it then fails with `InvariantError`). Each text ends with the invariant's number.

Invariants that are checked: I2, I3, I5, I6 and I7, as far as entries show them, and I1 (what is named is there).
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from varvite.changelog.chain.retention_bounds import bounds_of
from varvite.changelog.chain.tiles import TileCover
from varvite.storage.errors import InvariantError
from varvite.storage.format import layout
from varvite.storage.format.records import ORIGIN, RANGE_OF, Commit, Fence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from varvite.changelog.chain.view import LineView
    from varvite.storage.format.records import Entry, PartitionCommit

VARIABLE: Final = "VARVITE_CHECK_INVARIANTS"


def is_check_wanted() -> bool:
    """Tell whether the environment asks for the checks after each commit."""
    return os.environ.get(VARIABLE) == "1"


def check_commit(commit: Commit, before: Commit | None, view: LineView) -> None:
    """Raise `InvariantError` unless the commit, executed on `before`, and the view after it keep all invariants."""
    violations = [*violations_of_commit(commit, before), *violations_of_view(view, commit)]
    if violations:
        raise InvariantError("; ".join(violations), batch=commit.batch, object_name=layout.chain(commit.seq))


def violations_of_succession(entry: Entry, before: Entry) -> list[str]:
    """List what is wrong between two neighbours in the chain.

    Args:
        entry: Above `before`; neither may stand in the hole of a collected commit.
        before: The entry at the slot below.
    """
    violations: list[str] = []
    if entry.seq != before.seq + 1:
        violations.append(f"entry {entry.seq} does not follow entry {before.seq} (I6)")
    if isinstance(entry, Commit) and entry.epoch != before.epoch:
        violations.append(f"run {entry.epoch} committed {entry.seq} after run {before.epoch} had taken over (I6)")
    newest = before.link if isinstance(before, Commit) else before.commit
    if isinstance(entry, Fence) and entry.commit != newest:
        violations.append(f"fence {entry.seq} names commit {entry.commit.seq}, the line's newest is {newest.seq} (I6)")
    numbers = {RANGE_OF(floor): floor.number for floor in entry.floors}
    lower = [floor for floor in before.floors if numbers.get(RANGE_OF(floor), 0) < floor.number]
    bounds, bounds_before = bounds_of(entry), bounds_of(before)
    if lower or bounds.keep_from < bounds_before.keep_from or bounds.retained_from < bounds_before.retained_from:
        violations.append(f"entry {entry.seq} lowers the bounds {bounds_before} or the floors {lower} (I7)")
    return violations


def violations_of_commit(commit: Commit, parent: Commit | None) -> list[str]:
    """List what is wrong with a commit by itself and beside its parent.

    `parent` is the commit that it names as its parent; None if it names none.
    """
    violations = [*_violations_of_parts(commit)]
    if commit.parent != (ORIGIN if parent is None else parent.link):
        violations.append(f"commit {commit.seq} names {commit.parent} as its parent, not {parent and parent.link} (I3)")
    before = parent.batch if parent is not None and parent.query_id == commit.query_id else -1
    if commit.source is None and commit.batch != before + 1:
        violations.append(f"batch {commit.batch} was executed on {commit.parent.seq}, not on the batch before (I3)")
    if parent is not None and commit.time_ms < parent.time_ms:
        violations.append(f"time went back from {parent.time_ms} to {commit.time_ms} at {commit.seq} (I5)")
    watermark_ms = None if parent is None else parent.watermark_ms
    if watermark_ms is not None and (commit.watermark_ms is None or commit.watermark_ms < watermark_ms):
        violations.append(f"the watermark went back from {watermark_ms} to {commit.watermark_ms} at {commit.seq} (I5)")
    if not bounds_of(commit).is_complete(commit):
        violations.append(f"commit {commit.seq} gives itself up: {bounds_of(commit).missing(commit)} (I7)")
    return violations


def violations_of_view(view: LineView, commit: Commit) -> list[str]:
    """List what is wrong with the view of a commit."""
    if view.base != commit.link:
        return [f"the view is of {view.base}, not of {commit.link} (I5)"]
    return [*_violations_of_tiles(view, commit), *_violations_of_log(view), *_violations_of_line(view, commit)]


def violations_of_needed(needed: Collection[str], there: Collection[str], who: str) -> list[str]:
    """List the objects that somebody needs and that are not there.

    Args:
        needed: Object names.
        there: The names of all objects.
        who: Needs them, for the text.
    """
    missing = sorted(name for name in needed if name not in there)
    return [f"{who} names {missing}, which are not there (I1, I7)"] if missing else []


def _violations_of_parts(commit: Commit) -> Iterator[str]:
    """One part for each partition of each operator; together they cover the key groups (I2)."""
    if commit.source is not None:
        if commit.parts:
            yield f"the import at {commit.seq} has a batch of its own (I5)"
        return
    parts: dict[str, list[PartitionCommit]] = {operator.uid: [] for operator in commit.operators}
    for part in commit.parts:
        parts.setdefault(part.operator, []).append(part)
        uploaded = [place.name for place in (*part.uploaded, part.image_uploaded) if place is not None]
        foreign = [name for name in uploaded if layout.is_shared(name) or layout.object_slot(name) != commit.seq]
        if foreign:
            yield f"commit {commit.seq} names objects of other slots as its batch's own: {foreign} (I7)"
    parallelism = {operator.uid: operator.parallelism for operator in commit.operators}
    for uid, of_operator in parts.items():
        if [part.partition for part in of_operator] != list(range(parallelism.get(uid, 0))):
            yield f"commit {commit.seq} does not name one attempt for each partition of {uid!r} (I2)"
        ends = [0, *(part.high for part in of_operator)]
        if [part.low for part in of_operator] != ends[:-1] or ends[-1] != commit.max_parallelism:
            yield f"the partitions of {uid!r} at {commit.seq} do not cover the key groups once each (I2)"


def _violations_of_tiles(view: LineView, commit: Commit) -> Iterator[str]:
    """The tiles of each operator cover all key groups, each once, and are of the line (I5)."""
    cover = TileCover(view.tiles)
    try:
        cover.check(view.max_parallelism)
    except InvariantError as error:
        yield f"{error.message}: operator {error.context.get('operator')!r} at {view.base.seq} (I5)"
    if cover.operators() != frozenset(operator.uid for operator in commit.operators):
        yield f"commit {view.base.seq} has operators {commit.operators} and tiles of {sorted(cover.operators())} (I5)"
    for tile in view.tiles:
        if tile.at.seq > view.base.seq:
            yield f"a tile of {tile.operator!r} is of {tile.at.seq}, after commit {view.base.seq} (I5)"


def _violations_of_log(view: LineView) -> Iterator[str]:
    """Each segment is newer than a tile that it touches; of each key group their order is that of the log (I5)."""
    cover = TileCover(view.tiles)
    replayed: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
    for ref in view.segments:
        place = f"the segment of {ref.operator!r}, key groups {ref.low}-{ref.high}, seqs {ref.seq_first}-{ref.seq_last}"
        if not 0 <= ref.low < ref.high <= view.max_parallelism:
            yield f"{place}, is outside of the key groups (I5)"
            continue
        if not ref.seq_first <= ref.seq_last <= view.base.seq:
            yield f"{place}, is not before commit {view.base.seq} (I5)"
        if all(tile.at.seq >= ref.seq_last for tile in cover.over(ref.operator, ref.low, ref.high)):
            yield f"{place}, counts for no tile at {view.base.seq} (I5)"
        newest = replayed.setdefault(ref.operator, np.zeros(view.max_parallelism, np.int64))[ref.low : ref.high]
        if int(newest.max()) > ref.seq_first:
            yield f"{place}, follows a newer one at {view.base.seq} (I5)"
        newest[:] = ref.seq_last


def _violations_of_line(view: LineView, commit: Commit) -> Iterator[str]:
    """The line leads to the view's base; nothing that the view names is of a slot below `needs_from` (I7)."""
    if not view.line or view.line[-1] != view.base or not _is_ascending([link.seq for link in view.line]):
        yield f"the line at {view.base.seq} does not lead there in order (I5)"
    path = (view.full, *view.path)
    if path[-1] != view.base or not _is_ascending([link.seq for link in path]):
        yield f"the path at {view.base.seq} does not lead there from the full entry {view.full.seq} (I5)"
    names = {ref.data.name for ref in (*view.segments, *view.images)}
    names.update(file.name for tile in view.tiles for file in tile.files)
    slots = [view.full.seq, *(layout.object_slot(name) for name in names if not layout.is_shared(name))]
    lowest = min(slots)
    if not commit.needs_from <= view.needs_from <= lowest:
        yield (
            f"commit {view.base.seq} says that it needs nothing below slot {commit.needs_from}, its view "
            f"{view.needs_from}, and they name an object of slot {lowest} (I7)"
        )


def _is_ascending(seqs: Sequence[int]) -> bool:
    return all(first < second for first, second in pairwise(seqs))
