"""What the driver makes of the answers of a batch's tasks, around its commit; pure.

Invariants: I2 (what is committed is the summaries, one per partition; their tags are the winners), I10 (the work is in
proportion to the partitions of the batch, not to those of the log).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from varvite.changelog.commit.batch_result import BatchFacts, by_operator
from varvite.spark_integration.driver.operator_requests import operator_layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
    from varvite.spark_integration.messages.protocol import OperatorRequest
    from varvite.spark_integration.plan.input_watermarks import InputWatermarks
    from varvite.spark_integration.plan.job import JobPlan
    from varvite.storage.format.records import Commit


class BatchStamp(NamedTuple):
    """What of a batch is known before it is executed."""

    batch: int
    """Spark's number of it."""
    query_id: str
    source_hash: str
    """Of its end offsets, see `Commit.source_hash`."""
    time_ms: int
    """As the tasks are told it."""
    watermark_before_ms: int | None
    """The watermark that it begins with."""


def batch_facts(
    stamp: BatchStamp,
    requests: Sequence[OperatorRequest],
    summaries: Sequence[OperatorSummaries],
    watermark_ms: int | None,
    dropped: frozenset[str] = frozenset(),
) -> BatchFacts:
    """What is to be committed.

    Args:
        stamp: The batch.
        requests: Of the operators.
        summaries: Of each operator, in the same order.
        watermark_ms: Of the next batch.
        dropped: Operators whose state is given up.
    """
    return BatchFacts(
        batch=stamp.batch,
        query_id=stamp.query_id,
        source_hash=stamp.source_hash,
        time_ms=stamp.time_ms,
        watermark_ms=watermark_ms,
        watermark_before_ms=stamp.watermark_before_ms,
        operators=tuple(operator_layout(request, own) for request, own in zip(requests, summaries, strict=True)),
        results=tuple(chain.from_iterable(own.summaries for own in summaries)),
        dropped=dropped,
    )


def winners_of(commit: Commit | None) -> dict[str, tuple[str, ...]]:
    """By operator: the tag that won in each partition, in order; tells workers what is confirmed (I4)."""
    parts = by_operator(commit.parts) if commit else {}
    return {operator: tuple([part.tag for part in own]) for operator, own in parts.items()}


def next_watermark(
    base: Commit | None, plan: JobPlan, summaries: Sequence[OperatorSummaries], inputs: InputWatermarks
) -> int | None:
    """The watermark of the next batch: behind the largest event time of the job's input; it never goes back (I5).

    Of several inputs the one that is least far counts. `summaries` are those of the plan's operators, in order.
    """
    before = base.watermark_ms if base else None
    if not plan.operators or plan.input_ends:
        return before
    if plan.input_delays:
        reached = inputs.watermark_ms
    else:
        latest_ms = summaries[0].largest("event_time_max_ms")
        delay_ms = plan.watermark_delay_ms
        reached = None if delay_ms is None or latest_ms is None else latest_ms - delay_ms
    return max((time for time in (before, reached) if time is not None), default=None)
