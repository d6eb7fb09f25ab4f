"""What filters of a data source's columns leave of its numbers and names; pure.

Spark gives the conjuncts of a query as the forms of `pyspark.sql.datasource`. A column of numbers is bounded by `=`,
`<=>`, `<`, `<=`, `>`, `>=` and `IN`, one of names by `=`, `<=>` and `IN`, each exactly. All else is Spark's to apply.
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
        """Whether nothing was asked for."""
        return self == Numbers()

    def within(self, part: range) -> range:
        """The narrowest range in `part` that has all numbers which pass; an empty one if none does."""
        common = _common(self.bounds, part)
        if self.among is None:
            return common
        wanted = [number for number in self.among if number in common]
        return range(min(wanted), max(wanted) + 1) if wanted else range(common.start, common.start)

    @classmethod
    def parse(cls, text: str) -> Numbers:
        """`7`, `2-7` (the last one included) or `2-`. Raises `ValueError`."""
        low, dash, high = text.partition("-")
        if not low.strip().isdecimal() or (high.strip() and not high.strip().isdecimal()):
            raise ValueError(f"{text!r} is not a number, or two with '-' between them")
        last = END - 1 if dash and not high.strip() else int(high or low)
        return cls(range(int(low), max(int(low), last + 1)))

    def but(self, bounds: range, among: frozenset[int] | None) -> Numbers:
        """Those that also pass another filter."""
        both = among if self.among is None else self.among if among is None else self.among & among
        return Numbers(_common(self.bounds, bounds), both)


@dataclass(frozen=True)
class Pushed:
    """The filters that were taken, of columns of numbers and of names."""

    numbers: dict[str, Numbers]
    names: dict[str, frozenset[str] | None]
    """Column → the names that may pass; None: all."""

    def take(self, one: Filter) -> Pushed | None:
        """With one more filter; None if it is not of these columns and forms."""
        column = ".".join(getattr(one, "attribute", ()))
        value: Any = getattr(one, "value", None)
        if column in self.numbers:
            passing = _numbers(one, value)
            if passing is None:
                return None
            return Pushed({**self.numbers, column: self.numbers[column].but(*passing)}, self.names)
        if column not in self.names:
            return None
        found = _names(one, value)
        if found is None:
            return None
        before = self.names[column]
        return Pushed(self.numbers, {**self.names, column: found if before is None else before & found})

    def passes(self, column: str, name: str) -> bool:
        """Whether rows with this name in a column may pass."""
        allowed = self.names[column]
        return allowed is None or name in allowed


def _numbers(one: Filter, value: Any) -> tuple[range, frozenset[int] | None] | None:
    if isinstance(one, In):
        is_exact = all(type(number) is int for number in value)
        return (range(END), frozenset(value)) if is_exact else None
    bounds = _BOUNDS.get(type(one))
    return (bounds(value), None) if bounds is not None and type(value) is int else None


def _names(one: Filter, value: Any) -> frozenset[str] | None:
    given: Sequence[Any] = value if isinstance(one, In) else (value,)
    is_exact = isinstance(one, (In, EqualTo, EqualNullSafe)) and all(isinstance(name, str) for name in given)
    return frozenset(given) if is_exact else None


_BOUNDS: Final[dict[type[Filter], Callable[[int], range]]] = {
    EqualTo: lambda value: range(value, value + 1),
    EqualNullSafe: lambda value: range(value, value + 1),
    GreaterThan: lambda value: range(value + 1, END),
    GreaterThanOrEqual: lambda value: range(value, END),
    LessThan: range,
    LessThanOrEqual: lambda value: range(value + 1),
}


def _common(one: range, other: range) -> range:
    low = max(one.start, other.start)
    return range(low, max(low, min(one.stop, other.stop)))
