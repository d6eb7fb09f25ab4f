"""Which checkpoint a job goes on from when an operator sets it right, and what Spark must forget for it; pure.

Spark's checkpoint location may be gone, ahead of the state or behind it. State and location fit together at a
checkpoint if it was made by the location's query, from the offsets that the location has for its batch, and if Spark
has acknowledged that batch: then the location can be set back to it, and the next batch is the one after.

Invariants: I11 (what does not fit is an error, never a guess).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from varvite.storage.errors import LineageError, StateMissingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varvite.changelog.chain.retention_bounds import RetentionBounds
    from varvite.changelog.retention.pins import Retention
    from varvite.storage.format.records import Commit


@dataclass(frozen=True, slots=True)
class SparkLocation:
    """What Spark's checkpoint location says."""

    query_id: str | None
    """None: Spark has never started a query there."""
    hashes: Mapping[int, str]
    """Batch → sha256 of its end offsets, of all batches that were planned and not purged."""
    acknowledged: frozenset[int]

    @property
    def is_new(self) -> bool:
        """Nothing of a query is there."""
        return self.query_id is None and not self.hashes and not self.acknowledged

    def begins(self, commit: Commit) -> bool:
        """Whether another query than the commit's begins there at batch 0, which may have been planned."""
        is_new = not self.acknowledged and max(self.hashes, default=0) == 0
        return self.query_id is None or (is_new and self.query_id != commit.query_id)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the operator asks for; neither: the newest that fits."""

    seq: int | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What is to be done."""

    commit: Commit
    forget_above: int | None
    """Spark must forget the batches above this one; None: the location stays as it is."""


def decide_restore(
    line: Sequence[Commit], kept: RetentionBounds | Retention, spark: SparkLocation | None, wanted: Wanted
) -> RestorePlan:
    """Choose the checkpoint.

    Args:
        line: The commits to choose from, the newest first.
        kept: Which of them are complete: the head's cut, perhaps with the pins.
        spark: Spark's checkpoint location; None if it is not to be touched.
        wanted: What the operator asks for.

    Raises:
        StateMissingError: no complete checkpoint is the wanted one.
        LineageError: the wanted one, or any, does not fit Spark's location.
    """
    complete = [commit for commit in line if kept.is_complete(commit)]
    asked = [commit for commit in complete if _is_wanted(commit, wanted)]
    if not asked:
        there = ", ".join(f"{c.seq} (batch {c.batch})" for c in complete) or "none"
        raise StateMissingError(f"no checkpoint that is still complete is the one asked for; there are: {there}")
    if spark is None or spark.begins(asked[0]):
        return RestorePlan(asked[0], None)
    for commit in asked:
        if _misfit(commit, spark) is None:
            return RestorePlan(commit, _forget_above(commit, line[0], spark))
    raise LineageError(
        f"checkpoint {asked[0].seq} of batch {asked[0].batch} does not fit Spark's location: "
        f"{_misfit(asked[0], spark)}; choose another checkpoint, or give the query a new location, where it begins at "
        "batch 0 with this state",
        batch=asked[0].batch,
    )


def _is_wanted(commit: Commit, wanted: Wanted) -> bool:
    return wanted.seq in (None, commit.seq) and wanted.batch in (None, commit.batch)


def _misfit(commit: Commit, spark: SparkLocation) -> str | None:
    """Why Spark cannot go on after this commit's batch; None if it can."""
    if commit.query_id != spark.query_id:
        return f"it is of query {commit.query_id}, the location of query {spark.query_id}"
    if commit.batch not in spark.hashes:
        return f"the location has no offsets of batch {commit.batch} (it has {_span(spark)})"
    if spark.hashes[commit.batch] != commit.source_hash:
        return f"its state was made from other source offsets than offsets/{commit.batch} says"
    if commit.batch not in spark.acknowledged:
        return f"Spark has not acknowledged batch {commit.batch}"
    return None


def _span(spark: SparkLocation) -> str:
    return f"{min(spark.hashes)} to {max(spark.hashes)}" if spark.hashes else "none"


def _forget_above(commit: Commit, newest: Commit, spark: SparkLocation) -> int | None:
    """A batch that is only planned may stay if it is the next one, and nothing was executed after the commit."""
    is_next = max(spark.hashes) <= commit.batch + 1 and max(spark.acknowledged) <= commit.batch
    return None if is_next and commit.link == newest.link else commit.batch
