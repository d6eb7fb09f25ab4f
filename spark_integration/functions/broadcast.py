"""Functions on a stream and a broadcast stream with PyFlink's names.

Every instance of such a function gets every broadcast element, and keeps what it needs of them in broadcast states.
The states are the same in all instances: all get the same broadcast elements in the same order, and only these change
the states. So `process_broadcast_element` must do the same everywhere; `process_element` and `on_timer` only read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from varvite.changelog.api.functions import Function
from varvite.spark_integration.functions.keyed import OperatorRuntimeContext
from varvite.spark_integration.functions.keyed_operations import KeyedFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from varvite.changelog.api.descriptors import MapStateDescriptor, StateDescriptor
    from varvite.changelog.api.operator_state import BroadcastState, ReadOnlyBroadcastState
    from varvite.spark_integration.functions.keyed import RuntimeContext
    from varvite.spark_integration.functions.timers import TimeDomain, TimerService

KEY = TypeVar("KEY")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class BaseBroadcastProcessFunction(Function):
    """Base of the functions on a stream and a broadcast stream."""

    class BaseContext(ABC):
        """About the element being processed; valid only during the call, the same object every time."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """The element's event time, milliseconds since the epoch; None if it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Time of the batch, milliseconds since the epoch; never goes back from batch to batch."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Watermark of the batch, milliseconds since the epoch; -2**63 before there is one."""

    class Context(BaseContext):
        """About a broadcast element."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
            """A state of the broadcast stream, to read and to write.

            Raises:
                InvalidRequestError: `broadcast` has no state of this name.
            """

    class ReadOnlyContext(BaseContext):
        """About an element of the other stream."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
            """A state of the broadcast stream, to read.

            Raises:
                InvalidRequestError: `broadcast` has no state of this name.
            """


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """A function on a stream without keys and a broadcast stream."""

    class Context(BaseBroadcastProcessFunction.Context):
        """About a broadcast element."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """About an element of the stream that is not broadcast."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterable[OUT] | None:
        """Process an element of the stream that is not broadcast.

        Returns:
            The elements that come out, usually by `yield`; or None.
        """

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: BroadcastProcessFunction.Context) -> Iterable[OUT] | None:
        """Process a broadcast element, in every instance; the output is that of all of them."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """A function on a keyed stream and a broadcast stream, with the state and the timers of the element's key."""

    class Context(BaseBroadcastProcessFunction.Context):
        """About a broadcast element, which has no key."""

        @abstractmethod
        def apply_to_keyed_state(self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
            """Call a function with (key, state) for every key of this instance that has this state.

            The function may read and change the state; the keys come in no defined order. The call reads all that the
            instance holds of the state. PyFlink lacks it; Java's Flink has it.

            Args:
                state_descriptor: Of a value, list, map, reducing or aggregating state.
                function: Called for each key.

            Raises:
                InvalidRequestError: No such descriptor.
            """

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """About an element of the keyed stream."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Timers of the element's key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The element's key."""

    class OnTimerContext(ReadOnlyContext):
        """About the timer that fires."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """The clock that the timer follows."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The timer's key."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterable[OUT] | None:
        """Process an element of the keyed stream, with its key's state, as in `BroadcastProcessFunction`."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context) -> Iterable[OUT] | None:
        """Process a broadcast element, in every instance; the output is that of all of them."""

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterable[OUT] | None:
        """Called for every timer that is due, after the elements of the batch, in order of time."""


class BroadcastFunction(KeyedFunction):
    """A function on a stream and a broadcast stream, as an operator carries it to the workers."""

    def __init__(self, function: Any, descriptors: tuple[MapStateDescriptor, ...]) -> None:
        super().__init__(function)
        self.descriptors = descriptors
        """States of the broadcast stream."""

    @property
    def is_keyed(self) -> bool:
        """True if the stream that is not broadcast has keys."""
        return isinstance(self.function, KeyedBroadcastProcessFunction)

    def open(self, runtime_context: RuntimeContext) -> None:
        if not self.is_keyed and isinstance(runtime_context, OperatorRuntimeContext):
            runtime_context = runtime_context.without_keyed_state()
        super().open(runtime_context)

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        return self.function.process_element(value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any] | None:
        return self.function.on_timer(timestamp, ctx)
