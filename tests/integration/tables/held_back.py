"""A sink of a table that is held back between its comparison and its commit."""

from __future__ import annotations

from typing import Any


def held_back(sink: Any, meanwhile: Any) -> None:
    """Let something happen between the sink's comparison and its commit, once."""
    inner = sink._write_rows

    def write_rows(*arguments: Any) -> None:
        sink._write_rows = inner
        meanwhile()
        inner(*arguments)

    sink._write_rows = write_rows
