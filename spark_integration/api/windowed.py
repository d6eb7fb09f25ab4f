"""`WindowedStream`: a keyed stream divided by time, and what is done to its windows; also without keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from pyspark.sql.types import StructType

from varvite.changelog.api.functions import AggregateFunction, ReduceFunction
from varvite.changelog.types.factory import as_type
from varvite.spark_integration.functions.checkpointed import refuse_checkpointed
from varvite.spark_integration.functions.output_tag import OutputTag
from varvite.spark_integration.functions.stateless import check_function
from varvite.spark_integration.functions.window import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from varvite.spark_integration.operators.windows.any_trigger_operator import (
    TriggeredFixedWindowOperator,
    TriggeredGlobalWindowOperator,
    TriggeredSessionOperator,
)
from varvite.spark_integration.operators.windows.assigners import (
    FixedWindows,
    GlobalWindows,
    SessionWindows,
    WindowAssigner,
)
from varvite.spark_integration.operators.windows.builtin_triggers import firing_of
from varvite.spark_integration.operators.windows.contents import AggregatedContents, ListedContents, ReducedContents
from varvite.spark_integration.operators.windows.operator import (
    FixedWindowOperator,
    GlobalWindowOperator,
    SessionWindowOperator,
)
from varvite.spark_integration.plan.operator import check_uid, elements_of
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta

    from varvite.changelog.types.factory import TypeLike
    from varvite.spark_integration.api.stream import DataStream
    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.functions.keyed import RuntimeContext
    from varvite.spark_integration.operators.windows.contents import ContentsPlan
    from varvite.spark_integration.operators.windows.operator import WindowOperator
    from varvite.spark_integration.operators.windows.trigger import Trigger

    AddOperator = Callable[[str, Any, ElementType, str | None, str | None, str | None], DataStream]
    """(kind, function, elements that it makes, uid, name, id of the late output) → the stream behind the new operator.
    """

_OPERATORS: tuple[tuple[type[WindowAssigner], Any, Any], ...] = (
    (FixedWindows, FixedWindowOperator, TriggeredFixedWindowOperator),
    (SessionWindows, SessionWindowOperator, TriggeredSessionOperator),
    (GlobalWindows, GlobalWindowOperator, TriggeredGlobalWindowOperator),
)
"""Windows, their operator if their trigger is known, and the one that asks it."""


def operator_of(assigner: WindowAssigner, trigger: Trigger[Any, Any] | None, *others: Any) -> WindowOperator:
    """The operator of these windows with this trigger; `others` are the other arguments of `WindowOperator`.

    Raises:
        InvalidRequestError: These are no windows, or they cannot have this trigger.
    """
    found = next((each for each in _OPERATORS if isinstance(assigner, each[0])), None)
    if found is None:
        raise InvalidRequestError(
            f"window takes windows such as TumblingEventTimeWindows.of(Time.minutes(5)), not {assigner!r}"
        )
    _, plain, asking = found
    firing = firing_of(trigger, assigner)
    return asking(assigner, trigger, *others) if firing is None else plain(assigner, firing, *others)


class WindowedStream:
    """What `KeyedStream.window` gives; it becomes a stream again by reduce, aggregate, apply or process."""

    _plain: ClassVar[type] = WindowFunction
    """Window functions of `apply`."""
    _process: ClassVar[type] = ProcessWindowFunction
    """Window functions of `process`."""

    def __init__(self, elements: ElementType, add_operator: AddOperator, assigner: WindowAssigner) -> None:
        self._elements = elements
        self._add_operator = add_operator
        if not any(isinstance(assigner, kind) for kind, _, _ in _OPERATORS):
            raise InvalidRequestError(
                f"window takes windows such as TumblingEventTimeWindows.of(Time.minutes(5)), not {assigner!r}"
            )
        self._assigner = assigner
        self._trigger: Trigger[Any, Any] | None = None
        self._lateness_ms = 0
        self._late_output: OutputTag | None = None

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Say when windows fire, instead of at their end. Raises `InvalidRequestError` if these windows cannot."""
        firing_of(trigger, self._assigner)
        self._trigger = trigger
        return self

    def allowed_lateness(self, time_ms: int | timedelta) -> Self:
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

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send late elements to a side output instead of dropping them; `get_side_output` of what is made gives them.

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
        contents = ReducedContents(reduce_function, self._elements.state_type, self._elements)
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
        if isinstance(output_type, (str, StructType)):
            check_uid(uid)
        late = self._late_output
        arguments = self._lateness_ms, contents, self._keyed(function), late and OutputTag(late.tag_id)
        operator = operator_of(self._assigner, self._trigger, *arguments)
        made = elements or elements_of(output_type, uid)
        return self._add_operator("window", operator, made, uid, name, late.tag_id if late else None)

    def _keyed(self, function: Any) -> Any:
        """The window function as one that gets the key."""
        return function


class AllWindowedStream(WindowedStream):
    """What `DataStream.window_all` gives: as `WindowedStream`, for all elements together.

    Window functions are `AllWindowFunction` and `ProcessAllWindowFunction`. One task does all the work.
    """

    _plain: ClassVar[type] = AllWindowFunction
    _process: ClassVar[type] = ProcessAllWindowFunction

    def _keyed(self, function: Any) -> Any:
        if isinstance(function, AllWindowFunction):
            return _Keyed(function)
        return _KeyedProcess(function) if isinstance(function, ProcessAllWindowFunction) else function


class _Keyed(WindowFunction[Any, Any, Any, Any]):
    """An `AllWindowFunction` that is given a key."""

    def __init__(self, function: AllWindowFunction[Any, Any, Any]) -> None:
        self._function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        self._function.open(runtime_context)

    def close(self) -> None:
        self._function.close()

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any] | None:
        del key
        return self._function.apply(window, inputs)


class _KeyedProcess(ProcessWindowFunction[Any, Any, Any, Any]):
    """A `ProcessAllWindowFunction` that is given a key."""

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
