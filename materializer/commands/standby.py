"""`varvite standby`: keep copies of a job's state current on this host, so that workers begin without a restore.

Exit codes: 0 ended when asked to, or `--once` brought everything up; 1 `--once` left something undone; 2 the options
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
"""An address of no machine: to choose it for datagrams, of which none is sent, tells one's own address."""

_NOTHING_YET: Final = (
    "nothing to bring up: job {job} has no operator in a checkpoint that is certain to stay, which the newest one is "
    "not before the next; run this again when the job has made another checkpoint"
)


@click.command()
@click.argument("job")
@storage_parameters(required=True)
@click.option(
    "--directory",
    "directories",
    multiple=True,
    type=click.Path(file_okay=False, resolve_path=True),
    help=f"Directory of the job's local state, as in {LOCAL_DIRECTORIES.key}; once per directory, in the same order "
    "[default: that of this user].",
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
    help="Remove local state that no process has used for this long.",
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
    help="So many standbys of the job keep a copy of each partition, on other hosts than its worker if possible "
    "[default: all].",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="What Spark calls this host; once per name, first one that no other standby has [default: the names and "
    "addresses of this machine].",
)
@click.option("--once", is_flag=True, help="One round, of which nobody else is told, and end.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def standby(job: str, storage_url: str, storage_options: dict[str, Any] | None, **options: Any) -> None:
    """Keep copies of JOB's state current on this host, until SIGTERM or SIGINT.

    Runs on a host on which executors may have to take over partitions, with the job's option
    execution.state-recovery.from-local on. Tells in the storage which copies it has, so that the job gives partitions
    to their hosts, and prints what changes.
    """
    once, names = bool(options["once"]), options["hosts"] or host_names()
    if options["followers"] is not None and (once or not names):
        raise click.UsageError("--followers needs standbys that go on, and a name of this host (--host)")
    try:
        store = JobStore(open_store(storage_url, storage_options), job)
    except InvalidRequestError as error:
        raise click.UsageError(str(error), click.get_current_context(silent=True)) from error
    one = Standby(
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
        sys.exit(0 if _once(job, one, stop, as_json=options["as_json"]) else 1)
    _run(one, stop, options["poll_ms"] / 1000, as_json=options["as_json"])


def host_names() -> tuple[str, ...]:
    """What Spark may call this machine: its name, its full name, its addresses but those of loopback."""
    name = socket.gethostname()
    found = [name, socket.getfqdn()]
    with suppress(OSError):  # no resolver knows the name
        found += [str(address[4][0]) for address in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:  # no way leads out
        unsent.connect((_ELSEWHERE, 9))
        found.append(str(unsent.getsockname()[0]))
    return tuple(dict.fromkeys(name for name in found if not _is_loopback(name)))


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
    """What runs once waits for nothing: the job must be there."""
    try:
        existing_job(job, storage_url, storage_options)
    except VarviteError as error:
        raise click.ClickException(str(error)) from error


def _once(job: str, one: Standby, stop: StopSignal, *, as_json: bool) -> bool:
    try:
        lines = one.step(lambda: stop.is_set)
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    if lines or stop.is_set:
        show_lines(lines, as_json=as_json)
    else:
        click.echo(_NOTHING_YET.format(job=job), err=True)
    return not stop.is_set and all(line.how != "failed" for line in lines)


def _run(one: Standby, stop: StopSignal, poll_s: float, *, as_json: bool) -> None:
    """Rounds until asked to stop; prints the ranges that are restored, held or fail, as that changes."""
    told: dict[tuple[str, int, int], str] = {}
    trouble = ""
    while not stop.is_set:
        try:
            lines = one.step(lambda: stop.is_set)
            trouble = ""
        except VarviteError as error:
            lines = ()
            if str(error) != trouble:  # the job may not exist yet, and the storage may come back
                trouble = str(error)
                show_error(error, as_json=as_json)
        changed = [line for line in lines if _changes(line, told)]
        if changed:
            show_lines(changed, as_json=as_json)
            sys.stdout.flush()
        stop.wait(poll_s)


def _changes(line: StandbyLine, told: dict[tuple[str, int, int], str]) -> bool:
    """Whether this is news."""
    state = "followed" if line.how in ("current", "caught-up", "restored") else line.how
    key = line.operator, line.low, line.high
    is_news = told.get(key) != state or line.how == "restored"
    told[key] = state
    return is_news
