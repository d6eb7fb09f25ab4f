"""`ValueState` with TTL, and what it shares with the other value-like states: over plain handles of stamped values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from varvite.changelog.api.state import ValueState
from varvite.changelog.keyed.many_keys import check_keys
from varvite.changelog.keyed.ttl.expiry import StampingType
from varvite.changelog.keyed.ttl.many_keys import each_key, get_values, put_values
from varvite.changelog.keyed.value import ValueStateHandle
from varvite.changelog.types.stamped import StampedType

if TYPE_CHECKING:
    from varvite.changelog.api.batch_keys import BatchKeys
    from varvite.changelog.keyed.overlay import KeyContext
    from varvite.changelog.keyed.ttl.expiry import Expiry, ReadRules
    from varvite.changelog.keyed.value import ValueOverlay
    from varvite.changelog.types.wire import WireType
    from varvite.storage.errors import InvalidRequestError

T = TypeVar("T")


class TtlCell:
    """One stamped value per key.

    Args:
        overlay: Of the state, whose type is stamped.
        context: The current key.
        value_type: Type of the values without stamp.
        expiry: The state's time.
        rules: How reads treat what they read.
    """

    __slots__ = ("_expiry", "_immutable", "_refreshes", "_shows_expired", "_stamped", "_stamping", "_thaw", "context",
                 "name", "value_type")  # fmt: skip

    def __init__(
        self, overlay: ValueOverlay, context: KeyContext, value_type: WireType, expiry: Expiry, rules: ReadRules
    ) -> None:
        self._stamped: ValueStateHandle[Any] = ValueStateHandle(overlay, context, StampedType(value_type))
        self._stamping: ValueStateHandle[Any] = ValueStateHandle(overlay, context, StampingType(value_type, expiry))
        self._expiry = expiry
        self._refreshes = rules.refreshes
        self._shows_expired = rules.shows_expired
        self.context = context
        self.name = overlay.schema.name
        self._immutable = value_type.immutable
        self._thaw = value_type.thaw
        self.value_type = value_type

    def read(self, *, for_update: bool = False) -> Any:
        """The value, None if there is none that can be seen; `for_update`: a `write` or nothing follows."""
        expiry = self._expiry
        expiry.accesses += 1
        held = self._stamped.value()
        if held is None:
            return None
        stamp, stored = held
        if stamp <= expiry.expired_up_to_ms:
            if not for_update:
                self._stamped.clear()
            if not self._shows_expired:
                return None
        elif self._refreshes and not for_update:
            now = expiry.stamp_ms()
            if now > stamp:
                self._stamped.update((now, stored))
        return stored if self._immutable else self._thaw(stored)

    def write(self, value: Any) -> None:
        """Set the value; None removes it."""
        self._expiry.accesses += 1
        self._stamping.update(value)

    def remove(self) -> None:
        """Remove the value."""
        self._expiry.accesses += 1
        self._stamped.clear()

    def refused(self, error: InvalidRequestError) -> InvalidRequestError:
        """The error with the state's name."""
        return self.context.refused(self.name, error)


class TtlValueStateHandle(ValueState[T]):
    """The user's handle."""

    __slots__ = ("_cell",)

    def __init__(self, cell: TtlCell) -> None:
        self._cell = cell

    def value(self) -> T | None:
        return self._cell.read()

    def update(self, value: T | None) -> None:
        self._cell.write(value)

    def clear(self) -> None:
        self._cell.remove()

    def get_many(self, keys: BatchKeys) -> Any:
        cell = self._cell
        return get_values(cell.name, cell.value_type, cell.context, keys, cell.read)

    def put_many(self, keys: BatchKeys, values: Any) -> None:
        cell = self._cell
        put_values(cell.name, cell.value_type, cell.context, keys, values, cell.write)

    def remove_many(self, keys: BatchKeys) -> None:
        cell = self._cell
        check_keys(keys, cell.name)
        for _ in each_key(cell.context, keys):
            cell.remove()
