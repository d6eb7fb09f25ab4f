"""Rows as tuples, for comparisons of values without names."""

from __future__ import annotations

from typing import Any


def as_tuples(value: Any) -> Any:
    """The value with tuples instead of the rows within it."""
    if isinstance(value, tuple | list):
        return (tuple if isinstance(value, tuple) else list)(map(as_tuples, value))
    return {key: as_tuples(held) for key, held in value.items()} if isinstance(value, dict) else value
