"""`WindowEmission`: the output of a window that fires, which the user's window function makes of its contents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varvite.changelog.api.functions import Function
from varvite.changelog.keyed.namespaced_handles import NamespacedStateStore
from varvite.spark_integration.functions.window import ProcessWindowFunction, WindowFunction
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.spark_integration.functions.keyed import KeyedProcessFunction, KeyedStateStore, RuntimeContext

WINDOW_STATE = "window-state"
"""Prefix of the names of states that `window_state()` gives."""


class WindowEmission:
    """Calls the window function of one operator.

    Args:
        function: A `WindowFunction` or `ProcessWindowFunction`; None: contents are yielded unchanged.
        merges: Windows may merge, so they cannot have state of their own.
    """

    def __init__(self, function: Any, *, merges: bool) -> None:
        self._function = function
        self._merges = merges
        self.times_ms: list[int] | None = None
        """Event time of each element of the output: its window's last millisecond. None: nobody reads them."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the user's function."""
        if isinstance(self._function, ProcessWindowFunction):
            self._context = _Context(runtime_context, merges=self._merges)
        if isinstance(self._function, Function):
            self._function.open(runtime_context)

    def close(self) -> None:
        """Close the user's function."""
        if isinstance(self._function, Function):
            self._function.close()

    def emit(
        self, namespace: int, window: Any, contents: list[Any], ctx: KeyedProcessFunction.Context, out: list[Any]
    ) -> None:
        """Add the output for the window's contents to `out`; `namespace` names its state."""
        function = self._function
        elements: Any = contents
        if isinstance(function, ProcessWindowFunction):
            elements = function.process(ctx.get_current_key(), self._context.about(namespace, window, ctx), contents)
        elif isinstance(function, WindowFunction):
            elements = function.apply(ctx.get_current_key(), window, contents)
        if elements is None:
            return
        before = len(out)
        out.extend(elements)
        if self.times_ms is not None:
            self.times_ms.extend([window.max_timestamp()] * (len(out) - before))

    def clear(self, namespace: int, window: Any, ctx: KeyedProcessFunction.Context) -> None:
        """Call the function's `clear` when the window is removed."""
        if isinstance(self._function, ProcessWindowFunction):
            self._function.clear(self._context.about(namespace, window, ctx))


class _Context(ProcessWindowFunction.Context[Any]):
    """The one context for all windows."""

    def __init__(self, runtime_context: RuntimeContext, *, merges: bool) -> None:
        self._global = runtime_context
        self._states = None if merges else NamespacedStateStore(runtime_context, WINDOW_STATE)
        self._window: Any = None
        self._time_ms = self._watermark_ms = 0

    def about(self, namespace: int, window: Any, ctx: KeyedProcessFunction.Context) -> _Context:
        """The context, set to this window."""
        self._window = window
        self._time_ms, self._watermark_ms = ctx.current_processing_time(), ctx.current_watermark()
        if self._states is not None:
            self._states.namespace = namespace
        return self

    def window(self) -> Any:
        return self._window

    def current_processing_time(self) -> int:
        return self._time_ms

    def current_watermark(self) -> int:
        return self._watermark_ms

    def window_state(self) -> KeyedStateStore:
        if self._states is None:
            raise InvalidRequestError("sessions merge, so a session has no state of its own; use global_state()")
        return self._states

    def global_state(self) -> KeyedStateStore:
        return self._global
