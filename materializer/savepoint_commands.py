"""`varve savepoint`: checkpoints under names, made, listed, described and deleted; the job may run or not."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.progress import Progress

from varve.materializer.canonical_savepoint import CanonicalSavepoints
from varve.materializer.command_output import show_lines, utc_time
from varve.materializer.state_origin import open_beside
from varve.materializer.storage_parameters import job_chain, job_store, storage_parameters
from varve.storage import layout
from varve.storage.clock import SystemClock, SystemTokens
from varve.storage.errors import InvalidRequestError, StateMissingError, VarveError
from varve.storage.savepoints import create_native, delete_savepoint, list_savepoints, read_savepoint

if TYPE_CHECKING:
    from varve.storage.chain_reader import ChainReader
    from varve.storage.object_store import ObjectStore
    from varve.storage.records import Commit, Savepoint


class SavepointLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varve savepoint list`."""

    job: str
    name: str
    format: str
    """native, canonical, or hold: what a copy in progress, or one that was killed, keeps."""
    seq: int
    batch: int
    time: str
    """Of the state."""
    created: str
    operators: tuple[str, ...]
    objects: int
    """Objects of the job that it keeps, or files of its own."""
    holder: str


class StateLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varve savepoint describe`: one state. What is not known of a native savepoint is left out."""

    operator: str
    state: str
    kind: str
    value_type: str
    key_type: str
    rows: int | None = None
    stored_bytes: int | None = None
    files: tuple[str, ...] = ()


class DescribedSavepoint(msgspec.Struct, frozen=True, kw_only=True):
    """What `varve savepoint describe --json` prints."""

    savepoint: SavepointLine
    query_id: str
    source_hash: str
    watermark_ms: int | None
    key_groups: int
    states: tuple[StateLine, ...]
    objects: tuple[str, ...]


@click.group()
def savepoint() -> None:
    """Checkpoints under names, which are kept until they are deleted."""


@savepoint.command()
@click.argument("job")
@click.argument("name")
@storage_parameters(required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["native", "canonical"]),
    default="native",
    show_default=True,
    help="native keeps the objects that the checkpoint is made of; canonical copies the state to Parquet files.",
)
@click.option("--checkpoint", "seq", type=click.IntRange(1), help="Seq of a retained checkpoint [default: the newest].")
@click.option("--to", "target_url", metavar="URL", help="Where a canonical savepoint is to be, instead of in the job.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def create(
    job: str,
    name: str,
    storage_url: str,
    storage_options: dict[str, Any] | None,
    *,
    form: str,
    seq: int | None,
    target_url: str | None,
    as_json: bool,
) -> None:
    """Make the savepoint NAME of JOB."""
    try:
        layout.check_savepoint_name(name)
        if target_url is not None and form == "native":
            raise InvalidRequestError("a native savepoint is in its job; give --format canonical with --to")
        reader = job_chain(job, storage_url, storage_options)
        commit = _commit(reader, seq)
        if form == "canonical":
            target = reader.store if target_url is None else open_beside(target_url, storage_options)
            made = _copied(reader, job, commit, name, target, quiet=as_json)
        else:
            made = create_native(
                reader, commit, name, job=job, holder="varve savepoint", clock=SystemClock(), tokens=SystemTokens()
            )
    except VarveError as error:
        raise click.ClickException(str(error)) from error
    show_lines([_line(made)], as_json=as_json)


@savepoint.command(name="list")
@click.argument("job")
@storage_parameters(required=True)
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def list_(job: str, storage_url: str, storage_options: dict[str, Any] | None, *, as_json: bool) -> None:
    """List the savepoints of JOB, by name."""
    try:
        lines = [_line(found) for found in list_savepoints(job_store(job, storage_url, storage_options))]
    except VarveError as error:
        raise click.ClickException(str(error)) from error
    show_lines(lines, as_json=as_json)


@savepoint.command()
@click.argument("job")
@click.argument("name")
@storage_parameters(required=True)
@click.option("--json", "as_json", is_flag=True, help="JSON, with the names of all objects.")
def describe(job: str, name: str, storage_url: str, storage_options: dict[str, Any] | None, *, as_json: bool) -> None:
    """Show the savepoint NAME of JOB and its states."""
    try:
        found = read_savepoint(job_store(job, storage_url, storage_options), name)
    except VarveError as error:
        raise click.ClickException(str(error)) from error
    states = _states(found)
    if as_json:
        described = DescribedSavepoint(
            savepoint=_line(found),
            query_id=found.commit.query_id,
            source_hash=found.commit.source_hash,
            watermark_ms=found.commit.watermark_ms,
            key_groups=found.commit.max_parallelism,
            states=states,
            objects=_objects(found),
        )
        click.echo(msgspec.json.encode(described).decode())
        return
    show_lines([_line(found)], as_json=False)
    show_lines([msgspec.structs.replace(state, files=()) for state in states], as_json=False)


@savepoint.command()
@click.argument("job")
@click.argument("name")
@storage_parameters(required=True)
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def delete(job: str, name: str, storage_url: str, storage_options: dict[str, Any] | None, *, as_json: bool) -> None:
    """Delete the savepoint NAME of JOB; what only it needed goes with the next collection."""
    try:
        deleted = delete_savepoint(job_store(job, storage_url, storage_options), name)
    except VarveError as error:
        raise click.ClickException(str(error)) from error
    show_lines([_line(deleted)], as_json=as_json)


def _commit(reader: ChainReader, seq: int | None) -> Commit:
    found = reader.newest() if seq is None else reader.find_commit(seq)
    if found is None:
        raise StateMissingError(
            "the job has no checkpoint yet" if seq is None else f"there is no checkpoint {seq}; see `varve checkpoints`"
        )
    return found


def _copied(reader: ChainReader, job: str, commit: Commit, name: str, target: ObjectStore, *, quiet: bool) -> Savepoint:
    console = Console(stderr=True)
    shown = Progress(console=console, transient=True, disable=quiet or not console.is_terminal)
    with tempfile.TemporaryDirectory(prefix="varve-savepoint-") as scratch, shown as progress:
        task = progress.add_task(name, total=None)
        writer = CanonicalSavepoints(reader, job, target, Path(scratch), clock=SystemClock(), tokens=SystemTokens())

        def on_range(done: int, ranges: int) -> None:
            progress.update(task, completed=done, total=ranges)

        return writer.create(commit, name, "varve savepoint", on_range)


def _line(found: Savepoint) -> SavepointLine:
    return SavepointLine(
        job=found.job,
        name=found.name,
        format="hold" if layout.is_hold(found.name) else found.format,
        seq=found.commit.seq,
        batch=found.commit.batch,
        time=utc_time(found.commit.time_ms),
        created=utc_time(found.created_ms),
        operators=tuple(operator.uid for operator in found.commit.operators),
        objects=len(_objects(found)),
        holder=found.holder,
    )


def _objects(found: Savepoint) -> tuple[str, ...]:
    return found.objects or tuple(file.name for file in found.files)


def _states(found: Savepoint) -> tuple[StateLine, ...]:
    is_copy = found.format == "canonical"
    lines: list[StateLine] = []
    for operator in found.commit.operators:
        for state in operator.states:
            files = [f for f in found.files if (f.operator, f.state) == (operator.uid, state.name)]
            lines.append(
                StateLine(
                    operator=operator.uid,
                    state=state.name,
                    kind=state.kind,
                    value_type=state.value_type,
                    key_type=operator.key_type,
                    rows=sum(f.rows for f in files) if is_copy else None,
                    stored_bytes=sum(f.size_bytes for f in files) if is_copy else None,
                    files=tuple(f.name for f in files),
                )
            )
    return tuple(lines)
