"""`varve restore`: sets a stopped job, and Spark's checkpoint location, to a checkpoint that both have.

It writes a fence that says which commit the next run starts from, and lets Spark forget the batches after it. Nothing
of the state is deleted or rewritten: what came after the checkpoint is off the line with the next commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from varve.materializer.command_output import show_lines, utc_time
from varve.materializer.inspect_commands import newest_commits
from varve.materializer.restore_decision import RestorePlan, Wanted, decide_restore
from varve.materializer.spark_location import read_location, set_back
from varve.materializer.state_origin import copy_origin, find_origin, open_beside
from varve.materializer.storage_parameters import storage_parameters
from varve.storage import layout
from varve.storage.chain import Chain
from varve.storage.chain_reader import ChainReader
from varve.storage.chain_state import CommitPolicy
from varve.storage.clock import SystemClock, SystemTokens
from varve.storage.errors import InvalidRequestError, StateMissingError, VarveError
from varve.storage.job import read_job
from varve.storage.job_run import JobRun
from varve.storage.job_store import JobStore
from varve.storage.open_store import open_store

if TYPE_CHECKING:
    from varve.materializer.restore_decision import SparkLocation
    from varve.materializer.state_origin import StateOrigin
    from varve.storage.object_store import ObjectStore
    from varve.storage.records import Fence, JobRecord

_CHOICES: Final = ("seq", "batch", "location", "cancel")
LINE_MAX: Final = 10_000
"""Commits of the line that are looked at; only retained ones exist."""


class RestoreLine(msgspec.Struct, frozen=True, kw_only=True):
    """The line of `varve restore`."""

    job: str
    dry_run: bool
    seq: int
    """The checkpoint that the next run starts from; of a savepoint, the one that holds its copy (0 in a dry run)."""
    batch: int
    time: str
    """Of the state."""
    next_start: str
    """What Spark's checkpoint location must be."""
    forgotten: tuple[str, ...]
    """Files that were moved away from Spark's checkpoint location."""


@click.command()
@click.argument("job")
@storage_parameters(required=True)
@click.option("--checkpoint", "seq", type=click.IntRange(1), help="Seq of the checkpoint to go back to.")
@click.option("--batch", type=click.IntRange(0), help="Batch whose checkpoint to go back to.")
@click.option("--savepoint", "location", metavar="NAME", help="Savepoint to go back to, by name or location.")
@click.option("--spark-checkpoint", "spark_url", metavar="URL", help="Spark's checkpoint location, to set it back too.")
@click.option("--cancel", is_flag=True, help="Take an earlier choice back.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def restore(job: str, storage_url: str, storage_options: dict[str, Any] | None, **options: Any) -> None:
    """Choose the checkpoint that the next start of JOB goes on from, which must be stopped.

    Without a choice it is the newest checkpoint that fits Spark's checkpoint location, or simply the newest.
    """
    try:
        store = JobStore(open_store(storage_url, storage_options), layout.check_job_name(job))
        if sum(options[name] not in (None, False) for name in _CHOICES) > 1:
            raise InvalidRequestError("give one of --checkpoint, --batch, --savepoint and --cancel")
        spark = None if options["spark_url"] is None else open_beside(options["spark_url"], storage_options)
        command = _Restore(job, store, read_job(store), spark, dry_run=options["dry_run"])
        if options["cancel"]:
            command.cancel()
            return
        if options["location"] is not None:
            line = command.to_origin(find_origin(options["location"], store, storage_options))
        else:
            line = command.to_checkpoint(Wanted(options["seq"], options["batch"]))
    except VarveError as error:
        raise click.ClickException(str(error)) from error
    show_lines([line], as_json=options["as_json"])


class _Restore:
    """One call of the command."""

    def __init__(
        self, job: str, store: ObjectStore, record: JobRecord, spark: ObjectStore | None, *, dry_run: bool
    ) -> None:
        self._job = job
        self._store = store
        self._record = record
        self._spark = spark
        self._dry_run = dry_run
        self._reader = ChainReader(store, record.job_id)
        self._clock, self._tokens = SystemClock(), SystemTokens()

    def to_checkpoint(self, wanted: Wanted) -> RestoreLine:
        """Go back to a checkpoint on the line."""
        head = self._reader.head()
        if head is None:
            raise StateMissingError("the job has no checkpoint yet", job=self._job)
        spark = self._location()
        plan = decide_restore(tuple(newest_commits(self._reader, LINE_MAX)), head.keep_from, spark, wanted)
        number = 0 if self._dry_run else self._choose(plan.commit.seq).epoch
        return self._set_back(plan, spark, plan.commit.seq, number)

    def to_origin(self, origin: StateOrigin) -> RestoreLine:
        """Go back to a savepoint, whose state is copied into the job."""
        origin.check(self._record.max_parallelism)
        spark = self._location()
        plan = decide_restore((origin.commit,), 0, spark, Wanted())
        seq = number = 0
        if not self._dry_run:
            fence = self._copy(origin)
            seq, number = fence.restore or 0, fence.epoch
        return self._set_back(plan, spark, seq, number)

    def cancel(self) -> None:
        """The next start is an ordinary one again."""
        if not self._dry_run:
            self._chain().take_over(chosen_ahead=True)

    def _location(self) -> SparkLocation | None:
        return None if self._spark is None else read_location(self._spark)

    def _chain(self) -> Chain:
        record = self._record
        return Chain(self._reader, record.max_parallelism, self._clock, self._tokens, record.begins_after)

    def _choose(self, seq: int) -> Fence:
        return self._chain().take_over(seq, chosen_ahead=True)

    def _copy(self, origin: StateOrigin) -> Fence:
        run = JobRun(self._store, self._record, CommitPolicy(), self._clock, self._tokens)
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
        if spark is None:
            start = f"a new location, or the one of query {commit.query_id} as it was after batch {commit.batch}"
        elif spark.begins(commit):
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
