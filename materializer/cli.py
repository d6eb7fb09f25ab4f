"""The command `varve`: materialize, look at what is stored, package for a cluster.

Exit codes of `materialize`: 0 ended when asked to, or `--once` did everything, or `--now` left its requests; 1 `--once`
left something undone, or the named job does not exist; 2 the options, the storage or the working directory are wrong;
3 the step that ran when it was asked to stop was abandoned after `--stop-timeout`, which harms nothing.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click
import msgspec
from rich.console import Console

from varve.materializer.child_process import decode_config
from varve.materializer.command_output import show_lines
from varve.materializer.config import MaterializerConfig, parse_properties
from varve.materializer.demand import ask
from varve.materializer.inspect_commands import checkpoints, jobs, sweep
from varve.materializer.jobs import job_names
from varve.materializer.package_command import package
from varve.materializer.parameter_types import DURATION, SIZE
from varve.materializer.pin_commands import pins
from varve.materializer.progress import ConsoleReporter, JsonReporter, ReporterGroup
from varve.materializer.restore_command import restore
from varve.materializer.savepoint_commands import savepoint
from varve.materializer.service import run_materializer
from varve.materializer.standby_command import standby
from varve.materializer.state_commands import describe, diff, state
from varve.materializer.stop_signal import StopSignal, end_late, stop_on_signals, stop_with_parent
from varve.materializer.storage_parameters import key_value_pairs, storage_parameters
from varve.materializer.verify_command import verify_command
from varve.storage.clock import SystemClock, SystemTokens
from varve.storage.errors import InvalidRequestError, MissingObjectError, VarveError
from varve.storage.job import read_job
from varve.storage.open_store import open_store
from varve.storage.prefixed_store import substore

if TYPE_CHECKING:
    from varve.materializer.events import Reporter

FAILED_EXIT_CODE: Final = 1


CONTEXT: Final = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "VARVE"}


@click.group(name="varve", context_settings=CONTEXT)
@click.version_option(package_name="varve")
def main() -> None:
    """Keyed state with a changelog for Spark Structured Streaming: tools for the storage and for clusters."""


@click.command(context_settings={**CONTEXT, "auto_envvar_prefix": "VARVE_MATERIALIZE"})
@storage_parameters(required=False)
@click.option("--job", metavar="NAME", help="The one job to follow; without it, all jobs under the storage.")
@click.option("--interval", "interval_ms", type=DURATION, help="Time between materializations [default: 10 min].")
@click.option("--log-bytes", type=SIZE, help="Materialize when the log of a range is this long [default: 256 mb].")
@click.option("--log-batches", type=int, help="Materialize when so many batches follow the base [default: 1000].")
@click.option("--log-ratio", type=float, help="Materialize when log / base reaches this [default: 0.25].")
@click.option(
    "--replay-time", "replay_ms", type=DURATION, help="Materialize when replaying would take so long [default: 1 min]."
)
@click.option("--space-ratio", type=float, help="Rewrite the files of a range at this stored / live [default: 1.5].")
@click.option("--max-failures-allowed", type=int, help="Failures in a row that count as failing [default: 3].")
@click.option("--poll", "poll_ms", type=DURATION, help="Time between two looks at the chain [default: 1 s].")
@click.option(
    "--collect-interval", "collect_ms", type=DURATION, help="Time between garbage collections [default: 1 min]."
)
@click.option("--grace", "grace_ms", type=DURATION, help="Age of an abandoned upload [default: 1 d].")
@click.option("--retention", "retention_ms", type=DURATION, help="Keep all checkpoints of the newest so long.")
@click.option("--parallel", type=int, help="Ranges materialized at the same time [default: 2].")
@click.option("--memory", "memory_bytes", type=SIZE, help="Memory of all their RocksDB stores [default: 512 mb].")
@click.option("--disk", "disk_bytes", type=SIZE, help="Limit of the local copies [default: none].")
@click.option("--bandwidth", "bandwidth_bytes_per_s", type=SIZE, help="Bytes per second [default: no limit].")
@click.option("--metrics-port", type=int, help="Serve /metrics, /healthz and /readyz; 0 takes a free port.")
@click.option("--metrics-host", help="Address to serve them on [default: all].")
@click.option("--working-directory", type=click.Path(path_type=Path), help="Where local copies are kept between runs.")
@click.option("--share", is_flag=True, default=None, help="Share the work with other materializers of this storage.")
@click.option("--stop-timeout", "stop_ms", type=DURATION, help="Hard end so long after SIGTERM [default: 20 s].")
@click.option("--conf", "conf", multiple=True, metavar="KEY=VALUE", help="A spark.varve.* option, as for spark-submit.")
@click.option("--once", is_flag=True, help="Materialize whatever has a log, collect garbage, and end.")
@click.option("--now", is_flag=True, help="Ask the running materializers to materialize everything now, and end.")
@click.option(
    "--json", "as_json", is_flag=True, help="JSON lines on standard output, everything else on standard error."
)
@click.option("--status-file", type=click.Path(path_type=Path), help="Append the events to this file as JSON lines.")
@click.option("--config-from-stdin", is_flag=True, hidden=True)
@click.option("--parent-pid", type=int, hidden=True)
def materialize(**options: Any) -> None:
    """Fold changelogs into snapshots and delete what no checkpoint needs any more.

    Runs beside the job and reads only its storage, until SIGTERM or SIGINT. It may start before the job does, and it
    may be killed at any moment. Options can also be set as VARVE_MATERIALIZE_<OPTION>.
    """
    try:
        sys.exit(_run(options))
    except InvalidRequestError as error:
        raise _usage(error) from error


def _run(options: dict[str, Any]) -> int:
    config = _config(options)
    if options["now"]:
        return _ask(config, as_json=options["as_json"])
    stop = StopSignal()
    stop_on_signals(stop)
    end_late(stop, config.stop_ms / 1_000)
    if options["parent_pid"] is not None:
        stop_with_parent(stop, options["parent_pid"])
    with ExitStack() as stack:
        reporter = _reporter(stack, as_json=options["as_json"], status_file=options["status_file"])
        ok = run_materializer(config, reporter, stop, once=options["once"])
    return 0 if ok else FAILED_EXIT_CODE


class AskedLine(msgspec.Struct, frozen=True):
    """A line of `varve materialize --now --json`."""

    job: str


def _ask(config: MaterializerConfig, *, as_json: bool) -> int:
    """Leave a request for every job; whether a named job exists."""
    root = open_store(config.storage_url, config.storage_options)
    clock, tokens = SystemClock(), SystemTokens()
    try:
        names = [config.job] if config.job is not None else job_names(root)
        for name in names:
            store = substore(root, name)
            read_job(store)
            ask(store, clock, tokens)
            if as_json:
                show_lines([AskedLine(name)], as_json=True)
            else:
                click.echo(f"{name}: asked for a materialization")
    except MissingObjectError as error:
        click.echo(f"there is no such job: {error}", err=True)
        return FAILED_EXIT_CODE
    except VarveError as error:
        raise click.ClickException(str(error)) from error
    return 0


def _config(options: dict[str, Any]) -> MaterializerConfig:
    """The configuration: standard input, then `--conf`, then the options, each over the one before."""
    given: dict[str, Any] = {
        name: options[name]
        for name in MaterializerConfig.__dataclass_fields__
        if name in options and options[name] is not None
    }
    changes = {**parse_properties(key_value_pairs(options["conf"], "--conf")), **given}
    if options["config_from_stdin"]:
        return replace(decode_config(sys.stdin.buffer.read()), **changes)
    if "storage_url" not in changes:
        raise InvalidRequestError("there is no storage to work on: give --storage")
    return MaterializerConfig(**changes)


def _reporter(stack: ExitStack, *, as_json: bool, status_file: Path | None) -> Reporter:
    reporters: list[Reporter] = [ConsoleReporter(Console(stderr=as_json))]
    if as_json:
        reporters.append(JsonReporter(sys.stdout.buffer))
    if status_file is not None:
        reporters.append(JsonReporter(stack.enter_context(_append(status_file))))
    return ReporterGroup(reporters)


def _append(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")
    except OSError as error:
        raise InvalidRequestError(f"the status file cannot be written: {error}") from error


def _usage(error: InvalidRequestError) -> click.ClickException:
    return click.UsageError(str(error), click.get_current_context(silent=True))


for _command in (
    materialize, standby, jobs, checkpoints, sweep, savepoint, pins, restore, describe, state, diff, verify_command,
    package,
):  # fmt: skip
    main.add_command(_command)
