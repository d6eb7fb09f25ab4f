"""State of (key, namespace), such as a window: each namespace of a key is an entry of one of the key's map states.

So a namespace is an ordinary row with a map key: nothing in segments, snapshots or RocksDB is new, and only changed
namespaces are logged. Merging merges accumulators, never results (`MergingState`).

Invariants: I4 and I5 as of map state; adding to a list writes the element and reads nothing but the key's counter.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.api.checks import list_elements
from varvite.changelog.api.descriptors import MapStateDescriptor, ValueStateDescriptor
from varvite.changelog.types.collections import PickledType
from varvite.changelog.types.factory import Types, as_type
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Protocol

    from varvite.changelog.api.functions import AggregateFunction
    from varvite.changelog.api.state import MapState, ValueState
    from varvite.changelog.api.ttl_config import StateTtlConfig
    from varvite.changelog.types.factory import TypeLike

    class MapStates(Protocol):
        """The source of the handles: a backend, or a function's runtime context."""

        def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
            """Handle of a value state."""
            ...

        def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
            """Handle of a map state."""
            ...


NAMESPACE_TYPE: Final = Types.LONG()
"""Namespaces are whole numbers of 64 bits: the begin of a window or of a pane."""


class NamespacedAccumulators:
    """An accumulator for each namespace of the current key.

    Args:
        states: The source of the map state.
        name: Of the state.
        accumulator_type: Type of an accumulator.
        add: (accumulator or None, value) → accumulator.
        merge: Two accumulators → one.
        ttl: Time to live of an accumulator; None: for ever.
    """

    __slots__ = ("_add", "_map", "_merge", "_name", "_type")

    def __init__(
        self,
        states: MapStates,
        name: str,
        accumulator_type: TypeLike,
        add: Callable[[Any, Any], Any],
        merge: Callable[[Any, Any], Any],
        ttl: StateTtlConfig | None = None,
    ) -> None:
        self._map = states.get_map_state(described(name, NAMESPACE_TYPE, accumulator_type, ttl))
        self._name = name
        self._type = as_type(accumulator_type)
        self._add = add
        self._merge = merge

    def add(self, namespace: int, value: Any) -> bool:
        """Add a value; True if the namespace had none before."""
        before = self._map.get(namespace)
        self._map.put(namespace, self._checked(self._add(before, value), "adding a value"))
        return before is None

    def get(self, namespace: int) -> Any:
        """The accumulator; None if there is none."""
        return self._map.get(namespace)

    def namespaces(self) -> list[int]:
        """The namespaces that have an accumulator, ascending."""
        return sorted(self._map.keys())

    def merged(self, low: int, high: int) -> Any:
        """One accumulator of all in `low <= namespace < high`, merged in this order; None if there is none."""
        items = sorted((item for item in self._map.items() if low <= item[0] < high), key=itemgetter(0))
        return self._merged([accumulator for _, accumulator in items])

    def merge_namespaces(self, target: int, sources: Iterable[int]) -> None:
        """Set the target to the accumulators of all sources, merged in their order; the sources have none then.

        If merging raises, everything stays as it was.
        """
        merged = list(sources)
        if merged == [target]:
            return
        accumulators = [accumulator for source in merged if (accumulator := self._map.get(source)) is not None]
        if accumulators:
            self._map.put(target, self._merged(accumulators))
        for source in merged:
            if source != target:
                self._map.remove(source)

    def remove(self, namespace: int) -> None:
        """Remove the accumulator; a missing one is no error."""
        self._map.remove(namespace)

    def remove_between(self, low: int, high: int) -> None:
        """Remove those in `low <= namespace < high`."""
        for namespace in self._map.keys():  # noqa: SIM118  a state, not a dict
            if low <= namespace < high:
                self._map.remove(namespace)

    def _merged(self, accumulators: list[Any]) -> Any:
        if not accumulators:
            return None
        whole = accumulators[0]
        for accumulator in accumulators[1:]:
            whole = self._as_read(self._checked(self._merge(whole, accumulator), "merging"))
        return whole

    def _as_read(self, accumulator: Any) -> Any:
        """The form in which the state would return the accumulator: a row for a dict, say. The next merge gets that."""
        if isinstance(self._type, PickledType):
            return accumulator
        try:
            return self._type.thaw(self._type.freeze(accumulator))
        except InvalidRequestError as error:
            raise InvalidRequestError(f"state {self._name!r}: {error.message}") from error

    def _checked(self, accumulator: Any, call: str) -> Any:
        if accumulator is None:
            raise InvalidRequestError(f"state {self._name!r}: {call} returned None; it must return an accumulator")
        return accumulator


def reducing(
    states: MapStates,
    name: str,
    value_type: TypeLike,
    reduce: Callable[[Any, Any], Any],
    ttl: StateTtlConfig | None = None,
) -> NamespacedAccumulators:
    """Accumulators of a reduce function: they are values."""
    return NamespacedAccumulators(
        states, name, value_type, lambda held, value: value if held is None else reduce(held, value), reduce, ttl
    )


def aggregating(
    states: MapStates,
    name: str,
    accumulator_type: TypeLike,
    function: AggregateFunction[Any, Any, Any],
    ttl: StateTtlConfig | None = None,
) -> NamespacedAccumulators:
    """Accumulators of an `AggregateFunction`."""
    create, add = function.create_accumulator, function.add
    return NamespacedAccumulators(
        states,
        name,
        accumulator_type,
        lambda held, value: add(value, create() if held is None else held),
        function.merge,
        ttl,
    )


class NamespacedLists:
    """A list for each namespace of the current key; each element is one row, written once.

    Elements are numbered in the order in which the key got them, by a counter of the key that starts anew when all its
    lists are empty.
    """

    __slots__ = ("_elements", "_next")

    def __init__(self, states: MapStates, name: str, element_type: TypeLike, ttl: StateTtlConfig | None = None) -> None:
        place = Types.TUPLE([NAMESPACE_TYPE, Types.LONG()])
        self._elements = states.get_map_state(described(name, place, element_type, ttl))
        self._next = states.get_state(ValueStateDescriptor(f"{name}/next", Types.LONG()))

    def add(self, namespace: int, value: Any) -> None:
        """Add an element. Raises `InvalidRequestError` if it is None."""
        if value is None:
            list_elements((value,))  # which raises
        place = self._next.value() or 0
        self._elements.put((namespace, place), value)
        self._next.update(place + 1)

    def add_all(self, namespace: int, values: Sequence[Any]) -> None:
        """Add elements; none is added if one is wrong. Raises `InvalidRequestError` if one is None."""
        elements = list_elements(values)
        place = self._next.value() or 0
        self._elements.put_all({(namespace, place + i): value for i, value in enumerate(elements)})
        if elements:
            self._next.update(place + len(elements))

    def replace(self, namespace: int, values: Sequence[Any]) -> None:
        """Set all elements of a namespace. Raises as `add_all`."""
        values = list_elements(values)
        before = [place for place in self._elements.keys() if place[0] == namespace]  # noqa: SIM118  a state, not a dict
        self.add_all(namespace, values)
        for place in before:
            self._elements.remove(place)
        if not values:
            self.remove_between(namespace, namespace + 1)

    def elements(self, low: int, high: int) -> list[Any]:
        """The elements of `low <= namespace < high`, in the order in which they were added."""
        numbered = [(place[1], value) for place, value in self._elements.items() if low <= place[0] < high]
        numbered.sort(key=itemgetter(0))
        return [value for _, value in numbered]

    def remove_between(self, low: int, high: int) -> None:
        """Remove the lists of `low <= namespace < high`."""
        places = self._elements.keys()
        removed = [place for place in places if low <= place[0] < high]
        for place in removed:
            self._elements.remove(place)
        if len(removed) == len(places):
            self._next.clear()

    def merge_namespaces(self, target: int, sources: Iterable[int]) -> None:
        """Move the elements of all sources to the target, in the order in which they were added."""
        namespaces = set(sources) - {target}
        moved = [(place, value) for place, value in self._elements.items() if place[0] in namespaces]
        for place, value in moved:
            self._elements.remove(place)
            self._elements.put((target, place[1]), value)


def described(name: str, key_type: TypeLike, value_type: TypeLike, ttl: StateTtlConfig | None) -> MapStateDescriptor:
    """Descriptor of the map state beneath."""
    descriptor = MapStateDescriptor(name, key_type, value_type)
    if ttl is not None:
        descriptor.enable_time_to_live(ttl)
    return descriptor
