"""How the commands show rows of any columns: a table for people, JSON lines for programs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, cast

import click
import msgspec

from varve.materializer.table_layout import EMPTY, TableText, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_NOT_FINITE: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}


def show_rows(rows: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print rows that all have the same columns, whatever is in them; JSON as they come, without keeping them."""
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode(_told(row)).decode())
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


def _told(value: Any) -> Any:
    """A value as JSON has it: floats that JSON lacks are text, as Spark's `to_json` writes them, and not null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
    if isinstance(value, dict):
        return {_told(key): _told(one) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_told(one) for one in cast("list[Any]", value)]
    return value
