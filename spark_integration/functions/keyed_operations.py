"""PyFlink's functions on keyed streams as keyed process functions: map, flat_map, filter, reduce, and rolling sums.

Each opens and closes the user's function with the operator's own context, so that it may use keyed state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from varvite.changelog.api.descriptors import ValueStateDescriptor
from varvite.changelog.api.functions import Function, ReduceFunction
from varvite.changelog.working_stores.timer_form import TIME_MAX_MS
from varvite.spark_integration.elements.row_values import row_values
from varvite.spark_integration.functions.implicit_state import HasImplicitState, ImplicitState, state_of_elements
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.functions.stateless import FilterFunction, FlatMapFunction, MapFunction, method_of
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.functions.keyed import RuntimeContext

REDUCE_STATE: Final = "_reduce_state"
"""Name of the state that a reduce keeps, as in PyFlink."""
Accumulation = Literal["sum", "min", "max", "min_by", "max_by"]
"""PyFlink's rolling aggregations of a keyed stream."""


class KeyedFunction(KeyedProcessFunction[Any, Any, Any]):
    """Base of the adapters."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self.function, Function):
            self.function.open(runtime_context)

    def close(self) -> None:
        if isinstance(self.function, Function):
            self.function.close()


class KeyedMap(KeyedFunction):
    """One element out for each element in."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._map = method_of(self.function, MapFunction, "map")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:  # noqa: ARG002
        return (self._map(value),)


class KeyedFlatMap(KeyedFunction):
    """Any number of elements out for each element in."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._flat_map = method_of(self.function, FlatMapFunction, "flat_map")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:  # noqa: ARG002
        return self._flat_map(value)


class KeyedFilter(KeyedFunction):
    """Keeps some elements."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._filter = method_of(self.function, FilterFunction, "filter")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:  # noqa: ARG002
        return (value,) if self._filter(value) else None


class KeyedReduce(KeyedFunction, HasImplicitState):
    """Combines the elements of a key, and gives the combination so far after each of them."""

    def __init__(self, function: Any, elements: ElementType) -> None:
        super().__init__(function)
        self._elements = elements

    def implicit_states(self) -> tuple[ImplicitState, ...]:
        return (state_of_elements(REDUCE_STATE, self._elements.state_type, self._elements),)

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        function = self.function
        self._reduce = function.reduce if isinstance(function, ReduceFunction) else function
        self._state = runtime_context.get_state(ValueStateDescriptor(REDUCE_STATE, self._elements.state_type))
        self._rows = row_values(self._elements)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:  # noqa: ARG002
        combined, rows = self._state.value(), self._rows
        if combined is not None:
            value = self._reduce(combined if rows is None else rows.outward(combined), value)
        self._state.update(value if rows is None else rows.inward(value))
        return (value,)

    def in_batch(self) -> FinalReduce:
        """The same for BATCH mode."""
        return FinalReduce(self.function, self._elements)


class FinalReduce(KeyedReduce):
    """Combines the elements of a key, and gives the combination of all of them at the end."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        if self._state.value() is None:
            ctx.timer_service().register_event_time_timer(TIME_MAX_MS)
        super().process_element(value, ctx)
        return None

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:  # noqa: ARG002
        combined: Any = self._state.value()
        return (combined if self._rows is None else self._rows.outward(combined),)


class AccumulateFunction(ReduceFunction[Any]):
    """Combines the value of a field; what has no fields is the value itself, at position 0."""

    def __init__(self, kind: Accumulation, position: int | str) -> None:
        """Raises `InvalidRequestError` for no position."""
        if isinstance(position, bool) or not isinstance(position, (int, str)):
            raise InvalidRequestError(f"{kind} takes the position or the name of a field, not {position!r}")
        self._kind: Accumulation = kind
        self._position = position

    def reduce(self, value1: Any, value2: Any) -> Any:
        has_fields = issubclass(type(value2), (tuple, list))
        if not has_fields and self._position != 0:
            raise InvalidRequestError(
                f"{self._kind}({self._position!r}): the element {value2!r} has no fields; give 0, or nothing"
            )
        position: Any = self._position
        first, second = (value1[position], value2[position]) if has_fields else (value1, value2)
        is_second = self._kind != "sum" and (second < first if self._kind.startswith("min") else second > first)
        if self._kind.endswith("_by"):
            return value2 if is_second else value1
        value = first + second if self._kind == "sum" else second if is_second else first
        return self._with(value1, value) if has_fields else value

    def _with(self, element: Any, value: Any) -> Any:
        """The element with another value of the field: of the same class, with the same names."""
        position = self._position
        if isinstance(position, str):
            position = list(getattr(element, "FIELD_NAMES", None) or element.__fields__).index(position)
        values = list(element)
        values[position] = value
        if isinstance(element, list):
            return values
        combined: Any = tuple.__new__(type(element), values)
        if attributes := getattr(element, "__dict__", None):  # a row of PySpark has its names there
            combined.__dict__.update(attributes)
        return combined
