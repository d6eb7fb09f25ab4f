"""`varvite restore`: sets a stopped job and Spark's checkpoint location back to a checkpoint that both have.

A fence names the commit that the next run starts from, and Spark forgets the batches after it. No state is deleted or
rewritten: commits after the checkpoint are off the line with the next commit. A restore that was interrupted is
repeated: until Spark has forgotten its batches, they follow the newest commit, and the fence's choice has no effect.

A checkpoint that only pins keep (`--retention`) is below the retention bounds, which never fall: its state is copied.
A savepoint that a job goes back to again is copied again, which replaces a copy that was damaged meanwhile.

Invariants: I6 (the fence ends every older run), I11 (a mismatch is an error).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from varvite.changelog.chain.reader import ChainReader, newest_commit
from varvite.changelog.chain.retention_bounds import RetentionBounds, bounds_of
from varvite.changelog.commit.ownership import ChainOwner
from varvite.changelog.commit.run import JobRun
from varvite.changelog.commit.start_decision import next_restore, owner_text
from varvite.changelog.commit.state import CommitPolicy
from varvite.changelog.reading.checkpoints import newest_commits
from varvite.changelog.retention.pins import Retention, list_pins
from varvite.materializer.resources.process_name import process_name
from varvite.materializer.restore.decision import RequestedCheckpoint, RestorePlan, decide_restore
from varvite.materializer.restore.origin import StateOrigin, copy_origin
from varvite.materializer.restore.spark_location import read_location, set_back
from varvite.storage.errors import InvalidRequestError, LineageError, StateMissingError
from varvite.storage.format import layout
from varvite.storage.units import utc_time

if TYPE_CHECKING:
    from varvite.materializer.restore.decision import SparkLocation
    from varvite.storage.clock import Clock, TokenSource
    from varvite.storage.format.records import Commit, Fence, JobRecord
    from varvite.storage.object_stores.contract import ObjectStore

LINE_MAX: Final = 10_000
"""Most commits of the line that are read."""


class RestoreLine(msgspec.Struct, frozen=True, kw_only=True):
    """The line of `varvite restore`."""

    job: str
    dry_run: bool
    seq: int
    """The checkpoint that the next run starts from; for a savepoint, or a checkpoint that only pins keep, the one with
    its copy (0 in a dry run)."""
    batch: int
    time: str
    """Time of the state."""
    next_start: str
    """Spark's checkpoint location of the next start, for people."""
    forgotten: tuple[str, ...]
    """Files that were moved out of Spark's checkpoint location."""


class CancelLine(msgspec.Struct, frozen=True, kw_only=True):
    """The line of `varvite restore --cancel`."""

    job: str
    dry_run: bool
    cancelled_seq: int | None
    """The checkpoint that had been chosen; None: there was none, and nothing was written."""


class JobRestore:
    """Sets one stopped job back.

    Args:
        job: The job's directory, for people.
        store: Rooted there. The job must be stopped.
        record: The job's record.
        spark: Rooted at Spark's checkpoint location; None: it stays untouched.
        clock: Time.
        tokens: Randomness.
        dry_run: Write nothing; only report the plan.
        may_be_new: Spark's checkpoint location may be empty.
    """

    def __init__(
        self,
        job: str,
        store: ObjectStore,
        record: JobRecord,
        spark: ObjectStore | None,
        *,
        clock: Clock,
        tokens: TokenSource,
        dry_run: bool = False,
        may_be_new: bool = False,
    ) -> None:
        self._job = job
        self._store = store
        self._record = record
        self._spark = spark
        self._dry_run = dry_run
        self.is_forced = False
        """Do not ask if a driver runs the job: it is fenced off."""
        self._by = process_name(f"varvite restore {job}")
        self._may_be_new = may_be_new
        self._reader = ChainReader(store, record.job_id)
        self._clock, self._tokens = clock, tokens

    def to_checkpoint(self, requested: RequestedCheckpoint) -> RestoreLine:
        """Go back to a checkpoint on the line.

        Raises:
            StateMissingError: no complete checkpoint is the requested one.
            LineageError: it does not fit Spark's location.
            CorruptDataError: an entry that the checkpoint needs is damaged, or one behind which it may be.
            InvalidRequestError: Spark's location is empty, and `may_be_new` is not set.
            VarviteError: the storage failed; try again.
        """
        self._check_stopped()
        spark = self._location()
        plan, is_retained = self._plan(requested, spark, with_pins=True)
        if not is_retained:
            kept = StateOrigin(f"checkpoint {plan.commit.seq}", self._store, plan.commit, None)
            return self._to_copy(plan, spark, kept)
        plans = [plan]
        number = 0
        if not self._dry_run:

            def choose() -> int:
                """Plan anew: a late commit of the stopped driver may have raised the retention bounds."""
                plans.append(self._plan(requested, spark)[0])
                return plans[-1].commit.seq

            number = self._chain().take_over(choose, chosen_ahead=True).epoch
        return self._set_back(plans[-1], spark, plans[-1].commit.seq, number)

    def to_origin(self, origin: StateOrigin) -> RestoreLine:
        """Go back to a savepoint, whose state is copied. Raises the errors of `to_checkpoint` and of the copy."""
        self._check_stopped()
        origin.check(self._record.max_parallelism)
        self._check_followed(origin.commit)
        spark = self._location()
        return self._to_copy(
            decide_restore((origin.commit,), RetentionBounds(), spark, RequestedCheckpoint()), spark, origin
        )

    def _to_copy(self, plan: RestorePlan, spark: SparkLocation | None, origin: StateOrigin) -> RestoreLine:
        seq = number = 0
        if not self._dry_run:
            fence = self._copy(origin)
            seq, number = fence.restore or 0, fence.epoch
        return self._set_back(plan, spark, seq, number)

    def cancel(self) -> CancelLine:
        """Make the next start an ordinary one again; has no effect if it is one."""
        self._check_stopped()
        chosen = next_restore(self._reader.head())
        if chosen is not None and not self._dry_run:
            self._chain().take_over(chosen_ahead=True)
        return CancelLine(job=self._job, dry_run=self._dry_run, cancelled_seq=chosen)

    def _location(self) -> SparkLocation | None:
        if self._spark is None:
            return None
        location = read_location(self._spark)
        if location.is_new and not self._may_be_new:
            raise InvalidRequestError(
                f"there is no query's checkpoint at {self._spark.url}: correct the location, or say with "
                "--new-location that the query begins there",
                job=self._job,
            )
        return location

    def _chain(self) -> ChainOwner:
        record = self._record
        chain = ChainOwner(self._reader, record.max_parallelism, self._clock, self._tokens, record.begins_after)
        chain.by = self._by
        return chain

    def _check_stopped(self) -> None:
        """Raise if the newest run has not ended orderly."""
        head = self._reader.head()
        if self._dry_run or self.is_forced or head is None:
            return
        mark = layout.running(head.epoch)
        if not any(meta.name == mark for meta in self._store.list(layout.RUNNING)):
            return
        raise InvalidRequestError(
            f"the job runs: {owner_text(self._reader.read(head.epoch).entry)} has not ended. Stop it first. If it "
            "crashed, or is to be fenced off, add --force",
            job=self._job,
            object_name=mark,
        )

    def _check_followed(self, commit: Commit) -> None:
        """Raise if no batch has followed the commit, so that its rows may be missing from the output.

        A copy has no parent on which its batch could be executed again.
        """
        if commit.position is None or newest_commit(self._reader.head()) != commit.link:
            return
        raise InvalidRequestError(
            f"the state is that of the newest checkpoint ({commit.seq}, batch {commit.batch}), and the output may lack "
            f"rows of its batch: start the job, which completes it, or type "
            f"`varvite restore {self._job} --checkpoint {commit.seq}`",
            job=self._job,
        )

    def _plan(
        self, requested: RequestedCheckpoint, spark: SparkLocation | None, *, with_pins: bool = False
    ) -> tuple[RestorePlan, bool]:
        """Read the chain and decide; (the plan, True if the checkpoint is complete without the pins)."""
        head = self._reader.head()
        if head is None:
            raise StateMissingError("the job has no checkpoint yet", job=self._job)
        bounds = bounds_of(head)
        kept = Retention(bounds, list_pins(self._reader)) if with_pins else bounds
        line, damage = newest_commits(self._reader, LINE_MAX, down_to=kept.complete_from)
        try:
            plan = decide_restore(self._with_source(line), kept, spark, requested)
        except (StateMissingError, LineageError):
            if damage is None:
                raise
            raise damage.with_context(job=self._job) from None  # the requested checkpoint may be behind it
        self._reader.load_line(plan.commit.link, self._record.max_parallelism)  # raises what the next start would
        return plan, bounds.is_complete(plan.commit)

    def _with_source(self, line: tuple[Commit, ...]) -> tuple[Commit, ...]:
        """The commits of the head's line, the newest first, and the one of this job that the oldest is a copy of.

        So a restore of a checkpoint that only pins keep can be repeated: then the line ends with the copy.
        """
        source = line[-1].source if line else None
        if source is None or source.job_id != self._record.job_id:
            return line
        copied = self._reader.find_link(source.commit)
        return line if copied is None else (*line, copied)

    def _copy(self, origin: StateOrigin) -> Fence:
        run = JobRun(self._store, self._record, CommitPolicy(), self._clock, self._tokens)
        run.name_process(self._by)
        try:
            return run.start_from(
                origin.commit,
                None,
                lambda slot: copy_origin(
                    origin, self._record, self._store, slot, clock=self._clock, tokens=self._tokens
                ),
                chosen_ahead=True,
            )
        finally:
            run.close()

    def _set_back(self, plan: RestorePlan, spark: SparkLocation | None, seq: int, number: int) -> RestoreLine:
        forgotten: tuple[str, ...] = ()
        if self._spark is not None and plan.forget_above is not None and not self._dry_run:
            forgotten = set_back(self._spark, plan.forget_above, number)
        commit = plan.commit
        if commit.position is not None and not plan.begins_anew:
            start = f"batch {commit.batch + 1} of query {commit.query_id}, or batch 0 with a new checkpointLocation"
        elif spark is None:
            start = f"a new location, or the one of query {commit.query_id} as it was after batch {commit.batch}"
        elif plan.begins_anew:
            start = "the location given, where the query begins at batch 0: say where its sources begin"
        else:
            start = f"the location given, whose next batch is {commit.batch + 1}"
        return RestoreLine(
            job=self._job,
            dry_run=self._dry_run,
            seq=seq,
            batch=commit.batch,
            time=utc_time(commit.time_ms),
            next_start=start,
            forgotten=forgotten,
        )
