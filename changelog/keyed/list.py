"""`ListState` over a list table: adding never reads."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from varvite.changelog.api.state import ListState
from varvite.changelog.keyed.overlay import NO_KEY, CollectionOverlay, KeyContext, repeat_keys
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.working_stores.contract import ListTable
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varvite.changelog.types.contract import TypeInformation

T = TypeVar("T")


class ListOverlay(CollectionOverlay[ListTable]):
    """Pending: the elements that were added; the keys in `cleared` have lost what lies below."""

    __slots__ = ()

    def elements(self, key_group: int, key: Any) -> list[Any]:
        """The stored elements, as a new list."""
        added = self.pending[key_group].get(key)
        if key in self.cleared:
            return list(added or ())
        self.read = True
        confirmed = self.below.elements(key_group, key)
        return confirmed + added if added else confirmed

    def replace(self, key_group: int, key: Any, stored: list[Any]) -> None:
        """Let these be all."""
        self.pending[key_group][key] = stored
        self.cleared.add(key)

    def remove_all(self, key_group: int, key: Any) -> None:
        """Remove all elements of a key."""
        self.replace(key_group, key, [])

    def _rows(self, groups: Iterable[tuple[int, dict[Any, Any]]], cleared: set[Any]) -> StateChanges | None:
        key_groups: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        ops = bytearray()
        for key_group, lists in groups:
            if cleared.isdisjoint(lists):
                count = repeat_keys(keys, lists)
                key_groups += [key_group] * count
                values.extend(chain.from_iterable(lists.values()))
                ops += _APPEND * count
                continue
            for key, added in lists.items():
                count = len(added)
                ops += _APPEND * count
                if key in cleared:
                    ops.insert(len(ops) - count, Op.CLEAR)
                    values.append(None)
                    count += 1
                values += added
                keys += [key] * count
                key_groups += [key_group] * count
        if not keys:
            return None
        return StateChanges(self.schema, key_groups, keys, bytes(ops) if cleared else None, None, values)

    def _joined(self, held: list[Any], later: list[Any], *, cleared: bool) -> list[Any]:  # noqa: ARG002  only for maps
        held += later
        return held

    def keys(self) -> Iterator[tuple[int, Any]]:
        for key_group, key in self.keys_below():
            if key not in self.cleared and key not in self.pending[key_group]:
                yield key_group, key
        for key_group, lists in list(self.pending.items()):
            for key, added in list(lists.items()):
                if added:
                    yield key_group, key


_APPEND = bytes([Op.APPEND])


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
            self.add_all((value,))  # which says what is wrong
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
        """All or none."""
        context, name = self._context, self._overlay.schema.name
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            problem = InvalidRequestError(f"a list of values is needed, not {values!r}")
            raise context.refused(name, problem)
        elements = list(values)
        if any(element is None for element in elements):
            raise context.refused(name, InvalidRequestError("an element of a ListState cannot be None"))
        freeze = self._freeze
        try:
            return [freeze(element) for element in elements]
        except InvalidRequestError as error:
            raise context.refused(name, error) from error
