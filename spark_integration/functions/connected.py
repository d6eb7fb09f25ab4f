"""Functions on two connected streams with PyFlink's names, and their form as functions on one keyed stream.

The operator reads one stream of (number of the stream, element) pairs; both streams share the key's state and timers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from varvite.changelog.api.functions import Function
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.functions.keyed_operations import KeyedFunction
from varvite.spark_integration.functions.timers import UnkeyedTimerService

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varvite.spark_integration.functions.keyed import RuntimeContext
    from varvite.spark_integration.functions.timers import TimerService

K = TypeVar("K")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """One element out for each element of either stream."""

    @abstractmethod
    def map1(self, value: IN1) -> OUT:
        """The element that takes the place of this one of the first stream."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT:
        """The element that takes the place of this one of the second stream."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of elements out for each element of either stream."""

    @abstractmethod
    def flat_map1(self, value: IN1) -> Iterable[OUT] | None:
        """The elements that take the place of this one of the first stream; None for no element."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Iterable[OUT] | None:
        """The elements that take the place of this one of the second stream; None for no element."""


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """A function on two connected streams without keys: no state of keys, and no timers."""

    class Context(ABC):
        """About the element being processed; valid only during the call, the same object every time."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """The element's event time, milliseconds since the epoch; None if none was assigned."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Times, and timers, which raise `InvalidRequestError`: they need keys."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: CoProcessFunction.Context) -> Iterable[OUT] | None:
        """Process an element of the first stream; the elements that come out, usually by `yield`, or None."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: CoProcessFunction.Context) -> Iterable[OUT] | None:
        """Process an element of the second stream, as `process_element1`."""


class KeyedCoProcessFunction(Function, Generic[K, IN1, IN2, OUT]):
    """A function on two connected keyed streams, with the state and the timers of the element's key."""

    class Context(KeyedProcessFunction.Context):
        """About the element being processed; valid only during the call, the same object every time."""

    class OnTimerContext(KeyedProcessFunction.OnTimerContext):
        """About the timer that fires; valid only during the call, the same object every time."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: KeyedCoProcessFunction.Context) -> Iterable[OUT] | None:
        """Process an element of the first stream; the elements that come out, usually by `yield`, or None."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: KeyedCoProcessFunction.Context) -> Iterable[OUT] | None:
        """Process an element of the second stream, as `process_element1`."""

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[OUT] | None:
        """Called for every timer that is due, after the elements of the batch, in order of time."""


class KeyedCoProcess(KeyedFunction):
    """A `KeyedCoProcessFunction` as a function on pairs."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._process = (self.function.process_element1, self.function.process_element2)

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        number, element = value
        return self._process[number](element, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any] | None:
        return self.function.on_timer(timestamp, ctx)


class UnkeyedCoFunction(KeyedFunction):
    """A function on two streams without keys, as a function on pairs: one instance gets all of them.

    Args:
        function: The user's.
        keyed: The form of such a function on pairs.
    """

    def __init__(self, function: Any, keyed: type[KeyedFunction]) -> None:
        super().__init__(function)
        self._pairs = keyed(function)

    def open(self, runtime_context: RuntimeContext) -> None:
        context: Any = runtime_context
        self._pairs.open(context.without_keyed_state())
        self._context: Any = _UnkeyedContext()

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        self._context.of = ctx
        return self._pairs.process_element(value, self._context)

    def close(self) -> None:
        self._pairs.close()


class _UnkeyedContext(CoProcessFunction.Context):
    """The context that a function without keys gets for every element."""

    of: Any = None
    """The operator's."""

    def timestamp(self) -> int | None:
        return self.of.timestamp()

    def timer_service(self) -> TimerService:
        return UnkeyedTimerService(self)

    def now_ms(self) -> int:
        """Time of the batch."""
        return self.of.current_processing_time()


class KeyedCoMap(KeyedFunction):
    """A `CoMapFunction` as a function on pairs."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._map = (self.function.map1, self.function.map2)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:  # noqa: ARG002
        number, element = value
        return (self._map[number](element),)


class KeyedCoFlatMap(KeyedFunction):
    """A `CoFlatMapFunction` as a function on pairs."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._flat_map = (self.function.flat_map1, self.function.flat_map2)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:  # noqa: ARG002
        number, element = value
        return self._flat_map[number](element)
