"""`WindowedStream`: a keyed stream divided into windows, and `AllWindowedStream`, the same without keys.

A built-in trigger whose effect is known beforehand gets an operator of `operators.windows.operator`, in which
overlapping windows share their contents; any other trigger, such as a user's, gets one of
`operators.windows.any_trigger_operator`, which calls it for each element and keeps each window's contents apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from varvite.changelog.api.functions import AggregateFunction, ReduceFunction
from varvite.changelog.api.time_spans import milliseconds_of
from varvite.changelog.types.factory import as_type
from varvite.spark_integration.functions.checkpointed import refuse_checkpointed
from varvite.spark_integration.functions.output_tag import OutputTag
from varvite.spark_integration.functions.stateless import check_function
from varvite.spark_integration.functions.window import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
    keyed_window_function,
)
from varvite.spark_integration.operators.windows.any_trigger_operator import check_assigner, operator_of
from varvite.spark_integration.operators.windows.builtin_triggers import firing_of
from varvite.spark_integration.operators.windows.contents import AggregatedContents, ListedContents, ReducedContents
from varvite.spark_integration.plan.keyed import output_elements
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from varvite.changelog.api.time_spans import TimeLike
    from varvite.changelog.types.contract import TypeInformation
    from varvite.changelog.types.factory import TypeLike
    from varvite.spark_integration.api.environment import StreamExecutionEnvironment
    from varvite.spark_integration.api.stream import DataStream
    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.operators.windows.assigners import WindowAssigner
    from varvite.spark_integration.operators.windows.contents import ContentsPlan
    from varvite.spark_integration.operators.windows.trigger import Trigger

    AddOperator = Callable[[str, Any, ElementType, str | None, str | None, str | None], DataStream]
    """(kind, function, elements of its output, uid, name, id of the late output) → the new operator's stream."""


class WindowedStream:
    """The windows of a keyed stream, made by `KeyedStream.window`; reduce, aggregate, apply or process end it."""

    _plain: ClassVar[type] = WindowFunction
    """The window functions that `apply` takes."""
    _process: ClassVar[type] = ProcessWindowFunction
    """The window functions that `process` takes."""

    def __init__(
        self,
        elements: ElementType,
        add_operator: AddOperator,
        assigner: WindowAssigner,
        environment: StreamExecutionEnvironment | None = None,
    ) -> None:
        self._environment = environment
        self._elements = elements
        self._add_operator = add_operator
        check_assigner(assigner)
        self._assigner = assigner
        self._trigger: Trigger[Any, Any] | None = None
        self._lateness_ms = 0
        self._late_output: OutputTag | None = None

    def get_execution_environment(self) -> StreamExecutionEnvironment | None:
        """The environment."""
        return self._environment

    def get_input_type(self) -> TypeInformation:
        """Type of the elements."""
        return self._elements.state_type

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Fire by a trigger, not at the end. Raises `InvalidRequestError` if these windows cannot have it."""
        firing_of(trigger, self._assigner)
        self._trigger = trigger
        return self

    def allowed_lateness(self, time_ms: int | TimeLike) -> Self:
        """Keep event-time windows for this time after their end: each element that comes meanwhile fires them again.

        Args:
            time_ms: Milliseconds, or a `Time`, `Duration` or timedelta; no effect on processing-time windows.

        Raises:
            InvalidRequestError: No span of time.
        """
        span = time_ms if isinstance(time_ms, int) else milliseconds_of(time_ms)
        if span is None or span < 0:
            raise InvalidRequestError(f"the allowed lateness is {time_ms!r}; give 0 or more milliseconds")
        self._lateness_ms = span
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send late elements to a side output instead of dropping them; `get_side_output` of the operator returns it.

        Args:
            output_tag: If it has no type, the side output has the elements' type.

        Raises:
            InvalidRequestError: Not an `OutputTag`.
        """
        if not isinstance(output_tag, OutputTag):
            raise InvalidRequestError(f"side_output_late_data takes an OutputTag, not {output_tag!r}")
        self._late_output = output_tag
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
            reduce_function: Of two elements; associative. Overlapping windows combine their parts in order of time.
            window_function: A `WindowFunction` or `ProcessWindowFunction` that gets the combination, as a list of one.
            output_type: Type of the output, as in `DataStream.map`. None: the elements' type, or for a window function
                any objects.
            uid: As in `KeyedStream.process`.
            name: As in `KeyedStream.process`.

        Raises (as do the others):
            InvalidRequestError: Any of these cannot be right.
        """
        check_function(reduce_function, ReduceFunction, "reduce")
        contents = ReducedContents(reduce_function, self._elements.state_type, self._elements)
        elements = self._elements if window_function is None and output_type is None else None
        return self._windowed(contents, window_function, output_type, uid, name, elements)

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
            window_function: Gets the result, as a list of one, as in `reduce`.
            accumulator_type: Type of the accumulator; None: any object, pickled.
            output_type: Type of the output; None: any objects.
            uid: As in `KeyedStream.process`.
            name: As in `KeyedStream.process`.
        """
        check_function(aggregate_function, AggregateFunction, "aggregate", callables=False)
        kind = None if accumulator_type is None else as_type(accumulator_type)
        return self._windowed(AggregatedContents(aggregate_function, kind), window_function, output_type, uid, name)

    def apply(
        self,
        window_function: WindowFunction[Any, Any, Any, Any],
        output_type: Any = None,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Call a function with all elements of a window, which are kept until then."""
        check_function(window_function, self._plain, "apply", callables=False)
        return self._windowed(
            ListedContents(self._elements.state_type, self._elements), window_function, output_type, uid, name
        )

    def process(
        self,
        process_window_function: ProcessWindowFunction[Any, Any, Any, Any],
        output_type: Any = None,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """As `apply`, with a function that may keep state."""
        check_function(process_window_function, self._process, "process", callables=False)
        contents = ListedContents(self._elements.state_type, self._elements)
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
        if function is not None and not isinstance(function, (self._plain, self._process)):
            raise InvalidRequestError(
                f"a window function is an instance of {self._plain.__name__} or {self._process.__name__}, "
                f"not {function!r}"
            )
        refuse_checkpointed([function], "a window")
        late = self._late_output
        keyed = keyed_window_function(function)
        arguments = self._lateness_ms, contents, keyed, late and OutputTag(late.tag_id)
        operator = operator_of(self._assigner, self._trigger, *arguments)
        output = elements or output_elements(output_type, uid)
        return self._add_operator("window", operator, output, uid, name, late.tag_id if late else None)


class AllWindowedStream(WindowedStream):
    """The windows of all elements together, made by `DataStream.window_all`.

    Window functions are `AllWindowFunction` and `ProcessAllWindowFunction`. One task does all the work.
    """

    _plain: ClassVar[type] = AllWindowFunction
    _process: ClassVar[type] = ProcessAllWindowFunction
