"""The checkpoint that `varvite restore` sets a job back to, and the batches that Spark must forget for it; pure.

Spark's checkpoint location may be missing, ahead of the state or behind it. State and location fit together at a
checkpoint if it was made by the location's query, from the offsets that the location has for its batch, and if Spark
has acknowledged that batch. Then the location can be set back to it, and the next batch is the one after. If the
checkpoint has the position of its input, the query alone counts: the next start makes the location from it.

Invariants: I11 (a mismatch is an error, never a guess).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varvite.changelog.commit.base_decision import same_input
from varvite.storage.errors import LineageError, StateMissingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varvite.changelog.chain.retention_bounds import RetentionBounds
    from varvite.changelog.retention.pins import Retention
    from varvite.storage.format.records import Commit


@dataclass(frozen=True, slots=True)
class SparkLocation:
    """The progress in Spark's checkpoint location."""

    query_id: str | None
    """None: Spark has never started a query there."""
    hashes: Mapping[int, str]
    """Batch → identity of its input, see `same_input`, for all batches that were planned and not purged."""
    acknowledged: frozenset[int]

    @property
    def is_new(self) -> bool:
        """Does it hold nothing of a query?"""
        return self.query_id is None and not self.hashes and not self.acknowledged

    def begins(self, commit: Commit, newest: Commit) -> bool:
        """Does another query than the commit's begin there at batch 0, which may have been planned?

        Not if the newest commit is of it, and has the position of its input: then Spark may write its logs rarely.
        """
        has_begun = newest.position is not None and newest.query_id == self.query_id
        is_new = not self.acknowledged and max(self.hashes, default=0) == 0 and not has_begun
        return self.query_id is None or (is_new and self.query_id != commit.query_id)


@dataclass(frozen=True, slots=True)
class RequestedCheckpoint:
    """The checkpoint that the user requests; with neither field: the newest that fits."""

    seq: int | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The checkpoint to restore, and the batches to forget."""

    commit: Commit
    forget_above: int | None = None
    """Spark must forget the batches above this one; None: the location stays as it is."""
    begins_anew: bool = False
    """A new query begins with it at batch 0."""


def decide_restore(
    line: Sequence[Commit],
    kept: RetentionBounds | Retention,
    spark: SparkLocation | None,
    requested: RequestedCheckpoint,
) -> RestorePlan:
    """Choose the checkpoint.

    Args:
        line: The commits to choose from, the newest first.
        kept: Retention bounds of the head, perhaps with the pins: they say which commits are complete.
        spark: Spark's checkpoint location; None if it stays untouched.
        requested: The user's choice.

    Raises:
        StateMissingError: no complete checkpoint is the requested one.
        LineageError: no requested checkpoint fits Spark's location.
    """
    complete = [commit for commit in line if kept.is_complete(commit)]
    matching = [commit for commit in complete if _matches(commit, requested)]
    if not matching:
        existing = ", ".join(f"{c.seq} (batch {c.batch})" for c in complete) or "none"
        raise StateMissingError(f"no checkpoint is complete and matches the request; complete are: {existing}")
    newest = matching[0]
    if spark is None or spark.begins(newest, line[0]):
        return RestorePlan(newest, begins_anew=spark is not None)
    for commit in matching:
        if _misfit(commit, spark) is None:
            return RestorePlan(commit, _forget_above(commit, line[0], spark))
    raise LineageError(
        f"checkpoint {newest.seq} of batch {newest.batch} does not fit Spark's location: "
        f"{_misfit(newest, spark)}; choose another checkpoint, or give the query a new location, where it begins at "
        "batch 0 with this state",
        batch=newest.batch,
    )


def _matches(commit: Commit, requested: RequestedCheckpoint) -> bool:
    return requested.seq in (None, commit.seq) and requested.batch in (None, commit.batch)


def _misfit(commit: Commit, spark: SparkLocation) -> str | None:
    """The reason that Spark cannot continue after this commit's batch; None if it can."""
    if commit.query_id != spark.query_id:
        return f"it is of query {commit.query_id}, the location of query {spark.query_id}"
    if commit.position is not None:
        return None
    if commit.batch not in spark.hashes:
        return f"the location has no offsets of batch {commit.batch} (it has {_span(spark)})"
    if not same_input(commit.source_hash, spark.hashes[commit.batch]):
        return f"its state was made from other input than offsets/{commit.batch} and the files of its sources say"
    if commit.batch not in spark.acknowledged:
        return f"Spark has not acknowledged batch {commit.batch}"
    return None


def _span(spark: SparkLocation) -> str:
    return f"{min(spark.hashes)} to {max(spark.hashes)}" if spark.hashes else "none"


def _forget_above(commit: Commit, newest: Commit, spark: SparkLocation) -> int | None:
    """A batch that is only planned may stay if it is the next one, and nothing was executed after the commit."""
    if commit.position is not None:
        return None
    is_next = max(spark.hashes) <= commit.batch + 1 and max(spark.acknowledged) <= commit.batch
    return None if is_next and commit.link == newest.link else commit.batch
