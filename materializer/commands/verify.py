"""`varvite verify`: checks that the objects of a job's retained checkpoints exist and are undamaged, and repairs them.

Exit codes: 0 no problem; 1 there is a problem, or the storage could not be read; 2 the options are wrong.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from varvite.changelog.retention.savepoints import list_all_savepoints
from varvite.materializer.commands.output.errors import job_error, show_error
from varvite.materializer.commands.output.lines import show_lines
from varvite.materializer.commands.output.parameters import open_place, open_root, storage_parameters
from varvite.materializer.commands.output.progress import track_items
from varvite.materializer.commands.repair_report import RepairChoice, repair_job, show_nothing_repaired
from varvite.materializer.verify.savepoints import damage_of
from varvite.materializer.verify.verifier import Problem, Verification, verify
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import CorruptDataError, InvalidRequestError, VarviteError
from varvite.storage.format import layout
from varvite.storage.job.listing import job_names, open_job
from varvite.storage.job.store import JobStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.retention.savepoints import ListedSavepoint
    from varvite.storage.object_stores.contract import ObjectStore


class VerifyLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varvite verify`."""

    job: str
    head_seq: int
    entries: int
    checkpoints: int
    segments: int
    segment_bytes: int
    images: int
    snapshots: int
    snapshot_files: int
    snapshot_bytes: int
    savepoints: int
    compared: int
    problems: int


class ProblemLine(msgspec.Struct, frozen=True, kw_only=True):
    """A further line of `varvite verify` for each problem."""

    job: str
    object_name: str
    problem: str


class SavepointCheckLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varvite verify --at`."""

    job: str
    savepoint: str
    seq: int | None
    """None, like the batch, if the savepoint's manifest cannot be read; then its job is not known."""
    batch: int | None
    files: int
    stored_bytes: int
    object_name: str | None
    """The first missing or damaged object; None: there is none."""
    problem: str | None


@click.command(name="verify")
@click.argument("job", required=False)
@storage_parameters(required=False)
@click.option("--at", "at_url", metavar="URL", help="Check JOB's savepoints at this location (their --to) instead.")
@click.option("--repair", is_flag=True, help="Show how damaged checkpoints can be rebuilt; with --apply, rebuild them.")
@click.option("--apply", "applies", is_flag=True, help="Repair: publish new snapshots, which the running job adopts.")
@click.option(
    "--stopped", is_flag=True, help="The job is stopped: write a new entry, from which its next start continues."
)
@click.option("--checkpoint", "seq", type=click.IntRange(1), help="With --stopped: continue from this checkpoint.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines: one per job, then one per problem.")
def verify_command(
    job: str | None,
    storage_url: str | None,
    storage_options: dict[str, Any] | None,
    at_url: str | None,
    *,
    as_json: bool,
    **repairing: Any,
) -> None:
    """Check all checksums and references of JOB's retained checkpoints and savepoints, and its snapshots by its log.

    Without JOB: all jobs of the storage. Reads every object that it checks, and changes nothing without --apply. A pin
    protects the checkpoints meanwhile: a small object that is deleted at the end. The exit code is 1 if there is a
    problem.
    """
    try:
        choice = _choice(job, **repairing)
        if at_url is not None:
            place = open_place(at_url, storage_url, storage_options)
            sys.exit(_verify_savepoints(job, place, choice, as_json=as_json))
        if storage_url is None:
            raise InvalidRequestError(
                "the storage is missing: give --storage, or --at for savepoints at a location of their own"
            )
        root = open_root(storage_url, storage_options)
        results = [_verify(job, root)] if job is not None else _verify_all(root)
        show_lines([_line(result) for result in results], as_json=as_json)
        damaged = [result for result in results if result.problems]
        if damaged:
            show_lines(_problems(damaged), as_json=as_json)
        if choice is not None:
            _repair(root, damaged, choice, is_one=job is not None, as_json=as_json)
            if choice.applies and not damaged:
                show_nothing_repaired(results[0].job, choice, as_json=as_json)
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    if damaged:
        sys.exit(1)


def _repair(
    root: ObjectStore, damaged: Sequence[Verification], choice: RepairChoice, *, is_one: bool, as_json: bool
) -> None:
    """Repair, or only advise; the error of one of several jobs does not keep the others from it."""
    for result in damaged:
        try:
            repair_job(JobStore(root, result.job), result, choice, as_json=as_json)
        except Exception as error:
            if is_one:
                raise
            show_error(job_error(error, result.job), as_json=as_json)


def _verify_savepoints(job: str | None, store: ObjectStore, choice: RepairChoice | None, *, as_json: bool) -> int:
    """Check the savepoints at a location; returns the exit code."""
    if job is None or choice is not None:
        raise InvalidRequestError("--at needs the JOB, and goes without --repair: make a new savepoint instead")
    listed = [
        item
        for item in list_all_savepoints(store)
        if isinstance(item.savepoint, CorruptDataError) or item.savepoint.job == job
    ]
    if not listed:
        raise InvalidRequestError(
            f"there is no savepoint of job {job!r} at {store.url}: nothing was verified; correct the job or location"
        )
    lines = [_check_savepoint(job, item, store) for item in track_items(listed, "savepoints")]
    show_lines(lines, as_json=as_json)
    return int(any(line.problem is not None for line in lines))


def _check_savepoint(job: str, listed: ListedSavepoint, store: ObjectStore) -> SavepointCheckLine:
    savepoint = listed.savepoint
    if isinstance(savepoint, CorruptDataError):
        name = str(savepoint.context.get("object_name", layout.savepoint(listed.name)))
        return SavepointCheckLine(
            job=job,
            savepoint=listed.name,
            seq=None,
            batch=None,
            files=0,
            stored_bytes=0,
            object_name=name,
            problem=savepoint.message,
        )
    damage = damage_of(store, savepoint)
    return SavepointCheckLine(
        job=job,
        savepoint=savepoint.name,
        seq=savepoint.commit.seq,
        batch=savepoint.commit.batch,
        files=len(savepoint.files),
        stored_bytes=sum(file.size_bytes for file in savepoint.files),
        object_name=None if damage is None else damage.object_name,
        problem=None if damage is None else damage.problem,
    )


def _verify(job: str, root: ObjectStore) -> Verification:
    try:
        store = open_job(root, job).store
    except CorruptDataError:
        store = JobStore(root, job)  # `verify` reports it as the first problem
    return verify(store, job, SystemClock(), SystemTokens(), track_items)


def _verify_all(root: ObjectStore) -> list[Verification]:
    """Verify all jobs; an unreadable one is a problem of its own. Raises `InvalidRequestError` if there is no job."""
    names = job_names(root)
    if not names:
        raise InvalidRequestError(f"there is no job in {root.url}: nothing was verified; correct the storage location")
    results: list[Verification] = []
    for name in names:
        try:
            results.append(_verify(name, root))
        except Exception as error:  # noqa: BLE001  the others are verified all the same
            caught = job_error(error, name)
            problem = Problem(str(caught.context.get("object_name", layout.JOB)), caught.message)
            results.append(Verification(job=name, problems=[problem]))
    return results


def _choice(job: str | None, *, repair: bool, applies: bool, stopped: bool, seq: int | None) -> RepairChoice | None:
    """The options of a repair; None without `--repair`. Raises `InvalidRequestError` if they contradict one another."""
    if (applies or stopped or seq is not None) and not repair:
        raise InvalidRequestError("--apply, --stopped and --checkpoint go with --repair")
    if applies and job is None:
        raise InvalidRequestError("a repair needs the JOB")
    if seq is not None and not stopped:
        raise InvalidRequestError("--checkpoint goes with --stopped: a running job has its checkpoint")
    return RepairChoice(applies=applies, stopped=stopped, seq=seq) if repair else None


def _problems(results: Sequence[Verification]) -> list[ProblemLine]:
    return [
        ProblemLine(job=result.job, object_name=problem.object_name, problem=problem.problem)
        for result in results
        for problem in result.problems
    ]


def _line(result: Verification) -> VerifyLine:
    counts: dict[str, Any] = {name: getattr(result, name) for name in VerifyLine.__struct_fields__}
    counts["problems"] = len(result.problems)
    return VerifyLine(**counts)
