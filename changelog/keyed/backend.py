"""`KeyedStateBackend`: the state of one (operator, partition) as the user's function sees it during a batch.

Reads go to the overlay and then to the working store; writes go to the overlay only. A long batch's changes may leave
in parts, each with `cut()`. A batch ends with `changes()`, which becomes the (last) segment, and then with
`fold(version)` once its commit is confirmed, or with `drop()` if it never will be.

Invariants: I3 and I4 (the store changes in `fold` alone; `drop` leaves it as it was), I5 (`changes` is a function of
the batch's accesses and their order: no clock, no randomness; the parts applied in order give what `fold` does).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.keyed.aggregating import AggregatingStateHandle, ReducingStateHandle, ResultCell
from varvite.changelog.keyed.context import NO_KEY, KeyContext
from varvite.changelog.keyed.declaration import declare, declared_schema, overlay_of, remove_all, rewrite
from varvite.changelog.keyed.in_place import InPlaceWatch
from varvite.changelog.keyed.list import ListStateHandle
from varvite.changelog.keyed.map import MapStateHandle
from varvite.changelog.keyed.overlays.base import Overlay
from varvite.changelog.keyed.overlays.list import ListOverlay
from varvite.changelog.keyed.overlays.map import MapOverlay
from varvite.changelog.keyed.overlays.timers import TimerOverlay
from varvite.changelog.keyed.overlays.value import ValueOverlay
from varvite.changelog.keyed.timers import KeyedTimers, TimeDomain, timer_schema
from varvite.changelog.keyed.ttl.expiry import Expiry, ReadRules
from varvite.changelog.keyed.ttl.list import TtlListStateHandle
from varvite.changelog.keyed.ttl.map import TtlMapStateHandle
from varvite.changelog.keyed.ttl.value import TtlCell, TtlValueStateHandle
from varvite.changelog.keyed.value import ValueCell, ValueStateHandle
from varvite.changelog.schema.history import same_declaration
from varvite.changelog.schema.pickled import refuse_declared, refuse_stored
from varvite.changelog.schema.ttl import record_of
from varvite.changelog.segments.changes import empty_changes
from varvite.changelog.working_stores.contract import StateActivity
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from varvite.changelog.api.state import AggregatingState, ListState, MapState, ReducingState, ValueState
    from varvite.changelog.segments.batch import BatchTime, CurrentRow
    from varvite.changelog.segments.changes import StateChanges
    from varvite.changelog.types.contract import TypeInformation
    from varvite.changelog.working_stores.contract import WorkingStore
    from varvite.storage.format.records import Link, StateSchema

D = TypeVar("D", bound=StateDescriptor)
H = TypeVar("H")
O = TypeVar("O", bound=Overlay[Any])  # noqa: E741


class KeyedStateBackend:
    """States of one (operator, partition) over a working store; used by one thread.

    Args:
        store: The confirmed state.
        key_type: Type of the keys; must be hashable.
        operator: The operator's uid, for errors.
        states: The operator's states in any partition, at their newest schemas.
        generic_types: States may hold pickled objects.

    Raises:
        InvalidRequestError: The key type cannot be that of a key.
        IncompatibleError: A stored state holds pickled objects, and none may.
    """

    def __init__(
        self,
        store: WorkingStore,
        key_type: TypeInformation,
        operator: str,
        states: Sequence[StateSchema] = (),
        *,
        generic_types: bool = True,
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
        self.row: CurrentRow | None = None
        """Source of the rows' event times, for event-time TTL; to be set before handles are made."""
        self._now: BatchTime | None = None
        self._confirmed: BatchTime | None = None
        self._expiries: dict[str, Expiry] = {}
        self._rows_written: Counter[str] = Counter()
        self.records = 0
        """Rows of the batch so far, as counted by the runner."""
        self._whole: tuple[list[StateChanges], list[StateChanges]] | None = None
        """(`changes()`, the changes of the whole batch with the parts that were cut)."""
        self._migrated: list[Overlay[Any]] = []
        """States whose values this batch puts again."""
        self._removed: set[str] = set()
        """States whose values this batch has removed."""
        self._watches: dict[str, InPlaceWatch] = {}
        self._undeclared: set[str] = set()
        """States that were removed without having been declared."""
        store.revert()  # of states that an earlier backend declared and never folded
        for schema in states:
            store.register(schema)
        self._generic_types = generic_types
        if not generic_types:
            refuse_stored(store.schemas, operator)

    def begin_batch(self, now: BatchTime) -> None:
        """Begin a batch at this time; to be called before handles of states with TTL are made."""
        self._now = now
        self.records = 0
        for expiry in self._expiries.values():
            expiry.begin_batch(now)

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
        """Every state of the store or of the user's function."""
        return self._store.schemas

    def set_current_key(self, key_group: int, key: Any) -> None:
        """Make this the key of all handles.

        Args:
            key_group: The key's group.
            key: Stored form of the key (`key_type.freeze`), or None for the null key.
        """
        context = self._context
        context.key_group = key_group
        context.key = key
        self._changes = None

    def unset_current_key(self) -> None:
        """Make no key current."""
        self._context.key = NO_KEY

    def get_current_key(self) -> Any:
        """The user's form of the current key. Raises `InvalidRequestError` if there is none."""
        if self._context.key is NO_KEY:
            raise InvalidRequestError("no key is current", operator=self._context.operator)
        return self._thaw_key(self._context.key)

    def _thaw_key(self, key: Any) -> Any:
        return None if key is None else self._key_type.thaw(key)

    # --- handles -----------------------------------------------------------------------------------------------------

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Handle of a value state; descriptors of one name are one state.

        Raises (as do the other four):
            InvalidRequestError: Not the descriptor of such a state, the name is taken by a state of another schema, or
                its values would be pickled and must not be.
            IncompatibleError: The restored state of this name has another kind, or a type that this one cannot follow.
        """
        overlay = self._value_overlay(state_descriptor, ValueStateDescriptor)
        ttl, values = self._ttl_of(state_descriptor), state_descriptor.stored_type
        if ttl is not None:
            return self._watched(TtlValueStateHandle(overlay, self._context, values, *ttl), overlay, values)
        return self._watched(ValueStateHandle(overlay, self._context, values), overlay, values)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Handle of a list state."""
        overlay = self._overlay(
            state_descriptor,
            ListStateDescriptor,
            ListOverlay,
            lambda schema: ListOverlay(schema, self._store.list_table(schema)),
        )
        ttl, values = self._ttl_of(state_descriptor), state_descriptor.stored_type
        if ttl is not None:
            return self._watched(TtlListStateHandle(overlay, self._context, values, *ttl), overlay, values)
        return self._watched(ListStateHandle(overlay, self._context, values), overlay, values)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Handle of a map state."""
        overlay = self._overlay(
            state_descriptor,
            MapStateDescriptor,
            MapOverlay,
            lambda schema: MapOverlay(schema, self._store.map_table(schema)),
        )
        types = state_descriptor.map_key_type, state_descriptor.stored_type
        ttl = self._ttl_of(state_descriptor)
        if ttl is not None:
            return self._watched(TtlMapStateHandle(overlay, self._context, *types, *ttl), overlay, types[1])
        return self._watched(MapStateHandle(overlay, self._context, *types), overlay, types[1])

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Handle of a reducing state."""
        cell = self._result_cell(state_descriptor, ReducingStateDescriptor)
        return ReducingStateHandle(cell, state_descriptor.get_reduce_function())

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """Handle of an aggregating state."""
        cell = self._result_cell(state_descriptor, AggregatingStateDescriptor)
        return AggregatingStateHandle(cell, state_descriptor.get_agg_function())

    def get_timers(self, name: str, domain: TimeDomain, namespace_type: TypeInformation | None = None) -> KeyedTimers:
        """Timers of one domain of the timer service of this name.

        Args:
            name: Of the timer service, unique in the operator.
            domain: The clock that they follow.
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
        """Remove a state's values of every key, with or without a handle of it.

        All of its keys are pending then. Nothing happens if there is no such state. Its name and types stay registered.

        Raises:
            InvalidRequestError: It holds timers.
        """
        overlay, stored = self._overlays.get(name), self._stored(name)
        if overlay is None:
            if stored is None:
                return
            overlay = self._overlays[name] = overlay_of(self._store, stored, self._context.operator)
            self._undeclared.add(name)
        remove_all(overlay, self._context.operator)
        self._removed.add(name)
        self._changes = None

    def apply_to_keys(self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        """Call a function with the user's form of the key and the handle, for every key that has this state.

        The keys come in no defined order. The function may read and change the state of its key. No key is current
        afterwards.

        Raises:
            InvalidRequestError, IncompatibleError: As `get_state`.
        """
        get: Any = next((get for kind, get in self._getters if isinstance(state_descriptor, kind)), None)
        if get is None:
            raise InvalidRequestError(f"{state_descriptor!r} is not of a keyed state", operator=self._context.operator)
        handle = get(state_descriptor)
        for key_group, key in list(self._overlays[state_descriptor.name].keys()):
            self.set_current_key(key_group, key)
            function(self._thaw_key(key), handle)
        self.unset_current_key()

    @property
    def _getters(self) -> tuple[tuple[type[StateDescriptor], Callable[[Any], Any]], ...]:
        return (
            (ValueStateDescriptor, self.get_state),
            (ListStateDescriptor, self.get_list_state),
            (MapStateDescriptor, self.get_map_state),
            (ReducingStateDescriptor, self.get_reducing_state),
            (AggregatingStateDescriptor, self.get_aggregating_state),
        )

    def get_keys(self, name: str) -> Iterator[Any]:
        """The user's form of every key that has state of this name, pending included; in no defined order.

        A key whose state has expired is among them until it is removed.

        Raises:
            InvalidRequestError: There is no handle of such a state.
        """
        if name not in self._overlays:
            raise InvalidRequestError(f"there is no state {name!r} yet", operator=self._context.operator)
        return (self._thaw_key(key) for _, key in self._overlays[name].keys())  # noqa: SIM118  an overlay, not a dict

    def overlay(self, name: str) -> Overlay[Any] | None:
        """The pending changes of a state, over its table; None if there is no handle of it."""
        return self._overlays.get(name)

    @property
    def changed_in_place(self) -> list[str]:
        """States of which a value was changed in place and not updated, as far as that was looked at."""
        return [name for name, watch in self._watches.items() if watch.has_lost_change]

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
        if not self._generic_types:
            refuse_declared(descriptor, self._context.operator)
        name = descriptor.name
        if name in self._undeclared:  # it was removed before its declaration
            self._undeclared.discard(name)
            del self._overlays[name]
        before = self._overlays.get(name)
        stored = self._stored(name) if before is None else before.schema
        schema = declared_schema(descriptor, stored, self._now, self._context.operator)
        overlay = self._overlay_of(schema, overlay_type, lambda: self._declared(descriptor, schema, stored, make))
        if before is None and name in self._removed:
            self.remove_state(name)
        return overlay

    def _overlay_of(self, schema: StateSchema, overlay_type: type[O], make: Callable[[], O]) -> O:
        overlay = self._overlays.get(schema.name)
        if overlay is None:
            overlay = self._overlays[schema.name] = make()
        if not same_declaration(overlay.schema, schema) or not isinstance(overlay, overlay_type):
            raise InvalidRequestError(
                f"state {schema.name!r} exists already with another schema: {overlay.schema} and now {schema}; "
                "give the states different names",
                operator=self._context.operator,
            )
        return overlay

    def _stored(self, name: str) -> StateSchema | None:
        """The stored schema of a state."""
        return next((schema for schema in self._store.schemas if schema.name == name), None)

    def _result_cell(self, descriptor: StateDescriptor, kind: type[StateDescriptor]) -> ResultCell:
        overlay = self._value_overlay(descriptor, kind)
        ttl = self._ttl_of(descriptor)
        if ttl is not None:
            return TtlCell(overlay, self._context, descriptor.stored_type, *ttl)
        return ValueCell(overlay, self._context, descriptor.stored_type)

    def _ttl_of(self, descriptor: StateDescriptor) -> tuple[Expiry, ReadRules] | None:
        """Expiry and rules of a declared state; None without TTL."""
        expiry = self._expiries.get(descriptor.name)
        return None if expiry is None else (expiry, ReadRules(descriptor.get_ttl_config()))

    def _watched(self, handle: H, overlay: Any, value_type: TypeInformation) -> H:
        """The handle, which is watched for values that are changed in place if its type allows that."""
        if not value_type.immutable:
            name = overlay.schema.name
            watch = self._watches.get(name)
            if watch is None:
                watch = InPlaceWatch(overlay, self._context, value_type, stamped=name in self._expiries)
                self._watches[name] = watch
            watch.attach(handle)
        return handle

    def _declared(
        self,
        descriptor: StateDescriptor,
        schema: StateSchema,
        stored: StateSchema | None,
        make: Callable[[StateSchema], O],
    ) -> O:
        operator, is_opening = self._context.operator, self._context.key is NO_KEY
        declared = declare(self._store, descriptor, schema, stored, operator, is_opening=is_opening)
        overlay = make(declared.schema)
        record = record_of(declared.schema)
        if record is not None and self._now is not None:
            self._expiries[descriptor.name] = Expiry(record, self.row, self._now)
        if declared.migrated:
            self._migrated.append(overlay)
            rewrite(overlay)
        return overlay

    # --- the batch ---------------------------------------------------------------------------------------------------

    def prefetch(self, key_groups: Sequence[int], keys: Sequence[Any]) -> None:
        """Hint that these keys (stored forms) come next, to the value tables that this or the last batch has read."""
        for overlay in self._overlays.values():
            overlay.prefetch(key_groups, keys)

    def count_rows(self) -> int:
        """Rows that `changes` would have; costs up to a visit of each key that changed since the last cut."""
        return sum(overlay.count_rows() for overlay in self._overlays.values())

    def changes(self) -> list[StateChanges]:
        """The net effect since the last cut, by state in order of registration, without the states that have none.

        A state whose TTL has changed is there also without rows, so that it is in the log. No key is current
        afterwards.
        """
        self._context.key = NO_KEY
        if self._changes is None:
            for watch in self._watches.values():
                watch.check()
            self._changes = self._with_changed_ttls(overlay.changes() for overlay in self._overlays.values())
        return self._changes

    def _with_changed_ttls(self, state_changes: Iterable[StateChanges | None]) -> list[StateChanges]:
        """The changes without None, and the states whose TTL has changed without rows."""
        changes = [rows for rows in state_changes if rows is not None]
        names = {rows.schema.name for rows in changes}
        return changes + [empty_changes(schema) for schema in self._store.changed_ttls if schema.name not in names]

    def cut(self) -> list[StateChanges]:
        """End a part: returns `changes()`, which then begin anew. The part stays readable and pending (I4).

        The parts of a batch and then its last `changes()`, applied in this order, are what `fold` applies.
        """
        part = self.changes()
        self._changes = None
        for overlay in self._overlays.values():
            overlay.cut()
        return part

    def work_ahead(self) -> None:
        """Let the store do postponed work, before `prepare`, while nobody waits."""
        self._store.work_ahead()

    def prepare(self, seq: int) -> None:
        """Let the store do as much as it can of `fold` ahead, at this seq; nothing changes that can be seen."""
        self._store.prepare(self._whole_changes(), seq)

    def fold(self, version: Link) -> None:
        """Fold the confirmed batch: all its parts go into the store at once, and the overlays are empty (I4)."""
        changes = self._whole_changes()
        self._store.apply(changes, version)
        self._migrated.clear()
        self._confirmed = self._now
        for change in changes if self._expiries else ():
            self._rows_written[change.schema.name] += len(change)
        for overlay in self._overlays.values():
            overlay.folded()
        self.drop()

    def clean_up(self) -> None:
        """Remove a bounded number of expired values from the confirmed state, while nobody waits.

        They have expired at the time of the batch that was folded last, so no batch on this line can see them any more:
        nothing of this is logged.
        """
        if self._confirmed is None or not self._expiries:
            return
        activity = {
            name: StateActivity(expiry.accesses, self.records, self._rows_written[name])
            for name, expiry in self._expiries.items()
        }
        self._rows_written.clear()
        for expiry in self._expiries.values():
            expiry.accesses = 0
        self._store.clean_up(self._confirmed, activity)

    def drop(self) -> None:
        """Forget the batch: the overlays are empty. No key is current afterwards."""
        self._context.key = NO_KEY
        self._changes = self._whole = None
        for watch in self._watches.values():
            watch.forget()
        for overlay in self._overlays.values():
            overlay.clear()
        for overlay in self._migrated:
            rewrite(overlay)
        self._removed.clear()

    def _whole_changes(self) -> list[StateChanges]:
        """The net effect of the batch; until a key is set the same objects, as the store may have prepared them."""
        rest = self.changes()
        if all(overlay.sealed is None for overlay in self._overlays.values()):
            return rest
        if self._whole is None or self._whole[0] is not rest:
            self._whole = rest, self._with_changed_ttls(overlay.whole() for overlay in self._overlays.values())
        return self._whole[1]
