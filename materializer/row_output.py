"""How the commands show rows of any columns: a table for people, JSON lines for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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
    console = Console()
    # A pipe has no width: what reads it wants whole lines, not wrapped cells.
    Console(width=None if console.is_terminal else 250).print(table)


def cell(value: Any) -> str:
    """A value as `show_rows` shows it in a table."""
    return "-" if value is None else str(value)
