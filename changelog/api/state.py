"""Keyed state as a user sees it: PyFlink's interfaces, each always about the current key.

What a handle returns never aliases state: changing a returned object changes nothing until it is passed to `update`,
`add` or `put`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varvite.changelog.api.batch_keys import BatchKeys

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class State(ABC):
    """Base of all states."""

    __slots__ = ()

    @abstractmethod
    def clear(self) -> None:
        """Remove the state of the current key."""


class ValueState(State, Generic[T]):
    """One value."""

    __slots__ = ()

    @abstractmethod
    def value(self) -> T | None:
        """The value; None if there is none."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Set the value; None removes it. Raises `InvalidRequestError` if it is not of the state's type."""

    def get_many(self, keys: BatchKeys) -> Any:
        """The values of the keys, whatever the current key is: an Arrow array of the state's type, null for none.

        Raises `InvalidRequestError` if values of the state's type have no Arrow form (lists, maps, pickled objects,
        integers of any size), or `keys` does not come from the context of a vectorised function; the other two as well.
        """
        raise _one_key_only(self, keys)

    def put_many(self, keys: BatchKeys, values: Any) -> None:
        """Set the value of each key to the element of an Arrow array; null removes it.

        Raises `InvalidRequestError` if the array has another length, or cannot be cast to the state's type.
        """
        raise _one_key_only(self, keys, values)

    def remove_many(self, keys: BatchKeys) -> None:
        """Remove the values of these keys."""
        raise _one_key_only(self, keys)


class AppendingState(State, Generic[IN, OUT]):
    """Takes values one by one and returns a result of all of them."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> OUT | None:
        """The result of the values so far."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Take one value."""


class MergingState(AppendingState[IN, OUT]):
    """An `AppendingState` of which two can become one."""

    __slots__ = ()


class ReducingState(MergingState[T, T]):
    """One value, the result of a `ReduceFunction` of all added values. `get()` is None when empty.

    `add(None)` clears the state, as in Flink's heap backend.
    """

    __slots__ = ()


class AggregatingState(MergingState[IN, OUT]):
    """An accumulator, the result of an `AggregateFunction` of all added values. `get()` is None when empty.

    `add(None)` clears the state, as in Flink's heap backend.
    """

    __slots__ = ()


class ListState(MergingState[T, list[T]]):
    """A list. Adding needs no read of its elements. An element cannot be None."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> list[T]:
        """The elements, as a list that belongs to the caller; empty if there is none."""

    @abstractmethod
    def add_all(self, values: Sequence[T]) -> None:
        """Add elements to the end; none is added if one is wrong. No values change nothing.

        Raises:
            InvalidRequestError: `values` or one of them is None, or one is not of the state's type.
        """

    @abstractmethod
    def update(self, values: Sequence[T]) -> None:
        """Replace all elements; no values clear the state. Raises as `add_all`."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class MapState(State, Generic[K, V]):
    """A map. A value may be None, which is not the same as no entry; a key may not.

    `items`, `keys` and `values` return lists that belong to the caller, so a map may be changed while one goes over
    them. The order of entries is not defined.
    """

    __slots__ = ()

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value of the key; None if there is none (never `KeyError`)."""

    @abstractmethod
    def put(self, key: K, value: V | None) -> None:
        """Set the value of the key."""

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set all entries; nothing is set if one is wrong."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove the key's entry; a missing one is no error."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Does the key have an entry, maybe of value None?"""

    @abstractmethod
    def items(self) -> list[tuple[K, V]]:
        """The entries."""

    @abstractmethod
    def keys(self) -> list[K]:
        """The keys."""

    @abstractmethod
    def values(self) -> list[V]:
        """The values."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Is there no entry?"""

    def get_many(self, keys: BatchKeys, map_keys: Any) -> Any:
        """The entries (`keys[i]`, `map_keys[i]`), whatever the current key is: an Arrow array, null for none.

        Args:
            keys: One per map key: `ctx.keys().take(positions)` repeats keys.
            map_keys: Arrow array without nulls.

        Raises `InvalidRequestError` as `ValueState.get_many`.
        """
        raise _one_key_only(self, keys, map_keys)

    def put_many(self, keys: BatchKeys, map_keys: Any, values: Any) -> None:
        """Set these entries to the elements of an Arrow array; a null is a null value. Raises as `get_many`."""
        raise _one_key_only(self, keys, map_keys, values)

    def remove_many(self, keys: BatchKeys, map_keys: Any) -> None:
        """Remove these entries; a missing one is no error. Raises as `get_many`."""
        raise _one_key_only(self, keys, map_keys)

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __setitem__(self, key: K, value: V | None) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __contains__(self, key: Any) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


def _one_key_only(state: State, *arguments: Any) -> InvalidRequestError:
    del arguments
    return InvalidRequestError(
        f"{type(state).__name__} is read and written for one key at a time; only plain value and map states have "
        "methods for many keys"
    )
