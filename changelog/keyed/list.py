"""`ListState` over a list table: adding never reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from varvite.changelog.api.checks import list_elements
from varvite.changelog.api.state import ListState
from varvite.changelog.keyed.context import NO_KEY
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.keyed.context import KeyContext
    from varvite.changelog.keyed.overlays.list import ListOverlay
    from varvite.changelog.types.contract import TypeInformation

T = TypeVar("T")


class ListStateHandle(ListState[T]):
    """The user's handle."""

    __slots__ = ("_context", "_freeze", "_immutable", "_overlay", "_pending", "_thaw")

    def __init__(self, overlay: ListOverlay, context: KeyContext, element_type: TypeInformation) -> None:
        self._overlay = overlay
        self._context = context
        self._pending = overlay.pending
        self._immutable = element_type.immutable
        self._freeze = element_type.freeze
        self._thaw = element_type.thaw

    def get(self) -> list[T]:
        key = self._key()
        stored = self._overlay.elements(self._context.key_group, key)
        if self._immutable:
            return stored
        thaw = self._thaw
        return [thaw(element) for element in stored]

    def add(self, value: T) -> None:
        context = self._context
        key = context.key
        if key is NO_KEY or value is None:
            self.add_all((value,))  # which raises
            return
        try:
            stored = self._freeze(value)
        except InvalidRequestError as error:
            raise context.refused(self._overlay.schema.name, error) from error
        lists = self._pending[context.key_group]
        added = lists.get(key)
        if added is None:
            lists[key] = [stored]
        else:
            added.append(stored)

    def add_all(self, values: Sequence[T]) -> None:
        key, stored = self._key(), self._frozen(values)
        if stored:
            self._pending[self._context.key_group].setdefault(key, []).extend(stored)

    def update(self, values: Sequence[T]) -> None:
        self._overlay.replace(self._context.key_group, self._key(), self._frozen(values))

    def clear(self) -> None:
        self._overlay.replace(self._context.key_group, self._key(), [])

    def _key(self) -> Any:
        key = self._context.key
        if key is NO_KEY:
            raise self._context.no_key(self._overlay.schema.name)
        return key

    def _frozen(self, values: Sequence[T]) -> list[Any]:
        """Stored forms of all elements or, if one is refused, an error."""
        try:
            return list(map(self._freeze, list_elements(values)))
        except InvalidRequestError as error:
            raise self._context.refused(self._overlay.schema.name, error) from error
