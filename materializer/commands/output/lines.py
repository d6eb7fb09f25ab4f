"""Output of commands: structs of one type as JSON lines for programs, or as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from varvite.changelog.reading.json_text import json_text
from varvite.changelog.types.stamped import plain_type_string
from varvite.materializer.commands.output.layout import EMPTY, TableText, print_table
from varvite.storage.units import format_size_bytes
from varvite.storage.visible_text import visible, visible_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


def type_name(type_string: str) -> str:
    """A type string for people: without its version and its stamp."""
    return plain_type_string(type_string).partition(":")[2]


def json_of(line: msgspec.Struct) -> str:
    """A struct as one line of JSON, fit for a terminal."""
    return visible_json(msgspec.json.encode(line).decode())


def show_lines(lines: Sequence[msgspec.Struct], *, as_json: bool, rare: Collection[str] = ()) -> None:
    """Print JSON lines, or a table whose columns are the fields; "nothing found" if there are none.

    A field in `rare` is a column only if a line has a value for it.
    """
    if as_json:
        for line in lines:
            click.echo(json_of(line))
        return
    if not lines:
        click.echo("nothing found")
        return
    fields = [name for name in lines[0].__struct_fields__ if name not in rare or any(getattr(x, name) for x in lines)]
    rows = tuple(tuple(_cell(name, getattr(line, name)) for name in fields) for line in lines)
    print_table(TableText(tuple(name.replace("_", " ") for name in fields), rows))


def _cell(name: str, value: object) -> str:
    if value is None:
        return EMPTY
    if name.endswith("bytes") and isinstance(value, int):
        return format_size_bytes(value)
    if isinstance(value, tuple):
        return visible(", ".join(map(str, cast("tuple[object, ...]", value))))
    return visible(str(value))


def show_rows(rows: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print rows that all have the same columns; as JSON they are printed one by one and not kept."""
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
    """The text of a value in a table of `show_rows`."""
    return EMPTY if value is None else visible(str(value))
