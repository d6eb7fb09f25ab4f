"""`WindowedStream`: a keyed stream divided by time, and what is done to its windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from varve.changelog.functions import AggregateFunction, ReduceFunction
from varve.changelog.types import Types, as_type
from varve.spark_integration.checkpointed_function import refuse_checkpointed
from varve.spark_integration.declared_elements import elements_of
from varve.spark_integration.operator_plan import check_uid
from varve.spark_integration.stream_functions import check_function
from varve.spark_integration.window_contents import AggregatedContents, ListedContents, ReducedContents
from varve.spark_integration.window_functions import ProcessWindowFunction, WindowFunction
from varve.spark_integration.window_operator import FixedWindowOperator, GlobalWindowOperator, SessionWindowOperator
from varve.spark_integration.window_triggers import Firing, Trigger, firing_of
from varve.spark_integration.windows import FixedWindows, GlobalWindows, SessionWindows, WindowAssigner
from varve.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from varve.changelog.types import TypeLike
    from varve.spark_integration.element_type import ElementType
    from varve.spark_integration.streams import DataStream
    from varve.spark_integration.window_contents import ContentsPlan

    AddOperator = Callable[[str, Any, ElementType, str | None, str | None], DataStream]
    """(kind, function, elements that it makes, uid, name) → the stream behind the new operator."""

_OPERATORS: tuple[tuple[type[WindowAssigner], Any], ...] = (
    (FixedWindows, FixedWindowOperator),
    (SessionWindows, SessionWindowOperator),
    (GlobalWindows, GlobalWindowOperator),
)


class WindowedStream:
    """What `KeyedStream.window` gives; it becomes a stream again by reduce, aggregate, apply or process."""

    def __init__(self, elements: ElementType, add_operator: AddOperator, assigner: WindowAssigner) -> None:
        self._elements = elements
        self._add_operator = add_operator
        operator_type: Any = next((made for kind, made in _OPERATORS if isinstance(assigner, kind)), None)
        if operator_type is None:
            raise InvalidRequestError(
                f"window takes windows such as TumblingEventTimeWindows.of(Time.minutes(5)), not {assigner!r}"
            )
        self._operator_type = operator_type
        self._assigner = assigner
        self._trigger: Trigger | None = None
        self._lateness_ms = 0

    def trigger(self, trigger: Trigger) -> WindowedStream:
        """Say when windows fire, instead of at their end. Raises `InvalidRequestError` if these windows cannot."""
        firing_of(trigger, self._assigner)
        self._trigger = trigger
        return self

    def allowed_lateness(self, time_ms: int | timedelta) -> WindowedStream:
        """Keep event-time windows for so long after their end: each element that comes meanwhile fires them again.

        Args:
            time_ms: Milliseconds, or a timedelta; of processing-time windows it has no effect.

        Raises:
            InvalidRequestError: No span of time.
        """
        span = time_ms if isinstance(time_ms, int) else int(time_ms.total_seconds() * 1000)
        if span < 0:
            raise InvalidRequestError(f"the allowed lateness is {time_ms!r}; give 0 or more milliseconds")
        self._lateness_ms = span
        return self

    def reduce(
        self,
        reduce_function: ReduceFunction[Any] | Callable[[Any, Any], Any],
        window_function: Any = None,
        output_type: Any = None,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Combine the elements of a window; one value is kept of them.

        Args:
            reduce_function: Of two elements; associative. Windows that overlap combine their parts in order of time.
            window_function: A `WindowFunction` or `ProcessWindowFunction` that gets the combination, as a list of one.
            output_type: What comes out; see `DataStream.map`. None: the elements' type, or of a window function any
                objects.
            uid: See `KeyedStream.process`.
            name: See `KeyedStream.process`.

        Raises (as do the others):
            InvalidRequestError: Any of these cannot be right.
        """
        check_function(reduce_function, ReduceFunction, "reduce")
        contents = ReducedContents(reduce_function, self._elements.state_type)
        own = self._elements if window_function is None and output_type is None else None
        return self._windowed(contents, window_function, output_type, uid, name, own)

    def aggregate(
        self,
        aggregate_function: AggregateFunction[Any, Any, Any],
        window_function: Any = None,
        accumulator_type: TypeLike = None,
        output_type: Any = None,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Collect the elements of a window in an accumulator, which alone is kept.

        Args:
            aggregate_function: The function; its `merge` is called for sessions and for windows that overlap.
            window_function: Gets the result, as a list of one; see `reduce`.
            accumulator_type: Type of the accumulator; None: any object, pickled.
            output_type: What comes out; None: any objects.
            uid: See `KeyedStream.process`.
            name: See `KeyedStream.process`.
        """
        check_function(aggregate_function, AggregateFunction, "aggregate", callables=False)
        kind = as_type(Types.PICKLED_BYTE_ARRAY() if accumulator_type is None else accumulator_type)
        return self._windowed(AggregatedContents(aggregate_function, kind), window_function, output_type, uid, name)

    def apply(
        self,
        window_function: WindowFunction[Any, Any, Any, Any],
        output_type: Any = None,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Call a function with all elements of a window, which are kept until then."""
        check_function(window_function, WindowFunction, "apply", callables=False)
        return self._windowed(ListedContents(self._elements.state_type), window_function, output_type, uid, name)

    def process(
        self,
        process_window_function: ProcessWindowFunction[Any, Any, Any, Any],
        output_type: Any = None,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """As `apply`, with a function that may keep state."""
        check_function(process_window_function, ProcessWindowFunction, "process", callables=False)
        contents = ListedContents(self._elements.state_type)
        return self._windowed(contents, process_window_function, output_type, uid, name)

    def _windowed(
        self,
        contents: ContentsPlan,
        function: Any,
        output_type: Any,
        uid: str | None,
        name: str | None,
        elements: ElementType | None = None,
    ) -> DataStream:
        if function is not None and not isinstance(function, WindowFunction | ProcessWindowFunction):
            raise InvalidRequestError(
                f"a window function is an instance of WindowFunction or ProcessWindowFunction, not {function!r}"
            )
        refuse_checkpointed([function], "a window")
        if isinstance(output_type, (str, StructType)):
            check_uid(uid)
        firing: Firing = firing_of(self._trigger, self._assigner)
        operator = self._operator_type(self._assigner, firing, self._lateness_ms, contents, function)
        return self._add_operator("window", operator, elements or elements_of(output_type, uid), uid, name)
