"""One driver run of a job on its storage: takes over, chooses the base, commits batch after batch.

It is independent of Spark, so that simulations can drive it.

Invariants: I1 (`commit` returns only when the entry is durable), I6 (`FencedError` ends the run), I7 (only published
snapshots that pass the adoption rules are adopted), I11 (`choose_base`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from varvite.changelog.chain.invariants import check_commit, is_check_wanted
from varvite.changelog.chain.reader import ChainReader, newest_commit
from varvite.changelog.commit.gathered_segments import gather
from varvite.changelog.commit.import_plan import GoOn, UseImport, check_slot, decide_import, plan_import, source_of
from varvite.changelog.commit.ownership import ChainOwner
from varvite.changelog.commit.pack_upload import PackUpload
from varvite.changelog.commit.plan import NOTHING_ADOPTED, Adoption, adopts_now, plan_commit
from varvite.changelog.commit.start_decision import next_restore
from varvite.storage.errors import InvariantError
from varvite.storage.fail_point import fail_point
from varvite.storage.format import layout
from varvite.storage.job.record import open_or_create_job
from varvite.storage.transfer.hedged_claim import HedgedClaims, is_hedged
from varvite.storage.transfer.upload import Uploader, UploadPolicy, UploadResources

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.changelog.chain.view import LineView
    from varvite.changelog.commit.base_decision import Adopt, Execute, SinkCommit, SparkProgress
    from varvite.changelog.commit.batch_result import BatchFacts
    from varvite.changelog.commit.import_plan import CopiedState
    from varvite.changelog.commit.state import ChainState, CommitPolicy
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import Commit, Fence, JobRecord, JobStorage, SnapshotFloor
    from varvite.storage.object_stores.contract import ObjectStore

    AdoptionSource = Callable[[LineView, tuple[SnapshotFloor, ...]], Adoption]

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A commit that is durable."""

    commit: Commit
    sent_s: float
    """Monotonic time at which it was sent, for `still_owner`."""
    body: bytes
    """The entry as it was written."""
    pack_bytes: int
    """Size of the pack that the commit names as new; 0 without one."""
    gathered_bytes: int = 0
    """Size of the object of gathered segments; 0 without one."""

    @property
    def entry_bytes(self) -> int:
        """Size of the entry."""
        return len(self.body)


class NewJob(NamedTuple):
    """Fields of the `JobRecord` that are set when a job is created."""

    begins_after: int = 0
    cloned_from: str | None = None
    storage: JobStorage | None = None


NOTHING_NEW: Final = NewJob()


def nothing_to_adopt(_view: LineView, _floors: tuple[SnapshotFloor, ...]) -> Adoption:
    """The adoption source of a run without a materializer."""
    return NOTHING_ADOPTED


class JobRun:
    """One driver run. For one thread; a run that raised an error is over."""

    def __init__(
        self,
        store: ObjectStore,
        record: JobRecord,
        policy: CommitPolicy,
        clock: Clock,
        tokens: TokenSource,
        uploads: UploadPolicy | None = None,
    ) -> None:
        """`uploads` are the limits of what the driver itself uploads."""
        self.store = store
        self.record = record
        self._policy = policy
        self._clock = clock
        self._tokens = tokens
        self.reader = ChainReader(store, record.job_id)
        self._claims = HedgedClaims(store, clock) if is_hedged(store.url) else None
        self._chain = ChainOwner(self.reader, record.max_parallelism, clock, tokens, record.begins_after, self._claims)
        self._uploads = uploads or UploadPolicy()
        self._upload_resources = UploadResources(self._uploads)
        self._packs = PackUpload(store, tokens, policy)
        self._state: ChainState | None = None
        self._sent_s: float | None = None
        self._checks_invariants = is_check_wanted()

    @classmethod
    def open(
        cls,
        store: ObjectStore,
        name: str,
        max_parallelism: int,
        policy: CommitPolicy,
        clock: Clock,
        tokens: TokenSource,
        *,
        new: NewJob = NOTHING_NEW,
        uploads: UploadPolicy | None = None,
    ) -> JobRun:
        """Begin a run of a job, which is created if it is new; `store` is rooted at `<root>/<job>`.

        `new` is for a job that does not exist yet, `uploads` are the limits of what the driver itself uploads.

        Raises `IncompatibleError` if the job exists with another max_parallelism.
        """
        record = open_or_create_job(
            store,
            name=name,
            max_parallelism=max_parallelism,
            clock=clock,
            tokens=tokens,
            begins_after=new.begins_after,
            cloned_from=new.cloned_from,
            storage=new.storage,
        )
        return cls(store, record, policy, clock, tokens, uploads)

    def name_process(self, by: str) -> None:
        """Let the run's fences say which process it is."""
        self._chain.by = by

    @property
    def state(self) -> ChainState:
        """The run's place in the chain. Raises `InvariantError` before a base was chosen."""
        if self._state is None:
            raise InvariantError("no base was chosen yet", job=self.record.name)
        return self._state

    @property
    def has_base(self) -> bool:
        """Tell whether `choose_base` has returned."""
        return self._state is not None

    @property
    def chain(self) -> ChainOwner:
        """The chain, as this run owns it."""
        return self._chain

    @property
    def fence(self) -> Fence:
        """This run's fence."""
        return self._chain.fence

    def take_over(self, restore: str | int | None = None) -> Fence:
        """Fence every older run off.

        Args:
            restore: "latest", or the seq of a commit, that a new query is to start from; None: an ordinary start.
        """
        if restore == layout.LATEST:
            newest = newest_commit(self.reader.head())
            return self._chain.take_over(newest.seq or None)
        return self._chain.take_over(None if restore is None else int(restore))

    def start_from(
        self,
        source: Commit,
        query_id: str | None,
        copy: Callable[[int], CopiedState],
        *,
        chosen_ahead: bool = False,
    ) -> Fence:
        """Fence every older run off, and start a new query from the state of `source`, unless it goes on already.

        Args:
            source: A commit, of whichever job.
            query_id: Of Spark's checkpoint location; None for a new one.
            copy: Copies the state into objects of the slot that it is given.
            chosen_ahead: It is a run that follows that starts, see `plan_fence`. So an operator's command says, which
                copies anew even if a copy is there: it may have been given because something of that one is damaged.

        Raises:
            LineageError: the job has a state of another origin.
            InvalidRequestError: the job's chain is behind the source's numbers.
        """
        fence = self._chain.take_over()
        if next_restore(fence) is not None and not chosen_ahead:
            return fence
        newest = self.reader.newest_under(fence)
        decision = decide_import(newest, source_of(source), self.record.job_id, query_id)
        if isinstance(decision, GoOn):
            return fence
        seq = decision.seq if isinstance(decision, UseImport) and not chosen_ahead else self._import(source, copy)
        return self._chain.take_over(seq, chosen_ahead=chosen_ahead)

    def _import(self, source: Commit, copy: Callable[[int], CopiedState]) -> int:
        """Copy the state, append the entry that names it, and return its seq."""
        fence = self._chain.fence
        check_slot(fence, source)
        copied = copy(fence.seq + 1)
        plan = plan_import(fence, source, copied, self._tokens.token())
        self._chain.append_entry(plan.commit, plan.body)
        return plan.commit.seq

    def choose_base(self, spark: SparkProgress, sink: SinkCommit | None) -> Execute | Adopt:
        """Decide the commit that the run's first batch is executed on; errors as `decide_base`."""
        decision = self._chain.choose_base(spark, sink)
        self._state = self._chain.begin(decision, self._policy)
        self._packs.start(self._state)
        return decision

    def commit(self, facts: BatchFacts, token: str, adoption: AdoptionSource = nothing_to_adopt) -> Acknowledged:
        """Make an executed batch durable; `token` is fresh and names the commit.

        Raises:
            FencedError: another run has the slot; the batch does not count.
            DidNotHappenError, MayHaveHappenedError: the storage failed; start a new run.
            InvalidRequestError, InvariantError: see `plan_commit`; nothing was written.
        """
        state = self.state
        pack = self._packs.take(state)
        facts, gathered_bytes = self._upload_gathered(facts, state.slot)
        adopted = adoption(state.view, state.floors) if adopts_now(state, pack) else NOTHING_ADOPTED
        plan = plan_commit(state, facts, self._policy, token, adopted, pack, pack_failure=self._packs.failure)
        fail_point("driver.before_commit")
        self._sent_s = self._chain.append(plan)
        fail_point("driver.after_commit")
        self._state = state.after(plan.stored, self._policy, plan.carried_over, put_off=bool(plan.put_off))
        if self._checks_invariants:
            check_commit(plan.commit, state.base, self.state.view)
        if plan.put_off:
            _log.warning("no full entry: %s; run the materializer, or the job will fail", plan.put_off)
        self._packs.remember(plan.stored, plan.body)
        self._chain.still_owner(self._sent_s)
        pack_bytes = pack.size_bytes if pack is not None and plan.commit.is_full else 0
        return Acknowledged(plan.commit, self._sent_s, plan.body, pack_bytes, gathered_bytes)

    def _upload_gathered(self, facts: BatchFacts, slot: int) -> tuple[BatchFacts, int]:
        """Upload inline segments that are too much for the entry as one object, which is durable afterwards (I1).

        Returns the facts, which name the object, and its size in bytes.
        """
        gathered = gather(
            facts.results,
            slot=slot,
            job_id=self.record.job_id,
            token=self._tokens.token,
            inline_max_bytes=self._policy.inline_max_bytes,
        )
        if gathered is None:
            return facts, 0
        with Uploader(self.store, self._clock, self._uploads, resources=self._upload_resources) as uploader:
            upload = uploader.submit_bytes(gathered.name, gathered.body)
        upload.result()
        return msgspec.structs.replace(facts, results=gathered.results), len(gathered.body)

    def batch_done(self) -> None:
        """Prepare the next commit, now that the batch and its sink are finished."""
        self._packs.start(self.state)

    def still_owner(self) -> None:
        """Raise `FencedError` if much time has passed since the last commit and another run took over (I6)."""
        if self._sent_s is not None:
            self._chain.still_owner(self._sent_s)

    def close(self) -> None:
        """End background work; the chain needs no closing entry."""
        self._packs.close()
        self._upload_resources.close()
        if self._claims is not None:
            self._claims.close()
