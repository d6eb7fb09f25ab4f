"""`ValueState` over a value table, and the cell that all value-like states share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from varvite.changelog.api.checks import check_result
from varvite.changelog.api.state import ValueState
from varvite.changelog.keyed.context import NO_KEY
from varvite.changelog.keyed.many_keys import get_values, nulls, put_values
from varvite.changelog.keyed.overlays.base import MISSING
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.api.batch_keys import BatchKeys
    from varvite.changelog.keyed.context import KeyContext
    from varvite.changelog.keyed.overlays.value import ValueOverlay
    from varvite.changelog.types.contract import TypeInformation

T = TypeVar("T")


class ValueCell:
    """The value of the current key, thawed and frozen.

    The methods repeat what the overlay does, because a call costs as much as all the rest.
    """

    __slots__ = ("_cells", "_context", "_freeze", "_get", "_immutable", "_overlay", "_pending", "_thaw", "_type")

    def __init__(self, overlay: ValueOverlay, context: KeyContext, value_type: TypeInformation) -> None:
        self._overlay = overlay
        self._type = value_type
        self._context = context
        self._pending = overlay.pending
        self._cells = overlay.cells
        self._get = overlay.table.get
        self._immutable = value_type.immutable
        self._freeze = value_type.freeze
        self._thaw = value_type.thaw

    def read(self) -> Any:
        """The value; None if there is none."""
        context = self._context
        key = context.key
        if key is NO_KEY:
            raise context.no_key(self._overlay.schema.name)
        key_group = context.key_group
        stored = self._pending[key_group].get(key, MISSING)
        if stored is MISSING:
            if self._cells is not None:
                stored = self._cells[key_group].get(key)
            else:
                self._overlay.read = True
                stored = self._get(key_group, key)
        return stored if self._immutable or stored is None else self._thaw(stored)

    read_for_update = read

    def write_result(self, value: Any, method: str) -> None:
        """Set the value, which that method of the user's function returned; a `read_for_update` came before."""
        context = self._context
        try:
            check_result(value, method)
            self._pending[context.key_group][context.key] = self._freeze(value)
        except InvalidRequestError as error:
            raise context.refused(self._overlay.schema.name, error) from error

    def remove(self) -> None:
        """Remove the value."""
        context = self._context
        if context.key is NO_KEY:
            raise context.no_key(self._overlay.schema.name)
        self._overlay.remove(context.key_group, context.key)


class ValueStateHandle(ValueCell, ValueState[T]):
    """The user's handle."""

    __slots__ = ()

    value = ValueCell.read  # pyright: ignore[reportAssignmentType]
    clear = ValueCell.remove  # pyright: ignore[reportAssignmentType]

    def update(self, value: T | None) -> None:
        if value is None:
            self.clear()
            return
        context = self._context
        key = context.key
        if key is NO_KEY:
            raise context.no_key(self._overlay.schema.name)
        try:
            self._pending[context.key_group][key] = self._freeze(value)
        except InvalidRequestError as error:
            raise context.refused(self._overlay.schema.name, error) from error

    def get_many(self, keys: BatchKeys) -> Any:
        return get_values(self._overlay, self._type, keys)

    def put_many(self, keys: BatchKeys, values: Any) -> None:
        put_values(self._overlay, self._type, keys, values)

    def remove_many(self, keys: BatchKeys) -> None:
        put_values(self._overlay, self._type, keys, nulls(self._type, len(keys)))
