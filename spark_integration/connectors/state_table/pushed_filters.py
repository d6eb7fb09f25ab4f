"""The effect of pushed filters: the numbers and names of a data source's columns that pass; pure.

Spark gives the conjuncts of a query as the forms of `pyspark.sql.datasource`. A column of numbers is bounded by `=`,
`<=>`, `<`, `<=`, `>`, `>=` and `IN`, a column of names by `=`, `<=>` and `IN`, each exactly. Spark applies the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

END: Final = (1 << 63) - 1
"""Above every number."""


@dataclass(frozen=True)
class Numbers:
    """The numbers that may pass, all at least 0."""

    bounds: range = range(END)
    among: frozenset[int] | None = None
    """Only these of them; None: all."""

    def __contains__(self, number: int) -> bool:
        return number in self.bounds and (self.among is None or number in self.among)

    @property
    def is_all(self) -> bool:
        """True if every number passes."""
        return self == Numbers()

    def within(self, part: range) -> range:
        """The narrowest range in `part` with all numbers that pass; empty if none does."""
        common = _common(self.bounds, part)
        if self.among is None:
            return common
        passing = [number for number in self.among if number in common]
        return range(min(passing), max(passing) + 1) if passing else range(common.start, common.start)

    @classmethod
    def parse(cls, text: str) -> Numbers:
        """`7`, `2-7` (the last one included) or `2-`. Raises `ValueError`."""
        low, dash, high = text.partition("-")
        if not low.strip().isdecimal() or (high.strip() and not high.strip().isdecimal()):
            raise ValueError(f"{text!r} is not a number, or two with '-' between them")
        last = END - 1 if dash and not high.strip() else int(high or low)
        return cls(range(int(low), max(int(low), last + 1)))

    def but(self, bounds: range, among: frozenset[int] | None) -> Numbers:
        """The numbers that also pass another filter."""
        common = among if self.among is None else self.among if among is None else self.among & among
        return Numbers(_common(self.bounds, bounds), common)


@dataclass(frozen=True)
class Pushed:
    """The accepted filters of columns of numbers and of names."""

    numbers: dict[str, Numbers]
    names: dict[str, frozenset[str] | None]
    """Column → the names that may pass; None: all."""

    def take(self, condition: Filter) -> Pushed | None:
        """These with another filter; None if it is not of these columns and forms."""
        column = ".".join(getattr(condition, "attribute", ()))
        value: Any = getattr(condition, "value", None)
        if column in self.numbers:
            passing = _numbers(condition, value)
            if passing is None:
                return None
            return Pushed({**self.numbers, column: self.numbers[column].but(*passing)}, self.names)
        if column not in self.names:
            return None
        names = _names(condition, value)
        if names is None:
            return None
        before = self.names[column]
        return Pushed(self.numbers, {**self.names, column: names if before is None else before & names})

    def passes(self, column: str, name: str) -> bool:
        """True if rows with this name in a column may pass."""
        allowed = self.names[column]
        return allowed is None or name in allowed


def _numbers(condition: Filter, value: Any) -> tuple[range, frozenset[int] | None] | None:
    if isinstance(condition, In):
        is_exact = all(type(number) is int for number in value)
        return (range(END), frozenset(value)) if is_exact else None
    bounds = _BOUNDS.get(type(condition))
    return (bounds(value), None) if bounds is not None and type(value) is int else None


def _names(condition: Filter, value: Any) -> frozenset[str] | None:
    names: Sequence[Any] = value if isinstance(condition, In) else (value,)
    is_exact = isinstance(condition, (In, EqualTo, EqualNullSafe)) and all(isinstance(name, str) for name in names)
    return frozenset(names) if is_exact else None


_BOUNDS: Final[dict[type[Filter], Callable[[int], range]]] = {
    EqualTo: lambda value: range(value, value + 1),
    EqualNullSafe: lambda value: range(value, value + 1),
    GreaterThan: lambda value: range(value + 1, END),
    GreaterThanOrEqual: lambda value: range(value, END),
    LessThan: range,
    LessThanOrEqual: lambda value: range(value + 1),
}


def _common(first: range, second: range) -> range:
    low = max(first.start, second.start)
    return range(low, max(low, min(first.stop, second.stop)))
