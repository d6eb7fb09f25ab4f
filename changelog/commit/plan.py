"""COMMIT: plans the next chain entry from the run's state and an executed batch. Pure.

A plan (`docs/internals/commit-protocol.md#commit`) holds the commit, the bytes to put, and what is carried over to the
state after it. Nothing is durable until the bytes are. A full entry names every tile and every segment that still
counts; any other entry names its own batch and points at the last full one.

Invariants: I2 (one tag per partition), I5 (tiles cover exactly; time and watermark never go back), I7 (`keep_from`
never passes what a retained commit needs; objects carry the slot of the entry), I10 (limits on blob and entry).
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from varvite.changelog.chain.images import kept_images
from varvite.changelog.chain.retention_bounds import Retained
from varvite.changelog.chain.segment_index import SegmentIndex, counted
from varvite.changelog.chain.tiles import TileCover, empty_tile, replace_tiles
from varvite.changelog.chain.view import CarriedOver, StoredCommit, carry_over, cover_of
from varvite.changelog.commit.batch_result import (
    ENTRY_BYTES_MAX,
    INLINE_BYTES_MAX,
    BatchFacts,
    check_operators,
    check_results,
    inline_total,
)
from varvite.changelog.commit.pack import is_packable, replace_packed, replace_packed_images
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, InvariantError, RetryableError, VarviteError
from varvite.storage.format.records import (
    RANGE_OF,
    BlobSlice,
    Commit,
    Link,
    PartitionCommit,
    SegmentRef,
    SnapshotFloor,
    Tile,
    encode_entry,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from varvite.changelog.commit.batch_result import PartitionResult
    from varvite.changelog.commit.pack import Pack
    from varvite.changelog.commit.state import ChainState, CommitPolicy


class Adoption(NamedTuple):
    """The snapshots that the driver's next commit adopts, as tiles, and the floors that it raises."""

    tiles: tuple[Tile, ...] = ()
    floors: tuple[SnapshotFloor, ...] = ()


class CommitPlan(NamedTuple):
    """The next entry, ready to be put."""

    stored: StoredCommit
    body: bytes
    """The object `chain/<seq>`."""
    carried_over: CarriedOver
    """Tiles, segments and images from before the commit that it still refers to, for `ChainState.after`."""
    put_off: str = ""
    """The reason why the entry is not full although it was due: its size; empty if it was not put off."""

    @property
    def commit(self) -> Commit:
        return self.stored.commit


NOTHING_ADOPTED = Adoption()
LONG_LOG: Final = 1 << 12
"""A full entry with this many references takes a few milliseconds to encode."""
LARGE_LOG_BYTES: Final = ENTRY_BYTES_MAX // 2
"""Size of encoded references from which on a full entry may be too large unless it adopts snapshots."""
FEWER_PARTITIONS: Final = "the partitions of all operators are too many for an entry; lower parallelism.default"
"""Each partition takes some 140 bytes of an entry, whether it has changed or not."""


def adopts_now(state: ChainState, pack: Pack | None) -> bool:
    """Tell whether the next commit may adopt snapshots.

    A commit with the pack of a long log leaves them to the commit after it: an adoption changes the log, which was
    encoded with the pack. But a log that may be too large for an entry must become shorter at once, because there might
    be no commit after this one.
    """
    if pack is None or len(pack.replaced) < LONG_LOG or not state.commits_since_full:
        return True
    return len(pack.replaced_encoded) >= LARGE_LOG_BYTES


def plan_commit(
    state: ChainState,
    facts: BatchFacts,
    policy: CommitPolicy,
    token: str,
    adoption: Adoption = NOTHING_ADOPTED,
    pack: Pack | None = None,
    *,
    pack_failure: VarviteError | None = None,
) -> CommitPlan:
    """Plan the commit of an executed batch at `state.slot`.

    Args:
        state: The run's place in the chain; its base is the commit that the batch was executed on.
        facts: The batch and its results.
        policy: Retention and full entries.
        token: Fresh; names this entry's writer.
        adoption: From `adopt_decision`, decided on this same state.
        pack: An uploaded pack for this slot, if one is ready; the entry is then full.
        pack_failure: The reason why a pack that was due is missing, for the error about an entry too large without it.

    A full entry that would exceed 16 MiB is put off, up to the policy's `path_max`, and for longer by a commit that
    adopts snapshots: these make the log shorter, so that one fits in the end.

    Raises:
        InvalidRequestError: the operators do not fit, or the entry would exceed 16 MiB.
        DidNotHappenError: the entry would exceed 16 MiB because the storage has not taken the pack; or the error that
            kept the pack from being made.
        InvariantError: results are missing, doubled or do not belong to the slot, or exceed the inline budget.
    """
    results = _check_facts(state, facts)
    cover, changed = _next_cover(state, facts, Link(state.slot, token), adoption)
    parts, blob = _parts(results)
    draft = _draft(state, facts, token, _raised(state.floors, adoption.floors), parts, changed)
    full = _full_plan(draft, blob, state, policy, cover, pack) if _is_full(state, policy, draft, cover, pack) else None
    if full is not None and len(full.body) <= ENTRY_BYTES_MAX:
        return full
    if full is not None and state.must_be_full(policy) and (state.base is None or not adoption.tiles):
        raise _too_large(full, None if pack is not None else pack_failure)
    carried = carry_over(state.view, draft, cover, state.index)
    plan = _encoded(_with_needs(draft, carried.needs_from, state, policy), blob, carried)
    if len(plan.body) > ENTRY_BYTES_MAX:
        raise _too_large(plan, None)
    return plan._replace(put_off=_size(full) if full is not None else "")


def _draft(
    state: ChainState,
    facts: BatchFacts,
    token: str,
    floors: tuple[SnapshotFloor, ...],
    parts: tuple[PartitionCommit, ...],
    tiles: tuple[Tile, ...],
) -> Commit:
    """The entry as if it were not full, without `needs_from` and the retention bounds."""
    return Commit(
        seq=state.slot,
        token=token,
        job_id=state.job_id,
        epoch=state.epoch,
        parent=state.view.base,
        keep_from=state.keep_from,
        retained_from=state.retained_from,
        floors=floors,
        batch=facts.batch,
        query_id=facts.query_id,
        source_hash=facts.source_hash,
        time_ms=facts.time_ms,
        watermark_ms=facts.watermark_ms,
        watermark_before_ms=facts.watermark_before_ms,
        max_parallelism=state.view.max_parallelism,
        operators=facts.operators,
        needs_from=0,
        parts=parts,
        tiles=tiles,
        full=state.view.full,
        path=state.view.path,
        position=facts.position,
    )


def _check_facts(state: ChainState, facts: BatchFacts) -> dict[str, list[PartitionResult]]:
    """The results of each operator, in order of partition; raises if the batch cannot follow."""
    base = state.base
    check_operators(base, facts)
    results = check_results(facts, state.slot, state.view)
    total = inline_total(facts.results)
    if total > INLINE_BYTES_MAX:
        raise InvariantError(f"{total} inline bytes exceed the limit of {INLINE_BYTES_MAX}", batch=facts.batch)
    if base is None:
        return results
    if facts.time_ms < base.time_ms or _is_before(facts.watermark_ms, base.watermark_ms):
        raise InvariantError("time or watermark of the batch is before its base's", batch=facts.batch)
    if facts.query_id == base.query_id and facts.batch != base.batch + 1:
        raise InvariantError(f"the batch does not follow its base, batch {base.batch}", batch=facts.batch)
    return results


def _is_before(watermark_ms: int | None, base_ms: int | None) -> bool:
    return base_ms is not None and (watermark_ms is None or watermark_ms < base_ms)


def _next_cover(
    state: ChainState, facts: BatchFacts, link: Link, adoption: Adoption
) -> tuple[TileCover, tuple[Tile, ...]]:
    """The tiles after the commit, and those of them that it changed.

    New operators begin empty, then come adopted snapshots, then files of the results.
    """
    view = state.view
    before = checked = cover_of(view)
    uids, uids_before = frozenset(o.uid for o in facts.operators), before.operators()
    written = [_file_tile(r, link) for r in facts.results if r.files is not None and r.low < r.high]
    ignored = {t.operator for t in written} | (uids ^ uids_before)
    adopted = [t for t in adoption.tiles if t.operator not in ignored]
    begun = [empty_tile(uid, view.max_parallelism, view.base) for uid in uids - uids_before]
    if uids != uids_before:
        before = TileCover([*(t for t in view.tiles if t.operator in uids), *begun])
    elif not written and not adopted:
        return before, ()
    cover = replace_tiles(replace_tiles(before, adopted), written)
    if not cover.has_ranges_of(checked):
        cover.check(view.max_parallelism)
    changed = TileCover([*(t for t in begun if cover.has(t)), *adopted, *written])
    return cover, changed.tiles


def _file_tile(result: PartitionResult, link: Link) -> Tile:
    return Tile(operator=result.operator, low=result.low, high=result.high, at=link, files=result.files or ())


def _parts(results: Mapping[str, Sequence[PartitionResult]]) -> tuple[tuple[PartitionCommit, ...], bytes]:
    """The partitions of the commit, by operator and number, and the blob of their inline segments and images."""
    blob = _Blob()
    parts: list[PartitionCommit] = []
    for operator in sorted(results):
        of_operator = results[operator]
        places = blob.add_all([result.inline for result in of_operator])
        for result, place in zip(of_operator, places, strict=True):
            part = PartitionCommit(
                operator=operator,  # the same string object for thousands of references
                partition=result.partition,
                low=result.low,
                high=result.high,
                tag=result.tag,
                mutations=result.mutations,
                inline=place,
                uploaded=result.uploaded,
                image_uploaded=result.image_uploaded,
            )
            if result.image:
                part = msgspec.structs.replace(part, image=blob.add_shared(result.image))
            parts.append(part)
    return tuple(parts), blob.joined()


class _Blob:
    """The blob of an entry while it is put together."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0
        self._shared: dict[bytes, BlobSlice] = {}

    def add_all(self, pieces: Iterable[bytes]) -> list[BlobSlice | None]:
        """Append these, and return the place of each; None for an empty one."""
        places: list[BlobSlice | None] = []
        length = self._length
        for data in pieces:  # thousands: no call for each
            if data:
                places.append(BlobSlice(length, len(data), zlib.crc32(data)))
                self._pieces.append(data)
                length += len(data)
            else:
                places.append(None)
        self._length = length
        return places

    def add_shared(self, data: bytes) -> BlobSlice:
        """Append the data unless equal data is there, and return its place.

        Broadcast state makes equal images of all partitions.
        """
        if data not in self._shared:
            self._shared[data] = BlobSlice(self._length, len(data), zlib.crc32(data))
            self._pieces.append(data)
            self._length += len(data)
        return self._shared[data]

    def joined(self) -> bytes:
        return b"".join(self._pieces)


def _raised(floors: tuple[SnapshotFloor, ...], raised: Sequence[SnapshotFloor]) -> tuple[SnapshotFloor, ...]:
    """Merge both, with the higher number of each range. `floors` are thousands and in order, and few are raised."""
    merged = list(floors)
    for floor in raised:
        key = RANGE_OF(floor)
        at = bisect_left(merged, key, key=RANGE_OF)
        if at == len(merged) or RANGE_OF(merged[at]) != key:
            merged.insert(at, floor)
        elif merged[at].number < floor.number:
            merged[at] = floor
    return tuple(merged)


def _is_full(state: ChainState, policy: CommitPolicy, draft: Commit, cover: TileCover, pack: Pack | None) -> bool:
    if pack is not None or state.must_be_full(policy):
        return True
    if state.view.images or not state.is_full_due(policy):
        return False  # full entries with images wait for a pack, which copies them
    return not any(is_packable(ref) for ref in _log(state, draft, cover, None)[0])


def _log(
    state: ChainState, draft: Commit, cover: TileCover, pack: Pack | None
) -> tuple[tuple[SegmentRef, ...], SegmentIndex]:
    """Every segment before the entry that still counts for some key group; `draft` is the entry as if not full."""
    segments, index = state.view.segments, state.index
    if pack is not None:
        segments = replace_packed(segments, pack)
        packed_index = pack.replaced_index if segments is pack.replaced else None
        index = SegmentIndex.of(segments) if packed_index is None else packed_index
    if cover.tiles is state.view.tiles:
        return segments, index
    return counted(segments, index, cover_of(state.view), cover, draft.tiles)


def _made_full(draft: Commit, state: ChainState, cover: TileCover, pack: Pack | None) -> tuple[Commit, SegmentIndex]:
    """The entry as a full one, and the index of its log."""
    if pack is not None and pack.slot != state.slot:
        raise InvariantError(f"the pack is for slot {pack.slot}, the entry for {state.slot}", object_name=pack.name)
    planned_here = pack is not None and pack.planned_from is state.view.segments
    if pack is not None and not planned_here and not frozenset(pack.packed) <= frozenset(state.view.segments):
        raise InvariantError("the pack holds segments that are not on the base's line", object_name=pack.name)
    if pack is not None and not {old for old, _ in pack.images} <= frozenset(state.view.images):
        raise InvariantError("the pack holds images that are not on the base's line", object_name=pack.name)
    images = state.view.images if pack is None else replace_packed_images(state.view.images, pack)
    oldest = cover.oldest()
    log, index = _log(state, draft, cover, pack)
    full = msgspec.structs.replace(
        draft,
        tiles=cover.tiles,
        full=draft.link,
        path=(),
        log=log,
        images=kept_images(images, draft),
        line=tuple(link for link in state.view.line if link.seq >= oldest),
    )
    return full, index


def _full_plan(
    draft: Commit, blob: bytes, state: ChainState, policy: CommitPolicy, cover: TileCover, pack: Pack | None
) -> CommitPlan:
    """The plan of a full entry, however large it is; `draft` is the entry as if not full."""
    full, index = _made_full(draft, state, cover, pack)
    carried = carry_over(state.view, full, cover, index)
    commit = _with_needs(full, carried.needs_from, state, policy)
    is_encoded = pack is not None and commit.log is pack.replaced
    return _encoded(commit, blob, carried, pack.replaced_encoded if pack is not None and is_encoded else b"")


def _with_needs(draft: Commit, needs_from: int, state: ChainState, policy: CommitPolicy) -> Commit:
    """Fill in `needs_from`, `keep_from` and `retained_from`."""
    draft = msgspec.structs.replace(draft, needs_from=needs_from)
    retained = (*state.retained, Retained(draft.seq, needs_from))[-policy.retained :]
    if len(retained) < policy.retained:  # other commits are retained that this run does not know
        return draft
    return msgspec.structs.replace(
        draft,
        keep_from=max(state.keep_from, min(commit.needs_from for commit in retained)),
        retained_from=max(state.retained_from, retained[0].seq),
    )


def _encoded(commit: Commit, blob: bytes, carried: CarriedOver, encoded_log: bytes = b"") -> CommitPlan:
    body = encode_entry(commit, blob, encoded_log)
    return CommitPlan(StoredCommit(commit, len(body) - len(blob)), body, carried)


def _size(plan: CommitPlan) -> str:
    return (
        f"the entry has {len(plan.body)} bytes, {len(plan.commit.log)} log references among them, above the limit of "
        f"{ENTRY_BYTES_MAX}"
    )


def _too_large(plan: CommitPlan, pack_failure: VarviteError | None) -> VarviteError:
    """The error about an entry above the limit.

    If a pack would have made it small enough, the pack's failure counts.
    """
    size, commit = _size(plan), plan.commit
    if pack_failure is None or not any(is_packable(ref) for ref in commit.log):
        has_many_parts = len(commit.parts) > LONG_LOG
        cures = ["run the materializer, so that the log becomes shorter"] if commit.log or not has_many_parts else []
        if has_many_parts:
            cures.append(FEWER_PARTITIONS)
        problem = f"{size}; {'; if it runs, '.join(cures)}"
        return InvalidRequestError(problem, batch=commit.batch, epoch=commit.epoch)
    error = DidNotHappenError(
        f"{size}, because the log since the last full entry could not be stored as a pack; repair the storage of the "
        f"log, then start the job again. The last pack failed: {pack_failure}",
        batch=commit.batch,
        epoch=commit.epoch,
    )
    error.__cause__ = pack_failure
    if isinstance(pack_failure, RetryableError):
        return error
    pack_failure.add_note(str(error))
    return pack_failure
