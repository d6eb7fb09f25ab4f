"""`ReducingState` and `AggregatingState`, with and without TTL: a cell whose value is the result of a user's function.

The function gets thawed values and may change a mutable accumulator in place; its result is frozen again. If it raises,
the state stays as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from varvite.changelog.api.state import AggregatingState, ReducingState

if TYPE_CHECKING:
    from varvite.changelog.api.functions import AggregateFunction, ReduceFunction

T = TypeVar("T")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class ResultCell(Protocol):
    """The value of the current key: `ValueCell` or `TtlCell`."""

    def read(self) -> Any:
        """The value; None if there is none."""
        ...

    def read_for_update(self) -> Any:
        """The value for a `write_result` or nothing to follow."""
        ...

    def write_result(self, value: Any, method: str) -> None:
        """Set the value, which that method of the user's function returned."""
        ...

    def remove(self) -> None:
        """Remove the value."""
        ...


class ReducingStateHandle(ReducingState[T]):
    """The user's handle of a `ReducingState`."""

    __slots__ = ("_read", "_read_for_update", "_reduce", "_remove", "_write")

    def __init__(self, cell: ResultCell, reduce_function: ReduceFunction[Any]) -> None:
        self._read = cell.read
        self._read_for_update = cell.read_for_update
        self._write = cell.write_result
        self._remove = cell.remove
        self._reduce = reduce_function.reduce

    def get(self) -> T | None:
        return self._read()

    def add(self, value: T) -> None:
        if value is None:
            self._remove()
            return
        current = self._read_for_update()
        self._write(value if current is None else self._reduce(current, value), "reduce()")

    def clear(self) -> None:
        self._remove()


class AggregatingStateHandle(AggregatingState[IN, OUT]):
    """The user's handle of an `AggregatingState`."""

    __slots__ = ("_add", "_create", "_read", "_read_for_update", "_remove", "_result", "_write")

    def __init__(self, cell: ResultCell, agg_function: AggregateFunction[Any, Any, Any]) -> None:
        self._read = cell.read
        self._read_for_update = cell.read_for_update
        self._write = cell.write_result
        self._remove = cell.remove
        self._create = agg_function.create_accumulator
        self._add = agg_function.add
        self._result = agg_function.get_result

    def get(self) -> OUT | None:
        accumulator = self._read()
        return None if accumulator is None else self._result(accumulator)

    def add(self, value: IN) -> None:
        if value is None:
            self._remove()
            return
        accumulator = self._read_for_update()
        self._write(self._add(value, self._create() if accumulator is None else accumulator), "add()")

    def clear(self) -> None:
        self._remove()
