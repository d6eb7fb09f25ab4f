"""`varvite preflight`: the check of a storage that the first start of a job makes, without a job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from varvite.materializer.commands.output.lines import show_lines
from varvite.materializer.commands.output.parameters import open_root, storage_parameters
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import VarviteError
from varvite.storage.job.preflight import bucket_remarks, check_store
from varvite.storage.object_stores.remote.bucket.remarks import Level

if TYPE_CHECKING:
    from varvite.storage.object_stores.contract import ObjectStore


class PreflightLine(msgspec.Struct, frozen=True):
    """A line of `varvite preflight`."""

    level: str
    """`ok`, `danger`, `cost` or `fact`."""
    remark: str


@click.command()
@storage_parameters(required=True)
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def preflight(storage_url: str, storage_options: dict[str, Any] | None, *, as_json: bool) -> None:
    """Check that a storage can carry jobs: conditional writes, rights, and the settings of its bucket.

    Writes, reads and deletes small objects. The exit code is 1 if the storage cannot carry jobs, or would delete their
    state.
    """
    try:
        lines = _lines(open_root(storage_url, storage_options))
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    show_lines(lines, as_json=as_json)
    if any(line.level == Level.DANGER.value for line in lines):
        sys.exit(1)


def _lines(root: ObjectStore) -> list[PreflightLine]:
    check_store(root, SystemTokens(), SystemClock())
    works = PreflightLine("ok", "objects are created once, read, listed and deleted as a job needs it")
    return [works, *(PreflightLine(remark.level.value, remark.text) for remark in bucket_remarks(root))]
