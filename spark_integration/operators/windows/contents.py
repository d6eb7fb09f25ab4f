"""Contents of a key's windows, by pane (see `assigners`): accumulators of reduce and aggregate, or the elements.

A pane is named by its begin. For accumulators of a session it is the session's begin; for elements of a session it is
the time of each, so that sessions merge without moving elements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.api.descriptors import MapStateDescriptor
from varvite.changelog.api.functions import Function, ReduceFunction
from varvite.changelog.keyed.namespaces import (
    NAMESPACE_TYPE,
    NamespacedAccumulators,
    NamespacedLists,
    aggregating,
    reducing,
)
from varvite.changelog.types.factory import Types
from varvite.spark_integration.elements.row_values import row_values
from varvite.spark_integration.functions.implicit_state import ImplicitState, state_of_accumulators, state_of_elements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.api.functions import AggregateFunction
    from varvite.changelog.types.factory import TypeLike
    from varvite.spark_integration.elements.row_values import RowValues
    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.functions.keyed import RuntimeContext

CONTENTS_STATE: Final = "window-contents"
"""Name of the state with the contents of windows; Flink's."""
PANES_STATE: Final = "window-panes"
"""Name of the state with the panes that have elements."""


class WindowContents(ABC):
    """The contents of the current key's windows."""

    @abstractmethod
    def add(self, pane: int, value: Any) -> bool:
        """Add an element; True: the pane is new."""

    @abstractmethod
    def panes(self) -> list[int]:
        """The panes that are not empty."""

    @abstractmethod
    def read(self, low: int, high: int) -> list[Any]:
        """The contents of the panes `low <= pane < high`: the elements, one result, or nothing."""

    @abstractmethod
    def remove(self, low: int, high: int) -> None:
        """Empty the panes `low <= pane < high`."""

    @abstractmethod
    def merge_sessions(self, target: int, sources: Sequence[int]) -> None:
        """Merge the sessions with these begins into one that begins at `target`."""

    def session_pane(self, session: int, time_ms: int) -> int:
        """The pane of an element of that session."""
        del time_ms
        return session


@dataclass(frozen=True)
class ContentsPlan(ABC):
    """The form of an operator's contents; pickled with the operator."""

    @abstractmethod
    def open(self, runtime_context: RuntimeContext, *, shared: bool, sessions: bool) -> WindowContents:
        """The contents' handles.

        Args:
            runtime_context: Of the operator.
            shared: A window may have several panes.
            sessions: The windows are sessions.
        """

    @abstractmethod
    def implicit_state(self) -> ImplicitState:
        """The state that holds the contents."""

    def close(self) -> None:  # noqa: B027  there may be no function
        """Close the user's function."""


@dataclass(frozen=True)
class ReducedContents(ContentsPlan):
    """One value, to which a `ReduceFunction` or a callable reduces the elements."""

    function: Any
    value_type: TypeLike
    elements: ElementType | None = field(default=None, repr=False)
    """Elements of the stream; None: they are values of the type."""

    def implicit_state(self) -> ImplicitState:
        return state_of_elements(CONTENTS_STATE, self.value_type, self.elements)

    def open(self, runtime_context: RuntimeContext, *, shared: bool, sessions: bool) -> WindowContents:
        del sessions
        function: Any = self.function
        if isinstance(function, Function):
            function.open(runtime_context)
        reduce: Any = function.reduce if isinstance(function, ReduceFunction) else function
        rows = row_values(self.elements)
        if rows is not None:
            inward, outward = rows.inward, rows.outward
            accumulators = NamespacedAccumulators(
                runtime_context,
                CONTENTS_STATE,
                self.value_type,
                lambda stored, row: inward(row if stored is None else reduce(outward(stored), row)),
                lambda first, second: inward(reduce(outward(first), outward(second))),
            )
            return _Accumulated(accumulators, outward, shared=shared)
        return _Accumulated(reducing(runtime_context, CONTENTS_STATE, self.value_type, reduce), None, shared=shared)

    def close(self) -> None:
        if isinstance(self.function, Function):
            self.function.close()


@dataclass(frozen=True)
class AggregatedContents(ContentsPlan):
    """An accumulator of an `AggregateFunction`."""

    function: AggregateFunction[Any, Any, Any]
    accumulator_type: TypeLike | None
    """None: any objects, pickled."""

    def implicit_state(self) -> ImplicitState:
        return state_of_accumulators(CONTENTS_STATE, self.accumulator_type)

    def open(self, runtime_context: RuntimeContext, *, shared: bool, sessions: bool) -> WindowContents:
        del sessions
        self.function.open(runtime_context)
        accumulators = aggregating(runtime_context, CONTENTS_STATE, self.implicit_state().kind, self.function)
        return _Accumulated(accumulators, self.function.get_result, shared=shared)

    def close(self) -> None:
        self.function.close()


@dataclass(frozen=True)
class ListedContents(ContentsPlan):
    """The elements."""

    element_type: TypeLike = field(repr=False)
    elements: ElementType | None = field(default=None, repr=False)
    """Elements of the stream; None: they are values of the type."""

    def implicit_state(self) -> ImplicitState:
        return state_of_elements(CONTENTS_STATE, self.element_type, self.elements)

    def open(self, runtime_context: RuntimeContext, *, shared: bool, sessions: bool) -> WindowContents:
        del shared
        kind = _SessionElements if sessions else _Elements
        return kind(runtime_context, self.element_type, row_values(self.elements))


class _Accumulated(WindowContents):
    def __init__(self, accumulators: Any, result: Any, *, shared: bool) -> None:
        self._accumulators = accumulators
        self._result = result
        self._shared = shared

    def add(self, pane: int, value: Any) -> bool:
        return self._accumulators.add(pane, value)

    def panes(self) -> list[int]:
        return self._accumulators.namespaces()

    def merge_sessions(self, target: int, sources: Sequence[int]) -> None:
        self._accumulators.merge_namespaces(target, sources)

    def read(self, low: int, high: int) -> list[Any]:
        held = self._accumulators.merged(low, high) if self._shared else self._accumulators.get(low)
        if held is None:
            return []
        return [held if self._result is None else self._result(held)]

    def remove(self, low: int, high: int) -> None:
        if self._shared:
            self._accumulators.remove_between(low, high)
        else:
            self._accumulators.remove(low)


class _SessionElements(WindowContents):
    def __init__(self, runtime_context: RuntimeContext, element_type: TypeLike, rows: RowValues | None) -> None:
        self._lists = NamespacedLists(runtime_context, CONTENTS_STATE, element_type)
        self._rows = rows

    def add(self, pane: int, value: Any) -> bool:
        self._lists.add(pane, value if self._rows is None else self._rows.inward(value))
        return False

    def panes(self) -> list[int]:
        return []

    def read(self, low: int, high: int) -> list[Any]:
        held = self._lists.elements(low, high)
        return held if self._rows is None else list(map(self._rows.outward, held))

    def remove(self, low: int, high: int) -> None:
        self._lists.remove_between(low, high)

    def merge_sessions(self, target: int, sources: Sequence[int]) -> None:
        """Move nothing: elements are read by their times."""

    def session_pane(self, session: int, time_ms: int) -> int:
        del session
        return time_ms


class _Elements(_SessionElements):
    """Elements of fixed windows, and an entry for each pane, so that a new pane is noticed without reading elements."""

    def __init__(self, runtime_context: RuntimeContext, element_type: TypeLike, rows: RowValues | None) -> None:
        super().__init__(runtime_context, element_type, rows)
        self._panes = runtime_context.get_map_state(MapStateDescriptor(PANES_STATE, NAMESPACE_TYPE, Types.BOOLEAN()))

    def add(self, pane: int, value: Any) -> bool:
        super().add(pane, value)
        if self._panes.contains(pane):
            return False
        self._panes.put(pane, True)
        return True

    def panes(self) -> list[int]:
        return self._panes.keys()

    def remove(self, low: int, high: int) -> None:
        super().remove(low, high)
        for pane in self._panes.keys():  # noqa: SIM118  a state, not a dict
            if low <= pane < high:
                self._panes.remove(pane)
