"""`KeyedStateBackend`: the state of one (operator, partition) as the user's function sees it during a batch.

Reads go to the overlay and then to the working store; writes go to the overlay only. A long batch's changes may leave
in parts, each with `cut()`. A batch ends with `changes()`, which becomes the (last) segment, and then with
`fold(version)` once its commit is confirmed, or with `drop()` if it never will be.

Invariants: I3 and I4 (the store changes in `fold` alone; `drop` leaves it as it was), I5 (`changes` is a function of
the batch's accesses and their order: no clock, no randomness; the parts applied in order give what `fold` does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from varve.changelog.aggregating_state import AggregatingStateHandle, ReducingStateHandle
from varve.changelog.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
    schema_of,
)
from varve.changelog.list_state import ListOverlay, ListStateHandle
from varve.changelog.map_state import MapOverlay, MapStateHandle
from varve.changelog.overlay import NO_KEY, KeyContext, Overlay
from varve.changelog.schema_history import same_declaration
from varve.changelog.state_declaration import declare, rewrite
from varve.changelog.timer_state import KeyedTimers, TimeDomain, TimerOverlay, timer_schema
from varve.changelog.type_strings import parse_type_string
from varve.changelog.value_state import ValueOverlay, ValueStateHandle
from varve.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from varve.changelog.changes import StateChanges
    from varve.changelog.state import AggregatingState, ListState, MapState, ReducingState, ValueState
    from varve.changelog.type_information import TypeInformation
    from varve.changelog.working_store import WorkingStore
    from varve.storage.records import Link, StateSchema

D = TypeVar("D", bound=StateDescriptor)
O = TypeVar("O", bound=Overlay[Any])  # noqa: E741


class KeyedStateBackend:
    """States of one (operator, partition) over a working store; used by one thread.

    Args:
        store: The confirmed state.
        key_type: Type of the keys; must be hashable.
        operator: The operator's uid, for errors.
        known: States that the operator has in any partition, at their newest schemas.

    Raises:
        InvalidRequestError: The key type cannot be that of a key.
    """

    def __init__(
        self, store: WorkingStore, key_type: TypeInformation, operator: str, known: Sequence[StateSchema] = ()
    ) -> None:
        if not key_type.hashable:
            raise InvalidRequestError(
                f"{key_type} cannot be the type of a key: its values have no canonical bytes", operator=operator
            )
        self._store = store
        self._key_type = key_type
        self._context = KeyContext(operator)
        self._overlays: dict[str, Overlay[Any]] = {}
        self._changes: list[StateChanges] | None = None
        self._whole: tuple[list[StateChanges], list[StateChanges]] | None = None
        """(`changes()`, what the whole batch is together with the parts that were cut)."""
        self._migrated: list[Overlay[Any]] = []
        """States whose values this batch puts again."""
        store.revert()  # what an earlier backend declared and never folded never was
        for schema in known:
            store.register(schema)

    @property
    def store(self) -> WorkingStore:
        """The confirmed state."""
        return self._store

    @property
    def key_type(self) -> TypeInformation:
        """Type of the keys."""
        return self._key_type

    @property
    def schemas(self) -> tuple[StateSchema, ...]:
        """Every state that the store or the user's function knows."""
        return self._store.schemas

    def set_current_key(self, key_group: int, key: Any) -> None:
        """From now on all handles are about this key.

        Args:
            key_group: The key's group.
            key: Stored form of the key (`key_type.freeze`), or None for the null key.
        """
        context = self._context
        context.key_group = key_group
        context.key = key
        self._changes = None

    def get_current_key(self) -> Any:
        """The user's form of the current key. Raises `InvalidRequestError` if there is none."""
        if self._context.key is NO_KEY:
            raise InvalidRequestError("no key is current", operator=self._context.operator)
        return self._thaw_key(self._context.key)

    def _thaw_key(self, key: Any) -> Any:
        return None if key is None else self._key_type.thaw(key)

    # --- handles -----------------------------------------------------------------------------------------------------

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Handle of a value state; a state that was asked for before is the same state.

        Raises (as do the other four):
            InvalidRequestError: Not the descriptor of such a state, or the name is taken by a state of another schema.
            IncompatibleError: The restored state of this name has another kind, or a type that this one cannot follow.
        """
        overlay = self._value_overlay(state_descriptor, ValueStateDescriptor)
        return ValueStateHandle(overlay, self._context, state_descriptor.stored_type)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Handle of a list state."""
        overlay = self._overlay(
            state_descriptor,
            ListStateDescriptor,
            ListOverlay,
            lambda schema: ListOverlay(schema, self._store.list_table(schema)),
        )
        return ListStateHandle(overlay, self._context, state_descriptor.stored_type)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Handle of a map state."""
        overlay = self._overlay(
            state_descriptor,
            MapStateDescriptor,
            MapOverlay,
            lambda schema: MapOverlay(schema, self._store.map_table(schema)),
        )
        return MapStateHandle(overlay, self._context, state_descriptor.map_key_type, state_descriptor.stored_type)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Handle of a reducing state."""
        overlay = self._value_overlay(state_descriptor, ReducingStateDescriptor)
        function = state_descriptor.get_reduce_function()
        return ReducingStateHandle(overlay, self._context, state_descriptor.stored_type, function)

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """Handle of an aggregating state."""
        overlay = self._value_overlay(state_descriptor, AggregatingStateDescriptor)
        function = state_descriptor.get_agg_function()
        return AggregatingStateHandle(overlay, self._context, state_descriptor.stored_type, function)

    def get_timers(self, name: str, domain: TimeDomain, namespace_type: TypeInformation | None = None) -> KeyedTimers:
        """Timers of one domain of the timer service of this name.

        Args:
            name: Of the timer service, unique in the operator.
            domain: Which clock they follow.
            namespace_type: Type of their namespaces; None: they have none.

        Raises:
            InvalidRequestError, IncompatibleError: As `get_state`; or namespaces of this type have no canonical bytes.
        """
        if namespace_type is not None and not namespace_type.hashable:
            problem = f"{namespace_type} cannot be the type of a namespace: its values have no canonical bytes"
            raise InvalidRequestError(problem, operator=self._context.operator)
        schema = timer_schema(name, domain, namespace_type)
        overlay = self._overlay_of(schema, TimerOverlay, lambda: TimerOverlay(schema, self._store.timer_table(schema)))
        return KeyedTimers(overlay, self._context, namespace_type)

    def remove_state(self, name: str) -> None:
        """Remove what a value, list or map state holds for every key; all of its keys are pending then.

        Nothing happens if there is no such state. No key is current afterwards.

        Raises:
            InvalidRequestError: It is of another kind.
        """
        schema = next((schema for schema in self._store.schemas if schema.name == name), None)
        if schema is None:
            return
        value_type, handle = parse_type_string(schema.value_type), None
        if schema.kind == ValueStateDescriptor.kind:
            handle = self.get_state(ValueStateDescriptor(name, value_type))
        elif schema.kind == ListStateDescriptor.kind:
            handle = self.get_list_state(ListStateDescriptor(name, value_type))
        elif schema.kind == MapStateDescriptor.kind and schema.map_key_type is not None:
            handle = self.get_map_state(MapStateDescriptor(name, parse_type_string(schema.map_key_type), value_type))
        if handle is None:
            problem = f"state {name!r} of kind {schema.kind} cannot be removed as a whole"
            raise InvalidRequestError(problem, operator=self._context.operator)
        for key_group, key in list(self._overlays[name].keys()):
            self.set_current_key(key_group, key)
            handle.clear()
        self._context.key = NO_KEY

    def get_keys(self, name: str) -> Iterator[Any]:
        """The user's form of every key that has state of this name, pending included; in no defined order.

        Raises:
            InvalidRequestError: No handle of such a state was asked for.
        """
        if name not in self._overlays:
            raise InvalidRequestError(f"there is no state {name!r} yet", operator=self._context.operator)
        found = self._overlays[name].keys()
        return (self._thaw_key(key) for _, key in found)

    def _value_overlay(self, descriptor: StateDescriptor, kind: type[StateDescriptor]) -> ValueOverlay:
        return self._overlay(
            descriptor, kind, ValueOverlay, lambda schema: ValueOverlay(schema, self._store.value_table(schema))
        )

    def _overlay(
        self,
        descriptor: StateDescriptor,
        kind: type[StateDescriptor],
        overlay_type: type[O],
        make: Callable[[StateSchema], O],
    ) -> O:
        if not isinstance(descriptor, kind):
            raise InvalidRequestError(f"{descriptor!r} is not a {kind.__name__}", operator=self._context.operator)
        return self._overlay_of(schema_of(descriptor), overlay_type, lambda: self._declared(descriptor, make))

    def _overlay_of(self, schema: StateSchema, overlay_type: type[O], make: Callable[[], O]) -> O:
        known = self._overlays.get(schema.name)
        if known is None:
            known = self._overlays[schema.name] = make()
        if not same_declaration(known.schema, schema) or not isinstance(known, overlay_type):
            raise InvalidRequestError(
                f"state {schema.name!r} exists already with another schema: {known.schema} and now {schema}; "
                "give the states different names",
                operator=self._context.operator,
            )
        return known

    def _declared(self, descriptor: StateDescriptor, make: Callable[[StateSchema], O]) -> O:
        operator, is_opening = self._context.operator, self._context.key is NO_KEY
        declared = declare(self._store, descriptor, operator, is_opening=is_opening)
        overlay = make(declared.schema)
        if declared.migrated:
            self._migrated.append(overlay)
            rewrite(overlay)
        return overlay

    # --- the batch ---------------------------------------------------------------------------------------------------

    def prefetch(self, key_groups: Sequence[int], keys: Sequence[Any]) -> None:
        """These keys (stored forms) come next. A hint, for the value tables that this or the last batch has read."""
        for overlay in self._overlays.values():
            overlay.prefetch(key_groups, keys)

    def count_rows(self) -> int:
        """Rows that `changes` would have; costs up to a visit of each key that changed since the last cut."""
        return sum(overlay.count_rows() for overlay in self._overlays.values())

    def changes(self) -> list[StateChanges]:
        """The net effect since the last cut, by state in order of registration, without the states that have none.

        No key is current afterwards.
        """
        self._context.key = NO_KEY
        if self._changes is None:
            found = [overlay.changes() for overlay in self._overlays.values()]
            self._changes = [changes for changes in found if changes is not None]
        return self._changes

    def cut(self) -> list[StateChanges]:
        """End a part: gives `changes()`, which then begin anew. What was given stays readable and pending (I4).

        The parts of a batch and then its last `changes()`, applied in this order, are what `fold` applies.
        """
        part = self.changes()
        self._changes = None
        for overlay in self._overlays.values():
            overlay.cut()
        return part

    def prepare(self, seq: int) -> None:
        """Let the store do ahead what it can of `fold`, at this seq; nothing changes that can be seen."""
        self._store.prepare(self._whole_changes(), seq)

    def fold(self, version: Link) -> None:
        """The batch is confirmed: all its parts go into the store at once, and the overlay is empty (I4)."""
        self._store.apply(self._whole_changes(), version)
        self._migrated.clear()
        self.drop()

    def drop(self) -> None:
        """The batch never was: the overlay is empty. No key is current afterwards."""
        self._context.key = NO_KEY
        self._changes = self._whole = None
        for overlay in self._overlays.values():
            overlay.clear()
        for overlay in self._migrated:
            rewrite(overlay)

    def _whole_changes(self) -> list[StateChanges]:
        """The net effect of the batch; until a key is set the same objects, as the store may have prepared them."""
        rest = self.changes()
        if all(overlay.sealed is None for overlay in self._overlays.values()):
            return rest
        if self._whole is None or self._whole[0] is not rest:
            found = [overlay.whole() for overlay in self._overlays.values()]
            self._whole = rest, [changes for changes in found if changes is not None]
        return self._whole[1]
