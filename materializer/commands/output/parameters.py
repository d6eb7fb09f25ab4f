"""Types of command-line options: durations and sizes, as the configuration's parsers read them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import click

from varve.materializer.options.units import parse_duration_ms, parse_size_bytes
from varve.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable


class _Parsed(click.ParamType[int]):
    """A value that one of our own parsers reads."""

    def __init__(self, name: str, parse: Callable[[str], int]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return self._parse(value)
        except InvalidRequestError as error:
            self.fail(str(error), param, ctx)


class FiniteRange(click.FloatRange):
    """A range of floats, without "nan", which compares with nothing, and "inf"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is no finite number", param, ctx)
        return number


DURATION: Final = _Parsed("duration", parse_duration_ms)
"""Milliseconds."""
SIZE: Final = _Parsed("size", parse_size_bytes)
"""Bytes."""
