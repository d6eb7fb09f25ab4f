"""The results of one executed batch, and the checks that they are complete. Pure.

Invariants: I2 (exactly one attempt per partition), I7 (uploaded objects carry the slot of the entry that will name
them).
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from varvite.storage.errors import InvalidRequestError, InvariantError
from varvite.storage.format import layout
from varvite.storage.format.records import InputPosition, ObjectSlice, OperatorLayout, SnapshotFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.chain.view import LineView
    from varvite.storage.format.records import Commit, Tile

INLINE_BYTES_MAX: Final = 4 << 20
"""Limit of all inline segments and images of one batch."""
ENTRY_BYTES_MAX: Final = 16 << 20
"""Limit of a whole chain entry."""


class PartitionResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The changes that the winning attempt of one (operator, partition) made in the batch.

    Without inline bytes, uploaded slices and files, the state of key groups `[low, high)` did not change. Without
    either kind of image, the non-keyed state did not change.
    """

    operator: str
    partition: int
    low: int
    high: int
    tag: str
    mutations: int = 0
    inline: bytes = b""
    """The last chunk of the segment, small enough to travel in the entry."""
    uploaded: tuple[ObjectSlice, ...] = ()
    """Earlier chunks of the segment, under `seg/<slot>/`, in order."""
    files: tuple[SnapshotFile, ...] | None = None
    """Changelog off: the whole state after the batch; None if it did not change."""
    image: bytes = b""
    """The whole non-keyed state after the batch, if it changed and is small enough to travel in the entry."""
    image_uploaded: ObjectSlice | None = None
    """The image under `seg/<slot>/`, if it is large."""


class BatchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that the driver knows of an executed batch."""

    batch: int
    query_id: str
    source_hash: str
    time_ms: int
    """The batch's time as sent to the tasks: `entry_time(base, clock)`."""
    watermark_ms: int | None
    """Of the next batch."""
    watermark_before_ms: int | None = None
    """Of this batch, when it began."""
    operators: tuple[OperatorLayout, ...]
    results: tuple[PartitionResult, ...]
    position: InputPosition | None = None
    """The end of its input, if the offsets say all."""
    dropped: frozenset[str] = frozenset()
    """Operators whose state is dropped on purpose. To leave out any other operator of the base is an error."""


def entry_time(base: Commit | None, now_ms: int) -> int:
    """The time of the batch that is executed on `base`: it never goes back (I5)."""
    return max(base.time_ms, now_ms) if base else now_ms


def check_results(facts: BatchFacts, slot: int, view: LineView) -> dict[str, list[PartitionResult]]:
    """The results of each operator, in order of partition.

    There is exactly one per (operator, partition); they cover the key groups and fit the slot.

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
    # Thousands, nearly always in order: a list of attributes takes a fraction of the time of a call for each record.
    uids = [record.operator for record in records]
    if uids and uids.count(uids[0]) == len(uids):
        grouped = {uids[0]: list(records)}
    else:
        grouped = {uid: list[_R]() for uid in dict.fromkeys(uids)}
        for record in records:
            grouped[record.operator].append(record)
    for of_operator in grouped.values():
        if [record.partition for record in of_operator] != list(range(len(of_operator))):
            of_operator.sort(key=attrgetter("partition"))
    return grouped


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
    of_slot = f"{layout.SEGMENTS}{slot:0{layout.DIGITS}d}/"
    names = [s.name for s in (*result.uploaded, result.image_uploaded) if s is not None]
    names += [f.name for f in result.files or () if f.name not in reusable]
    for name in names:
        if not name.startswith(of_slot):
            raise InvariantError(
                f"a result for slot {slot} names an object that neither belongs to the slot nor to its base",
                operator=result.operator,
                partition=result.partition,
                object_name=name,
            )


def check_operators(base: Commit | None, facts: BatchFacts) -> None:
    """Raise `InvalidRequestError` if an operator of the base is left out and not dropped on purpose."""
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
    chain entry, and a shared one keeps objects of another job. The chain stays bounded because a worker uploads these
    files again with its next change (I10).
    """
    return tuple(
        f.file for f in tile.files if layout.is_shared(f.name) or layout.slot_of(f.name).slot <= slot - age_max
    )


def inline_total(results: Sequence[PartitionResult]) -> int:
    """Bytes of all inline segments and images."""
    return sum([len(r.inline) for r in results]) + sum([len(r.image) for r in results if r.image])
