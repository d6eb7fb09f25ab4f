"""BASE: the commit that a batch is executed on, by Spark's progress and the chain. Pure.

The rules are in `docs/internals/commit-protocol.md#base`.

Invariants: I11 (state that does not match Spark's progress is an error that says what happened and what to do, never
the empty state), I3 (a batch that is executed again starts from the same base).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from varvite.changelog.commit.rules import ALL_RULES
from varvite.storage.errors import FencedError, GapError, InvariantError, LineageError, RewindError, StateMissingError
from varvite.storage.format.records import ORIGIN

if TYPE_CHECKING:
    from varvite.changelog.chain.retention_bounds import RetentionBounds
    from varvite.changelog.commit.rules import ProtocolRules
    from varvite.storage.format.records import Commit


@dataclass(frozen=True, slots=True)
class SparkProgress:
    """The progress that Spark's checkpoint location records."""

    batch: int
    """The batch N that Spark is about to execute."""
    query_id: str
    source_hash: str
    """Identity of what batch N reads, see `same_input`."""
    previous_source_hash: str | None
    """The same of batch N-1; None if N is 0 or its offsets do not exist."""
    is_identified: bool = True
    """Does `source_hash` tell all rows of batch N? If not, the batch is executed again, never adopted."""


@dataclass(frozen=True, slots=True)
class ChainProgress:
    """The newest commits on the line of this run's fence."""

    newest: Commit | None
    """H: the newest commit on the line."""
    parent: Commit | None
    """The commit that H was executed on, if `needs_parent`; None if H is the first."""
    bounds: RetentionBounds
    """The fence's, which show whether a commit is complete."""


class SinkCommit(NamedTuple):
    """The commit that output belongs to."""

    batch: int
    """Spark's id of the batch."""
    seq: int
    """Seq of the batch's checkpoint. It rises from commit to commit of a job, also if a batch is executed again."""
    token: str = ""
    """Token of the checkpoint: two lines that a restored backup has made may use a seq twice. Empty: not noted."""

    def is_of(self, commit: Commit) -> bool:
        """Is it this commit?"""
        same = (self.batch, self.seq) == (commit.batch, commit.seq)
        return same and self.token in ("", commit.token)


class RepeatedBatch(Enum):
    """The fate of a batch that is written again, with perhaps other rows, to a sink that has its rows already."""

    DOUBLED = "doubled"
    """They are there twice: at least once. `last_committed` knows nothing."""
    REPLACED = "replaced"
    """The earlier ones go."""
    REFUSED = "refused"
    """They cannot go, so `write` raises `LineageError`. Such a sink is written last, and a job has one."""


class WriteKind(Enum):
    """The way of a commit's rows into the output."""

    APPEND = "append"
    """They are the first of their batch."""
    REPLACE = "replace"
    """Rows of this batch and of later ones have to go in the same step."""
    NOTHING = "nothing"
    """They are there: an earlier call had its effect, and its reply was lost."""


def decide_write(held: SinkCommit | None, commit: SinkCommit) -> WriteKind:
    """Decide on a call of `write`, in the transaction that writes the rows and notes `commit`.

    Args:
        held: The commit that the output notes; None without any.
        commit: The commit to write.

    Raises:
        FencedError: The output is of a newer driver.
    """
    if held is None:
        return WriteKind.APPEND
    if held == commit:
        return WriteKind.NOTHING
    if held.seq > commit.seq:
        raise FencedError(
            f"a newer driver has written batch {held.batch} (seq {held.seq}) to the output; this one must end",
            batch=commit.batch,
        )
    return WriteKind.REPLACE if held.batch >= commit.batch else WriteKind.APPEND


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """The operator's explicit choice of a commit to start from."""

    seq: int
    commit: Commit | None
    """The commit with that seq; None if the chain has none."""
    ahead: bool = False
    """Chosen by `varvite restore` since the newest commit: a batch after it is executed, whatever the sink holds."""


@dataclass(frozen=True, slots=True)
class Execute:
    """Execute the batch on this commit; None is the empty state."""

    base: Commit | None


@dataclass(frozen=True, slots=True)
class Adopt:
    """State and output of the batch are already durable: do not execute it, go on from this commit."""

    commit: Commit


def needs_parent(spark: SparkProgress, newest: Commit | None) -> bool:
    """Tell whether the decision needs the newest commit's parent, because Spark executes the newest batch again."""
    return newest is not None and newest.query_id == spark.query_id and newest.batch == spark.batch


def decide_base(
    spark: SparkProgress,
    chain: ChainProgress,
    sink: SinkCommit | None = None,
    restore: RestoreRequest | None = None,
    rules: ProtocolRules = ALL_RULES,
) -> Execute | Adopt:
    """Choose the base of batch `spark.batch`, the first of this run.

    An explicit restore counts only where the ordinary rules have no answer: for batch 0 of a query that has no commit
    yet (lineage is then not checked), and for a query that was rewound to just after the chosen commit.

    Raises:
        StateMissingError: Spark has progress, or a commit was chosen, but the state does not exist (any longer).
        RewindError: Spark is behind the state.
        GapError: Spark is ahead of the state.
        LineageError: the state is of another query or other input, or the output is ahead of it.
    """
    newest = chain.newest
    if sink is not None and not (restore is not None and restore.ahead):
        _check_output(spark, newest, sink)
    if newest is not None and newest.query_id == spark.query_id:
        decision = _continue(spark, newest, chain.parent, sink, restore, rules)
    elif restore is not None:
        decision = Execute(_restored(spark, restore))
    else:
        decision = _begin(spark, newest)
    if isinstance(decision, Execute) and decision.base is not None:
        _check_complete(decision.base, chain.bounds)
    return decision


def _begin(spark: SparkProgress, newest: Commit | None) -> Execute:
    """Decide if no commit of this query is on the line."""
    if newest is not None:
        raise LineageError(
            f"the state was made by query {newest.query_id} up to its batch {newest.batch}, and Spark runs batch "
            f"{spark.batch} of query {spark.query_id}; use the checkpoint location that belongs to this state, or "
            f"other storage; or, with a new location, choose the state (`varvite restore`): an explicit restore from "
            f"seq {newest.seq}, say",
            batch=spark.batch,
        )
    if spark.batch != 0:
        raise StateMissingError(
            f"Spark wants batch {spark.batch}, and the storage holds no state of this job; point the job at the "
            "storage that it used before, or start a new query with a new checkpoint location",
            batch=spark.batch,
        )
    return Execute(None)


def _continue(
    spark: SparkProgress,
    newest: Commit,
    parent: Commit | None,
    sink: SinkCommit | None,
    restore: RestoreRequest | None,
    rules: ProtocolRules,
) -> Execute | Adopt:
    """Decide if the newest commit is this query's."""
    if spark.batch == newest.batch + 1:
        _check_lineage(spark, newest)
        return Execute(newest)
    if spark.batch == newest.batch:
        chosen = restore.commit if restore is not None and restore.ahead else None
        if chosen is not None and spark.batch == 0 and chosen.query_id != spark.query_id:
            return Execute(chosen)  # the query begins, with whatever state the operator wants
        return _redo(spark, newest, parent, None if chosen is not None and chosen == parent else sink)
    if spark.batch > newest.batch:
        raise GapError(
            f"Spark wants batch {spark.batch}, and the state ends at batch {newest.batch} (seq {newest.seq}): batches "
            f"{newest.batch + 1} to {spark.batch - 1} are missing from it; bring the newer storage back, or set "
            f"Spark's checkpoint location back to batch {newest.batch} with `varvite restore --spark-checkpoint`",
            batch=spark.batch,
        )
    if not rules.rewind_check:
        return Execute(newest)
    return _rewound(spark, newest, restore)


def _redo(spark: SparkProgress, newest: Commit, parent: Commit | None, sink: SinkCommit | None) -> Execute | Adopt:
    """Decide if the batch has a commit that Spark has not acknowledged."""
    if newest.parent != (parent.link if parent else ORIGIN):
        raise InvariantError(f"the base decision was given another parent than {newest.parent} for the newest commit")
    if newest.source is not None:
        raise StateMissingError(
            f"Spark wants batch {newest.batch} again, and the state (seq {newest.seq}) was copied from after that "
            "batch, so there is no state to execute it on; start with a new checkpoint location, or `varvite restore` "
            "an older state",
            batch=spark.batch,
        )
    if spark.batch > 0:
        _check_lineage(spark, parent)
    if sink is None or not sink.is_of(newest):
        return Execute(parent)
    if not same_input(newest.source_hash, spark.source_hash):
        again = f"`varvite restore JOB --batch {newest.batch - 1} --spark-checkpoint LOCATION`"
        raise LineageError(
            f"state and output of batch {newest.batch} (seq {newest.seq}) were made from other input than Spark has "
            f"planned for it now (offsets/{spark.batch}, and the files of its sources): its checkpoint location was "
            "set back, or is another one; bring the right location back, or "
            + (f"have the batch executed again: {again}" if newest.batch else "begin with other storage and output"),
            batch=spark.batch,
        )
    # An older version has noted no files of a batch that has some.
    is_known = spark.is_identified and newest.source_hash == spark.source_hash
    return Adopt(newest) if is_known else Execute(parent)


def same_input(identity: str, other: str | None) -> bool:
    """Compare identities of input: a hash of offsets and, after a dot, one of files, which counts if both have it."""
    if other is None:
        return False
    (offsets, _, files), (other_offsets, _, other_files) = identity.partition("."), other.partition(".")
    return offsets == other_offsets and (not files or not other_files or files == other_files)


def _rewound(spark: SparkProgress, newest: Commit, restore: RestoreRequest | None) -> Execute:
    """Decide if Spark is behind the chain, which is right only if the operator chose the commit before the batch."""
    chosen = restore.commit if restore else None
    if chosen is not None and spark.batch > 0 and chosen.batch == spark.batch - 1:
        _check_lineage(spark, chosen)
        return Execute(chosen)
    raise RewindError(
        f"Spark wants batch {spark.batch}, and the state already holds batch {newest.batch} (seq {newest.seq}): "
        "Spark's checkpoint location was set back; bring the newer location back, or choose the commit of batch "
        f"{spark.batch - 1} with `varvite restore --spark-checkpoint`",
        batch=spark.batch,
    )


def _restored(spark: SparkProgress, restore: RestoreRequest) -> Commit:
    """The chosen commit, if this is the first batch of a new query."""
    if restore.commit is None:
        raise StateMissingError(
            f"there is no commit with seq {restore.seq} to restore; choose one that the chain still has",
            batch=spark.batch,
        )
    if spark.batch != 0:
        raise LineageError(
            f"only batch 0 of a new query can start from a chosen commit, and Spark wants batch {spark.batch} of query "
            f"{spark.query_id}; start with a new checkpoint location",
            batch=spark.batch,
        )
    return restore.commit


def _check_lineage(spark: SparkProgress, base: Commit | None) -> None:
    """Raise unless the base is of this query and the batch before, from the offsets that Spark has for that batch."""
    if base is None:
        raise StateMissingError(
            f"the commit of batch {spark.batch} has no parent, so there is no state to execute the batch on; restore "
            "an older checkpoint",
            batch=spark.batch,
        )
    if base.query_id != spark.query_id:
        raise LineageError(
            f"the base of batch {spark.batch} (seq {base.seq}) was made by query {base.query_id}, not "
            f"{spark.query_id}; use the checkpoint location that belongs to this state",
            batch=spark.batch,
        )
    if base.batch != spark.batch - 1:
        raise LineageError(
            f"the base of batch {spark.batch} (seq {base.seq}) is of batch {base.batch}; restore an older checkpoint",
            batch=spark.batch,
        )
    if not same_input(base.source_hash, spark.previous_source_hash):
        raise LineageError(
            f"the state after batch {base.batch} (seq {base.seq}) was made from other input than Spark's "
            f"offsets/{base.batch} and the files of its sources say; use the checkpoint location that belongs to this "
            "state",
            batch=spark.batch,
        )


def _check_output(spark: SparkProgress, newest: Commit | None, sink: SinkCommit) -> None:
    """Raise if the sink holds output that no commit on the line has made."""
    if newest is None and spark.batch > 0:
        return  # the state is missing, which says more
    if newest is not None and (sink.seq < newest.seq or sink.is_of(newest)):
        return
    state = f"the state ends at batch {newest.batch} (seq {newest.seq})" if newest else "the job has no state yet"
    choice = f"`varvite restore JOB --checkpoint {newest.seq} --spark-checkpoint LOCATION`" if newest else ""
    raise LineageError(
        f"the output is ahead of the state: it holds batch {sink.batch} (seq {sink.seq}), and {state}. The storage was "
        "set back, or the output is of another one; bring the newer storage and Spark's location back, or give the "
        "job other output" + (f", or have the batches after it written again: {choice}" if choice else ""),
        batch=spark.batch,
    )


def _check_complete(base: Commit, bounds: RetentionBounds) -> None:
    if not bounds.is_complete(base):
        raise StateMissingError(
            f"the commit of batch {base.batch} (seq {base.seq}) is no longer complete: {bounds.missing(base)}; choose "
            "a newer commit, or go back to this one with `varvite restore`, which copies it if `--retention` keeps it",
            batch=base.batch,
        )
