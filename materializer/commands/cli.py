"""The command `varvite`: materialize, inspect a storage, package for a cluster.

Exit codes of `materialize`: 0 it was stopped, or `--once` did everything, or `--now` left its requests; 1 `--once` left
something undone, or there is no job, or `--now` could not leave all requests; 2 the options, the storage or the working
directory are wrong; 3 a step was abandoned `--stop-timeout` after the stop request, which is harmless.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click
import msgspec

from varvite.materializer.commands.inspect import checkpoints, jobs, sweep
from varvite.materializer.commands.output.errors import Command, Group, job_error
from varvite.materializer.commands.output.lines import show_lines
from varvite.materializer.commands.output.parameters import (
    DURATION,
    config_parameters,
    key_value_pairs,
    open_root,
    storage_parameters,
)
from varvite.materializer.commands.output.progress import (
    ConsoleReporter,
    CountingBar,
    EventConsole,
    JsonReporter,
    ReporterGroup,
)
from varvite.materializer.commands.package import package
from varvite.materializer.commands.pins import pins
from varvite.materializer.commands.preflight import preflight
from varvite.materializer.commands.restore import restore
from varvite.materializer.commands.savepoints import savepoint
from varvite.materializer.commands.standby import standby
from varvite.materializer.commands.state import describe, diff, state
from varvite.materializer.commands.verify import verify_command
from varvite.materializer.options.materializer_config import VARIABLE_PREFIX, MaterializerConfig
from varvite.materializer.options.table import read_properties
from varvite.materializer.resources.allocator import give_back_large_blocks
from varvite.materializer.resources.stop_signal import StopSignal, end_late, stop_on_signals, stop_with_parent
from varvite.materializer.service.announcements import Announcements
from varvite.materializer.service.child_process import read_config
from varvite.materializer.service.demand import ask
from varvite.materializer.service.loop import run_materializer
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import InvalidRequestError, VarviteError
from varvite.storage.job.listing import job_names, open_job
from varvite.storage.units import option_duration
from varvite.storage.visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Generator

    from varvite.materializer.monitoring.events import Reporter
    from varvite.storage.object_stores.contract import ObjectStore

FAILED_EXIT_CODE: Final = 1
CONTEXT: Final = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "VARVITE"}


@click.group(name="varvite", cls=Group, context_settings=CONTEXT)
@click.version_option(package_name="varvite")
def main() -> None:
    """Keyed state with a changelog for Spark Structured Streaming: tools for the storage and for clusters."""


STOP_MS: Final = MaterializerConfig.stop_ms


@click.command(cls=Command, context_settings={**CONTEXT, "auto_envvar_prefix": VARIABLE_PREFIX})
@storage_parameters(required=False)
@click.option("--job", metavar="NAME", help="The one job to follow; without it, all jobs under the storage.")
@config_parameters(MaterializerConfig)
@click.option(
    "--stop-timeout",
    "stop_ms",
    type=DURATION,
    help=f"Time for an orderly shutdown after SIGTERM. [default: {option_duration(STOP_MS)}]",
)
@click.option(
    "--conf", "conf", multiple=True, metavar="KEY=VALUE", help="A spark.varvite.* option, as for spark-submit."
)
@click.option("--once", is_flag=True, help="Materialize every range that has a log, collect garbage, and end.")
@click.option("--now", is_flag=True, help="Request a materialization from the running materializers, and end.")
@click.option(
    "--json", "as_json", is_flag=True, help="JSON lines on standard output, everything else on standard error."
)
@click.option("--status-file", type=click.Path(path_type=Path), help="Append the events to this file as JSON lines.")
@click.option("--config-from-stdin", is_flag=True, hidden=True)
@click.option("--parent-pid", type=int, hidden=True)
def materialize(**options: Any) -> None:
    """Fold changelogs into snapshots and delete what no checkpoint needs any more.

    Runs beside the job and reads only its storage, until SIGTERM or SIGINT. It may start before the job does, and it
    may be killed at any moment. Options can also be set as VARVITE_MATERIALIZE_<OPTION>.
    """
    try:
        sys.exit(_run(options))
    except InvalidRequestError as error:
        raise _usage(error) from error


def _name_variables(command: click.Command) -> None:
    """Name each variable after its option; click would name it after the parameter."""
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            long_name = max(option.opts, key=len).lstrip("-")
            option.envvar = f"{VARIABLE_PREFIX}_{long_name.replace('-', '_').upper()}"


_name_variables(materialize)


def _run(options: dict[str, Any]) -> int:
    config = _config(options)
    if options["now"] and options["once"]:
        raise InvalidRequestError("--now leaves the work to the materializers that run, --once does it here: give one")
    if options["now"]:
        return _request_all(config, as_json=options["as_json"])
    if options["once"]:
        _check_there(config)
        config = replace(config, share=False)  # a run with --once leaves nothing to others
    give_back_large_blocks()
    stop = StopSignal()
    stop_on_signals(stop)
    end_late(stop, config.stop_ms / 1_000)
    if options["parent_pid"] is not None:
        stop_with_parent(stop, options["parent_pid"])
    with ExitStack() as stack:
        reporter = _reporter(stack, options)
        announcements = Announcements(_standard_input()) if options["config_from_stdin"] else None
        ok = run_materializer(config, reporter, stop, once=options["once"], announcements=announcements)
    return 0 if ok else FAILED_EXIT_CODE


def _check_there(config: MaterializerConfig) -> None:
    """Raise an error if the storage or the named job does not exist: `--once` does not wait for them."""
    try:
        root = open_root(config.storage_url, dict(config.storage_options))
        if config.job is not None:
            open_job(root, config.job)
    except VarviteError as error:
        raise click.ClickException(str(error)) from error


class RequestLine(msgspec.Struct, frozen=True):
    """A line of `varvite materialize --now --json`."""

    job: str
    error: str | None = None
    """The reason, if the request could not be left."""

    @property
    def text(self) -> str:
        """Text for people."""
        outcome = "materialization requested" if self.error is None else f"not requested: {self.error}"
        return visible(f"{self.job}: {outcome}")


def _request_all(config: MaterializerConfig, *, as_json: bool) -> int:
    """Leave a request for every job; returns the exit code."""
    try:
        root = open_root(config.storage_url, dict(config.storage_options))
        if config.job is None:
            lines = [_request_or_error(root, name) for name in job_names(root)]
        else:
            lines = [_request(root, config.job)]
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    if as_json or not lines:
        show_lines(lines, as_json=as_json)
    else:
        click.echo("\n".join(line.text for line in lines))
    return FAILED_EXIT_CODE if any(line.error for line in lines) else 0


def _request(root: ObjectStore, name: str) -> RequestLine:
    ask(open_job(root, name).store, SystemClock(), SystemTokens())
    return RequestLine(name)


def _request_or_error(root: ObjectStore, name: str) -> RequestLine:
    try:
        return _request(root, name)
    except Exception as error:  # noqa: BLE001  the others are asked all the same
        return RequestLine(name, str(job_error(error, name)))


def _config(options: dict[str, Any]) -> MaterializerConfig:
    """The configuration: standard input, then `--conf`, then the options, each over the one before."""
    arguments: dict[str, Any] = {
        name: options[name]
        for name in MaterializerConfig.__dataclass_fields__
        if name in options and options[name] is not None
    }
    properties = read_properties(key_value_pairs(options["conf"], "--conf"))
    changes = {**properties, **arguments}
    if "storage_options" in properties and "storage_options" in arguments:
        changes["storage_options"] = {**properties["storage_options"], **arguments["storage_options"]}
    if options["config_from_stdin"]:
        return replace(read_config(_standard_input()), **changes)
    return MaterializerConfig(**changes)


def _standard_input() -> FileIO:
    """Standard input without a buffer: what is not read yet is left to the next one who reads."""
    return FileIO(0, closefd=False)


def _reporter(stack: ExitStack, options: dict[str, Any]) -> Reporter:
    console = EventConsole(stderr=options["as_json"])
    reporters: list[Reporter] = [ConsoleReporter(console)]
    if options["once"]:
        reporters.append(stack.enter_context(CountingBar(console)))
    if options["as_json"]:
        reporters.append(JsonReporter(sys.stdout.buffer))
    if options["status_file"] is not None:
        reporters.append(JsonReporter(stack.enter_context(_append(options["status_file"]))))
    return ReporterGroup(reporters)


@contextmanager
def _append(path: Path) -> Generator[BinaryIO]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise InvalidRequestError(f"the status file cannot be written: {error}") from error
    try:
        yield file
    finally:
        with suppress(OSError):  # the failed write was reported
            file.close()


def _usage(error: InvalidRequestError) -> click.ClickException:
    return click.UsageError(str(error), click.get_current_context(silent=True))


for _command in (
    materialize, standby, preflight, jobs, checkpoints, sweep, savepoint, pins, restore, describe, state, diff,
    verify_command, package,
):  # fmt: skip
    main.add_command(_command)
