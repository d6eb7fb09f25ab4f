"""The overlay of list state: adding never reads."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from varvite.changelog.keyed.overlays.base import CollectionOverlay, repeat_keys
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.working_stores.contract import ListTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class ListOverlay(CollectionOverlay[ListTable]):
    """Pending: the elements that were added; the keys in `cleared` have lost their elements below."""

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
        """Set all elements of a key."""
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
