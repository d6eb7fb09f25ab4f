"""`MapState` over a map table."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from varvite.changelog.api.state import MapState
from varvite.changelog.keyed.many_keys import get_entries, put_entries, remove_entries
from varvite.changelog.keyed.overlay import MISSING, NO_KEY, CollectionOverlay, KeyContext, repeat_keys
from varvite.changelog.segments.changes import DELETED, Deleted, Op, StateChanges
from varvite.changelog.working_stores.contract import MapTable
from varvite.changelog.working_stores.hashmap.tables import HashMapMapTable
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from varvite.changelog.api.batch_keys import BatchKeys
    from varvite.changelog.types.contract import TypeInformation

K = TypeVar("K")
V = TypeVar("V")


class MapOverlay(CollectionOverlay[MapTable]):
    """Pending: map key → stored value (None is a null value) or `DELETED`.

    The keys in `cleared` have lost what lies below; their entries are never `DELETED`.
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
        """Whether there is an entry whose map key is not one of these; costs no more than to find one.

        Args:
            key_group: Of the key.
            key: Stored form.
            without: Map keys that do not count.
            accepts: Whether a stored value counts; None: all do, and none is read.
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
        if find is None:  # a store of a user's own
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
        found = dict.fromkeys(self.keys_below())
        for key_group, maps in self.pending.items():
            for key in maps:
                found.pop((key_group, key), None)
                if self.entries(key_group, key):
                    found[key_group, key] = None
        yield from found


_CLEARED = object()


def _op(value: Any) -> int:
    if value is DELETED:
        return Op.DELETE
    return Op.CLEAR if value is _CLEARED else Op.PUT


class MapStateHandle(MapState[K, V]):
    """The user's handle."""

    __slots__ = (
        "_cells",
        "_context",
        "_freeze",
        "_freeze_key",
        "_immutable",
        "_overlay",
        "_pending",
        "_thaw",
        "_types",
    )

    def __init__(
        self, overlay: MapOverlay, context: KeyContext, key_type: TypeInformation, value_type: TypeInformation
    ) -> None:
        self._overlay = overlay
        self._context = context
        self._pending = overlay.pending
        table = overlay.table
        self._cells = table.groups if isinstance(table, HashMapMapTable) else None
        self._types = key_type, value_type
        self._freeze_key = key_type.freeze
        self._immutable = value_type.immutable
        self._freeze = value_type.freeze
        self._thaw = value_type.thaw

    def get(self, key: K) -> V | None:
        context = self._context
        current = context.key
        if current is NO_KEY:
            raise context.no_key(self._overlay.schema.name)
        try:
            map_key = self._freeze_key(key)
        except InvalidRequestError as error:
            raise context.refused(self._overlay.schema.name, error) from error
        key_group = context.key_group
        entries = self._pending[key_group].get(current)
        stored: Any = MISSING if entries is None else entries.get(map_key, MISSING)
        if stored is DELETED:
            return None
        if stored is MISSING:  # what follows repeats the overlay's own `get`, because a call costs as much as all of it
            overlay = self._overlay
            if entries is not None and current in overlay.cleared:
                return None
            if self._cells is None or overlay.sealed is not None:
                overlay.read = True
                stored = overlay.below.get(key_group, current, map_key)[1]
            else:
                entries = self._cells[key_group].get(current)
                stored = None if entries is None else entries.get(map_key)
        return stored if self._immutable or stored is None else self._thaw(stored)

    def contains(self, key: K) -> bool:
        return self._overlay.get(self._context.key_group, self._key(), self._map_key(key))[0]

    def put(self, key: K, value: V | None) -> None:
        context = self._context
        current = context.key
        if current is NO_KEY:
            raise context.no_key(self._overlay.schema.name)
        try:
            map_key = self._freeze_key(key)
            stored = None if value is None else self._freeze(value)
        except InvalidRequestError as error:
            raise context.refused(self._overlay.schema.name, error) from error
        maps = self._pending[context.key_group]
        entries = maps.get(current)
        if entries is None:
            maps[current] = {map_key: stored}
        else:
            entries[map_key] = stored

    def put_all(self, dict_value: dict[K, V]) -> None:
        current, context, name = self._key(), self._context, self._overlay.schema.name
        if not isinstance(dict_value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise context.refused(name, InvalidRequestError(f"put_all needs a dict, not {dict_value!r}"))
        freeze_key, freeze = self._freeze_key, self._freeze
        try:
            stored = {freeze_key(key): None if value is None else freeze(value) for key, value in dict_value.items()}
        except InvalidRequestError as error:
            raise context.refused(name, error) from error
        if stored:
            self._pending[context.key_group].setdefault(current, {}).update(stored)

    def remove(self, key: K) -> None:
        self._overlay.remove(self._context.key_group, self._key(), self._map_key(key))

    def items(self) -> list[tuple[K, V]]:
        stored: Any = self._entries()
        if self._immutable:
            return list(stored.items())
        thaw = self._thaw
        found: list[Any] = [(key, None if value is None else thaw(value)) for key, value in stored.items()]
        return found

    def keys(self) -> list[K]:
        return list(self._entries())

    def values(self) -> list[V]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        return not self._overlay.holds_any(self._context.key_group, self._key())

    def holds(self, accepts: Callable[[Any], bool]) -> bool:
        """Whether there is an entry whose stored value is accepted; costs no more than to find the first."""
        return self._overlay.holds_any(self._context.key_group, self._key(), accepts=accepts)

    def clear(self) -> None:
        self._overlay.remove_all(self._context.key_group, self._key())

    def get_many(self, keys: BatchKeys, map_keys: Any) -> Any:
        return get_entries(self._overlay, self._types, keys, map_keys)

    def put_many(self, keys: BatchKeys, map_keys: Any, values: Any) -> None:
        put_entries(self._overlay, self._types, keys, map_keys, values)

    def remove_many(self, keys: BatchKeys, map_keys: Any) -> None:
        remove_entries(self._overlay, self._types[0], keys, map_keys)

    def _entries(self) -> dict[Any, Any]:
        return self._overlay.entries(self._context.key_group, self._key())

    def _key(self) -> Any:
        key = self._context.key
        if key is NO_KEY:
            raise self._context.no_key(self._overlay.schema.name)
        return key

    def _map_key(self, key: Any) -> Any:
        try:
            return self._freeze_key(key)
        except InvalidRequestError as error:
            raise self._context.refused(self._overlay.schema.name, error) from error
