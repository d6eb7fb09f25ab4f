"""`ReducingState` and `AggregatingState`: a value table whose value a user's function makes of what is added.

The function gets thawed values and may change a mutable accumulator in place; what it returns is frozen again. If it
raises, the state stays as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from varvite.changelog.api.state import AggregatingState, ReducingState
from varvite.changelog.keyed.overlay import MISSING, NO_KEY
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.api.functions import AggregateFunction, ReduceFunction
    from varvite.changelog.keyed.overlay import KeyContext
    from varvite.changelog.keyed.value import ValueOverlay
    from varvite.changelog.types.contract import TypeInformation

T = TypeVar("T")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class _Cell:
    """Base of both handles: the stored value of the current key, thawed and frozen."""

    __slots__ = ("_cells", "_context", "_freeze", "_get", "_immutable", "_overlay", "_pending", "_thaw")

    def __init__(self, overlay: ValueOverlay, context: KeyContext, value_type: TypeInformation) -> None:
        self._overlay = overlay
        self._context = context
        self._pending = overlay.pending
        self._cells = overlay.cells
        self._get = overlay.table.get
        self._immutable = value_type.immutable
        self._freeze = value_type.freeze
        self._thaw = value_type.thaw

    def _read(self) -> Any:
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

    def _write(self, value: Any, made_by: str) -> None:
        """Set the value, which that method of the user's function returned."""
        context, name = self._context, self._overlay.schema.name
        if value is None:
            raise context.refused(name, returned_none(made_by))
        try:
            self._pending[context.key_group][context.key] = self._freeze(value)
        except InvalidRequestError as error:
            raise context.refused(name, error) from error

    def _remove(self) -> None:
        context = self._context
        if context.key is NO_KEY:
            raise context.no_key(self._overlay.schema.name)
        self._overlay.remove(context.key_group, context.key)


def returned_none(made_by: str) -> InvalidRequestError:
    """The error of a method of the user's function that returned None."""
    return InvalidRequestError(
        f"{made_by} returned None; it must return a value (also if it changed an accumulator in place)"
    )


class ReducingStateHandle(_Cell, ReducingState[T]):
    """The user's handle of a `ReducingState`."""

    __slots__ = ("_reduce",)

    def __init__(
        self,
        overlay: ValueOverlay,
        context: KeyContext,
        value_type: TypeInformation,
        reduce_function: ReduceFunction[Any],
    ) -> None:
        super().__init__(overlay, context, value_type)
        self._reduce = reduce_function.reduce

    def get(self) -> T | None:
        return self._read()

    def add(self, value: T) -> None:
        if value is None:
            self._remove()
            return
        current = self._read()
        self._write(value if current is None else self._reduce(current, value), "reduce()")

    def clear(self) -> None:
        self._remove()


class AggregatingStateHandle(_Cell, AggregatingState[IN, OUT]):
    """The user's handle of an `AggregatingState`."""

    __slots__ = ("_add", "_create", "_result")

    def __init__(
        self,
        overlay: ValueOverlay,
        context: KeyContext,
        accumulator_type: TypeInformation,
        agg_function: AggregateFunction[Any, Any, Any],
    ) -> None:
        super().__init__(overlay, context, accumulator_type)
        self._create = agg_function.create_accumulator
        self._add = agg_function.add
        self._result = agg_function.get_result

    def get(self) -> OUT | None:
        accumulator = self._read()
        return None if accumulator is None else self._result(accumulator)

    def add(self, value: IN) -> None:
        if value is None:
            self._remove()
            return
        accumulator = self._read()
        self._write(self._add(value, self._create() if accumulator is None else accumulator), "add()")

    def clear(self) -> None:
        self._remove()
