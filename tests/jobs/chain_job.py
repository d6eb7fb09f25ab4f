"""A job on a memory store for tests of the chain: drivers that commit what they are told, with readable tokens."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tests.stores.manual_clock import ManualClock
from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.commit.base_decision import Adopt, Execute, SinkCommit, SparkProgress
from varvite.changelog.commit.batch_result import BatchFacts, PartitionResult, entry_time
from varvite.changelog.commit.ownership import ChainOwner
from varvite.changelog.commit.plan import NOTHING_ADOPTED, Adoption, CommitPlan, plan_commit
from varvite.changelog.commit.state import CommitPolicy
from varvite.storage.format.records import OperatorLayout
from varvite.storage.job.record import open_or_create_job
from varvite.storage.object_stores.memory import MemoryStore

if TYPE_CHECKING:
    from varvite.changelog.commit.pack import Pack
    from varvite.storage.object_stores.contract import ObjectStore

MAX_PARALLELISM = 8
OPERATOR = "op"


class CountingTokens:
    """Tokens that tell their number: 32 hex digits, never the same twice."""

    def __init__(self, start: int = 1) -> None:
        self._numbers = itertools.count(start)

    def token(self) -> str:
        return f"{next(self._numbers):032x}"


def layout_of(parallelism: int, uid: str = OPERATOR, *, changelog: bool = True) -> OperatorLayout:
    return OperatorLayout(uid=uid, parallelism=parallelism, key_type="string", changelog=changelog, backend="hashmap")


def ranges(parallelism: int, max_parallelism: int = MAX_PARALLELISM) -> list[tuple[int, int]]:
    """Key groups of each partition: partition = key group * parallelism // max_parallelism."""
    bounds = [-(-p * max_parallelism // parallelism) for p in range(parallelism + 1)]
    return list(itertools.pairwise(bounds))


def results_of(data: list[bytes], tag: str = "t", operator: str = OPERATOR) -> tuple[PartitionResult, ...]:
    """One result per partition, with these inline segments."""
    return tuple(
        PartitionResult(operator=operator, partition=p, low=low, high=high, tag=tag, inline=inline)
        for p, ((low, high), inline) in enumerate(zip(ranges(len(data)), data, strict=True))
    )


class Driver:
    """A driver run: takes over, then commits batches as Spark would ask for them."""

    def __init__(self, job: ChainJob, *, restore: int | None = None, query_id: str = "q") -> None:
        self.job = job
        self.query_id = query_id
        self.chain = ChainOwner(job.reader, MAX_PARALLELISM, job.clock, job.tokens)
        self.chain.take_over(restore)
        self.sent_s = 0.0

    def progress(self, batch: int) -> SparkProgress:
        previous = self.job.source_hash(batch - 1) if batch else None
        return SparkProgress(batch, self.query_id, self.job.source_hash(batch), previous)

    def start(self, batch: int, sink: SinkCommit | None = None) -> Execute | Adopt:
        decision = self.chain.choose_base(self.progress(batch), sink)
        self.state = self.chain.begin(decision, self.job.policy)
        return decision

    def facts(self, batch: int, results: tuple[PartitionResult, ...]) -> BatchFacts:
        uids = dict.fromkeys(r.operator for r in results)
        return BatchFacts(
            batch=batch,
            query_id=self.query_id,
            source_hash=self.job.source_hash(batch),
            time_ms=entry_time(self.state.base, self.job.clock.now_ms()),
            watermark_ms=None,
            operators=tuple(layout_of(sum(r.operator == uid for r in results), uid) for uid in uids),
            results=results,
        )

    def plan(
        self,
        batch: int,
        results: tuple[PartitionResult, ...],
        adoption: Adoption = NOTHING_ADOPTED,
        pack: Pack | None = None,
    ) -> CommitPlan:
        return plan_commit(
            self.state, self.facts(batch, results), self.job.policy, self.job.tokens.token(), adoption, pack
        )

    def commit(
        self,
        batch: int,
        results: tuple[PartitionResult, ...] | None = None,
        adoption: Adoption = NOTHING_ADOPTED,
        pack: Pack | None = None,
    ) -> CommitPlan:
        plan = self.plan(batch, results_of([b"x", b"y"]) if results is None else results, adoption, pack)
        self.sent_s = self.chain.append(plan)
        self.state = self.state.after(plan.stored, self.job.policy, plan.carried_over, put_off=bool(plan.put_off))
        return plan


class ChainJob:
    """A new job on a store of its own."""

    def __init__(self, policy: CommitPolicy | None = None, store: ObjectStore | None = None) -> None:
        self.policy = policy or CommitPolicy()
        self.clock = ManualClock()
        self.tokens = CountingTokens()
        self.store: ObjectStore = store or MemoryStore(clock=self.clock)
        self.record = open_or_create_job(
            self.store, name="job", max_parallelism=MAX_PARALLELISM, clock=self.clock, tokens=self.tokens
        )
        self.reader = ChainReader(self.store, self.record.job_id)

    def source_hash(self, batch: int) -> str:
        return f"offsets-{batch}"

    def driver(self, batch: int | None = None, *, restore: int | None = None, query_id: str = "q") -> Driver:
        """A run that has taken over, and asked for the base of `batch` if that is given."""
        driver = Driver(self, restore=restore, query_id=query_id)
        if batch is not None:
            driver.start(batch)
        return driver
