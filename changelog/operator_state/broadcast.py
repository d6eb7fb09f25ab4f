"""Broadcast state of one instance of a function: the cells, and the user's two handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from varvite.changelog.api.checks import check_dict, state_error
from varvite.changelog.api.operator_state import BroadcastState, ReadOnlyBroadcastState
from varvite.changelog.operator_state.section import BROADCAST, StateSection, section_of
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.operator_state.section import SectionKind
    from varvite.changelog.types.wire import WireType

K = TypeVar("K")
V = TypeVar("V")


class BroadcastCells:
    """The entries of one broadcast state, as stored forms."""

    kind: SectionKind = BROADCAST

    def __init__(self, name: str, operator: str, key_type: WireType, value_type: WireType) -> None:
        self.name = name
        self.operator = operator
        self.key_type = key_type
        self.value_type = value_type
        self.stored: dict[Any, Any] = {}
        """Stored key → stored value, None for a null value. Every change must `forget` the section."""
        self._section: StateSection | None = None

    @property
    def types(self) -> tuple[WireType, WireType]:
        """Types of the keys and of the values."""
        return self.key_type, self.value_type

    def section(self) -> StateSection | None:
        """The state as it is now; None if it is empty."""
        if self._section is None and self.stored:
            key_wire, value_wire = self.key_type.to_wire, self.value_type.to_wire
            rows = [(key_wire(k), None if v is None else value_wire(v)) for k, v in self.stored.items()]
            types = self.value_type.type_string(), self.key_type.type_string()
            self._section = section_of(self.name, self.kind, rows, *types)
        return self._section

    def remember(self, section: StateSection) -> None:
        """Keep the section that the state was restored from, if it is of the state's types."""
        types = section.map_key_type, section.value_type
        if types == (self.key_type.type_string(), self.value_type.type_string()):
            self._section = section

    def forget(self) -> None:
        """Drop the section: the state changes."""
        self._section = None

    def freeze_key(self, key: Any) -> Any:
        """Stored form of a key. Raises `InvalidRequestError`."""
        if key is None:
            raise self.refused("a key cannot be None")
        try:
            return self.key_type.freeze(key)
        except InvalidRequestError as error:
            raise self.refused(error.message) from error

    def freeze_value(self, value: Any) -> Any:
        """Stored form of a value, which may be None. Raises `InvalidRequestError`."""
        try:
            return None if value is None else self.value_type.freeze(value)
        except InvalidRequestError as error:
            raise self.refused(error.message) from error

    def refused(self, problem: str) -> InvalidRequestError:
        """The error of a call."""
        return state_error(self.name, self.operator, problem)


class _Reading(ReadOnlyBroadcastState[K, V]):
    """Base of both handles: their reads."""

    __slots__ = ("_cells", "_thaw", "_thaw_key")

    def __init__(self, cells: BroadcastCells) -> None:
        self._cells = cells
        self._thaw = cells.value_type.thaw
        self._thaw_key = cells.key_type.thaw

    def get(self, key: K) -> V | None:
        stored = self._cells.stored.get(self._cells.freeze_key(key))
        return None if stored is None else self._thaw(stored)

    def contains(self, key: K) -> bool:
        return self._cells.freeze_key(key) in self._cells.stored

    def items(self) -> list[tuple[K, V]]:
        return list(zip(self.keys(), self.values(), strict=True))

    def keys(self) -> list[K]:
        return list(map(self._thaw_key, self._cells.stored))

    def values(self) -> list[V]:
        thaw: Any = self._thaw
        stored_values: Any = self._cells.stored.values()
        values: Any = [None if stored is None else thaw(stored) for stored in stored_values]
        return values

    def is_empty(self) -> bool:
        return not self._cells.stored


class ReadOnlyBroadcastStateHandle(_Reading[K, V]):
    """The user's handle beside elements that are not broadcast."""

    __slots__ = ()

    def clear(self) -> None:
        """Raise an error: PyFlink has this method here because every state has it."""
        raise self._cells.refused("it may only be read here; change it where broadcast elements are processed")


class BroadcastStateHandle(_Reading[K, V], BroadcastState[K, V]):
    """The user's handle beside broadcast elements."""

    __slots__ = ()

    def put(self, key: K, value: V | None) -> None:
        cells = self._cells
        stored_key, stored = cells.freeze_key(key), cells.freeze_value(value)
        cells.forget()
        cells.stored[stored_key] = stored

    def put_all(self, dict_value: dict[K, V]) -> None:
        cells = self._cells
        try:
            check_dict(dict_value)
        except InvalidRequestError as error:
            raise cells.refused(error.message) from error
        frozen = {cells.freeze_key(key): cells.freeze_value(value) for key, value in dict_value.items()}
        if frozen:
            cells.forget()
            cells.stored.update(frozen)

    def remove(self, key: K) -> None:
        stored_key = self._cells.freeze_key(key)
        if stored_key in self._cells.stored:
            self._cells.forget()
            del self._cells.stored[stored_key]

    def clear(self) -> None:
        self._cells.forget()
        self._cells.stored.clear()
