"""The functions that a state calls: `ReduceFunction` and `AggregateFunction`, as in PyFlink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")


class Function(ABC):  # noqa: B024 - PyFlink's base; nothing in it must be implemented
    """Base of all user-defined functions."""

    def open(self, runtime_context: Any) -> None:  # noqa: B027 - a function without set-up is common
        """Called once before the function's first use."""

    def close(self) -> None:  # noqa: B027
        """Called once after the function's last use."""


class ReduceFunction(Function, Generic[T]):
    """Combines two values of a type into one of the same type; must be associative."""

    @abstractmethod
    def reduce(self, value1: T, value2: T) -> T:
        """Combine the value so far with an added one; the result is not None."""


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Collects values in an accumulator, whose type may differ from that of the values and of the result."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """A new accumulator."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """The accumulator with the value in it: a new one, or `accumulator` changed in place."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """The result so far."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """One accumulator of two."""


class _CallableReduceFunction(ReduceFunction[Any]):
    """A callable of two values as a `ReduceFunction`."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def reduce(self, value1: Any, value2: Any) -> Any:
        return self._function(value1, value2)


def as_reduce_function(function: Any) -> ReduceFunction[Any]:
    """A `ReduceFunction` of one or of a callable. Raises `TypeError` for anything else."""
    if isinstance(function, ReduceFunction):
        return function  # pyright: ignore[reportUnknownVariableType]
    if callable(function):
        return _CallableReduceFunction(function)
    raise TypeError("The input must be a ReduceFunction or a callable function!")


def check_aggregate_function(function: Any) -> AggregateFunction[Any, Any, Any]:
    """The function itself. Raises `TypeError` if it is no `AggregateFunction`."""
    if isinstance(function, AggregateFunction):
        return function  # pyright: ignore[reportUnknownVariableType]
    raise TypeError("The input must be an AggregateFunction!")
