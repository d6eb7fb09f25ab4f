"""`varvite jobs`, `varvite checkpoints` and `varvite sweep`: the stored jobs and checkpoints, and their garbage."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from varvite.changelog.chain.reader import ChainReader, in_parallel
from varvite.changelog.commit.start_decision import next_restore
from varvite.changelog.reading.checkpoints import newest_commits, read_retention
from varvite.changelog.retention.collector import UPLOAD_GRACE_S, Collector
from varvite.changelog.retention.savepoints import release_clone
from varvite.materializer.commands.output.errors import job_error
from varvite.materializer.commands.output.lines import show_lines
from varvite.materializer.commands.output.parameters import FiniteRange, job_chain, open_root, storage_parameters
from varvite.materializer.fold.chain_view import ChainFollower
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import VarviteError
from varvite.storage.format import layout
from varvite.storage.job.listing import job_names, open_job
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.remote.bucket.uploads import abort_uploads
from varvite.storage.units import utc_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varvite.changelog.retention.collector import CollectReport
    from varvite.changelog.retention.pins import Retention
    from varvite.storage.format.records import Commit
    from varvite.storage.job.listing import OpenJob
    from varvite.storage.object_stores.contract import ObjectStore

DEFAULT_LIMIT: Final = 20
_AREAS: Final = (
    layout.CHAIN,
    layout.SEGMENTS,
    layout.PACKS,
    layout.SNAPSHOTS,
    layout.SNAPSHOT_FILES,
    layout.SAVEPOINT_FILES,
)
"""Prefixes of the objects that a collector deletes."""


class JobLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varvite jobs`."""

    job: str
    job_id: str | None = None
    key_groups: int | None = None
    epoch: int | None = None
    """The run that owns the chain."""
    seq: int | None = None
    """The newest checkpoint."""
    batch: int | None = None
    time: str | None = None
    operators: tuple[str, ...] = ()
    log_segments: int = 0
    log_bytes: int = 0
    """Log that a restore of the newest checkpoint replays, over all operators."""
    chosen_seq: int | None = None
    """The checkpoint that the next start continues from, if `varvite restore` has chosen one and no batch followed."""
    chosen_batch: int | None = None
    error: str | None = None
    """The error, if the job cannot be read; then the other fields are empty."""


class CheckpointLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varvite checkpoints`."""

    seq: int
    batch: int
    epoch: int
    time: str
    complete: bool
    """Can it be read and restored? Of an incomplete checkpoint only the log is kept."""
    full: bool
    mutations: int
    log_bytes: int
    """Stored bytes of the batch's own segments."""
    snapshots: tuple[str, ...]
    """Snapshots that the job adopted with this checkpoint; not known of a full one."""
    needs_from: int


class SweepLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varvite sweep`."""

    job: str
    dry_run: bool
    cut: int | None = None
    entries: int | None = None
    segments: int | None = None
    snapshot_descriptors: int | None = None
    snapshot_files: int | None = None
    savepoint_files: int | None = None
    size_bytes: int | None = None
    """Bytes of the deleted objects."""
    aborted: int | None = None
    unfinished_uploads: int | None = None
    """Uploads in parts that were aborted, on S3."""
    unreadable: tuple[str, ...] = ()
    error: str | None = None
    """The error, if nothing was collected, or only a part."""


class NamedSweepLine(SweepLine, frozen=True, kw_only=True):
    """The line of `varvite sweep --json`."""

    names: tuple[str, ...]
    """Names of the deleted objects, in order of deletion."""


class SweptLine(msgspec.Struct, frozen=True, kw_only=True):
    """A further line of `varvite sweep --wide` for each object that is deleted."""

    job: str
    object_name: str
    size_bytes: int


@click.command()
@storage_parameters(required=True)
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def jobs(storage_url: str, storage_options: dict[str, Any] | None, *, as_json: bool) -> None:
    """List the jobs of a storage."""
    try:
        root = open_root(storage_url, storage_options)
        lines = in_parallel(partial(_job_line_or_error, root=root), job_names(root))
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    show_lines(lines, as_json=as_json, rare=("chosen_seq", "chosen_batch", "error"))
    _exit_if_failed(lines)


@click.command()
@click.argument("job")
@storage_parameters(required=True)
@click.option(
    "--limit", default=DEFAULT_LIMIT, show_default=True, type=click.IntRange(1), help="Number of checkpoints to list."
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def checkpoints(
    job: str, storage_url: str, storage_options: dict[str, Any] | None, limit: int, *, as_json: bool
) -> None:
    """List the checkpoints on the line of JOB's newest one, the newest first."""
    try:
        reader = job_chain(job, storage_url, storage_options)
        kept = read_retention(reader)
        commits, damage = newest_commits(reader, limit)
        if commits or damage is None:
            show_lines([_checkpoint_line(commit, kept) for commit in commits], as_json=as_json)
        if damage is not None:
            raise damage.with_context(job=job)
    except VarviteError as error:
        raise click.ClickException(str(error)) from error


@click.command()
@storage_parameters(required=True)
@click.option("--job", metavar="NAME", help="The one job to sweep; without it, all.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--wide", is_flag=True, help="Also list the names of all objects.")
@click.option(
    "--grace-hours",
    default=UPLOAD_GRACE_S / 3600,
    show_default=True,
    type=FiniteRange(0),
    help="Age of an abandoned upload.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def sweep(
    storage_url: str,
    storage_options: dict[str, Any] | None,
    job: str | None,
    grace_hours: float,
    *,
    dry_run: bool,
    wide: bool,
    as_json: bool,
) -> None:
    """Delete objects that no retained checkpoint needs: old log, old bases, leftovers of crashed attempts."""
    try:
        root = open_root(storage_url, storage_options)
        if job is not None:
            swept = [_sweep(open_job(root, job), job, root, grace_hours * 3600, dry_run=dry_run)]
        else:
            sweep_job = partial(_sweep_or_error, root=root, grace_s=grace_hours * 3600, dry_run=dry_run)
            swept = in_parallel(sweep_job, job_names(root))
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        show_lines([result.with_names() for result in swept], as_json=True)
    else:
        show_lines([result.line for result in swept], as_json=False, rare=("unfinished_uploads", "error"))
    if wide and not as_json:
        show_lines([line for result in swept for line in result.objects()], as_json=False)
    _exit_if_failed([result.line for result in swept])


def _exit_if_failed(lines: Iterable[JobLine | SweepLine]) -> None:
    """Exit with code 1 if one of the jobs could not be read; the others were shown all the same."""
    if any(line.error is not None for line in lines):
        sys.exit(1)


def _job_line_or_error(name: str, root: ObjectStore) -> JobLine:
    try:
        return _job_line(name, open_job(root, name))
    except Exception as error:  # noqa: BLE001  the others are shown all the same
        return JobLine(job=name, error=str(job_error(error, name)))


def _sweep_or_error(name: str, root: ObjectStore, grace_s: float, *, dry_run: bool) -> _Swept:
    try:
        return _sweep(open_job(root, name), name, root, grace_s, dry_run=dry_run)
    except Exception as error:  # noqa: BLE001  the others are swept all the same
        return _Swept(SweepLine(job=name, dry_run=dry_run, error=str(job_error(error, name))), {})


def _job_line(name: str, job: OpenJob) -> JobLine:
    record, reader = job.record, ChainReader(job.store, job.record.job_id)
    line = JobLine(job=name, job_id=record.job_id, key_groups=record.max_parallelism)
    chain = ChainFollower(reader, record.max_parallelism, SystemClock()).read()
    if chain is None:
        return line
    commit, view = chain.newest
    chosen = next_restore(chain.head)
    chosen_commit = None if chosen is None else reader.find_commit(chosen)
    return msgspec.structs.replace(
        line,
        epoch=chain.head.epoch,
        seq=commit.seq,
        batch=commit.batch,
        time=utc_time(commit.time_ms),
        operators=tuple(operator.uid for operator in commit.operators),
        log_segments=len(view.segments),
        log_bytes=sum(ref.data.length for ref in view.segments),
        chosen_seq=chosen,
        chosen_batch=None if chosen_commit is None else chosen_commit.batch,
    )


def _checkpoint_line(commit: Commit, kept: Retention) -> CheckpointLine:
    slices = [s for part in commit.parts for s in (part.inline, *part.uploaded) if s is not None]
    # A full entry names every tile, not only the new ones.
    adopted = [] if commit.is_full else [t for t in commit.tiles if t.snapshot is not None]
    return CheckpointLine(
        seq=commit.seq,
        batch=commit.batch,
        epoch=commit.epoch,
        time=utc_time(commit.time_ms),
        complete=kept.is_complete(commit),
        full=commit.is_full,
        mutations=sum(part.mutations for part in commit.parts),
        log_bytes=sum(s.length for s in slices),
        snapshots=tuple(f"{t.operator}[{t.low},{t.high})#{t.snapshot}" for t in adopted),
        needs_from=commit.needs_from,
    )


class _Swept(NamedTuple):
    """Result of a job's sweep: the deleted objects, or in a dry run those that would be deleted."""

    line: SweepLine
    sizes: dict[str, int]
    """Object → bytes."""

    def with_names(self) -> NamedSweepLine:
        return NamedSweepLine(**msgspec.structs.asdict(self.line), names=tuple(self.sizes))

    def objects(self) -> list[SweptLine]:
        return [SweptLine(job=self.line.job, object_name=name, size_bytes=size) for name, size in self.sizes.items()]


def _sweep(job: OpenJob, name: str, root: ObjectStore, grace_s: float, *, dry_run: bool) -> _Swept:
    store, record = job
    reader = ChainReader(store, record.job_id)
    stored = {meta.name: meta.size_bytes for area in _AREAS for meta in store.list(area)}
    report: CollectReport = Collector(reader, SystemClock(), SystemTokens(), grace_s).collect(dry_run=dry_run)
    if record.cloned_from is not None and not report.shares and not dry_run:
        release_clone(JobStore(root, record.cloned_from), record.job_id)
    sizes = {object_name: stored.get(object_name, 0) for object_name in report.names}
    line = SweepLine(
        job=name,
        dry_run=dry_run,
        cut=report.cut,
        entries=len(report.entries),
        segments=len(report.segments),
        snapshot_descriptors=len(report.descriptors),
        snapshot_files=len(report.files),
        savepoint_files=len(report.savepoint_files),
        size_bytes=sum(sizes.values()),
        aborted=len(report.aborted),
        unfinished_uploads=_abort_uploads(root, name, grace_s, dry_run=dry_run),
        unreadable=report.unreadable,
    )
    return _Swept(line, sizes)


def _abort_uploads(root: ObjectStore, job: str, grace_s: float, *, dry_run: bool) -> int | None:
    before_s = SystemClock().now_ms() / 1000 - grace_s
    options = getattr(root, "storage_options", {})
    return abort_uploads(f"{root.url.rstrip('/')}/{job}", options, before_s=before_s, dry_run=dry_run)
