"""`ValueState` with TTL, and the cell that all value-like states with TTL share: plain handles of stamped values.

Writing renews a value's life under every update type, so adding to a reducing or aggregating state does. What has
expired is no part of a sum, unless it may still be seen (ReturnExpiredIfNotCleanedUp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from varvite.changelog.api.checks import check_result
from varvite.changelog.api.state import ValueState
from varvite.changelog.keyed.many_keys import check_keys
from varvite.changelog.keyed.ttl.expiry import StampingType
from varvite.changelog.keyed.ttl.many_keys import each_key, get_values, put_values
from varvite.changelog.keyed.value import ValueStateHandle
from varvite.changelog.types.stamped import StampedType
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.api.batch_keys import BatchKeys
    from varvite.changelog.keyed.context import KeyContext
    from varvite.changelog.keyed.overlays.value import ValueOverlay
    from varvite.changelog.keyed.ttl.expiry import Expiry, ReadRules
    from varvite.changelog.types.wire import WireType

T = TypeVar("T")


class TtlCell:
    """One stamped value per key.

    Args:
        overlay: Of the state, whose type is stamped.
        context: The current key.
        value_type: Type of the values without stamp.
        expiry: The state's time.
        rules: The effect of reads.
    """

    __slots__ = ("_context", "_expiry", "_immutable", "_name", "_refreshes", "_shows_expired", "_stamped", "_stamping",
                 "_thaw", "_type")  # fmt: skip

    def __init__(
        self, overlay: ValueOverlay, context: KeyContext, value_type: WireType, expiry: Expiry, rules: ReadRules
    ) -> None:
        self._stamped: ValueStateHandle[Any] = ValueStateHandle(overlay, context, StampedType(value_type))
        self._stamping: ValueStateHandle[Any] = ValueStateHandle(overlay, context, StampingType(value_type, expiry))
        self._expiry = expiry
        self._refreshes = rules.refreshes
        self._shows_expired = rules.shows_expired
        self._context = context
        self._name = overlay.schema.name
        self._immutable = value_type.immutable
        self._thaw = value_type.thaw
        self._type = value_type

    def read(self) -> Any:
        """The value, renewed if reads do that; None if there is none that can be seen, and an expired one goes."""
        expiry = self._expiry
        expiry.accesses += 1
        held = self._stamped.value()
        if held is None:
            return None
        stamp, stored = held
        if stamp <= expiry.expired_up_to_ms:
            self._stamped.clear()
            if not self._shows_expired:
                return None
        elif self._refreshes:
            now = expiry.stamp_ms()
            if now > stamp:
                self._stamped.update((now, stored))
        return stored if self._immutable else self._thaw(stored)

    def read_for_update(self) -> Any:
        """The value for a `write` or nothing to follow: nothing is renewed or removed."""
        expiry = self._expiry
        expiry.accesses += 1
        held = self._stamped.value()
        if held is None or (held[0] <= expiry.expired_up_to_ms and not self._shows_expired):
            return None
        return held[1] if self._immutable else self._thaw(held[1])

    def write(self, value: Any) -> None:
        """Set the value; None removes it."""
        self._expiry.accesses += 1
        self._stamping.update(value)

    def write_result(self, value: Any, method: str) -> None:
        """Set the value, which that method of the user's function returned."""
        try:
            check_result(value, method)
        except InvalidRequestError as error:
            raise self._context.refused(self._name, error) from error
        self.write(value)

    def remove(self) -> None:
        """Remove the value."""
        self._expiry.accesses += 1
        self._stamped.clear()


class TtlValueStateHandle(TtlCell, ValueState[T]):
    """The user's handle."""

    __slots__ = ()

    value = TtlCell.read  # pyright: ignore[reportAssignmentType]
    update = TtlCell.write  # pyright: ignore[reportAssignmentType]
    clear = TtlCell.remove  # pyright: ignore[reportAssignmentType]

    def get_many(self, keys: BatchKeys) -> Any:
        return get_values(self._name, self._type, self._context, keys, self.read)

    def put_many(self, keys: BatchKeys, values: Any) -> None:
        put_values(self._name, self._type, self._context, keys, values, self.write)

    def remove_many(self, keys: BatchKeys) -> None:
        check_keys(keys, self._name)
        for _ in each_key(self._context, keys):
            self.remove()
