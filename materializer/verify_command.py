"""`varve verify`: is everything there and whole that the retained checkpoints of a job need?

Exit codes: 0 nothing is wrong; 1 something is, or the storage could not be read; 2 the options are wrong.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.progress import track

from varve.changelog.verification import Verification, verify
from varve.materializer.command_output import show_lines
from varve.materializer.jobs import job_names
from varve.materializer.storage_parameters import storage_parameters
from varve.storage.clock import SystemClock, SystemTokens
from varve.storage.errors import VarveError
from varve.storage.job_store import JobStore
from varve.storage.open_store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class VerifyLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varve verify`."""

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
    compared: int
    problems: int


class ProblemLine(msgspec.Struct, frozen=True, kw_only=True):
    """A further line of `varve verify` for each problem."""

    job: str
    object_name: str
    problem: str


@click.command(name="verify")
@click.argument("job", required=False)
@storage_parameters(required=True)
@click.option("--json", "as_json", is_flag=True, help="JSON lines: one per job, then one per problem.")
def verify_command(job: str | None, storage_url: str, storage_options: dict[str, Any] | None, *, as_json: bool) -> None:
    """Check every checksum and reference of JOB's retained checkpoints, and compare its snapshots with its log.

    Without JOB, all jobs of the storage. Reads all that is checked, and changes nothing; the exit code is 1 if
    something is wrong. Keeps the checkpoints while it looks at them, which writes a small object and removes it again.
    """
    try:
        root = open_store(storage_url, storage_options)
        found = [
            verify(JobStore(root, name), name, SystemClock(), SystemTokens(), _track)
            for name in ([job] if job else job_names(root))
        ]
    except VarveError as error:
        raise click.ClickException(str(error)) from error
    show_lines([_line(one) for one in found], as_json=as_json)
    problems = [
        ProblemLine(job=one.job, object_name=problem.object_name, problem=problem.problem)
        for one in found
        for problem in one.problems
    ]
    if problems:
        show_lines(problems, as_json=as_json)
        sys.exit(1)


def _line(found: Verification) -> VerifyLine:
    counts: dict[str, Any] = {name: getattr(found, name) for name in VerifyLine.__struct_fields__}
    counts["problems"] = len(found.problems)
    return VerifyLine(**counts)


def _track(items: Sequence[Any], what: str) -> Iterable[Any]:
    console = Console(stderr=True)
    return track(items, what, console=console, transient=True, disable=not console.is_terminal)
