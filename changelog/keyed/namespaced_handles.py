"""`NamespacedStateStore`: handles of all kinds of state for the current key and one namespace, such as a window.

Each handle is a view of a map handle of the key. Reading a list or a map looks at the key's entries of all namespaces,
so these two cannot have a time to live that reading renews.

Invariants: those of `namespaces`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varvite.changelog.api.checks import check_dict
from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.api.state import AggregatingState, ListState, MapState, ReducingState, ValueState
from varvite.changelog.api.ttl_config import UpdateType
from varvite.changelog.keyed.namespaces import NAMESPACE_TYPE, NamespacedLists, aggregating, described, reducing
from varvite.changelog.types.factory import Types
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from varvite.changelog.api.descriptors import StateDescriptor
    from varvite.changelog.api.ttl_config import StateTtlConfig
    from varvite.changelog.keyed.namespaces import MapStates, NamespacedAccumulators


class NamespacedStateStore:
    """States of (key, namespace); a handle is about the namespace that the store has when it is used.

    Args:
        states: The source of the map states beneath.
        prefix: Of their names.
    """

    def __init__(self, states: MapStates, prefix: str) -> None:
        self._states = states
        self._prefix = prefix
        self.namespace = 0
        """The namespace of all handles."""

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """One value per key and namespace."""
        return _Value(self, self._map(state_descriptor, NAMESPACE_TYPE, state_descriptor.get_ttl_config()))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list per key and namespace; adding an element writes that element."""
        return _List(self, self._lists(state_descriptor))

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """A map per key and namespace."""
        key_type = Types.TUPLE([NAMESPACE_TYPE, state_descriptor.map_key_type])
        return _Map(self, self._map(state_descriptor, key_type, _unread(state_descriptor)))

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """A reduced value per key and namespace."""
        return _Reducing(self, self._accumulators(state_descriptor))

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """An accumulator per key and namespace."""
        return _Aggregating(self, self._accumulators(state_descriptor), state_descriptor.get_agg_function().get_result)

    def get_any_state(self, state_descriptor: StateDescriptor) -> Any:
        """The handle of the descriptor's kind. Raises `InvalidRequestError` if it is none."""
        for kind, get in (
            (ValueStateDescriptor, self.get_state),
            (ListStateDescriptor, self.get_list_state),
            (MapStateDescriptor, self.get_map_state),
            (ReducingStateDescriptor, self.get_reducing_state),
            (AggregatingStateDescriptor, self.get_aggregating_state),
        ):
            if isinstance(state_descriptor, kind):
                return get(state_descriptor)  # pyright: ignore[reportArgumentType]  each takes its own kind
        raise InvalidRequestError(f"{state_descriptor!r} describes no state")

    def merge_namespaces(self, state_descriptor: StateDescriptor, sources: Sequence[int]) -> None:
        """Merge the sources into the current namespace; the sources hold nothing of the state then.

        Raises:
            InvalidRequestError: The state is of a kind that cannot be merged.
        """
        if isinstance(state_descriptor, ListStateDescriptor):
            self._lists(state_descriptor).merge_namespaces(self.namespace, sources)
        elif isinstance(state_descriptor, ReducingStateDescriptor | AggregatingStateDescriptor):
            self._accumulators(state_descriptor).merge_namespaces(self.namespace, [self.namespace, *sources])
        else:
            raise InvalidRequestError(
                f"{state_descriptor!r} cannot be merged; a list, reducing or aggregating state can"
            )

    def _accumulators(self, descriptor: ReducingStateDescriptor | AggregatingStateDescriptor) -> NamespacedAccumulators:
        name, kind, ttl = self._name(descriptor), descriptor.stored_type, descriptor.get_ttl_config()
        if isinstance(descriptor, ReducingStateDescriptor):
            return reducing(self._states, name, kind, descriptor.get_reduce_function().reduce, ttl)
        return aggregating(self._states, name, kind, descriptor.get_agg_function(), ttl)

    def _lists(self, descriptor: ListStateDescriptor) -> NamespacedLists:
        return NamespacedLists(self._states, self._name(descriptor), descriptor.stored_type, _unread(descriptor))

    def _name(self, descriptor: StateDescriptor) -> str:
        return f"{self._prefix}/{descriptor.kind}/{descriptor.name}"

    def _map(self, descriptor: StateDescriptor, key_type: Any, ttl: StateTtlConfig | None) -> MapState[Any, Any]:
        return self._states.get_map_state(described(self._name(descriptor), key_type, descriptor.stored_type, ttl))


def _unread(descriptor: StateDescriptor) -> StateTtlConfig | None:
    """The TTL of a state whose namespaces are all read together; `InvalidRequestError` if reading renews it."""
    config = descriptor.get_ttl_config()
    if config is not None and config.get_update_type() is UpdateType.OnReadAndWrite:
        raise InvalidRequestError(
            f"the {descriptor.kind} state {descriptor.name!r} of a window cannot have a time to live that reading "
            "renews: let only writing renew it (OnCreateAndWrite)"
        )
    return config


class _Value(ValueState[Any]):
    __slots__ = ("_map", "_store")

    def __init__(self, store: NamespacedStateStore, handle: MapState[Any, Any]) -> None:
        self._store = store
        self._map = handle

    def value(self) -> Any:
        return self._map.get(self._store.namespace)

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._map.put(self._store.namespace, value)

    def clear(self) -> None:
        self._map.remove(self._store.namespace)


class _Accumulator:
    """Base of the two handles of an accumulator."""

    __slots__ = ("_accumulators", "_store")

    def __init__(self, store: NamespacedStateStore, accumulators: NamespacedAccumulators) -> None:
        self._store = store
        self._accumulators = accumulators

    def get(self) -> Any:
        return self._accumulators.get(self._store.namespace)

    def add(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._accumulators.add(self._store.namespace, value)

    def clear(self) -> None:
        self._accumulators.remove(self._store.namespace)


class _Reducing(_Accumulator, ReducingState[Any]):
    __slots__ = ()


class _Aggregating(_Accumulator, AggregatingState[Any, Any]):
    __slots__ = ("_result",)

    def __init__(
        self, store: NamespacedStateStore, accumulators: NamespacedAccumulators, result: Callable[[Any], Any]
    ) -> None:
        super().__init__(store, accumulators)
        self._result = result

    def get(self) -> Any:
        accumulator = super().get()
        return None if accumulator is None else self._result(accumulator)


class _List(ListState[Any]):
    __slots__ = ("_lists", "_store")

    def __init__(self, store: NamespacedStateStore, lists: NamespacedLists) -> None:
        self._store = store
        self._lists = lists

    def get(self) -> list[Any]:
        namespace = self._store.namespace
        return self._lists.elements(namespace, namespace + 1)

    def add(self, value: Any) -> None:
        self._lists.add(self._store.namespace, value)

    def add_all(self, values: Sequence[Any]) -> None:
        self._lists.add_all(self._store.namespace, values)

    def update(self, values: Sequence[Any]) -> None:
        self._lists.replace(self._store.namespace, values)

    def clear(self) -> None:
        namespace = self._store.namespace
        self._lists.remove_between(namespace, namespace + 1)


class _Map(MapState[Any, Any]):
    __slots__ = ("_map", "_store")

    def __init__(self, store: NamespacedStateStore, handle: MapState[Any, Any]) -> None:
        self._store = store
        self._map = handle

    def get(self, key: Any) -> Any:
        return self._map.get((self._store.namespace, key))

    def put(self, key: Any, value: Any) -> None:
        self._map.put((self._store.namespace, key), value)

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        check_dict(dict_value)
        namespace = self._store.namespace
        self._map.put_all({(namespace, key): value for key, value in dict_value.items()})

    def remove(self, key: Any) -> None:
        self._map.remove((self._store.namespace, key))

    def contains(self, key: Any) -> bool:
        return self._map.contains((self._store.namespace, key))

    def items(self) -> list[tuple[Any, Any]]:
        namespace = self._store.namespace
        return [(place[1], value) for place, value in self._map.items() if place[0] == namespace]

    def keys(self) -> list[Any]:
        namespace = self._store.namespace
        return [place[1] for place in self._map.keys() if place[0] == namespace]  # noqa: SIM118  a state, not a dict

    def values(self) -> list[Any]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        return not self.keys()

    def clear(self) -> None:
        for key in self.keys():
            self.remove(key)
