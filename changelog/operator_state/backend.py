"""`OperatorStateBackend`: the non-keyed state of one (operator, partition) as the user's function sees it.

It begins with the sections of a checkpoint, and `sections()` are those of the next checkpoint. It is not logged: the
backend's owner compares the two, and keeps the new sections once the batch is confirmed. A batch that is never
confirmed is undone by discarding the backend, with the function and its handles, and making a new one from the sections
before (I3, I4).

Restored state that the function has not declared is carried along as it is.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from varvite.changelog.api.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor, schema_of
from varvite.changelog.api.operator_state import OperatorStateStore
from varvite.changelog.keyed.declaration import stored_migration
from varvite.changelog.operator_state.broadcast import (
    BroadcastCells,
    BroadcastStateHandle,
    ReadOnlyBroadcastStateHandle,
)
from varvite.changelog.operator_state.list import ListCells, OperatorListState
from varvite.changelog.operator_state.section import (
    BROADCAST,
    LIST,
    RAW_KEYED,
    RAW_NAME,
    RAW_OPERATOR,
    UNION_LIST,
    SectionKind,
    StateSection,
    section_of,
)
from varvite.changelog.schema.history import change, stored_conversion
from varvite.changelog.schema.pickled import refuse_declared, refuse_stored_type
from varvite.changelog.segments.columns import type_of
from varvite.changelog.types.stamped import unstamped
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.records import StateSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from varvite.changelog.api.operator_state import BroadcastState, ReadOnlyBroadcastState
    from varvite.changelog.api.state import ListState
    from varvite.changelog.types.wire import WireType

C = TypeVar("C", ListCells, BroadcastCells)


class OperatorStateBackend(OperatorStateStore):
    """Cells and handles of all states; used by one thread.

    Args:
        operator: The operator's uid, for errors.
        sections: The restored state.
        shares: Name of a state → the sections that are kept instead, if it is not declared until `settle`.
        generic_types: States may hold pickled objects.

    Raises `IncompatibleError` if a state holds pickled objects, and none may.
    """

    def __init__(
        self,
        operator: str,
        sections: Iterable[StateSection] = (),
        shares: Mapping[str, Sequence[StateSection]] | None = None,
        *,
        generic_types: bool = True,
    ) -> None:
        self._operator = operator
        self._generic_types = generic_types
        self._shares = dict(shares or {})
        self._restored: dict[str, list[StateSection]] = {}
        """Name → sections of states that are not declared yet; raw state has its own name."""
        for section in sections:
            self._restored.setdefault(section.name, []).append(section)
        self._cells: dict[str, ListCells | BroadcastCells] = {}
        if not generic_types:
            for section in chain.from_iterable(self._restored.values()):
                if section.value_type:  # raw state has no type
                    refuse_stored_type(section.name, section.value_type, operator)

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return BroadcastStateHandle(self._broadcast_cells(state_descriptor))

    def get_read_only_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        """The state of `get_broadcast_state`, not to be changed. Raises as that."""
        return ReadOnlyBroadcastStateHandle(self._broadcast_cells(state_descriptor))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return self._list(state_descriptor, LIST)

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return self._list(state_descriptor, UNION_LIST)

    def get_registered_state_names(self) -> set[str]:
        return self._names(LIST) | self._names(UNION_LIST)

    def get_registered_broadcast_state_names(self) -> set[str]:
        return self._names(BROADCAST)

    def sections(self) -> tuple[StateSection, ...]:
        """All states as they are now, by name; those without rows are left out.

        A state that did not change since the last call costs nothing.

        Raises `InvalidRequestError` if a value does not fit its type.
        """
        sections: list[StateSection] = []
        for name in sorted({*self._restored, *self._cells}):
            cells = self._cells.get(name)
            if cells is None:
                sections += self._shares.get(name, self._restored[name])
            else:
                section = cells.section()
                sections += [] if section is None else [section]
        return tuple(sections)

    def settle(self) -> None:
        """Reduce states that are still not declared to their shares: the first batch is confirmed."""
        for name, kept in self._shares.items():
            if self._restored.pop(name, None) is not None and kept:
                self._restored[name] = list(kept)
        self._shares.clear()

    # --- raw state ---------------------------------------------------------------------------------------------------

    @property
    def raw_operator_streams(self) -> list[bytes]:
        """The raw streams of the newest checkpoint, or those that were set since."""
        return [row for section in self._raw(RAW_OPERATOR) for row in section.decoded()]

    @property
    def raw_keyed_streams(self) -> list[tuple[int, bytes]]:
        """The same for raw keyed state: (key group, bytes), ascending."""
        return [row for section in self._raw(RAW_KEYED) for row in section.decoded()]

    def set_raw_streams(self, operator: Sequence[bytes], keyed: Sequence[tuple[int, bytes]]) -> None:
        """Replace all raw state; the key groups of `keyed` ascend."""
        raw = section_of(RAW_NAME, RAW_KEYED, keyed), section_of(RAW_NAME, RAW_OPERATOR, operator)
        sections = [section for section in raw if section is not None]
        self._restored.pop(RAW_NAME, None)
        if sections:
            self._restored[RAW_NAME] = sections

    def _raw(self, kind: SectionKind) -> list[StateSection]:
        return [section for section in self._restored.get(RAW_NAME, ()) if section.kind == kind]

    # --- named state -------------------------------------------------------------------------------------------------

    def _names(self, kind: SectionKind) -> set[str]:
        restored = {name for name, sections in self._restored.items() if name and sections[0].kind == kind}
        return restored | {name for name, cells in self._cells.items() if cells.kind == kind}

    def _broadcast_cells(self, descriptor: MapStateDescriptor) -> BroadcastCells:
        cells = self._declared(descriptor, MapStateDescriptor, BROADCAST, BroadcastCells)
        if cells is not None:
            return cells
        key_type, value_type = descriptor.map_key_type, descriptor.stored_type
        cells = BroadcastCells(descriptor.name, self._operator, key_type, value_type)
        for section in self._restored.get(descriptor.name, ()):
            convert, stored_type = self._conversion(section, descriptor)
            for key, value in section.decoded():
                stored = None if value is None else convert(stored_type.from_wire(value))
                cells.stored[key_type.from_wire(key)] = stored
        self._claim(descriptor.name, cells)
        return cells

    def _list(self, descriptor: ListStateDescriptor, kind: SectionKind) -> ListState[Any]:
        cells = self._declared(descriptor, ListStateDescriptor, kind, ListCells)
        if cells is None:
            cells = ListCells(descriptor.name, self._operator, kind, descriptor.stored_type)
            for section in self._restored.get(descriptor.name, ()):
                convert, stored_type = self._conversion(section, descriptor, kind)
                cells.stored += [convert(stored_type.from_wire(element)) for element in section.decoded()]
            self._claim(descriptor.name, cells)
        return OperatorListState(cells)

    def _claim(self, name: str, cells: ListCells | BroadcastCells) -> None:
        """Keep the cells of a newly declared state; their section is the restored one if nothing was converted."""
        restored = self._restored.pop(name, [])
        if len(restored) == 1:
            cells.remember(restored[0])
        self._cells[name] = cells

    def _declared(
        self, descriptor: StateDescriptor, expected: type[StateDescriptor], kind: SectionKind, cells_type: type[C]
    ) -> C | None:
        """The cells of a state that was declared before; None if it was not."""
        if not isinstance(descriptor, expected):
            raise InvalidRequestError(f"{descriptor!r} is not a {expected.__name__}", operator=self._operator)
        if not self._generic_types:
            refuse_declared(descriptor, self._operator)
        ttl = descriptor.get_ttl_config()
        if ttl is not None and ttl.is_enabled():
            raise InvalidRequestError(
                f"state {descriptor.name!r} has a time to live, which only keyed state can have",
                operator=self._operator,
            )
        cells = self._cells.get(descriptor.name)
        if cells is None:
            return None
        if cells.kind != kind or cells.types != (descriptor.map_key_type, descriptor.stored_type):
            raise InvalidRequestError(
                f"state {descriptor.name!r} exists already as {cells.kind} state of another type or kind than {kind} "
                f"state of {descriptor.type_info}; give the states different names",
                operator=self._operator,
            )
        return cells if isinstance(cells, cells_type) else None

    def _conversion(
        self, section: StateSection, descriptor: StateDescriptor, kind: SectionKind = BROADCAST
    ) -> tuple[Callable[[Any], Any], WireType]:
        """(Conversion of stored forms of the restored type to those of the declared one, the restored type).

        Raises `IncompatibleError` if there is none.
        """
        declared = msgspec.structs.replace(schema_of(descriptor), kind=kind)
        stored = StateSchema(
            name=section.name, kind=section.kind, value_type=section.value_type, map_key_type=section.map_key_type
        )
        old = unstamped(type_of(section.value_type))
        migrate = descriptor.migration_from(old)
        decision = change(stored, declared, descriptor.defaults, self._operator, migrates=migrate is not None)
        if not decision.is_new_version:
            return _same, old
        if decision.migrates and migrate is not None:
            return stored_migration(descriptor, old, migrate, self._operator), old
        return stored_conversion(decision.schema, stored.version) or _same, old


def _same(stored: Any) -> Any:
    return stored
