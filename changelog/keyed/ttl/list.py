"""`ListState` with TTL: every element has its own stamp.

A read hides expired elements, and rewrites the list without them once they are at least half of it. So after a read a
list holds no more expired elements than live ones, and the log has at most twice as many elements as were added.
Cleanup in the background removes elements one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from varvite.changelog.api.state import ListState
from varvite.changelog.keyed.list import ListStateHandle
from varvite.changelog.keyed.ttl.expiry import StampingType
from varvite.changelog.types.stamped import StampedType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.keyed.context import KeyContext
    from varvite.changelog.keyed.overlays.list import ListOverlay
    from varvite.changelog.keyed.ttl.expiry import Expiry, ReadRules
    from varvite.changelog.types.stamped import Stamped
    from varvite.changelog.types.wire import WireType

T = TypeVar("T")


class TtlListStateHandle(ListState[T]):
    """The user's handle; arguments as those of `TtlCell`."""

    __slots__ = ("_expiry", "_immutable", "_refreshes", "_shows_expired", "_stamped", "_stamping", "_thaw")

    def __init__(
        self, overlay: ListOverlay, context: KeyContext, element_type: WireType, expiry: Expiry, rules: ReadRules
    ) -> None:
        self._stamped: ListStateHandle[Stamped] = ListStateHandle(overlay, context, StampedType(element_type))
        self._stamping: ListStateHandle[T] = ListStateHandle(overlay, context, StampingType(element_type, expiry))
        self._expiry = expiry
        self._refreshes = rules.refreshes
        self._shows_expired = rules.shows_expired
        self._immutable = element_type.immutable
        self._thaw = element_type.thaw

    def get(self) -> list[T]:
        expiry = self._expiry
        expiry.accesses += 1
        held = self._stamped.get()
        if not held:
            return []
        expired_up_to = expiry.expired_up_to_ms
        live = [element for element in held if element[0] > expired_up_to]
        kept = self._renewed(live) if self._refreshes else live
        if kept != live or 2 * len(live) <= len(held):
            self._stamped.update(kept)
        seen: Any = held if self._shows_expired else live
        if self._immutable:
            return [stored for _, stored in seen]
        thaw = self._thaw
        return [thaw(stored) for _, stored in seen]

    def add(self, value: T) -> None:
        self._expiry.accesses += 1
        self._stamping.add(value)

    def add_all(self, values: Sequence[T]) -> None:
        self._expiry.accesses += 1
        self._stamping.add_all(values)

    def update(self, values: Sequence[T]) -> None:
        self._expiry.accesses += 1
        self._stamping.update(values)

    def clear(self) -> None:
        self._expiry.accesses += 1
        self._stamped.clear()

    def _renewed(self, live: list[Stamped]) -> list[Stamped]:
        now = self._expiry.stamp_ms()
        return [element if element[0] >= now else (now, element[1]) for element in live]
