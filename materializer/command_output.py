"""What commands print: structs of one type as JSON lines for programs, or as a table for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import click
import msgspec
from rich.console import Console
from rich.table import Table

from varve.materializer.duration import format_size_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence


def utc_time(time_ms: int) -> str:
    """A time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def show_lines(lines: Sequence[msgspec.Struct], *, as_json: bool) -> None:
    """JSON lines, or a table whose columns are the fields; "nothing found" if there are none."""
    if as_json:
        for line in lines:
            click.echo(msgspec.json.encode(line).decode())
        return
    if not lines:
        click.echo("nothing found")
        return
    fields = lines[0].__struct_fields__
    table = Table(*(name.replace("_", " ") for name in fields))
    for line in lines:
        table.add_row(*(_cell(name, getattr(line, name)) for name in fields))
    console = Console()
    # A pipe has no width: what reads it wants whole lines, not wrapped cells.
    Console(width=None if console.is_terminal else 250).print(table)


def _cell(name: str, value: object) -> str:
    if value is None:
        return "-"
    if name.endswith("bytes") and isinstance(value, int):
        return format_size_bytes(value)
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[object, ...]", value)))
    return str(value)
