"""`varvite standby`: keep copies of a job's state current on this host, so that workers start without a restore.

Exit codes: 0 it was stopped, or `--once` brought all copies up to date; 1 `--once` left something undone; 2 the options
are wrong.
"""

from __future__ import annotations

import socket
import sys
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import click

from varvite.changelog.restore.local import LocalRecovery
from varvite.changelog.restore.options import LOCAL_DIRECTORIES, LOCAL_UNUSED_AGE, LOCAL_UNUSED_SIZE
from varvite.materializer.commands.output.errors import show_error
from varvite.materializer.commands.output.lines import show_lines
from varvite.materializer.commands.output.parameters import Parsed, existing_job, storage_parameters
from varvite.materializer.options.materializer_config import MaterializerConfig
from varvite.materializer.resources.stop_signal import StopSignal, stop_on_signals
from varvite.materializer.standby.follower import Standby
from varvite.storage.clock import SystemClock
from varvite.storage.errors import InvalidRequestError, VarviteError
from varvite.storage.job.store import JobStore
from varvite.storage.object_stores.open import open_store
from varvite.storage.options.declaration import options_of

if TYPE_CHECKING:
    from varvite.materializer.standby.follower import StandbyLine

_POLL: Final = options_of(MaterializerConfig)["poll_ms"]
_ELSEWHERE: Final = "192.0.2.1"
"""An address of no machine: a datagram socket that is connected to it tells this machine's address; nothing is sent."""

_NOTHING_YET: Final = (
    "nothing to copy: job {job} has no operator in a final checkpoint, and the newest one is final only when another "
    "follows; run this again when the job has made another checkpoint"
)


@click.command()
@click.argument("job")
@storage_parameters(required=True)
@click.option(
    "--directory",
    "directories",
    multiple=True,
    type=click.Path(file_okay=False, resolve_path=True),
    help=f"The job's directory of local state, as in {LOCAL_DIRECTORIES.key}; once per directory, in the same order "
    "[default: this user's].",
)
@click.option(
    "--poll",
    "poll_ms",
    type=Parsed("duration", _POLL.read_value),
    default=_POLL.default_text,
    show_default=True,
    help="Time between two rounds.",
)
@click.option("--parallel", default=2, show_default=True, type=click.IntRange(1), help="Ranges at the same time.")
@click.option(
    "--max-unused-age",
    type=Parsed("duration", LOCAL_UNUSED_AGE.read_value),
    default=LOCAL_UNUSED_AGE.default_text,
    show_default=True,
    help="Evict local state that no process has used for this long.",
)
@click.option(
    "--max-unused-size",
    type=Parsed("size", LOCAL_UNUSED_SIZE.read_value),
    help="Evict the least recently used local state above this total size; state in use does not count [default: no "
    "limit].",
)
@click.option(
    "--followers",
    type=click.IntRange(1),
    help="Standbys of the job that keep a copy of each partition, on other hosts than its worker if possible "
    "[default: all].",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="A name that Spark has for this host; once per name, the first one unique among the job's standbys "
    "[default: the names and addresses of this machine].",
)
@click.option("--once", is_flag=True, help="Run one round, unannounced to other standbys, and end.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def standby(job: str, storage_url: str, storage_options: dict[str, Any] | None, **options: Any) -> None:
    """Keep copies of JOB's state current on this host, until SIGTERM or SIGINT.

    Run it on hosts whose executors may have to take over partitions; the job needs the option
    execution.state-recovery.from-local. It records its copies in the storage, so that the job places partitions on
    their hosts, and prints changes.
    """
    once, names = bool(options["once"]), options["hosts"] or host_names()
    if options["followers"] is not None and (once or not names):
        raise click.UsageError("--followers does not go with --once, and needs a name of this host (--host)")
    try:
        store = JobStore(open_store(storage_url, storage_options), job)
    except InvalidRequestError as error:
        raise click.UsageError(str(error), click.get_current_context(silent=True)) from error
    follower = Standby(
        job,
        store,
        _policy(options),
        SystemClock(),
        parallel=options["parallel"],
        host_names=() if once else names,
        followers=options["followers"],
    )
    stop = StopSignal()
    stop_on_signals(stop)
    if once:
        _check_job(job, storage_url, storage_options)
        sys.exit(0 if _once(job, follower, stop, as_json=options["as_json"]) else 1)
    _run(follower, stop, options["poll_ms"] / 1000, as_json=options["as_json"])


def host_names() -> tuple[str, ...]:
    """Names that Spark may have for this machine: its name, its full name, its addresses except loopback."""
    host = socket.gethostname()
    names = [host, socket.getfqdn()]
    with suppress(OSError):  # the name does not resolve
        names += [str(address[4][0]) for address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:  # there is no route
        unsent.connect((_ELSEWHERE, 9))
        names.append(str(unsent.getsockname()[0]))
    return tuple(dict.fromkeys(name for name in names if not _is_loopback(name)))


def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _policy(options: dict[str, Any]) -> LocalRecovery:
    return LocalRecovery(
        directories=tuple(options["directories"]),
        unused_age_max_ms=options["max_unused_age"],
        unused_bytes_max=options["max_unused_size"],
    )


def _check_job(job: str, storage_url: str, storage_options: dict[str, Any] | None) -> None:
    """Raise an error if the job does not exist: `--once` does not wait for it."""
    try:
        existing_job(job, storage_url, storage_options)
    except VarviteError as error:
        raise click.ClickException(str(error)) from error


def _once(job: str, follower: Standby, stop: StopSignal, *, as_json: bool) -> bool:
    try:
        lines = follower.step(lambda: stop.is_set)
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    if lines or stop.is_set:
        show_lines(lines, as_json=as_json)
    else:
        click.echo(_NOTHING_YET.format(job=job), err=True)
    return not stop.is_set and all(line.how != "failed" for line in lines)


def _run(follower: Standby, stop: StopSignal, poll_s: float, *, as_json: bool) -> None:
    """Run rounds until a stop is requested; print the ranges that are restored, held or fail, when that changes."""
    shown: dict[tuple[str, int, int], str] = {}
    trouble = ""
    while not stop.is_set:
        try:
            lines = follower.step(lambda: stop.is_set)
            trouble = ""
        except VarviteError as error:
            lines = ()
            if str(error) != trouble:  # the job may not exist yet, and the storage may come back
                trouble = str(error)
                show_error(error, as_json=as_json)
        changed = [line for line in lines if _note_change(line, shown)]
        if changed:
            show_lines(changed, as_json=as_json)
            sys.stdout.flush()
        stop.wait(poll_s)


def _note_change(line: StandbyLine, shown: dict[tuple[str, int, int], str]) -> bool:
    """Update `shown`; True if the line must be printed."""
    state = "followed" if line.how in ("current", "caught-up", "restored") else line.how
    key = line.operator, line.low, line.high
    has_changed = shown.get(key) != state or line.how == "restored"
    shown[key] = state
    return has_changed
