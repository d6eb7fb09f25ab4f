"""START: the decisions by which a driver run takes the chain over. Pure.

See `docs/internals/commit-protocol.md#start`:

1. LIST the chain, read its head, claim the slot after it with a fence (`plan_fence`).
2. Won: LIST again and read what stands above the fence (`decide_ownership`). The first LIST may have been taken so
   long ago that the claimed slot is the hole of a collected commit; then the fence fences nobody.

Invariants: I6 (the fence takes the very slot that an older run must take next), I7 (`keep_from` and the floors are
carried on, so they only rise).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varvite.changelog.chain.reader import newest_commit
from varvite.changelog.commit.rules import ALL_RULES
from varvite.storage.errors import FencedError
from varvite.storage.format.records import ORIGIN, Entry, Fence
from varvite.storage.units import utc_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.commit.rules import ProtocolRules


@dataclass(frozen=True, slots=True)
class Own:
    """The fence is the head: its run owns the chain."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class Retry:
    """The fence stands in a hole below the head: begin again with a new LIST."""


def next_restore(head: Entry | None) -> int | None:
    """Seq of the commit that an operator has chosen for the next run; None: none, or a commit has followed."""
    return head.restore if isinstance(head, Fence) and head.chosen_ahead else None


def plan_fence(
    head: Entry | None,
    *,
    job_id: str,
    token: str,
    now_ms: int,
    restore: int | None = None,
    chosen_ahead: bool = False,
    begins_after: int = ORIGIN.seq,
    by: str = "",
) -> Fence:
    """The fence to claim above `head`, the entry with the highest listed seq (None: the chain is empty).

    Args:
        head: The entry above which the fence is claimed.
        job_id: Of the job.
        token: Fresh; names the run.
        now_ms: Wall clock.
        restore: Seq of the commit from which this run starts a new query. A commit that was chosen ahead takes
            precedence until a commit has followed, because an option may have been left set.
        chosen_ahead: `restore` is for the runs that follow, or, if it is None, their choice is withdrawn.
        begins_after: The job's: the seq after which an empty chain begins.
        by: The process, for people.
    """
    earlier = next_restore(head)
    if not chosen_ahead and earlier is not None:
        restore, chosen_ahead = earlier, True
    return Fence(
        seq=(head.seq if head else begins_after) + 1,
        token=token,
        job_id=job_id,
        parent=head.link if head else ORIGIN,
        keep_from=head.keep_from if head else ORIGIN.seq,
        retained_from=head.retained_from if head else ORIGIN.seq,
        floors=head.floors if head else (),
        time_ms=max(now_ms, head.time_ms) if head else now_ms,
        commit=newest_commit(head),
        restore=restore,
        chosen_ahead=chosen_ahead,
        by=by,
    )


def owner_text(entry: Entry | None) -> str:
    """The run that took over, for people, by an entry of it: its fence says who it is and since when."""
    if not isinstance(entry, Fence):
        return f"run {entry.epoch if entry else None} of this job"
    return f"run {entry.epoch} of this job ({entry.by or 'which did not say who it is'}; {utc_time(entry.time_ms)})"


def decide_ownership(fence: Fence, above: Sequence[Entry | None], rules: ProtocolRules = ALL_RULES) -> Own | Retry:
    """Decide by the LIST after the claim whether the run owns the chain.

    Args:
        fence: The one that was won.
        above: Every entry that was listed above the fence; None for one that was collected before it was read.
        rules: All, except in the model check.

    Raises `FencedError` if a newer run has taken over since.
    """
    if not rules.list_after_claim:
        return Own(fence)
    newer = [entry for entry in above if entry is not None and entry.epoch > fence.epoch]
    if newer:
        raise FencedError(
            f"{owner_text(newer[0])} took over while this run was starting; "
            "let the newer run go on, or stop it before you start another",
            epoch=fence.epoch,
        )
    return Retry() if above else Own(fence)
