"""The chain as a driver run keeps it in memory between two batches: a frozen value, replaced at each commit.

Invariants: I6 (the next slot is the one after this run's own last entry), I7 (`keep_from` and floors only rise), I10
(the log since the last full entry is counted, so that the next one is written in time).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from varvite.changelog.chain.retention_bounds import Retained
from varvite.changelog.chain.segment_index import SegmentIndex
from varvite.changelog.chain.view import CarriedOver, LineView, StoredCommit, advance
from varvite.changelog.commit.batch_result import INLINE_BYTES_MAX
from varvite.changelog.commit.options import FULL_EVERY, PATH_MAX, RETAINED_MIN
from varvite.changelog.commit.pack import packable_of
from varvite.storage.errors import InvalidRequestError, InvariantError
from varvite.storage.format.records import ORIGIN, RANGE_OF, Commit, Fence, SegmentRef, SnapshotFloor

if TYPE_CHECKING:
    from collections.abc import Sequence

REFERENCES_MAX: Final = 1 << 16
"""References after a full entry from which on the next one is due. Each takes some 300 bytes of the driver's memory,
and thousands of partitions must not fill it (I10)."""
ADOPTED_PART: Final = 0.1
"""Share of the key groups of all operators; adopted snapshots of so many are worth a full entry at once."""


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """The limits that keep the chain short."""

    retained: int = RETAINED_MIN
    """Number of commits of the line that stay complete, the newest included; at least 2."""
    full_every: int = FULL_EVERY.default
    """A full entry is due after this many commits since the last one. If a snapshot was adopted since, it is due after
    a quarter of them (rounded down, at least one); if snapshots of `ADOPTED_PART` of the state were, with the next
    commit. Only then can bases be deleted that the last full entry names."""
    pack_bytes: int = 8 << 20
    """A full entry is also due when this many inline bytes have accumulated. The driver keeps them in memory until
    then, those of the last batch besides, and all twice while it packs them. Bytes above that, if packs fail, are read
    back."""
    inline_max_bytes: int = INLINE_BYTES_MAX
    """Limit of a batch's segments and images in the entry itself; above it they are gathered in an object."""
    path_max: int = PATH_MAX
    """A full entry is written after this many commits even without a pack. It then names inline segments in place, so
    it may be too large, and its commit waits for the pack. Above this number the path grows only while a full entry is
    too large and snapshots are adopted."""

    def __post_init__(self) -> None:
        if self.retained < RETAINED_MIN:
            raise InvalidRequestError(f"{self.retained} retained checkpoints are too few: keep at least {RETAINED_MIN}")
        if not 1 <= self.full_every <= self.path_max:
            raise InvalidRequestError(f"full_every is {self.full_every}: choose 1 to path_max ({self.path_max})")
        if self.pack_bytes < 1:
            raise InvalidRequestError(f"pack_bytes is {self.pack_bytes}: choose 1 or more")

    @property
    def full_soon(self) -> int:
        """The quarter of `full_every`."""
        return max(1, self.full_every // 4)


@dataclass(frozen=True, slots=True)
class ChainState:
    """A driver run's place in the chain."""

    job_id: str
    epoch: int
    last_seq: int
    """The last entry that this run wrote: its fence or its last commit."""
    keep_from: int
    retained_from: int
    floors: tuple[SnapshotFloor, ...]
    base: Commit | None
    """The commit that the next batch is executed on."""
    view: LineView
    """The view of `base`."""
    retained: tuple[Retained, ...]
    """The newest known commits of the line, oldest first, at most as many as the policy retains."""
    index: SegmentIndex = field(repr=False, compare=False)
    """Of the view's segments."""
    adopted_key_groups: int = 0
    """Key groups, of all operators, whose snapshots were adopted since the newest full entry."""
    log_commits: int = 0
    """Commits, or packed runs of them, whose segments a restore replays."""
    put_off_to: int = 0
    """Retry a full entry that was too large after this many commits since the newest full entry."""

    @property
    def slot(self) -> int:
        """The slot of the next entry."""
        return self.last_seq + 1

    @property
    def commits_since_full(self) -> int:
        """Commits after the newest full entry, up to the base."""
        return len(self.view.path)

    @property
    def packable_bytes(self) -> int:
        """Bytes of segments in the view that are still slices of chain entries."""
        return self.index.inline_bytes()

    def packable(self) -> tuple[SegmentRef, ...]:
        """The view's segments that a pack would take up."""
        return tuple(packable_of(self.view.segments))

    def is_full_due(self, policy: CommitPolicy) -> bool:
        """Tell whether the next entry should be full. If anything is packable, a pack for `slot` is then prepared."""
        if self.must_be_full(policy) or self.base is None:
            return True
        if self.commits_since_full + 1 < self.put_off_to:
            return False
        return (
            self.commits_since_full + 1 >= self._full_after(policy, len(self.base.operators))
            or self.commits_since_full * len(self.base.parts) >= REFERENCES_MAX
            or self.packable_bytes >= policy.pack_bytes
        )

    def must_be_full(self, policy: CommitPolicy) -> bool:
        """Tell whether the next entry is full even without a pack."""
        return self.base is None or self.commits_since_full + 1 >= policy.path_max

    def _full_after(self, policy: CommitPolicy, operators: int) -> int:
        """Number of commits between two full entries in a job with so many operators."""
        if not self.adopted_key_groups:
            return policy.full_every
        if self.adopted_key_groups >= ADOPTED_PART * self.view.max_parallelism * operators:
            return 1
        return policy.full_soon

    def after(
        self, stored: StoredCommit, policy: CommitPolicy, carried: CarriedOver, *, put_off: bool = False
    ) -> ChainState:
        """The state once `stored`, planned from this state, is durable; `carried` and `put_off` are the plan's."""
        commit = stored.commit
        if (commit.seq, commit.epoch) != (self.slot, self.epoch):
            raise InvariantError(f"commit {commit.seq} is not the next of run {self.epoch}", epoch=self.epoch)
        view = advance(self.view, stored, carried)
        index = (carried.segment_index or self.index).extended(view.segments[len(carried.segments) :])
        has_kept_all = not commit.is_full and carried.segments is self.view.segments  # then the log need not be counted
        has_added = len(view.segments) > len(carried.segments)
        log_commits = self.log_commits + has_added if has_kept_all else index.count_commits()
        return replace(
            self,
            last_seq=commit.seq,
            keep_from=commit.keep_from,
            retained_from=commit.retained_from,
            floors=commit.floors,
            base=commit,
            view=view,
            retained=(*self.retained, Retained(commit.seq, commit.needs_from))[-policy.retained :],
            index=index,
            log_commits=log_commits,
            put_off_to=self._put_off_to(policy, put_off=put_off, is_full=commit.is_full),
            adopted_key_groups=0 if commit.is_full else self.adopted_key_groups + _adopted_key_groups(commit),
        )

    def _put_off_to(self, policy: CommitPolicy, *, put_off: bool, is_full: bool) -> int:
        """`put_off_to` after a commit. To plan an entry that is too large costs much, so it is not retried at once."""
        if put_off:
            return self.commits_since_full + 1 + policy.full_soon
        return 0 if is_full else self.put_off_to


def begin(
    fence: Fence, view: LineView, commits: Sequence[Commit], policy: CommitPolicy, older: Sequence[Retained] = ()
) -> ChainState:
    """The state of a run that owns `fence` and starts from the view's base.

    Args:
        fence: The run's own fence.
        view: The base's view, or the empty one.
        commits: The newest commits of the base's line that are known, oldest first, the base last; empty without base.
        policy: How many commits are retained.
        older: The commits before these, as far as they are complete and retained, oldest first.
    """
    base = commits[-1] if commits else None
    index = SegmentIndex.of(view.segments)
    if (base.link if base else ORIGIN) != view.base:
        raise InvariantError(f"the view is of commit {view.base.seq}, not of the chosen base", epoch=fence.epoch)
    return ChainState(
        job_id=fence.job_id,
        epoch=fence.epoch,
        last_seq=fence.seq,
        keep_from=fence.keep_from,
        retained_from=fence.retained_from,
        floors=tuple(sorted(fence.floors, key=RANGE_OF)),
        base=base,
        view=view,
        retained=(*older, *(Retained(c.seq, c.needs_from) for c in commits))[-policy.retained :],
        index=index,
        log_commits=index.count_commits(),
        adopted_key_groups=sum(_adopted_key_groups(c) for c in commits if c.seq > view.full.seq),
    )


def _adopted_key_groups(commit: Commit) -> int:
    """Key groups whose snapshots a commit that is not full adopts."""
    return sum(tile.high - tile.low for tile in commit.tiles if tile.snapshot is not None)
