"""How the commands show lines: a table for people, JSON lines for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from varve.materializer.duration import format_size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def as_utc(time_ms: int) -> str:
    """A time in milliseconds since 1970 as ISO 8601."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def show(lines: Sequence[msgspec.Struct], *, as_json: bool) -> None:
    """Print lines of one kind: as a table whose columns are the fields, or as JSON, one object per line."""
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
    print_table(table)


def show_rows(rows: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print rows that all have the same columns, whatever is in them; JSON as they come, without keeping them."""
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode(row).decode())
        return
    table: Table | None = None
    for row in rows:
        if table is None:
            table = Table(*(name.replace("_", " ") for name in row))
        table.add_row(*(escape(cell(value)) for value in row.values()))
    if table is None:
        click.echo("nothing found")
        return
    print_table(table)


def cell(value: Any) -> str:
    """A value as `show_rows` shows it in a table."""
    return "-" if value is None else str(value)


def print_table(table: Table) -> None:
    """Print a table, on a pipe without wrapped cells."""
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
