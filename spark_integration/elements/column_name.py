"""Names of columns in SQL expressions and in `functions.col`."""

from __future__ import annotations


def quoted(column: str) -> str:
    """A column's name as it stands there: one column, whatever dots and backticks its name has."""
    return f"`{column.replace('`', '``')}`"
