"""Parameters of commands: the storage, fields of a configuration, and types of values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from varvite.changelog.chain.reader import ChainReader
from varvite.storage.errors import InvalidRequestError
from varvite.storage.job.listing import OpenJob, open_job
from varvite.storage.object_stores.open import local_directory, open_beside, open_store
from varvite.storage.options import kinds
from varvite.storage.options.declaration import options_of
from varvite.storage.options.table import read_storage_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from varvite.storage.object_stores.contract import ObjectStore


class Parsed(click.ParamType[Any]):
    """A value that is read by a function of varvite's."""

    def __init__(self, name: str, read: Callable[[Any], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._read(value)
        except InvalidRequestError as error:
            self.fail(error.message, param, ctx)


class FiniteRange(click.FloatRange):
    """A range of floats, without "nan" and "inf"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is no finite number", param, ctx)
        return number


DURATION: Final = Parsed(kinds.DURATION.metavar, kinds.DURATION.read)
"""Milliseconds."""


_Command = TypeVar("_Command", bound="Callable[..., Any]")


def key_value_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`key=value` texts as a dict. Raises `InvalidRequestError` naming the option."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise InvalidRequestError(f"{option} takes key=value, not {text!r}")
        pairs[key.strip()] = value.strip()
    return pairs


def _storage_options(_: click.Context, parameter: click.Parameter, texts: Iterable[str]) -> dict[str, Any] | None:
    try:
        pairs = key_value_pairs(texts, "--storage-option")
        return {key: read_storage_option(key, value) for key, value in pairs.items()} or None
    except InvalidRequestError as error:
        raise click.BadParameter(str(error), param=parameter) from error


def config_parameters(config: type[Any]) -> Callable[[_Command], _Command]:
    """Adds an option for each field of a configuration that has one on the command line (default: None)."""

    def add(command: _Command) -> _Command:
        for field, option in reversed(options_of(config).items()):
            if option.command_name is not None:
                is_flag = option.type is kinds.BOOLEAN
                kind = None if is_flag else Parsed(option.type.metavar, option.read_value)
                declare = click.option(
                    option.command_name, field, type=kind, is_flag=is_flag, default=None, help=option.help_text
                )
                command = declare(command)
        return command

    return add


def storage_parameters(*, required: bool) -> Callable[[_Command], _Command]:
    """Adds `--storage` and `--storage-option` (parameters `storage_url` and `storage_options`, default: None)."""

    def add(command: _Command) -> _Command:
        command = click.option(
            "--storage-option",
            "storage_options",
            multiple=True,
            metavar="KEY=VALUE",
            callback=_storage_options,
            help="An option of the storage's filesystem (fsspec).",
        )(command)
        return click.option(
            "--storage",
            "storage_url",
            required=required,
            metavar="URL",
            help="Root of the storage: a path, file:///path, s3://bucket/path, or any fsspec URL.",
        )(command)

    return add


def open_root(storage_url: str, storage_options: dict[str, Any] | None) -> ObjectStore:
    """Open the storage for a tool; unlike with `open_store`, which may create it, a local directory must exist.

    Raises `InvalidRequestError`.
    """
    root = open_store(storage_url, storage_options)
    _check_directory(storage_url, "the storage location")
    return root


def open_place(url: str, storage_url: str | None, storage_options: dict[str, Any] | None) -> ObjectStore:
    """Open a location of savepoints outside of their job. Raises the errors of `open_root`.

    The options are those of the job's storage, or of the location if there is no storage.
    """
    store = open_beside(url, storage_url or url, storage_options)
    _check_directory(url, "the location")
    return store


def _check_directory(url: str, subject: str) -> None:
    directory = local_directory(url)
    if directory is not None and not directory.is_dir():
        raise InvalidRequestError(f"there is no directory {directory}; correct {subject}")


def existing_job(job: str, storage_url: str, storage_options: dict[str, Any] | None) -> OpenJob:
    """Open the job of this name. Raises the errors of `open_root` and `open_job`."""
    return open_job(open_root(storage_url, storage_options), job)


def job_chain(job: str, storage_url: str, storage_options: dict[str, Any] | None) -> ChainReader:
    """A reader of the chain of the job of this name. Raises the errors of `existing_job`."""
    opened = existing_job(job, storage_url, storage_options)
    return ChainReader(opened.store, opened.record.job_id)
