"""What one executed batch hands to the commit plan, and the checks that it is whole; pure.

Invariants: I2 (exactly one attempt per partition), I7 (uploaded objects carry the slot of the entry that will name
them).
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from varvite.storage.errors import InvalidRequestError, InvariantError
from varvite.storage.format import layout
from varvite.storage.format.records import ObjectSlice, OperatorLayout, SnapshotFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.chain.view import LineView
    from varvite.storage.format.records import Commit, Tile

INLINE_BYTES_MAX: Final = 4 << 20
"""Limit of all inline segments and images of one batch."""
ENTRY_BYTES_MAX: Final = 16 << 20
"""Limit of a whole chain entry."""


class PartitionResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the winning attempt of one (operator, partition) did in the batch.

    No inline bytes, no uploaded slices and no files: the state of key groups `[low, high)` did not change. Neither kind
    of image: the non-keyed state did not change.
    """

    operator: str
    partition: int
    low: int
    high: int
    tag: str
    mutations: int = 0
    inline: bytes = b""
    """The last part of the segment, small enough to travel in the entry."""
    uploaded: tuple[ObjectSlice, ...] = ()
    """Earlier parts, under `seg/<slot>/`, in order."""
    files: tuple[SnapshotFile, ...] | None = None
    """Changelog off: the whole state after the batch; None if it did not change."""
    image: bytes = b""
    """The whole non-keyed state after the batch, if it changed and is small enough to travel in the entry."""
    image_uploaded: ObjectSlice | None = None
    """The same under `seg/<slot>/`, if it is large."""


class BatchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the driver knows of an executed batch."""

    batch: int
    query_id: str
    source_hash: str
    time_ms: int
    """The batch's time as the tasks were told it: `entry_time(base, clock)`."""
    watermark_ms: int | None
    """Of the next batch."""
    watermark_before_ms: int | None = None
    """The one that this batch began with."""
    operators: tuple[OperatorLayout, ...]
    results: tuple[PartitionResult, ...]
    dropped: frozenset[str] = frozenset()
    """Operators whose state is given up on purpose; leaving one out otherwise is an error."""


def entry_time(base: Commit | None, now_ms: int) -> int:
    """The time of the batch that is executed on `base`: it never goes back (I5)."""
    return max(base.time_ms, now_ms) if base else now_ms


def check_results(facts: BatchFacts, slot: int, view: LineView) -> dict[str, list[PartitionResult]]:
    """The results of each operator, in order of partition.

    They are exactly one per (operator, partition), cover the key groups and fit the slot, or it raises:

    Raises:
        InvariantError: results are missing, doubled, of wrong ranges, or name objects of another slot.
        InvalidRequestError: two operators have one uid.
    """
    results_of = by_operator(facts.results)
    uids = [o.uid for o in facts.operators]
    if len(set(uids)) != len(uids):
        raise InvalidRequestError(f"two operators have one uid among {uids}; give each its own", batch=facts.batch)
    if set(results_of) - set(uids):
        raise InvariantError(f"results of unknown operators {sorted(set(results_of) - set(uids))}", batch=facts.batch)
    reusable = {f.name for tile in view.tiles for f in tile.files}
    for operator in facts.operators:
        results = results_of.setdefault(operator.uid, [])
        _check_partitions(operator, results, view.max_parallelism)
        for result in results:  # thousands: no call for each
            if result.uploaded or result.files is not None or result.image_uploaded is not None:
                _check_objects(result, slot, reusable)
    return results_of


class _OfPartition(Protocol):
    """A record of one (operator, partition)."""

    @property
    def operator(self) -> str: ...
    @property
    def partition(self) -> int: ...


_R = TypeVar("_R", bound=_OfPartition)


def by_operator(records: Sequence[_R]) -> dict[str, list[_R]]:
    """The records of each operator, in order of partition."""
    # Thousands, nearly always in order: a list of attributes takes a fraction of what calls with each record do.
    uids = [record.operator for record in records]
    if uids and uids.count(uids[0]) == len(uids):
        found = {uids[0]: list(records)}
    else:
        found = {uid: list[_R]() for uid in dict.fromkeys(uids)}
        for record in records:
            found[record.operator].append(record)
    for own in found.values():
        if [record.partition for record in own] != list(range(len(own))):
            own.sort(key=attrgetter("partition"))
    return found


def _check_partitions(operator: OperatorLayout, results: Sequence[PartitionResult], max_parallelism: int) -> None:
    if [r.partition for r in results] != list(range(operator.parallelism)):
        raise InvariantError(
            f"expected one result per partition 0-{operator.parallelism - 1}, got {[r.partition for r in results]}",
            operator=operator.uid,
        )
    position = 0
    for result in results:
        if result.low != position or result.high < result.low:
            raise InvariantError(
                f"the partition says key groups {result.low}-{result.high}, the one before ends at {position}",
                operator=operator.uid,
                partition=result.partition,
            )
        position = result.high
    if position != max_parallelism:
        raise InvariantError(f"the partitions cover 0-{position} of 0-{max_parallelism}", operator=operator.uid)


def _check_objects(result: PartitionResult, slot: int, reusable: set[str]) -> None:
    if result.files is not None and (result.inline or result.uploaded):
        where = {"operator": result.operator, "partition": result.partition}
        raise InvariantError("a result has both files and segments", **where)
    if result.image and result.image_uploaded is not None:
        raise InvariantError("a result has two images", operator=result.operator, partition=result.partition)
    own = f"{layout.SEGMENTS}{slot:0{layout.DIGITS}d}/"
    names = [s.name for s in (*result.uploaded, result.image_uploaded) if s is not None]
    names += [f.name for f in result.files or () if f.name not in reusable]
    for name in names:
        if not name.startswith(own):
            raise InvariantError(
                f"a result for slot {slot} names an object that neither belongs to the slot nor to its base",
                operator=result.operator,
                partition=result.partition,
                object_name=name,
            )


def check_operators(base: Commit | None, facts: BatchFacts) -> None:
    """Raise `InvalidRequestError` if an operator of the base is left out and not given up on purpose."""
    before = {o.uid for o in base.operators} if base else set[str]()
    lost = before - {o.uid for o in facts.operators} - facts.dropped
    if lost:
        raise InvalidRequestError(
            f"the state of operators {sorted(lost)} would be lost: the job no longer has them; restore their uid, or "
            "say that their state may be dropped",
            batch=facts.batch,
        )


def files_to_rewrite(tile: Tile, slot: int, age_max: int) -> tuple[str, ...]:
    """The tile's files that were uploaded `age_max` or more slots before `slot`, by their RocksDB names.

    With the changelog off a commit names its files directly, so an old file holds back the deletion of every older
    chain entry, and a shared one keeps objects of another job. A worker that uploads these files anew with its next
    change keeps the chain bounded (I10).
    """
    return tuple(
        f.file for f in tile.files if layout.is_shared(f.name) or layout.slot_of(f.name).slot <= slot - age_max
    )


def inline_total(results: Sequence[PartitionResult]) -> int:
    """Bytes of all inline segments and images."""
    return sum([len(r.inline) for r in results]) + sum([len(r.image) for r in results if r.image])
