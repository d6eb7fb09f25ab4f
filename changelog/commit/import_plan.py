"""The start of a job from a state that is not on its own line: the decision, and the entry that it writes. Pure.

The state of a commit of this or another job, or of a savepoint, is copied into the job's own objects. An *import* names
them: a full commit without parent and batch of its own that says whose state it is (`Commit.source`). Tiles and
segments keep their seqs, which all lie below the import's slot, so base plus log stays the same (I5). The copy needs no
object of its source. A *clone* copies nothing: its import names the objects of a job beside it. A hold there keeps them
until no retained entry of the clone names one.

Invariants: I5, I7 (every object has a name of the import's own slot, or is another job's under a hold), I11 (a job that
has state is never given another one, unless it is its own and a new query asks for it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from varvite.changelog.chain.view import StoredCommit, resolve
from varvite.changelog.commit.batch_result import ENTRY_BYTES_MAX
from varvite.storage.errors import InvalidRequestError, InvariantError, LineageError
from varvite.storage.format import layout
from varvite.storage.format.records import ORIGIN, Commit, Link, StateSource, encode_entry

if TYPE_CHECKING:
    from varvite.storage.format.records import Fence, ImageRef, SegmentRef, Tile

SEQS_AHEAD: Final = 1_000_000
"""Eleven days of a source's commits, at one per second."""


@dataclass(frozen=True, slots=True)
class Import:
    """Copy the state, and start from it."""


@dataclass(frozen=True, slots=True)
class UseImport:
    """The state was copied before, and no batch has followed: start from that commit."""

    seq: int


@dataclass(frozen=True, slots=True)
class GoOn:
    """The query has state of its own already: an ordinary start."""


@dataclass(frozen=True, slots=True)
class CopiedState:
    """The state of a commit, in objects of the import's slot."""

    tiles: tuple[Tile, ...]
    log: tuple[SegmentRef, ...] = ()
    line: tuple[Link, ...] = ()
    """The source's, from the oldest tile on."""
    images: tuple[ImageRef, ...] = ()
    """Of non-keyed state."""


class ImportPlan(NamedTuple):
    """The entry, ready to be put."""

    commit: Commit
    body: bytes


def source_of(commit: Commit) -> StateSource:
    """The name by which an import refers to the commit whose state it holds."""
    return StateSource(commit.job_id, commit.link)


def decide_import(
    newest: Commit | None, source: StateSource, own_job_id: str, query_id: str | None
) -> Import | UseImport | GoOn:
    """Decide the start of a run that is to start from `source`.

    Args:
        newest: The newest commit on the line of the run's fence.
        source: The commit to start from.
        own_job_id: This job's.
        query_id: Of Spark's checkpoint location; None for a new one.

    Raises `LineageError` if the job has state of another origin.
    """
    if newest is None:
        return Import()
    if newest.source == source:
        return UseImport(newest.seq)
    if newest.source is None and newest.query_id == query_id:
        return GoOn()
    if source.job_id == own_job_id or (newest.source is not None and newest.source.job_id != own_job_id):
        return Import()  # no batch has followed another job's state, so the job has none of its own that could be lost
    raise LineageError(
        f"the job has a state of its own, up to batch {newest.batch} (seq {newest.seq}) of query {newest.query_id}; "
        "start from another job's state under a new query name, or leave the option out"
    )


def begins_after(source: Commit) -> int:
    """Seq after which the chain of a new job that starts from `source` begins.

    It is far above the source's seq: the start may be interrupted and repeated from a later commit, because the source
    goes on meanwhile.
    """
    return source.seq + SEQS_AHEAD


def check_slot(fence: Fence, source: Commit) -> None:
    """Raise `InvalidRequestError` unless seqs of the source are below the import's."""
    if fence.seq < source.seq:
        raise InvalidRequestError(
            f"the job's chain is at seq {fence.seq} and the state to start from is of seq {source.seq}: numbers must "
            "go on; give the query a new name, or delete the job's directory if it holds no state"
        )


def plan_import(fence: Fence, source: Commit, state: CopiedState, token: str) -> ImportPlan:
    """The entry after `fence` that holds the copied state.

    Args:
        fence: The run's own, and the head.
        source: The commit whose state it is; the import copies all of it but names of objects.
        state: The copied state.
        token: Fresh; names the entry's writer.

    Raises:
        InvariantError: tiles do not cover the key groups, or an object is not of the slot.
        InvalidRequestError: the entry is too large.
    """
    check_slot(fence, source)
    slot = fence.seq + 1
    _check_names(state, slot)
    commit = msgspec.structs.replace(
        source,
        seq=slot,
        token=token,
        job_id=fence.job_id,
        epoch=fence.epoch,
        parent=ORIGIN,
        keep_from=fence.keep_from,
        retained_from=fence.retained_from,
        floors=fence.floors,
        needs_from=slot,
        parts=(),
        tiles=tuple(sorted(state.tiles, key=lambda t: (t.operator, t.low))),
        full=Link(slot, token),
        path=(),
        log=state.log,
        images=state.images,
        line=tuple(link for link in state.line if link != ORIGIN),
        # Another job's sources are not this one's.
        position=source.position if source.job_id == fence.job_id else None,
        source=source_of(source),
    )
    stored = StoredCommit(commit, 0)
    view = resolve(stored, stored, ())
    if view.needs_from != slot:
        raise InvariantError(f"the import at {slot} needs objects of slot {view.needs_from}")
    body = encode_entry(commit)
    if len(body) > ENTRY_BYTES_MAX:
        raise InvalidRequestError(
            f"the entry would have {len(body)} bytes, {len(commit.log)} log references among them; let the source's "
            "materializer shorten its log, or start from a canonical savepoint"
        )
    return ImportPlan(commit, body)


def _check_names(state: CopiedState, slot: int) -> None:
    names = [file.name for tile in state.tiles for file in tile.files]
    names += [ref.data.name for ref in (*state.log, *state.images)]
    for name in names:
        if not layout.is_shared(name) and (layout.is_chain(name) or layout.object_slot(name) != slot):
            raise InvariantError(f"the import at {slot} names an object of another slot", object_name=name)
    if any(tile.snapshot is not None for tile in state.tiles):
        raise InvariantError(f"the import at {slot} names a snapshot, which is the source's")
