"""`MapState` with TTL: every entry has its own stamp, also one whose value is None.

`get`, `contains`, `items`, `keys` and `values` count as reads of their entries; `is_empty` renews nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from varvite.changelog.api.checks import check_dict
from varvite.changelog.api.state import MapState
from varvite.changelog.keyed.map import MapStateHandle
from varvite.changelog.keyed.ttl.many_keys import get_entries, put_entries, remove_entries
from varvite.changelog.types.stamped import StampedType
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.api.batch_keys import BatchKeys
    from varvite.changelog.keyed.context import KeyContext
    from varvite.changelog.keyed.overlays.map import MapOverlay
    from varvite.changelog.keyed.ttl.expiry import Expiry, ReadRules
    from varvite.changelog.types.contract import TypeInformation
    from varvite.changelog.types.wire import WireType

K = TypeVar("K")
V = TypeVar("V")


class TtlMapStateHandle(MapState[K, V]):
    """The user's handle; arguments as those of `TtlCell`."""

    __slots__ = ("_context", "_expiry", "_freeze", "_immutable", "_name", "_refreshes", "_shows_expired", "_stamped",
                 "_thaw", "_types")  # fmt: skip

    def __init__(
        self,
        overlay: MapOverlay,
        context: KeyContext,
        key_type: TypeInformation,
        value_type: WireType,
        expiry: Expiry,
        rules: ReadRules,
    ) -> None:
        self._stamped: MapStateHandle[K, Any] = MapStateHandle(overlay, context, key_type, StampedType(value_type))
        self._expiry = expiry
        self._refreshes = rules.refreshes
        self._shows_expired = rules.shows_expired
        self._context = context
        self._name = overlay.schema.name
        self._immutable = value_type.immutable
        self._freeze = value_type.freeze
        self._thaw = value_type.thaw
        self._types = key_type, value_type

    def get(self, key: K) -> V | None:
        held = self._read(key)
        if held is None:
            return None
        stored = held[1]
        return stored if self._immutable or stored is None else self._thaw(stored)

    def contains(self, key: K) -> bool:
        return self._read(key) is not None

    def put(self, key: K, value: V | None) -> None:
        self._expiry.accesses += 1
        self._stamped.put(key, (self._expiry.stamp_ms(), self._frozen(value)))

    def put_all(self, dict_value: dict[K, V]) -> None:
        self._expiry.accesses += 1
        try:
            check_dict(dict_value)
        except InvalidRequestError as error:
            raise self._context.refused(self._name, error) from error
        now, frozen = self._expiry.stamp_ms(), self._frozen
        self._stamped.put_all({key: (now, frozen(value)) for key, value in dict_value.items()})

    def get_many(self, keys: BatchKeys, map_keys: Any) -> Any:
        return get_entries(self._name, self._types, self._context, keys, map_keys, self.get)

    def put_many(self, keys: BatchKeys, map_keys: Any, values: Any) -> None:
        put_entries(self._name, self._types, self._context, keys, map_keys, values, write=self.put)

    def remove_many(self, keys: BatchKeys, map_keys: Any) -> None:
        remove_entries(self._name, self._types[0], self._context, keys, map_keys, self.remove)

    def remove(self, key: K) -> None:
        self._expiry.accesses += 1
        self._stamped.remove(key)

    def items(self) -> list[tuple[K, V]]:
        entries = self._entries()
        if self._immutable:
            return [(key, held[1]) for key, held in entries]
        thaw = self._thaw
        items: Any = [(key, None if stored is None else thaw(stored)) for key, (_, stored) in entries]
        return items

    def keys(self) -> list[K]:
        return [key for key, _ in self._entries()]

    def values(self) -> list[V]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        self._expiry.accesses += 1
        expired_up_to = self._expiry.expired_up_to_ms
        shows_expired = self._shows_expired
        return not self._stamped.holds(lambda held: shows_expired or held[0] > expired_up_to)

    def clear(self) -> None:
        self._expiry.accesses += 1
        self._stamped.clear()

    def _read(self, key: K) -> Any:
        """The entry, `(stamp, stored form)`, if there is one that can be seen."""
        expiry = self._expiry
        expiry.accesses += 1
        held: Any = self._stamped.get(key)
        if held is None:
            return None
        if held[0] <= expiry.expired_up_to_ms:
            self._stamped.remove(key)
            return held if self._shows_expired else None
        if self._refreshes:
            now = expiry.stamp_ms()
            if now > held[0]:
                self._stamped.put(key, (now, held[1]))
        return held

    def _entries(self) -> list[tuple[K, Any]]:
        """All entries that can be seen; the others are removed."""
        expiry, stamped = self._expiry, self._stamped
        expiry.accesses += 1
        held: Any = stamped.items()
        expired_up_to = expiry.expired_up_to_ms
        live = [entry for entry in held if entry[1][0] > expired_up_to]
        if held and not live:
            stamped.clear()
        elif len(live) < len(held):
            for key, entry in held:
                if entry[0] <= expired_up_to:
                    stamped.remove(key)
        if self._refreshes:
            now = expiry.stamp_ms()
            for key, (stamp, stored) in live:
                if now > stamp:
                    stamped.put(key, (now, stored))
        return held if self._shows_expired else live

    def _frozen(self, value: Any) -> Any:
        try:
            return None if value is None else self._freeze(value)
        except InvalidRequestError as error:
            raise self._context.refused(self._name, error) from error
