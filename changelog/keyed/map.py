"""`MapState` over a map table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from varvite.changelog.api.checks import check_dict
from varvite.changelog.api.state import MapState
from varvite.changelog.keyed.context import NO_KEY
from varvite.changelog.keyed.many_keys import get_entries, put_entries, remove_entries
from varvite.changelog.keyed.overlays.base import MISSING
from varvite.changelog.segments.changes import DELETED
from varvite.changelog.working_stores.hashmap.tables import HashMapMapTable
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.changelog.api.batch_keys import BatchKeys
    from varvite.changelog.keyed.context import KeyContext
    from varvite.changelog.keyed.overlays.map import MapOverlay
    from varvite.changelog.types.contract import TypeInformation

K = TypeVar("K")
V = TypeVar("V")


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
        current, context = self._key(), self._context
        freeze_key, freeze = self._freeze_key, self._freeze
        try:
            check_dict(dict_value)
            stored = {freeze_key(key): None if value is None else freeze(value) for key, value in dict_value.items()}
        except InvalidRequestError as error:
            raise context.refused(self._overlay.schema.name, error) from error
        if stored:
            self._pending[context.key_group].setdefault(current, {}).update(stored)

    def remove(self, key: K) -> None:
        self._overlay.remove(self._context.key_group, self._key(), self._map_key(key))

    def items(self) -> list[tuple[K, V]]:
        stored: Any = self._entries()
        if self._immutable:
            return list(stored.items())
        thaw = self._thaw
        items: list[Any] = [(key, None if value is None else thaw(value)) for key, value in stored.items()]
        return items

    def keys(self) -> list[K]:
        return list(self._entries())

    def values(self) -> list[V]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        return not self._overlay.holds_any(self._context.key_group, self._key())

    def holds(self, accepts: Callable[[Any], bool]) -> bool:
        """Is there an entry whose stored value is accepted? Costs no more than to find the first."""
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
