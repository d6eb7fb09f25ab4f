"""Operators of windows of a number of elements, which are counted by key.

As in PyFlink, a window fires when it is full, with exactly as many elements as its size, and its id is its number.

Invariants: I5 (firing depends on state and elements only).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.api.descriptors import ValueStateDescriptor
from varvite.changelog.types.factory import Types
from varvite.spark_integration.operators.windows.assigners import CountWindow, CountWindows, FixedWindows
from varvite.spark_integration.operators.windows.operator import GlobalWindowOperator, WindowOperator

if TYPE_CHECKING:
    from varvite.spark_integration.functions.keyed import KeyedProcessFunction, RuntimeContext
    from varvite.spark_integration.operators.windows.builtin_triggers import Firing

FIRED_STATE: Final = "window-fired"
"""Number of windows of the key that have fired."""
ELEMENTS_STATE: Final = "window-elements"
"""Number of elements of the key."""


def count_operator(assigner: CountWindows, firing: Firing, *arguments: Any) -> WindowOperator:
    """The operator of these windows, with the other arguments of `WindowOperator`."""
    if assigner.size == assigner.slide:
        return TumblingCountOperator(assigner, firing, *arguments)
    return SlidingCountOperator(assigner, *arguments)


class TumblingCountOperator(GlobalWindowOperator):
    """Windows that follow one another: one is filled at a time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._fired = runtime_context.get_state(ValueStateDescriptor(FIRED_STATE, Types.LONG()))

    def _fire(self, low: int, high: int, window: Any, ctx: KeyedProcessFunction.Context, out: list[Any]) -> None:
        del window
        number = self._fired.value() or 0
        self._fired.update(number + 1)
        self._emission.emit(number, CountWindow(number), self._contents.read(low, high), ctx, out)
        self._contents.remove(low, high)


class SlidingCountOperator(WindowOperator):
    """Windows that overlap, or have gaps; the number of an element is its time, so they share their contents."""

    def __init__(self, assigner: CountWindows, *arguments: Any) -> None:
        self._windows = FixedWindows(assigner.size, assigner.slide, 0)
        self._shares = self._windows.overlaps
        super().__init__(assigner, *arguments)

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._elements = runtime_context.get_state(ValueStateDescriptor(ELEMENTS_STATE, Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> list[Any] | None:
        number = self._elements.value() or 0
        self._elements.update(number + 1)
        size, slide = self._windows.size_ms, self._windows.slide_ms
        if not self._windows.starts(number):
            return None
        self._contents.add(self._windows.pane(number), value)
        start = number + 1 - size
        if start < 0 or not self._windows.is_start(start):
            return None
        out: list[Any] = []
        window = start // slide
        self._emission.emit(window, CountWindow(window), self._contents.read(start, start + size), ctx, out)
        self._contents.remove(start, start + min(size, slide))
        return out
