"""List state of one instance of a function: the cells, and the user's handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from varvite.changelog.api.checks import list_elements, state_error
from varvite.changelog.api.state import ListState
from varvite.changelog.operator_state.section import StateSection, section_of
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.operator_state.section import SectionKind
    from varvite.changelog.types.wire import WireType

T = TypeVar("T")


class ListCells:
    """The elements of one list state, as stored forms."""

    def __init__(self, name: str, operator: str, kind: SectionKind, element_type: WireType) -> None:
        self.name = name
        self.kind: SectionKind = kind
        self.operator = operator
        self.element_type = element_type
        self.stored: list[Any] = []
        """Every change must `forget` the section."""
        self._section: StateSection | None = None

    @property
    def types(self) -> tuple[None, WireType]:
        """(None, the element's type): a list has no map key."""
        return None, self.element_type

    def section(self) -> StateSection | None:
        """The state as it is now; None if it is empty."""
        if self._section is None and self.stored:
            wire = list(map(self.element_type.to_wire, self.stored))
            self._section = section_of(self.name, self.kind, wire, self.element_type.type_string())
        return self._section

    def remember(self, section: StateSection) -> None:
        """Keep the section that the state was restored from, if it is of the state's type."""
        if section.value_type == self.element_type.type_string():
            self._section = section

    def forget(self) -> None:
        """Drop the section: the state changes."""
        self._section = None


class OperatorListState(ListState[T]):
    """The user's handle."""

    __slots__ = ("_cells", "_freeze", "_immutable", "_thaw")

    def __init__(self, cells: ListCells) -> None:
        self._cells = cells
        self._immutable = cells.element_type.immutable
        self._freeze = cells.element_type.freeze
        self._thaw = cells.element_type.thaw

    def get(self) -> list[T]:
        stored = self._cells.stored
        return list(stored) if self._immutable else list(map(self._thaw, stored))

    def add(self, value: T) -> None:
        self.add_all((value,))

    def add_all(self, values: Sequence[T]) -> None:
        stored = self._frozen(values)
        if stored:
            self._cells.forget()
            self._cells.stored += stored

    def update(self, values: Sequence[T]) -> None:
        stored = self._frozen(values)
        self._cells.forget()
        self._cells.stored = stored

    def clear(self) -> None:
        self._cells.forget()
        self._cells.stored = []

    def _frozen(self, values: Sequence[T]) -> list[Any]:
        """Stored forms of all elements or, if one is refused, an error."""
        try:
            return list(map(self._freeze, list_elements(values)))
        except InvalidRequestError as error:
            raise state_error(self._cells.name, self._cells.operator, error.message) from error
