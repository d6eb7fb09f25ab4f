"""`KeyedStateBackend`: the state of one (operator, partition) as the user's function sees it during a batch.

Reads go to the overlay and then to the working store; writes go to the overlay only. A batch ends with `changes()`,
which becomes the segment, and then with `fold(version)` once its commit is confirmed, or with `drop()` if it never
will be.

Invariants: I3 and I4 (the store changes in `fold` alone; `drop` leaves it as it was), I5 (`changes` is a function of
the batch's accesses and their order: no clock, no randomness).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from varve.changelog.aggregating_state import AggregatingStateHandle, ReducingStateHandle
from varve.changelog.cleanup import StateActivity
from varve.changelog.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
    schema_of,
)
from varve.changelog.expiry import Expiry, ReadRules
from varve.changelog.list_state import ListOverlay, ListStateHandle
from varve.changelog.map_state import MapOverlay, MapStateHandle
from varve.changelog.overlay import NO_KEY, KeyContext, Overlay
from varve.changelog.ttl_aggregating_state import TtlAggregatingStateHandle, TtlReducingStateHandle
from varve.changelog.ttl_list_state import TtlListStateHandle
from varve.changelog.ttl_map_state import TtlMapStateHandle
from varve.changelog.ttl_record import empty_changes, record_of, wanted_settings, with_ttl
from varve.changelog.ttl_value_state import TtlCell, TtlValueStateHandle
from varve.changelog.value_state import ValueOverlay, ValueStateHandle
from varve.storage.errors import InvalidRequestError, InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from varve.changelog.batch_time import BatchTime, CurrentRow
    from varve.changelog.changes import StateChanges
    from varve.changelog.state import AggregatingState, ListState, MapState, ReducingState, ValueState
    from varve.changelog.type_information import TypeInformation
    from varve.changelog.working_store import WorkingStore
    from varve.storage.records import Link, StateSchema

D = TypeVar("D", bound=StateDescriptor)
O = TypeVar("O", bound=Overlay)  # noqa: E741


class KeyedStateBackend:
    """States of one (operator, partition) over a working store; used by one thread.

    Args:
        store: The confirmed state.
        key_type: Type of the keys; must be hashable.
        operator: The operator's uid, for errors.

    Raises:
        InvalidRequestError: The key type cannot be that of a key.
    """

    def __init__(self, store: WorkingStore, key_type: TypeInformation, operator: str) -> None:
        if not key_type.hashable:
            raise InvalidRequestError(
                f"{key_type} cannot be the type of a key: its values have no canonical bytes", operator=operator
            )
        self._store = store
        self._key_type = key_type
        self._context = KeyContext(operator)
        self._overlays: dict[str, Overlay] = {}
        self._changes: list[StateChanges] | None = None
        self.row: CurrentRow | None = None
        """Where event times of rows are found, for event-time TTL; to be set before handles are made."""
        self._now: BatchTime | None = None
        self._confirmed: BatchTime | None = None
        self._expiries: dict[str, Expiry] = {}
        self._rows_written: Counter[str] = Counter()
        self.records = 0
        """Rows of the batch so far, as far as the runner has told."""

    def begin_batch(self, now: BatchTime) -> None:
        """A batch begins, at this time; before handles of states with TTL are made."""
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
            IncompatibleError: The restored state of this name has another kind or type.
        """
        overlay = self._value_overlay(state_descriptor, ValueStateDescriptor)
        if overlay.schema.name in self._expiries:
            return TtlValueStateHandle(self._ttl_cell(overlay, state_descriptor))
        return ValueStateHandle(overlay, self._context, state_descriptor.stored_type)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Handle of a list state."""
        overlay = self._overlay(
            state_descriptor,
            ListStateDescriptor,
            ListOverlay,
            lambda schema: ListOverlay(schema, self._store.list_table(schema)),
        )
        expiry = self._expiries.get(overlay.schema.name)
        if expiry is not None:
            rules = ReadRules(state_descriptor.get_ttl_config())
            return TtlListStateHandle(overlay, self._context, state_descriptor.stored_type, expiry, rules)
        return ListStateHandle(overlay, self._context, state_descriptor.stored_type)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Handle of a map state."""
        overlay = self._overlay(
            state_descriptor,
            MapStateDescriptor,
            MapOverlay,
            lambda schema: MapOverlay(schema, self._store.map_table(schema)),
        )
        types = state_descriptor.map_key_type, state_descriptor.stored_type
        expiry = self._expiries.get(overlay.schema.name)
        if expiry is not None:
            rules = ReadRules(state_descriptor.get_ttl_config())
            return TtlMapStateHandle(overlay, self._context, *types, expiry, rules)
        return MapStateHandle(overlay, self._context, *types)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Handle of a reducing state."""
        overlay = self._value_overlay(state_descriptor, ReducingStateDescriptor)
        function = state_descriptor.get_reduce_function()
        if overlay.schema.name in self._expiries:
            return TtlReducingStateHandle(self._ttl_cell(overlay, state_descriptor), function)
        return ReducingStateHandle(overlay, self._context, state_descriptor.stored_type, function)

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """Handle of an aggregating state."""
        overlay = self._value_overlay(state_descriptor, AggregatingStateDescriptor)
        function = state_descriptor.get_agg_function()
        if overlay.schema.name in self._expiries:
            return TtlAggregatingStateHandle(self._ttl_cell(overlay, state_descriptor), function)
        return AggregatingStateHandle(overlay, self._context, state_descriptor.stored_type, function)

    def get_keys(self, name: str) -> Iterator[Any]:
        """The user's form of every key that has state of this name, pending included; in no defined order.

        A key whose state has expired is among them until it is removed.

        Raises:
            InvalidRequestError: No handle of such a state was asked for.
        """
        if name not in self._overlays:
            raise InvalidRequestError(f"there is no state {name!r} yet", operator=self._context.operator)
        found = self._overlays[name].keys()
        return (self._key_type.thaw(key) for _, key in found)

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
        schema = self._schema(descriptor)
        known = self._overlays.get(schema.name)
        if known is None:
            known = self._overlays[schema.name] = make(schema)
        if known.schema != schema or not isinstance(known, overlay_type):
            raise InvalidRequestError(
                f"state {schema.name!r} exists already with another schema: {known.schema} and now {schema}; "
                "give the states different names",
                operator=self._context.operator,
            )
        return known

    def _schema(self, descriptor: StateDescriptor) -> StateSchema:
        """The state's schema from this batch on, with its TTL, for which there is then an expiry."""
        schema = schema_of(descriptor)
        opened = self._overlays.get(schema.name)
        logged = next((known for known in self._store.logged_schemas if known.name == schema.name), None)
        stored = logged if opened is None else opened.schema
        wanted = wanted_settings(descriptor.get_ttl_config())
        if wanted is None and (stored is None or record_of(stored) is None):
            return schema
        if self._now is None:
            problem = f"state {schema.name!r} has TTL, and no batch has begun"
            raise InvariantError(problem, operator=self._context.operator)
        schema = with_ttl(schema, stored, wanted, self._now)
        record = record_of(schema)
        if record is not None and schema.name not in self._expiries and schema.name not in self._overlays:
            self._expiries[schema.name] = Expiry(record, self.row, self._now)
        return schema

    def _ttl_cell(self, overlay: ValueOverlay, descriptor: StateDescriptor) -> TtlCell:
        expiry, rules = self._expiries[overlay.schema.name], ReadRules(descriptor.get_ttl_config())
        return TtlCell(overlay, self._context, descriptor.stored_type, expiry, rules)

    # --- the batch ---------------------------------------------------------------------------------------------------

    def prefetch(self, key_groups: Sequence[int], keys: Sequence[Any]) -> None:
        """These keys (stored forms) come next. A hint, for the value tables that this or the last batch has read."""
        for overlay in self._overlays.values():
            overlay.prefetch(key_groups, keys)

    def changes(self) -> list[StateChanges]:
        """The net effect of the batch so far, without the states that have none, in order of their registration.

        A state whose TTL has changed is there also without rows, so that the log tells of it. No key is current
        afterwards.
        """
        self._context.key = NO_KEY
        if self._changes is None:
            found = [overlay.changes() for overlay in self._overlays.values()]
            self._changes = [changes for changes in found if changes is not None]
            told = {changes.schema.name for changes in self._changes}
            self._changes += [empty_changes(s) for s in self._store.changed_schemas if s.name not in told]
        return self._changes

    def prepare(self, seq: int) -> None:
        """Let the store do ahead what it can of `fold`, at this seq; nothing changes that can be seen."""
        self._store.prepare(self.changes(), seq)

    def fold(self, version: Link) -> None:
        """The batch is confirmed: its changes go into the store, and the overlay is empty (I4)."""
        changes = self.changes()
        self._store.apply(changes, version)
        self._confirmed = self._now
        for change in changes if self._expiries else ():
            self._rows_written[change.schema.name] += len(change)
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
        """The batch never was: the overlay is empty. No key is current afterwards."""
        self._context.key = NO_KEY
        self._changes = None
        for overlay in self._overlays.values():
            overlay.clear()
