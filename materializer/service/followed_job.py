"""A job that exists, with the collaborators that belong to its id. Another job of the same name has others.

Invariant: I7 (what is deleted follows from what is stored, not from what was read once).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from varvite.changelog.chain.reader import ChainReader
from varvite.changelog.retention.collector import Collector
from varvite.materializer.fold.base_sizes import BaseSizes
from varvite.materializer.fold.chain_view import ChainFollower
from varvite.materializer.fold.range_fold import RangeMaterializer
from varvite.materializer.resources.bandwidth import ThrottledReads
from varvite.materializer.resources.interruptible_store import InterruptibleStore
from varvite.materializer.resources.recent_entries import RecentEntries
from varvite.materializer.service.retention import Retention

if TYPE_CHECKING:
    from varvite.materializer.service.context import MaterializerContext
    from varvite.storage.format.records import JobRecord
    from varvite.storage.object_stores.contract import ObjectStore


class FollowedJob(NamedTuple):
    """A job's record, and what works on that job."""

    record: JobRecord
    chain: ChainFollower
    bases: BaseSizes
    ranges: RangeMaterializer
    retention: Retention
    collector: Collector


def follow(name: str, record: JobRecord, store: ObjectStore, context: MaterializerContext) -> FollowedJob:
    """Begin to follow a job; `store` is rooted at `<root>/<job>`. Nothing is read yet."""
    announced, grace_s = context.announcements, context.config.grace_ms / 1_000
    recent = RecentEntries(store, announced.begin())
    bulk = store if context.bandwidth is None else ThrottledReads(store, context.bandwidth)
    reader = ChainReader(InterruptibleStore(recent, context.stop), record.job_id)
    stored = ChainReader(InterruptibleStore(store, context.stop), record.job_id)
    return FollowedJob(
        record,
        ChainFollower(reader, record.max_parallelism, context.clock, announced.may_exist),
        BaseSizes(stored.store, record.job_id),
        RangeMaterializer(name, record.job_id, InterruptibleStore(recent.above(bulk), context.stop), context),
        Retention(reader, context.config.retention_ms, context.clock, context.tokens),
        Collector(stored, context.clock, context.tokens, grace_s, kinds=reader),
    )
