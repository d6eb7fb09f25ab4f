"""User functions on keyed streams, with PyFlink's names: `KeyedProcessFunction`, its context, `RuntimeContext`.

One function instance serves one partition. It is opened before its first row. When a batch that it has processed is
dropped, the instance is discarded without `close` (I4): its fields are a cache, state belongs in state handles.

Time (I5): `current_processing_time()` is the time in the batch's checkpoint, the same for every row of the batch and
for every execution of it. A function that reads the machine's clock is not deterministic.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from varvite.changelog.api.functions import AggregateFunction, Function, ReduceFunction
from varvite.spark_integration.functions.metrics import MetricGroup, MetricRegistry
from varvite.spark_integration.functions.timers import MIN_WATERMARK
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from varvite.changelog.api.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
    )
    from varvite.changelog.api.state import AggregatingState, ListState, MapState, ReducingState, ValueState
    from varvite.changelog.operator_state.backend import OperatorStateBackend
    from varvite.spark_integration.functions.timers import TimeDomain, TimerService

__all__ = [
    "AggregateFunction",
    "Function",
    "KeyedProcessContext",
    "KeyedProcessFunction",
    "OperatorRuntimeContext",
    "ReduceFunction",
    "RuntimeContext",
]

_log: Final = logging.getLogger(__name__)
K = TypeVar("K")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class KeyedStateStore(Protocol):
    """Makes state handles. Each handle refers to the key of the row being processed."""

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """One value per key."""
        ...

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list per key; appending reads nothing."""
        ...

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """A map per key; each entry is read and written by itself."""
        ...

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """A value per key that every added value is reduced into."""
        ...

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """An accumulator per key that every added value goes into."""
        ...


class RemovableStates(KeyedStateStore, Protocol):
    """A store that can also remove states."""

    def remove_state(self, name: str) -> None:
        """Remove a state of all keys, as `RuntimeContext.remove_state` says."""
        ...


class RuntimeContext(KeyedStateStore, Protocol):
    """The argument of `open`: state handles, and the place of the instance."""

    def remove_state(self, name: str) -> None:
        """Remove a state of all keys; call it in `open`, so that every partition does it.

        A missing state is no error. The removal is part of the batch. `open` runs again after every restart, so a
        function that also declares a state of that name loses it then.

        Raises:
            InvalidRequestError: The name is that of timers.
        """
        ...

    def get_task_name(self) -> str:
        """Name of the operator."""
        ...

    def get_number_of_parallel_subtasks(self) -> int:
        """Parallelism of the operator."""
        ...

    def get_max_number_of_parallel_subtasks(self) -> int:
        """Number of key groups."""
        ...

    def get_index_of_this_subtask(self) -> int:
        """This partition, from 0."""
        ...

    def get_task_name_with_subtasks(self) -> str:
        """`name (1/4)`: the operator and this partition, from 1."""
        ...

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """A parameter of the job (option `pipeline.global-job-parameters`), or the default."""
        ...

    def get_attempt_number(self) -> int:
        """0: a batch that is executed again is executed as if for the first time."""
        ...

    def get_metrics_group(self) -> MetricGroup:
        """Metrics of the function, which the driver serves with the job's (docs/operate/metrics.md)."""
        ...


class NoKeyedState:
    """The keyed state of functions that have none: every use raises `InvalidRequestError`."""

    def __getattr__(self, name: str) -> Any:
        raise InvalidRequestError(f"{name}: there is no keyed state on a stream without keys; call key_by before")


class OperatorRuntimeContext(RuntimeContext):
    """The context of one function instance; state comes from `store`."""

    def __init__(
        self,
        store: RemovableStates,
        task_name: str,
        partition: int,
        parallelism: int,
        max_parallelism: int,
        *,
        job_parameters: Mapping[str, str] | None = None,
        operator_states: OperatorStateBackend | None = None,
        metrics: MetricRegistry | None = None,
    ) -> None:
        self.metrics = metrics
        """Metrics of the function; None: nobody sees them."""
        self._operator_states = operator_states
        self._task_name = task_name
        self._partition = partition
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._store = store
        self._job_parameters = dict(job_parameters or {})

    def without_keyed_state(self) -> OperatorRuntimeContext:
        """The same context for a function on a stream without keys."""
        context = copy(self)
        context._store = NoKeyedState()  # noqa: SLF001  of the same class
        return context

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        return self._store.get_state(state_descriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return self._store.get_list_state(state_descriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        return self._store.get_map_state(state_descriptor)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        return self._store.get_reducing_state(state_descriptor)

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        return self._store.get_aggregating_state(state_descriptor)

    def remove_state(self, name: str) -> None:
        self._store.remove_state(name)

    def get_task_name(self) -> str:
        return self._task_name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._partition

    def get_task_name_with_subtasks(self) -> str:
        return f"{self._task_name} ({self._partition + 1}/{self._parallelism})"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._job_parameters.get(key, default_value)

    def get_attempt_number(self) -> int:
        return 0

    def get_metrics_group(self) -> MetricGroup:
        if self.metrics is None:
            _log.warning(
                "%s: metrics of functions before the first key are counted, but nobody sees them: make them in a "
                "function on a keyed stream, or behind one",
                self._task_name,
            )
            self.metrics = MetricRegistry()
        return MetricGroup(self.metrics)

    def get_operator_state_store(self) -> OperatorStateBackend:
        """The instance's non-keyed state, for built-in functions. Raises `InvalidRequestError` if there is none."""
        if self._operator_states is None:
            raise InvalidRequestError("there is no operator state here; call key_by before")
        return self._operator_states


class KeyedProcessFunction(Function, Generic[K, IN, OUT]):
    """A function that is called for every row of a keyed stream, with the state of the row's key."""

    class Context(ABC):
        """About the row being processed; valid only during the call, the same object every time."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The row's key: the value of the key column, or a tuple of several."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Event time of the row, milliseconds since the epoch; None without an event time column."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Time of the batch, milliseconds since the epoch; never goes back from batch to batch."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Watermark, milliseconds since the epoch; -2**63 before there is one.

            It is the batch's. Behind another operator it is that of the previous batch, until the last row has come.
            """

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Timers of the row's key."""

    class OnTimerContext(Context):
        """About the timer that fires; valid only during the call, the same object every time."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """The clock that the timer follows."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The timer's key."""

        @abstractmethod
        def timestamp(self) -> int:
            """The timer's time, milliseconds since the epoch; at or before the batch's time or watermark."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called once per instance before its first row: get state handles here."""

    @abstractmethod
    def process_element(self, value: IN, ctx: KeyedProcessFunction.Context) -> Iterable[OUT] | None:
        """Process one row.

        Args:
            value: The row; columns as attributes (`value.tailnum`), by name or by position.
            ctx: About this row.

        Returns:
            The output rows (usually by `yield`), each a tuple, Row or dict that fits the output schema; or None.
        """

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[OUT] | None:
        """Called for every timer that is due, after the rows of the batch, in order of time.

        Args:
            timestamp: The timer's time, milliseconds since the epoch.
            ctx: About this timer; state is that of its key.

        Returns:
            The output rows, as in `process_element`.
        """


class KeyedProcessContext(KeyedProcessFunction.Context):
    """The context that a runner reuses for all rows: it sets `key` and `element_timestamp` before each call."""

    __slots__ = ("_time_ms", "_timer_service", "_watermark_ms", "element_timestamp", "key")

    def __init__(self, timer_service: TimerService) -> None:
        self._timer_service = timer_service
        self.key: Any = None
        self.element_timestamp: int | None = None
        self._time_ms = 0
        self._watermark_ms = MIN_WATERMARK

    def begin_batch(self, time_ms: int, watermark_ms: int | None) -> None:
        """Begin a batch: forget the last row."""
        self.key = None
        self.element_timestamp = None
        self._time_ms = time_ms
        self._watermark_ms = MIN_WATERMARK if watermark_ms is None else watermark_ms

    def get_current_key(self) -> Any:
        return self.key

    def timestamp(self) -> int | None:
        return self.element_timestamp

    def current_processing_time(self) -> int:
        return self._time_ms

    def current_watermark(self) -> int:
        return self._watermark_ms

    def timer_service(self) -> TimerService:
        return self._timer_service
