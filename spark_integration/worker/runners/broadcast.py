"""Runs a function on a stream and a broadcast stream: the broadcast rows of a batch first, then the partition's own.

`BroadcastInput` brings the rows in that order, the same broadcast rows to all partitions. Their digest travels in the
summary, and the driver compares (I3).
"""

from __future__ import annotations

import hashlib
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow.compute

from varvite.spark_integration.elements.input_errors import UnreadableInputError, reading
from varvite.spark_integration.elements.side_by_side import INPUT_COLUMN, ConnectedReader, rows_column
from varvite.spark_integration.functions.broadcast import BroadcastFunction, KeyedBroadcastProcessFunction
from varvite.spark_integration.functions.keyed import MIN_WATERMARK, KeyedProcessContext
from varvite.spark_integration.functions.returned import returned
from varvite.spark_integration.messages.user_errors import READING, user_code_raises
from varvite.spark_integration.plan.broadcast_input import BROADCAST, OWN
from varvite.spark_integration.worker.runners.operator import OperatorRunner
from varvite.spark_integration.worker.runners.timers import KeyedOnTimerContext
from varvite.storage.errors import InvalidRequestError, InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from varvite.changelog.api.descriptors import MapStateDescriptor, StateDescriptor
    from varvite.changelog.api.operator_state import BroadcastState, ReadOnlyBroadcastState
    from varvite.changelog.keyed.backend import KeyedStateBackend

# Arrow makes these functions at import, so type checkers do not see them.
_compute: Any = pyarrow.compute
S = TypeVar("S")


def _state_of(states: dict[str, S], descriptor: MapStateDescriptor) -> S:
    name = getattr(descriptor, "name", None)
    state = states.get(name) if name is not None else None
    if state is None:
        raise InvalidRequestError(
            f"there is no broadcast state {name or descriptor!r}: the stream was broadcast with {sorted(states)}; name "
            "all states of its elements there, broadcast(descriptor, ...)"
        )
    return state


class _ReadOnlyContext(KeyedProcessContext):
    """The context of all elements that are not broadcast."""

    __slots__ = ("states",)

    states: dict[str, ReadOnlyBroadcastState[Any, Any]]

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        return _state_of(self.states, state_descriptor)


class _OnTimerContext(KeyedOnTimerContext):
    """The context of all timers."""

    __slots__ = ("states",)

    states: dict[str, ReadOnlyBroadcastState[Any, Any]]

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        return _state_of(self.states, state_descriptor)


class _BroadcastContext(KeyedBroadcastProcessFunction.Context):
    """The context of all broadcast elements."""

    def __init__(self, backend: KeyedStateBackend | None) -> None:
        """`backend`: the keyed state; None: there is none."""
        self._backend = backend
        self.states: dict[str, BroadcastState[Any, Any]] = {}
        self.element_timestamp: int | None = None
        self.time_ms = 0
        self.watermark_ms = MIN_WATERMARK

    def timestamp(self) -> int | None:
        return self.element_timestamp

    def current_processing_time(self) -> int:
        return self.time_ms

    def current_watermark(self) -> int:
        return self.watermark_ms

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return _state_of(self.states, state_descriptor)

    def apply_to_keyed_state(self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        if self._backend is None:
            raise InvalidRequestError("there is no keyed state on a stream without keys; call key_by before connect")
        self._backend.apply_to_keys(state_descriptor, function)


class BroadcastRunner(OperatorRunner):
    """One instance of such a function on one partition. Arguments are those of `OperatorRunner`."""

    CONTEXT = _ReadOnlyContext
    ON_TIMER_CONTEXT = _OnTimerContext

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._digest = hashlib.sha256()
        self._has_broadcast = self._has_own = False
        if self._function is None:
            return
        function: BroadcastFunction = self._function
        self._is_keyed = function.is_keyed
        self._broadcast_context = _BroadcastContext(self._backend if self._is_keyed else None)
        self._process_broadcast = function.function.process_broadcast_element
        if self._process is not None:
            self._process = function.function.process_element  # one call less per element
        states = self.operator_states
        try:
            read_only = {d.name: states.get_read_only_broadcast_state(d) for d in function.descriptors}
            self._broadcast_context.states = {d.name: states.get_broadcast_state(d) for d in function.descriptors}
        except user_code_raises() as error:  # a state that was stored otherwise, or a migration of the user's
            self.fail(error, None)
            return
        for context in (self._context, self._firing.context):
            if isinstance(context, (_ReadOnlyContext, _OnTimerContext)):
                context.states = read_only

    def start(self, time_ms: int, watermark_ms: int | None, late_watermark_ms: int | None = None) -> None:
        """A new batch begins."""
        super().start(time_ms, watermark_ms, late_watermark_ms)
        self._digest = hashlib.sha256()
        self._has_broadcast = self._has_own = False
        if self._function is not None:
            self._broadcast_context.time_ms = time_ms
            self._broadcast_context.watermark_ms = MIN_WATERMARK if watermark_ms is None else watermark_ms

    @property
    def broadcast_digest(self) -> str:
        return self._digest.hexdigest() if self._has_broadcast else ""

    def run(self, batch: pa.RecordBatch) -> list[Any]:
        """Execute the function for every row; returns its output, in order. After an error: nothing."""
        if self.error is not None or self._process is None:
            return []
        if self._input_schema is None or not self._input_schema.equals(batch.schema):
            self._prepare_input(batch.schema)
        count = self._broadcast_rows(batch)
        out: list[Any] = []
        try:
            if count:
                self._run_broadcast(batch.slice(0, count), out)
            if count < batch.num_rows:
                rows = batch.slice(count)
                if self._is_keyed:
                    out += super().run(rows)
                else:
                    self._run_own(rows, out)
        except UnreadableInputError as error:
            self.fail(error.cause, None, READING)
        return out

    def _prepare_input(self, schema: pa.Schema) -> None:
        super()._prepare_input(schema)
        reader: Any = self._row_reader
        if not isinstance(reader, ConnectedReader):
            raise InvariantError("the input holds no two streams", operator=self._request.operator)
        self._row_reader, self._broadcast_reader = reader.of_stream(OWN), reader.of_stream(BROADCAST)

    def _broadcast_rows(self, batch: pa.RecordBatch) -> int:
        """Number of broadcast rows of the batch, which come first. Raises `InvariantError` if they do not."""
        numbers = batch.column(INPUT_COLUMN)
        first_own: int = _compute.index(numbers, OWN).as_py()
        count = batch.num_rows if first_own < 0 else first_own
        if _compute.sum(numbers).as_py() != count * BROADCAST or (count and self._has_own):
            raise InvariantError("broadcast rows came after others", operator=self._request.operator)
        self._has_own = self._has_own or count < batch.num_rows
        return count

    def _run_broadcast(self, rows: pa.RecordBatch, out: list[Any]) -> None:
        self._has_broadcast = True
        column = rows_column(BROADCAST)
        read = self._broadcast_reader.rows
        elements = read(rows)
        with reading(rows, [column], read):
            whole: Any = rows.column(column).to_pylist()
        self._digest.update("".join(f"{row!r}\n" for row in whole).encode())
        self._backend.records += rows.num_rows
        self._backend.unset_current_key()
        self._each(elements, self._timestamps(rows), self._process_broadcast, self._broadcast_context, out)

    def _run_own(self, rows: pa.RecordBatch, out: list[Any]) -> None:
        if self.error is None and self._process is not None:
            self._each(self._row_reader.rows(rows), self._timestamps(rows), self._process, self._context, out)

    def _each(
        self,
        elements: list[Any],
        timestamps: list[int | None] | None,
        process: Callable[[Any, Any], Any],
        context: Any,
        out: list[Any],
    ) -> None:
        """Call a function for elements without keys."""
        extend = out.extend
        stamps = iter(timestamps) if timestamps is not None else None
        element: Any = None
        try:
            for element in elements:
                if stamps is not None:
                    context.element_timestamp = next(stamps)
                result = process(element, context)
                if result is not None:
                    extend(result if type(result) is GeneratorType else returned(result))
        except user_code_raises() as error:
            name = getattr(process, "__name__", type(process).__name__)
            self.fail(error, None, f"in {name}, at element {repr(element)[:200]}")
