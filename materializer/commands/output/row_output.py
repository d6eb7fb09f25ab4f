"""How the commands show rows of any columns: a table for people, JSON lines for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from varve.changelog.reading.json_text import json_text
from varve.materializer.commands.output.layout import EMPTY, TableText, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def show_rows(rows: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print rows that all have the same columns, whatever is in them; JSON as they come, without keeping them."""
    if as_json:
        for row in rows:
            click.echo(json_text(row))
        return
    names: tuple[str, ...] = ()
    cells: list[tuple[str, ...]] = []
    for row in rows:
        names = tuple(row)
        cells.append(tuple(map(cell, row.values())))
    if not cells:
        click.echo("nothing found")
        return
    print_table(TableText(tuple(name.replace("_", " ") for name in names), tuple(cells)))


def cell(value: Any) -> str:
    """A value as `show_rows` shows it in a table."""
    return EMPTY if value is None else str(value)
