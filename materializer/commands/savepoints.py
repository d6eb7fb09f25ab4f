"""`varvite savepoint`: creates, lists, describes and deletes savepoints; the job may run or not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click
import msgspec

from varvite.changelog.retention.savepoints import (
    create_native,
    delete_damaged_savepoint,
    delete_savepoint,
    list_all_savepoints,
    own_files,
    read_savepoint,
)
from varvite.materializer.commands.output.lines import json_of, show_lines, type_name
from varvite.materializer.commands.output.parameters import (
    existing_job,
    job_chain,
    open_place,
    storage_parameters,
)
from varvite.materializer.commands.output.progress import shown_steps
from varvite.materializer.savepoints.canonical import CanonicalSavepoints
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import CorruptDataError, InvalidRequestError, StateMissingError, VarviteError
from varvite.storage.format import layout
from varvite.storage.job.record import read_job
from varvite.storage.object_stores.open import open_beside
from varvite.storage.private_directories import TemporaryDirectory
from varvite.storage.units import utc_time

if TYPE_CHECKING:
    from typing import Unpack

    from varvite.changelog.chain.reader import ChainReader
    from varvite.changelog.retention.savepoints import ListedSavepoint
    from varvite.storage.format.records import Commit, Savepoint
    from varvite.storage.object_stores.contract import ObjectStore


class SavepointLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varvite savepoint list`."""

    job: str
    name: str
    format: str | None = None
    """native, canonical, or hold (the commit that a running or killed copy keeps)."""
    seq: int | None = None
    batch: int | None = None
    time: str | None = None
    """Time of the state."""
    created: str | None = None
    operators: tuple[str, ...] = ()
    objects: int | None = None
    """Number of the job's objects that it keeps, or of its own files."""
    holder: str | None = None
    error: str | None = None
    """The error, if the savepoint cannot be read; then other fields are empty, and nothing of the job is deleted."""


class StateLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `varvite savepoint describe`: one state. Fields that a native savepoint does not know are empty."""

    operator: str
    state: str
    kind: str
    value_type: str | None = None
    """None for non-keyed state: only its file has the type."""
    key_type: str | None = None
    rows: int | None = None
    stored_bytes: int | None = None


class FileLine(msgspec.Struct, frozen=True, kw_only=True):
    """A further line of `varvite savepoint describe`: a file of a canonical savepoint."""

    operator: str
    state: str
    rows: int
    stored_bytes: int
    file: str
    """Name below the directory of `savepoints/`."""


class DescribedState(StateLine, frozen=True, kw_only=True):
    """A state in `varvite savepoint describe --json`."""

    files: tuple[str, ...] = ()


class DescribedSavepoint(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `varvite savepoint describe --json`."""

    savepoint: SavepointLine
    query_id: str
    source_hash: str
    watermark_ms: int | None
    key_groups: int
    states: tuple[DescribedState, ...]
    objects: tuple[str, ...]


class _Place(TypedDict):
    """Options for the location of a copy."""

    target_url: str | None
    unencrypted: bool


_AT: Final = click.option("--at", "at_url", metavar="URL", help="The location given with --to, instead of the job.")


@click.group()
def savepoint() -> None:
    """Savepoints: checkpoints under names, kept until they are deleted."""


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
    help="native keeps the checkpoint's objects; canonical copies the state to Parquet files.",
)
@click.option("--checkpoint", "seq", type=click.IntRange(1), help="Seq of a retained checkpoint [default: the newest].")
@click.option("--to", "target_url", metavar="URL", help="Location of a canonical savepoint, instead of the job.")
@click.option("--unencrypted", is_flag=True, help="With --to, for an encrypted job: allow an unencrypted copy.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def create(
    job: str,
    name: str,
    storage_url: str,
    storage_options: dict[str, Any] | None,
    *,
    form: str,
    seq: int | None,
    as_json: bool,
    **place: Unpack[_Place],
) -> None:
    """Create the savepoint NAME of JOB."""
    try:
        layout.check_savepoint_name(name)
        target_url = place["target_url"]
        if target_url is not None and form == "native":
            raise InvalidRequestError("a native savepoint is in its job; give --format canonical with --to")
        if target_url is None and place["unencrypted"]:
            raise InvalidRequestError("a savepoint in the job is encrypted like the job; --unencrypted goes with --to")
        reader = job_chain(job, storage_url, storage_options)
        commit = _commit(reader, seq)
        if form == "canonical":
            if target_url is not None and not place["unencrypted"]:
                _check_not_encrypted(reader.store, target_url)
            target = reader.store if target_url is None else open_beside(target_url, storage_url, storage_options)
            created = _copy(reader, job, commit, name, target)
        else:
            created = create_native(
                reader, commit, name, job=job, holder="varvite savepoint", clock=SystemClock(), tokens=SystemTokens()
            )
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    show_lines([_line(created)], as_json=as_json, rare=("error",))


@savepoint.command(name="list")
@click.argument("job")
@storage_parameters(required=False)
@_AT
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def list_(
    job: str, storage_url: str | None, storage_options: dict[str, Any] | None, at_url: str | None, *, as_json: bool
) -> None:
    """List the savepoints of JOB, by name; the exit code is 1 if one cannot be read."""
    try:
        store = savepoint_store(job, storage_url, storage_options, at_url)
        listed = [item for item in list_all_savepoints(store) if at_url is None or _may_be_of(item, job)]
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    lines = [
        SavepointLine(job=job, name=item.name, error=item.savepoint.message)
        if isinstance(item.savepoint, CorruptDataError)
        else _line(item.savepoint)
        for item in listed
    ]
    show_lines(lines, as_json=as_json, rare=("error",))
    if any(line.error for line in lines):
        sys.exit(1)


@savepoint.command()
@click.argument("job")
@click.argument("name")
@storage_parameters(required=False)
@_AT
@click.option("--json", "as_json", is_flag=True, help="JSON, with the names of all objects.")
def describe(
    job: str,
    name: str,
    storage_url: str | None,
    storage_options: dict[str, Any] | None,
    at_url: str | None,
    *,
    as_json: bool,
) -> None:
    """Show the savepoint NAME of JOB and its states; of a canonical one also the files."""
    try:
        savepoint = _read(savepoint_store(job, storage_url, storage_options, at_url), job, name)
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    states = _states(savepoint)
    if as_json:
        described = DescribedSavepoint(
            savepoint=_line(savepoint),
            query_id=savepoint.commit.query_id,
            source_hash=savepoint.commit.source_hash,
            watermark_ms=savepoint.commit.watermark_ms,
            key_groups=savepoint.commit.max_parallelism,
            states=states,
            objects=_objects(savepoint),
        )
        click.echo(json_of(described))
        return
    show_lines([_line(savepoint)], as_json=False, rare=("error",))
    show_lines([_without_files(state) for state in states], as_json=False)
    if savepoint.files or savepoint.tables:
        show_lines(_files(savepoint), as_json=False)


@savepoint.command()
@click.argument("job")
@click.argument("name")
@storage_parameters(required=False)
@_AT
@click.option("--damaged", is_flag=True, help="Delete it even if it cannot be read.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def delete(
    job: str,
    name: str,
    storage_url: str | None,
    storage_options: dict[str, Any] | None,
    at_url: str | None,
    *,
    damaged: bool,
    as_json: bool,
) -> None:
    """Delete the savepoint NAME of JOB. The next garbage collection deletes the objects that only it kept."""
    try:
        store = savepoint_store(job, storage_url, storage_options, at_url)
        line = _delete(job, name, store, is_shared=at_url is not None, damaged=damaged)
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    show_lines([line], as_json=as_json, rare=("error",))


def _delete(job: str, name: str, store: ObjectStore, *, is_shared: bool, damaged: bool) -> SavepointLine:
    """Delete a savepoint; a shared location may have savepoints of other jobs."""
    try:
        if is_shared:
            _read(store, job, name)
        return _line(delete_savepoint(store, name))
    except CorruptDataError as error:
        if not damaged:
            raise
        delete_damaged_savepoint(store, name)
        return SavepointLine(job=job, name=name, error=error.message)


def savepoint_store(
    job: str, storage_url: str | None, storage_options: dict[str, Any] | None, at_url: str | None
) -> ObjectStore:
    """Open the store of a job's savepoints: the job's, or that of a location. Raises `InvalidRequestError`."""
    if at_url is not None:
        return open_place(at_url, storage_url, storage_options)
    if storage_url is None:
        raise InvalidRequestError("the location of the savepoints is missing: give --storage, or --at for a directory")
    return existing_job(job, storage_url, storage_options).store


def _may_be_of(listed: ListedSavepoint, job: str) -> bool:
    """Can the savepoint be this job's? The job of a damaged one is not known."""
    return isinstance(listed.savepoint, CorruptDataError) or listed.savepoint.job == job


def _read(store: ObjectStore, job: str, name: str) -> Savepoint:
    """Read a savepoint. Raises `InvalidRequestError` if it is another job's: a location may have those of many."""
    savepoint = read_savepoint(store, name)
    if savepoint.job != job:
        raise InvalidRequestError(f"savepoint {name!r} at {store.url} is of job {savepoint.job!r}, not {job!r}")
    return savepoint


def _commit(reader: ChainReader, seq: int | None) -> Commit:
    commit = reader.newest() if seq is None else reader.find_commit(seq)
    if commit is None:
        raise StateMissingError(
            "the job has no checkpoint yet"
            if seq is None
            else f"there is no checkpoint {seq}; see `varvite checkpoints`"
        )
    return commit


def _check_not_encrypted(store: ObjectStore, target_url: str) -> None:
    storage = read_job(store).storage
    if storage is not None and storage.encryption is not None:
        raise InvalidRequestError(
            f"the job is encrypted, and a copy at {target_url} would be unencrypted; leave --to out, or give "
            "--unencrypted to allow it"
        )


def _copy(reader: ChainReader, job: str, commit: Commit, name: str, target: ObjectStore) -> Savepoint:
    with TemporaryDirectory("savepoint") as scratch, shown_steps(name) as show_progress:
        writer = CanonicalSavepoints(reader, job, target, scratch, clock=SystemClock(), tokens=SystemTokens())
        return writer.create(commit, name, "varvite savepoint", show_progress)


def _line(savepoint: Savepoint) -> SavepointLine:
    return SavepointLine(
        job=savepoint.job,
        name=savepoint.name,
        format="hold" if layout.is_hold(savepoint.name) else savepoint.format,
        seq=savepoint.commit.seq,
        batch=savepoint.commit.batch,
        time=utc_time(savepoint.commit.time_ms),
        created=utc_time(savepoint.created_ms),
        operators=tuple(operator.uid for operator in savepoint.commit.operators),
        objects=len(_objects(savepoint)),
        holder=savepoint.holder,
    )


def _objects(savepoint: Savepoint) -> tuple[str, ...]:
    return savepoint.objects or tuple(own_files(savepoint))


def _without_files(state: DescribedState) -> StateLine:
    return StateLine(**{name: getattr(state, name) for name in StateLine.__struct_fields__})


def _files(savepoint: Savepoint) -> list[FileLine]:
    return [
        FileLine(operator=f.operator, state=f.state, rows=f.rows, stored_bytes=f.size_bytes, file=f.name)
        for f in (*savepoint.files, *savepoint.tables)
    ]


def _states(savepoint: Savepoint) -> tuple[DescribedState, ...]:
    is_copy = savepoint.format == "canonical"
    lines: list[DescribedState] = []
    for operator in savepoint.commit.operators:
        for state in operator.states:
            files = [f for f in savepoint.files if (f.operator, f.state) == (operator.uid, state.name)]
            lines.append(
                DescribedState(
                    operator=operator.uid,
                    state=state.name,
                    kind=state.kind,
                    value_type=type_name(state.value_type),
                    key_type=type_name(operator.key_type),
                    rows=sum(f.rows for f in files) if is_copy else None,
                    stored_bytes=sum(f.size_bytes for f in files) if is_copy else None,
                    files=tuple(f.name for f in files),
                )
            )
    lines += [
        DescribedState(
            operator=table.operator,
            state=table.state,
            kind=table.kind,
            rows=table.rows,
            stored_bytes=table.size_bytes,
            files=(table.name,),
        )
        for table in savepoint.tables
    ]
    return tuple(lines)
