"""A driver run's ownership of the chain: takes it over, chooses the base, appends commits. Thin I/O around decisions.

```python
job = open_or_create_job(store, name="flights", max_parallelism=128, clock=clock, tokens=tokens)
chain = ChainOwner(ChainReader(store, job.job_id), job.max_parallelism, clock, tokens)
chain.take_over()  # before query.start()
decision = chain.choose_base(spark, sink)  # in the first foreachBatch
state = chain.begin(decision, policy)
plan = plan_commit(state, facts, policy, tokens.token())
sent_s = chain.append(plan)  # durable, or FencedError
chain.still_owner(sent_s)  # before and after the sink
state = state.after(plan.stored, policy, plan.carried_over)
```

Invariants: I1 (a plan counts only when `append` has returned), I6 (lost slot, or a late reply and the next slot taken:
`FencedError`), I11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from varvite.changelog.chain.reader import head_seq
from varvite.changelog.chain.retention_bounds import bounds_of
from varvite.changelog.commit import state as chain_state
from varvite.changelog.commit.base_decision import (
    Adopt,
    ChainProgress,
    Execute,
    RestoreRequest,
    SinkCommit,
    SparkProgress,
    decide_base,
    needs_parent,
)
from varvite.changelog.commit.start_decision import Own, decide_ownership, owner_text, plan_fence
from varvite.storage.errors import (
    CorruptDataError,
    DidNotHappenError,
    FencedError,
    InvariantError,
    MissingObjectError,
    VarviteError,
)
from varvite.storage.format import layout
from varvite.storage.format.frame import PREFIX_BYTES
from varvite.storage.format.records import ORIGIN, Fence, Link, decode_entry, encode_entry
from varvite.storage.transfer.claim import claim

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.changelog.chain.reader import ChainReader
    from varvite.changelog.commit.plan import CommitPlan
    from varvite.changelog.commit.state import ChainState, CommitPolicy
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import Commit
    from varvite.storage.transfer.claim import Claim
    from varvite.storage.transfer.hedged_claim import HedgedClaims

OWNER_CHECK_AFTER_S: Final = 5.0
"""If more time has passed since a PUT was sent, the owner checks that the next slot is still free."""
TAKE_OVER_TRIES: Final = 64
"""Claims of a fence before giving up; each lost one means that another writer wrote an entry."""
TAKE_OVER_PAUSE_S: Final = 0.02
"""The longest backoff between two tries, in seconds; it grows up to this."""


class ChainOwner:
    """One run's chain; for one thread at a time. A run that failed must be followed by a new `ChainOwner`."""

    def __init__(
        self,
        reader: ChainReader,
        max_parallelism: int,
        clock: Clock,
        tokens: TokenSource,
        begins_after: int = 0,
        claims: HedgedClaims | None = None,
    ) -> None:
        """`claims` is used for commits, where a second request is to join one that hangs."""
        self.by = ""
        """The process, for people: its fences say it."""
        self._reader = reader
        self._store = reader.store
        self._max_parallelism = max_parallelism
        self._begins_after = begins_after
        self._clock = clock
        self._tokens = tokens
        self._claims = claims
        self._fence: Fence | None = None
        self._last_seq = 0
        self._is_unclear = False
        self._commits: dict[Link, Commit] = {}
        """Commits that the start has read."""
        self._restore: RestoreRequest | None = None

    @property
    def reader(self) -> ChainReader:
        """For reading the same chain."""
        return self._reader

    @property
    def fence(self) -> Fence:
        """This run's fence. Raises `InvariantError` before `take_over`."""
        if self._fence is None:
            raise InvariantError("the chain was not taken over")
        return self._fence

    def take_over(self, restore: int | Callable[[], int] | None = None, *, chosen_ahead: bool = False) -> Fence:
        """Become the chain's owner (START): every older run loses the next slot.

        Args:
            restore: Seq of a commit from which the operator explicitly starts a new query; or a function that reads the
                chain and chooses one. It is called again if another entry was written in between, so that the choice
                is of the chain that the fence stands on.
            chosen_ahead: The choice is for the runs that follow this one, see `plan_fence`.

        Raises:
            FencedError: a newer run took over meanwhile.
            DidNotHappenError: other writers were faster every time.
        """
        for number in range(TAKE_OVER_TRIES):
            if number:
                self._clock.sleep(TAKE_OVER_PAUSE_S * min(number, 8) / 8)
            fence = self._claim_fence(restore, chosen_ahead=chosen_ahead)
            if fence is None:
                continue
            decision = decide_ownership(fence, self._reader.read_all(self._reader.list_seqs(fence.seq)))
            if isinstance(decision, Own):
                self._fence, self._last_seq, self._restore = fence, fence.seq, None
                return fence
        raise DidNotHappenError(f"the chain could not be taken over in {TAKE_OVER_TRIES} tries; stop the other writers")

    def newest(self) -> Commit | None:
        """The newest commit on the line of this run's fence; None without any. Raises as `ChainReader.read_commit`."""
        return self._commit(self.fence.commit)

    def parent_of(self, commit: Commit) -> Commit | None:
        """The commit that a commit was executed on; None if it is the first. Raises as `ChainReader.read_commit`."""
        return self._commit(commit.parent)

    def find_parent(self, commit: Commit) -> Commit | None:
        """The same; None also if it is gone or damaged."""
        try:
            return self.parent_of(commit)
        except CorruptDataError:  # a missing object is one, too
            return None

    def restore_request(self) -> RestoreRequest | None:
        """The operator's choice of a commit to start from; None without one."""
        seq = self.fence.restore
        if seq is not None and self._restore is None:
            self._restore = RestoreRequest(seq, self._reader.find_commit(seq), self.fence.chosen_ahead)
        return self._restore

    def _commit(self, link: Link) -> Commit | None:
        """A commit, which is read once."""
        if link == ORIGIN:
            return None
        if link not in self._commits:
            self._commits[link] = self._reader.read_commit(link).commit
        return self._commits[link]

    def choose_base(self, spark: SparkProgress, sink: SinkCommit | None = None) -> Execute | Adopt:
        """Read what BASE needs and decide; errors as `decide_base` and `ChainReader.read_commit`."""
        fence, newest = self.fence, self.newest()
        parent = self.parent_of(newest) if newest is not None and needs_parent(spark, newest) else None
        restore = self.restore_request()
        try:
            return decide_base(spark, ChainProgress(newest, parent, bounds_of(fence)), sink, restore)
        except VarviteError as error:
            raise error.with_context(epoch=fence.epoch) from None

    def begin(self, decision: Execute | Adopt, policy: CommitPolicy) -> ChainState:
        """The state from which the run continues: the executed batch's base, or the adopted commit."""
        line = self._reader.load_line(base_link(decision), self._max_parallelism)
        # A run of few batches would never know as many commits as are retained, and so never raise the cut.
        older = self._reader.retained_before(line, policy.retained - len(line.commits), bounds_of(self.fence))
        self._commits.clear()
        return chain_state.begin(self.fence, line.view, line.commits, policy, older)

    def append(self, plan: CommitPlan) -> float:
        """Put the planned entry at its slot; when this returns, it is durable and this run's.

        Returns:
            The monotonic time of the first request, for `still_owner`.

        Raises:
            FencedError: another run has the slot.
            DidNotHappenError, MayHaveHappenedError: the storage failed; this run is over, and a new one must take over.
        """
        return self.append_entry(plan.commit, plan.body)

    def append_entry(self, commit: Commit, body: bytes) -> float:
        """Append a commit that was not made by `plan_commit`; otherwise as `append`."""
        if self._is_unclear or (commit.epoch, commit.seq) != (self.fence.epoch, self._last_seq + 1):
            raise InvariantError(
                f"commit {commit.seq} does not follow entry {self._last_seq} of this run, or that entry failed",
                epoch=self.fence.epoch,
                batch=commit.batch,
            )
        sent_s = self._clock.monotonic_s()
        self._is_unclear = True
        outcome = self._claim_commit(layout.chain(commit.seq), body, commit.token)
        if not outcome.won:
            raise self._fenced(commit.seq, outcome.body)
        self._is_unclear = False
        self._last_seq = commit.seq
        return sent_s

    def _claim_commit(self, name: str, body: bytes, token: str) -> Claim:
        if self._claims is not None:
            return self._claims.claim(name, body, token)
        return claim(self._store, name, body, token, self._clock)

    def still_owner(self, since_s: float) -> None:
        """Raise `FencedError` if more than 5 s passed since `since_s` and another run has this run's next slot.

        Call it after `append` and before and after the sink, with the time that `append` returned: a run that was
        stopped for long must not call the sink again (I6).
        """
        if self._clock.monotonic_s() - since_s > OWNER_CHECK_AFTER_S:
            self.check_owner()

    def check_owner(self) -> None:
        """Raise `FencedError` if another run has this run's next slot, however little time has passed."""
        name = layout.chain(max(self._last_seq, self.fence.seq) + 1)
        try:
            self._store.get_range(name, 0, PREFIX_BYTES)
        except MissingObjectError:
            return
        raise self._fenced(self._last_seq + 1, self._store.get(name))

    def _claim_fence(self, restore: int | Callable[[], int] | None, *, chosen_ahead: bool) -> Fence | None:
        """List the chain, read its head and claim the slot above it; None if the slot or the head is gone."""
        seq = head_seq(self._reader.list_seqs())
        head = self._reader.read_all([seq])[0] if seq else None
        if seq and head is None:
            return None
        fence = plan_fence(
            head,
            job_id=self._reader.job_id,
            token=self._tokens.token(),
            now_ms=self._clock.now_ms(),
            restore=restore() if callable(restore) else restore,
            chosen_ahead=chosen_ahead,
            begins_after=self._begins_after,
            by=self.by,
        )
        outcome = claim(self._store, layout.chain(fence.seq), encode_entry(fence), fence.token, self._clock)
        return fence if outcome.won else None

    def _fenced(self, seq: int, body: bytes | None) -> VarviteError:
        name = layout.chain(seq)
        try:
            entry = decode_entry(body, name)[0] if body else None
        except CorruptDataError as error:
            return CorruptDataError(
                "this run's next name in the chain is taken by an object that is no entry: it is damaged, or something "
                "else writes there. This run has stopped; see `varvite verify JOB --repair` before the job is started "
                f"again ({error.message})",
                epoch=self.fence.epoch,
                object_name=name,
            )
        return FencedError(
            f"{owner_text(entry)} took over at seq {seq}; this run must stop and not retry",
            epoch=self.fence.epoch,
            object_name=name,
        )


def base_link(decision: Execute | Adopt) -> Link:
    """The commit from which the state continues; `ORIGIN` for the empty beginning."""
    base = decision.commit if isinstance(decision, Adopt) else decision.base
    return base.link if base else ORIGIN
