"""Non-keyed state as a user sees it: state of a function's instance, not of a key. PyFlink's names, and Flink's.

What a handle returns never aliases state, as in `varvite.changelog.api.state`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from varvite.changelog.api.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from varvite.changelog.api.descriptors import ListStateDescriptor, MapStateDescriptor
    from varvite.changelog.api.state import ListState

K = TypeVar("K")
V = TypeVar("V")


class ReadOnlyBroadcastState(State, Generic[K, V]):
    """A map that is the same in every instance of the function, and that may only be read here.

    `items`, `keys` and `values` return lists that belong to the caller, in the order in which the keys were first put.
    """

    __slots__ = ()

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value of the key; None if there is none (never `KeyError`)."""

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

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: Any) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class BroadcastState(ReadOnlyBroadcastState[K, V]):
    """A map that is the same in every instance of the function, because every instance changes it alike.

    So its changes may depend on the broadcast elements only. A value may be None, which is not the same as no
    entry; a key may not.
    """

    __slots__ = ()

    @abstractmethod
    def put(self, key: K, value: V | None) -> None:
        """Set the value of the key. Raises `InvalidRequestError` if one of them is not of the state's types."""

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set all entries; nothing is set if one is wrong."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove the key's entry; a missing one is no error."""

    def __setitem__(self, key: K, value: V | None) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class OperatorStateStore(ABC):
    """The source of handles of non-keyed state. Descriptors of one name are one state.

    All three raise:
        InvalidRequestError: Not the descriptor of such a state, one with a time to live, or the name is taken.
        IncompatibleError: The restored state of this name is of another kind, or of a type that this one cannot follow.
    """

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """A map that every instance holds alike. With another parallelism every instance gets a copy."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of this instance. With another parallelism the elements of all are split evenly."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of this instance. When the job starts again every instance gets the elements of all."""

    @abstractmethod
    def get_registered_state_names(self) -> set[str]:
        """Names of the list states that were declared or restored."""

    @abstractmethod
    def get_registered_broadcast_state_names(self) -> set[str]:
        """Names of the broadcast states that were declared or restored."""
