"""The overlay of map state."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from varvite.changelog.keyed.overlays.base import MISSING, CollectionOverlay, repeat_keys
from varvite.changelog.segments.changes import DELETED, Deleted, Op, StateChanges
from varvite.changelog.working_stores.contract import MapTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet


class MapOverlay(CollectionOverlay[MapTable]):
    """Pending: map key → stored value (None is a null value) or `DELETED`.

    The keys in `cleared` have lost their entries below; their pending entries are never `DELETED`.
    """

    __slots__ = ()

    def get(self, key_group: int, key: Any, map_key: Any) -> tuple[bool, Any]:
        """(present, stored value)."""
        entries = self.pending[key_group].get(key)
        if entries is not None:
            stored = entries.get(map_key, MISSING)
            if stored is not MISSING:
                return (False, None) if stored is DELETED else (True, stored)
            if key in self.cleared:
                return False, None
        self.read = True
        return self.below.get(key_group, key, map_key)

    def entries(self, key_group: int, key: Any) -> dict[Any, Any]:
        """Map key → stored value; a new dict."""
        pending = self.pending[key_group].get(key)
        if key in self.cleared:
            return dict(pending or ())
        self.read = True
        merged = self.below.entries(key_group, key)
        for map_key, stored in pending.items() if pending else ():
            if stored is DELETED:
                merged.pop(map_key, None)
            else:
                merged[map_key] = stored
        return merged

    def holds_any(
        self,
        key_group: int,
        key: Any,
        without: AbstractSet[Any] = frozenset(),
        accepts: Callable[[Any], bool] | None = None,
    ) -> bool:
        """Is there an entry whose map key is not in `without`? Costs no more than to find the first.

        Args:
            key_group: Of the key.
            key: Stored form.
            without: Map keys that do not count.
            accepts: Says if a stored value counts; None: all do, and none is read.
        """
        pending: dict[Any, Any] = self.pending[key_group].get(key) or {}
        for map_key, stored in pending.items():
            if stored is not DELETED and map_key not in without and (accepts is None or accepts(stored)):
                return True
        if key in self.cleared:
            return False
        self.read = True
        hidden: set[Any] = pending.keys() | without
        find: Any = getattr(self.below, "holds_any", None)
        if find is None:  # a user's store
            entries = self.below.entries(key_group, key)
            return any(
                map_key not in hidden and (accepts is None or accepts(stored)) for map_key, stored in entries.items()
            )
        return find(key_group, key, hidden, accepts)

    def remove(self, key_group: int, key: Any, map_key: Any) -> None:
        """Remove an entry."""
        entries = self.pending[key_group].setdefault(key, {})
        if key in self.cleared:
            entries.pop(map_key, None)
        else:
            entries[map_key] = DELETED

    def remove_all(self, key_group: int, key: Any) -> None:
        """Remove all entries of a key."""
        self.pending[key_group][key] = {}
        self.cleared.add(key)

    def _rows(self, groups: Iterable[tuple[int, dict[Any, Any]]], cleared: set[Any]) -> StateChanges | None:
        key_groups: list[int] = []
        keys: list[Any] = []
        map_keys: list[Any] = []
        values: list[Any] = []
        for key_group, maps in groups:
            if cleared.isdisjoint(maps):
                key_groups += [key_group] * repeat_keys(keys, maps)
                map_keys.extend(chain.from_iterable(maps.values()))
                values.extend(chain.from_iterable(map(dict[Any, Any].values, maps.values())))
                continue
            for key, entries in maps.items():
                count = len(entries)
                if key in cleared:
                    map_keys.append(None)
                    values.append(_CLEARED)
                    count += 1
                map_keys += entries
                values += entries.values()
                keys += [key] * count
                key_groups += [key_group] * count
        if not keys:
            return None
        if not cleared and Deleted not in set(map(type, values)):
            return StateChanges(self.schema, key_groups, keys, None, map_keys, values)
        ops = bytes([_op(value) for value in values])
        if not any(ops):
            return StateChanges(self.schema, key_groups, keys, None, map_keys, values)
        plain = [None if op else value for op, value in zip(ops, values, strict=True)]
        return StateChanges(self.schema, key_groups, keys, ops, map_keys, plain)

    def _joined(self, held: dict[Any, Any], later: dict[Any, Any], *, cleared: bool) -> dict[Any, Any]:
        if not cleared:
            held.update(later)
            return held
        for map_key, stored in later.items():
            if stored is DELETED:
                held.pop(map_key, None)
            else:
                held[map_key] = stored
        return held

    def keys(self) -> Iterator[tuple[int, Any]]:
        keys = dict.fromkeys(self.keys_below())
        for key_group, maps in self.pending.items():
            for key in maps:
                keys.pop((key_group, key), None)
                if self.entries(key_group, key):
                    keys[key_group, key] = None
        yield from keys


_CLEARED = object()


def _op(value: Any) -> int:
    if value is DELETED:
        return Op.DELETE
    return Op.CLEAR if value is _CLEARED else Op.PUT
