"""User functions on windows, with PyFlink's names: `WindowFunction` and `ProcessWindowFunction`, also without keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from varvite.changelog.api.functions import Function

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varvite.spark_integration.functions.keyed import KeyedStateStore, RuntimeContext

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W")
W2 = TypeVar("W2")
"""The window, in the context."""


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Makes elements of the contents of a window."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """The elements that take the place of the window, usually by `yield`.

        Args:
            key: The window's key.
            window: The window that fires.
            inputs: Its contents: a list that belongs to the function; after reduce or aggregate, of one result.
        """


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """As `WindowFunction`, with time and state."""

    class Context(ABC, Generic[W2]):
        """About the window that fires; valid only during the call, the same object every time."""

        @abstractmethod
        def window(self) -> W2:
            """The window."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Time of the batch, milliseconds since the epoch."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Watermark of the batch, milliseconds since the epoch; -2**63 before there is one."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """State of this key and window, which `clear` must remove. Sessions have none, because they merge."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """State of this key."""

    @abstractmethod
    def process(self, key: KEY, context: Context[W], elements: Iterable[IN]) -> Iterable[OUT] | None:
        """The elements that take the place of the window, usually by `yield`.

        Args:
            key: The window's key.
            context: About the window.
            elements: Its contents: a list that belongs to the function; after reduce or aggregate, of one result.
        """

    def clear(self, context: Context[W]) -> None:
        """Called when the window is removed: clear `window_state` here."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """As `WindowFunction`, for windows of all elements together."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """The elements that take the place of the window, as in `WindowFunction.apply`."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """As `ProcessWindowFunction`, for windows of all elements together: their state is that of one key."""

    Context = ProcessWindowFunction.Context

    @abstractmethod
    def process(self, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]) -> Iterable[OUT] | None:
        """The elements that take the place of the window, as in `ProcessWindowFunction.process`."""

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Called when the window is removed: clear `window_state` here."""


def keyed_window_function(function: Any) -> Any:
    """A window function as one that gets a key; a function of all elements together ignores it."""
    if isinstance(function, AllWindowFunction):
        return _KeyedAllWindow(function)
    return _KeyedProcessAllWindow(function) if isinstance(function, ProcessAllWindowFunction) else function


class _KeyedAllWindow(WindowFunction[Any, Any, Any, Any]):
    """An `AllWindowFunction` as a `WindowFunction`."""

    def __init__(self, function: AllWindowFunction[Any, Any, Any]) -> None:
        self._function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        self._function.open(runtime_context)

    def close(self) -> None:
        self._function.close()

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any] | None:
        del key
        return self._function.apply(window, inputs)


class _KeyedProcessAllWindow(ProcessWindowFunction[Any, Any, Any, Any]):
    """A `ProcessAllWindowFunction` as a `ProcessWindowFunction`."""

    def __init__(self, function: ProcessAllWindowFunction[Any, Any, Any]) -> None:
        self._function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        self._function.open(runtime_context)

    def close(self) -> None:
        self._function.close()

    def process(
        self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterable[Any] | None:
        del key
        return self._function.process(context, elements)

    def clear(self, context: ProcessWindowFunction.Context[Any]) -> None:
        self._function.clear(context)
