"""`varvite verify`: is everything there and whole that the retained checkpoints of a job need, and can it be repaired?

Exit codes: 0 nothing is wrong; 1 something is, or the storage could not be read; 2 the options are wrong.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from varvite.changelog.retention.savepoints import list_all_savepoints
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
    """None, as the batch, if the savepoint itself cannot be read; then it is not known of which job it is."""
    batch: int | None
    files: int
    stored_bytes: int
    object_name: str | None
    """What is gone or damaged; None: nothing."""
    problem: str | None


@click.command(name="verify")
@click.argument("job", required=False)
@storage_parameters(required=False)
@click.option("--at", "at_url", metavar="URL", help="Check JOB's savepoints that were made --to this place instead.")
@click.option("--repair", is_flag=True, help="Say what can be rebuilt of what is damaged; with --apply, do it.")
@click.option("--apply", "applies", is_flag=True, help="Repair: publish new snapshots, which the running job adopts.")
@click.option(
    "--stopped", is_flag=True, help="The job is stopped: write a new entry, from which its next start goes on."
)
@click.option("--checkpoint", "seq", type=click.IntRange(1), help="With --stopped: go on from this checkpoint.")
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
    """Check every checksum and reference of JOB's retained checkpoints and savepoints, and its snapshots with its log.

    Without JOB, all jobs of the storage. Reads all that is checked, and changes nothing unless it is told to --apply a
    repair; the exit code is 1 if something is wrong. Keeps the checkpoints while it looks at them, which writes a small
    object and removes it again.
    """
    try:
        choice = _choice(job, **repairing)
        if at_url is not None:
            sys.exit(_verify_savepoints(job, at_url, storage_options, choice, as_json=as_json))
        if storage_url is None:
            raise InvalidRequestError(
                "say what to check: give --storage, or --at for savepoints at a place of their own"
            )
        root = open_root(storage_url, storage_options)
        found = [_verified(job, root)] if job is not None else _all_verified(root)
        show_lines([_line(one) for one in found], as_json=as_json)
        damaged = [one for one in found if one.problems]
        if damaged:
            show_lines(_problems(damaged), as_json=as_json)
        if choice is not None:
            for one in damaged:
                repair_job(JobStore(root, one.job), one, choice, as_json=as_json)
            if choice.applies and not damaged:
                show_nothing_repaired(found[0].job, choice, as_json=as_json)
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    if damaged:
        sys.exit(1)


def _verify_savepoints(
    job: str | None, at_url: str, storage_options: dict[str, Any] | None, choice: RepairChoice | None, *, as_json: bool
) -> int:
    """Check what is at a location; the exit code."""
    if job is None or choice is not None:
        raise InvalidRequestError("--at needs the JOB, and goes without --repair: make a new savepoint instead")
    store = open_place(at_url, storage_options)
    listed = list_all_savepoints(store)
    found = [one for one in listed if isinstance(one.savepoint, CorruptDataError) or one.savepoint.job == job]
    if not found:
        raise InvalidRequestError(
            f"there is no savepoint of job {job!r} at {store.url}: nothing was verified; correct the job or location"
        )
    lines = [_checked(job, one, store) for one in track_items(found, "savepoints")]
    show_lines(lines, as_json=as_json)
    return int(any(line.problem is not None for line in lines))


def _checked(job: str, listed: ListedSavepoint, store: ObjectStore) -> SavepointCheckLine:
    one = listed.savepoint
    if isinstance(one, CorruptDataError):
        name = str(one.context.get("object_name", layout.savepoint(listed.name)))
        return SavepointCheckLine(
            job=job,
            savepoint=listed.name,
            seq=None,
            batch=None,
            files=0,
            stored_bytes=0,
            object_name=name,
            problem=one.message,
        )
    damage = damage_of(store, one)
    return SavepointCheckLine(
        job=job,
        savepoint=one.name,
        seq=one.commit.seq,
        batch=one.commit.batch,
        files=len(one.files),
        stored_bytes=sum(file.size_bytes for file in one.files),
        object_name=None if damage is None else damage.object_name,
        problem=None if damage is None else damage.problem,
    )


def _verified(job: str, root: ObjectStore) -> Verification:
    try:
        store = open_job(root, job).store
    except CorruptDataError:
        store = JobStore(root, job)  # which is the first problem that is found
    return verify(store, job, SystemClock(), SystemTokens(), track_items)


def _all_verified(root: ObjectStore) -> list[Verification]:
    """All jobs; one that cannot be looked at is a problem of its own. Raises `InvalidRequestError` if there is none."""
    names = job_names(root)
    if not names:
        raise InvalidRequestError(f"there is no job in {root.url}: nothing was verified; correct the storage location")
    found: list[Verification] = []
    for name in names:
        try:
            found.append(_verified(name, root))
        except VarviteError as error:
            problem = Problem(str(error.context.get("object_name", layout.JOB)), error.message)
            found.append(Verification(job=name, problems=[problem]))
    return found


def _choice(job: str | None, *, repair: bool, applies: bool, stopped: bool, seq: int | None) -> RepairChoice | None:
    """What is to be done about damage; None: nothing. Raises `InvalidRequestError` for options without a sense."""
    if (applies or stopped or seq is not None) and not repair:
        raise InvalidRequestError("--apply, --stopped and --checkpoint go with --repair")
    if applies and job is None:
        raise InvalidRequestError("a repair needs the JOB")
    if seq is not None and not stopped:
        raise InvalidRequestError("--checkpoint goes with --stopped: a running job has its checkpoint")
    return RepairChoice(applies=applies, stopped=stopped, seq=seq) if repair else None


def _problems(found: Sequence[Verification]) -> list[ProblemLine]:
    return [
        ProblemLine(job=one.job, object_name=problem.object_name, problem=problem.problem)
        for one in found
        for problem in one.problems
    ]


def _line(found: Verification) -> VerifyLine:
    counts: dict[str, Any] = {name: getattr(found, name) for name in VerifyLine.__struct_fields__}
    counts["problems"] = len(found.problems)
    return VerifyLine(**counts)
