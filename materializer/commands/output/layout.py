"""Layout of tables: at full width in a pipe, within the terminal's width for people, never truncated.

A table that is wider than the terminal shows values that are equal in all rows once, above it, and omits empty columns.
If the rest is still too wide, each row becomes a block with a line per column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

EMPTY: Final = "-"
"""A cell without a value."""
_COLUMN_EXTRA: Final = 3
"""Width of a column besides its text: a space at both sides, and a line."""


class TableText(NamedTuple):
    """A table of texts."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def width(self) -> int:
        """Width in columns of the terminal."""
        widths = (max(map(_text_width, column)) for column in zip(self.names, *self.rows, strict=True))
        return sum(width + _COLUMN_EXTRA for width in widths) + 1

    def parted(self) -> tuple[dict[str, str], TableText]:
        """Values that are equal in all of several rows, and the table of the rest, without empty columns."""
        columns = list(zip(*self.rows, strict=True))
        alike = {i for i, column in enumerate(columns) if len(self.rows) > 1 and len(set(column)) == 1}
        empty = {i for i, column in enumerate(columns) if set(column) <= {EMPTY, ""}}
        kept = [i for i in range(len(self.names)) if i not in alike | empty]
        if not kept:
            return {}, self
        common = {self.names[i]: columns[i][0] for i in sorted(alike - empty)}
        rows = tuple(tuple(row[i] for i in kept) for row in self.rows)
        return common, TableText(tuple(self.names[i] for i in kept), rows)


def print_table(table: TableText) -> None:
    """Print to standard output."""
    console = Console()
    if not console.is_terminal:  # the reader of a pipe needs whole lines
        console = Console(width=table.width)
    for part in laid_out(table, console.width):
        console.print(part)


def laid_out(table: TableText, width: int) -> Iterator[RenderableType]:
    """The parts to print in a terminal of this width."""
    if table.width <= width:
        yield _grid(table)
        return
    common, rest = table.parted()
    if rest.width > width:
        for number, row in enumerate(table.rows, 1):
            if len(table.rows) > 1:
                yield Rule(f"{number} of {len(table.rows)}", align="left")
            yield _block(dict(zip(table.names, row, strict=True)))
        return
    if common:
        yield _block(common)
    yield _grid(rest)


def _grid(table: TableText) -> Table:
    grid = Table(*(Column(Text(name)) for name in table.names))
    for row in table.rows:
        grid.add_row(*map(Text, row))
    return grid


def _block(values: dict[str, str]) -> Table:
    block = Table.grid(padding=(0, 2))
    block.add_column(no_wrap=True, style="bold")
    block.add_column(overflow="fold")
    for name, value in values.items():
        block.add_row(Text(name), Text(value))
    return block


def _text_width(text: str) -> int:
    return max(map(cell_len, text.splitlines()), default=0)
