"""Errors of commands: a line for people; with `--json`, an object with the fields of `ErrorLine` on standard error.

The exit code is the same either way.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from varvite.storage.errors import InvariantError, VarviteError
from varvite.storage.visible_text import visible_json

if TYPE_CHECKING:
    from collections.abc import Generator

JSON_OPTION: Final = "--json"


class ErrorLine(msgspec.Struct, frozen=True, kw_only=True):
    """An error as JSON."""

    message: str
    """The problem, and the advice."""
    kind: str
    """The error's class in `varvite.storage.errors`; `UsageError` for wrong options."""
    context: dict[str, Any]
    """Any of `job`, `operator`, `partition`, `batch`, `epoch`, `object_name`."""


def error_line(error: BaseException) -> ErrorLine:
    """The line of a `VarviteError`, or of a command's error with or without such a cause."""
    cause = error if isinstance(error, VarviteError) else error.__cause__
    if isinstance(cause, VarviteError):
        return ErrorLine(message=cause.message, kind=type(cause).__name__, context=cause.context)
    message = error.format_message() if isinstance(error, click.ClickException) else str(error)
    kind = "UsageError" if isinstance(error, click.UsageError) else type(error).__name__
    return ErrorLine(message=message, kind=kind, context={})


def job_error(error: Exception, job: str) -> VarviteError:
    """The error of one of several jobs. Also one that nobody expected must not hide the other jobs."""
    if not isinstance(error, VarviteError):
        problem = f"{type(error).__name__}: {error}; this is a bug in varvite, please report it with the job's objects"
        error = InvariantError(problem)
    return error.with_context(job=job)


def show_error(error: BaseException, *, as_json: bool) -> None:
    """Print an error on standard error."""
    click.echo(_json(error_line(error)) if as_json else str(error), err=True)


def _json(line: ErrorLine) -> str:
    try:
        return visible_json(msgspec.json.encode(line).decode())
    except UnicodeEncodeError:  # the command line has bytes that are not UTF-8
        return json.dumps(msgspec.structs.asdict(line))


class Command(click.Command):
    """A command whose errors are JSON if its output is."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> click.Context:
        as_json = JSON_OPTION in args  # before the parsing, which empties the list and ends at the first error
        with _errors_as(as_json=as_json):
            context = super().make_context(info_name, args, *rest, **extra)
        context.meta[__name__] = as_json or context.params.get("as_json", False)
        return context

    def invoke(self, ctx: click.Context) -> Any:
        with _errors_as(as_json=ctx.meta[__name__]):
            return super().invoke(ctx)


class Group(Command, click.Group):
    """A group of commands, whose errors are JSON if their output is."""


@contextmanager
def _errors_as(*, as_json: bool) -> Generator[None]:
    try:
        yield
    except click.ClickException as error:
        if not as_json:
            raise
        show_error(error, as_json=True)
        raise click.exceptions.Exit(error.exit_code) from error
