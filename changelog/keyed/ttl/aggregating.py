"""`ReducingState` and `AggregatingState` with TTL.

Adding writes, so it renews the value's life under every update type. What has expired is no part of a sum, unless it
may still be seen (ReturnExpiredIfNotCleanedUp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from varvite.changelog.api.state import AggregatingState, ReducingState
from varvite.changelog.keyed.aggregating import returned_none

if TYPE_CHECKING:
    from varvite.changelog.api.functions import AggregateFunction, ReduceFunction
    from varvite.changelog.keyed.ttl.value import TtlCell

T = TypeVar("T")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class TtlReducingStateHandle(ReducingState[T]):
    """The user's handle of a `ReducingState`."""

    __slots__ = ("_cell", "_reduce")

    def __init__(self, cell: TtlCell, reduce_function: ReduceFunction[Any]) -> None:
        self._cell = cell
        self._reduce = reduce_function.reduce

    def get(self) -> T | None:
        return self._cell.read()

    def add(self, value: T) -> None:
        cell = self._cell
        if value is None:
            cell.remove()
            return
        current = cell.read(for_update=True)
        _write(cell, value if current is None else self._reduce(current, value), "reduce()")

    def clear(self) -> None:
        self._cell.remove()


class TtlAggregatingStateHandle(AggregatingState[IN, OUT]):
    """The user's handle of an `AggregatingState`."""

    __slots__ = ("_add", "_cell", "_create", "_result")

    def __init__(self, cell: TtlCell, agg_function: AggregateFunction[Any, Any, Any]) -> None:
        self._cell = cell
        self._create = agg_function.create_accumulator
        self._add = agg_function.add
        self._result = agg_function.get_result

    def get(self) -> OUT | None:
        accumulator = self._cell.read()
        return None if accumulator is None else self._result(accumulator)

    def add(self, value: IN) -> None:
        cell = self._cell
        if value is None:
            cell.remove()
            return
        accumulator = cell.read(for_update=True)
        _write(cell, self._add(value, self._create() if accumulator is None else accumulator), "add()")

    def clear(self) -> None:
        self._cell.remove()


def _write(cell: TtlCell, value: Any, made_by: str) -> None:
    """Set the value, which that method of the user's function returned."""
    if value is None:
        raise cell.refused(returned_none(made_by))
    cell.write(value)
