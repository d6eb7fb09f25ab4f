"""Runs a user's keyed function over Arrow batches, row at a time, against keyed state.

A user error ends the execution but not the task: it is kept and travels in the summary, so that Spark does
not retry what would fail again.
"""

from __future__ import annotations

from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
from pyspark import cloudpickle

from varvite.changelog.operator_state.backend import OperatorStateBackend
from varvite.changelog.types.factory import parse_type_string
from varvite.changelog.working_stores.timer_form import TIME_MAX_MS
from varvite.spark_integration.elements.arrow_rows import RowReader, RowWriter
from varvite.spark_integration.elements.input_errors import UnreadableInputError, reading
from varvite.spark_integration.elements.key_group_order import in_key_group_order
from varvite.spark_integration.elements.row_values import event_times_ms
from varvite.spark_integration.functions.keyed import KeyedProcessContext, OperatorRuntimeContext
from varvite.spark_integration.functions.keyed_operations import KeyedReduce
from varvite.spark_integration.functions.metrics import MetricRegistry
from varvite.spark_integration.functions.output_tag import untagged
from varvite.spark_integration.functions.returned import returned
from varvite.spark_integration.functions.timers import KeyedTimerService
from varvite.spark_integration.messages.protocol import (
    EVENT_TIME_COLUMN,
    KEY_GROUP_COLUMN,
    PARTITION_COLUMN,
    OperatorRequest,
    UserError,
    answer_schema,
    row_tag,
)
from varvite.spark_integration.messages.user_errors import READING, user_code_raises, user_error
from varvite.spark_integration.operators.processors.grouped_function import (
    INITIAL_COLUMN,
    GroupedBatch,
    GroupedFunction,
)
from varvite.spark_integration.operators.windows.operator import WindowOperator
from varvite.spark_integration.plan.element_operator import ElementOperator, OperatorElements
from varvite.spark_integration.plan.function_chain import ChainPlace, StepError
from varvite.spark_integration.worker.runners.checkpoints import FunctionCheckpoint
from varvite.spark_integration.worker.runners.output_times import with_times
from varvite.spark_integration.worker.runners.timer_hearing import hears_timers
from varvite.spark_integration.worker.runners.timers import KeyedOnTimerContext, TimerFiring
from varvite.storage.errors import (
    CorruptDataError,
    InvalidRequestError,
    InvariantError,
    LocalDataError,
    RetryableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from varvite.changelog.keyed.backend import KeyedStateBackend
    from varvite.changelog.types.contract import TypeInformation
    from varvite.spark_integration.messages.user_metrics import UserMetric

ANSWER_ROWS: Final = 10_000
"""Rows per answer batch."""
INTERNAL_COLUMNS: Final = frozenset({KEY_GROUP_COLUMN, PARTITION_COLUMN, INITIAL_COLUMN, EVENT_TIME_COLUMN})
"""Columns beside those of the user's rows."""


class KeyReader:
    """Reads the key of every row in its stored form."""

    def __init__(self, request: OperatorRequest, schema: pa.Schema) -> None:
        self._key_type: TypeInformation = parse_type_string(request.key_type)
        self._indices = [schema.get_field_index(name) for name in request.key_columns]
        self._arrow_type = self._key_type.arrow_type

    def keys(self, batch: pa.RecordBatch) -> list[Any]:
        """The stored form of each row's key; None is a key like any other."""
        return self._key_type.from_arrow(self.column(batch))

    def column(self, batch: pa.RecordBatch) -> pa.Array[Any]:
        """Each row's key as the key type's Arrow type."""
        if len(self._indices) == 1:
            column = batch.column(self._indices[0])
        else:
            fields = [self._arrow_type.field(i) for i in range(self._arrow_type.num_fields)]
            columns = [batch.column(i).cast(f.type) for i, f in zip(self._indices, fields, strict=True)]
            column = pa.StructArray.from_arrays(columns, fields=fields)
        return column if column.type == self._arrow_type else column.cast(self._arrow_type)


class OperatorRunner:
    """One instance of a user's function on one partition, with its state and its context objects.

    Args:
        request: The operator.
        partition: Its partition.
        function: Pickled.
        backend: The partition's keyed state.
        operator_states: The instance's non-keyed state.
        restored_checkpoint: Seq of the commit that both are of; None if there is none.
    """

    METHOD: ClassVar = "process_element"
    """The function's method that gets the input."""
    CONTEXT: ClassVar[type[KeyedProcessContext]] = KeyedProcessContext
    """Class of the context that this method gets, too."""
    ON_TIMER_CONTEXT: ClassVar[type[KeyedOnTimerContext]] = KeyedOnTimerContext

    def __init__(
        self,
        request: OperatorRequest,
        partition: int,
        function: bytes,
        backend: KeyedStateBackend,
        operator_states: OperatorStateBackend | None = None,
        restored_checkpoint: int | None = None,
    ) -> None:
        """Unpickle the function and open it; what it raises is kept, see `error`."""
        self._request = request
        self.operator_states = operator_states or OperatorStateBackend(request.operator)
        """The instance's non-keyed state."""
        self._checkpoint = FunctionCheckpoint(self.operator_states, request, partition, restored_checkpoint)
        self.error: UserError | None = None
        self.event_time_max_ms: int | None = None
        """Largest event time of the batch so far."""
        self._backend = backend
        self._output_schema = pa.ipc.read_schema(pa.py_buffer(request.output_schema))
        self.answer_schema = answer_schema(self._output_schema)
        self._writer: RowWriter | OperatorElements = RowWriter(self._output_schema, request.operator)
        self._elements: OperatorElements | None = None
        self._input_schema: pa.Schema | None = None
        self._watermark_ms: int | None = None
        self._timers = KeyedTimerService(backend, has_watermark=request.has_watermark)
        self._firing = TimerFiring(backend, self._timers, request.operator, self.ON_TIMER_CONTEXT(self._timers))
        self._context = self.CONTEXT(self._timers)
        backend.row = self._context
        self._function: Any = None
        self._grouped: GroupedBatch | None = None
        self._process: Callable[[Any, Any], Any] | None = None
        self._on_timer: Any = None
        self._runtime_context = OperatorRuntimeContext(
            backend,
            request.task_name,
            partition,
            request.parallelism,
            request.max_parallelism,
            job_parameters=request.job_parameters,
            operator_states=self.operator_states,
            metrics=MetricRegistry(),
        )
        try:
            self._function = loaded = self._loaded(function, partition)
            self._timers.open(getattr(loaded, "timer_namespaces", None))
            self._timers.is_heard = hears_timers(loaded)
            if isinstance(loaded, GroupedFunction):
                self._grouped = GroupedBatch(loaded, backend)
            if isinstance(loaded, WindowOperator) and request.follows:
                loaded.tells_late_of = request.operator
            self._checkpoint.initialize(loaded, self._runtime_context)
            self._function.open(self._runtime_context)
            self._bind()
        except StepError as failed:
            self.fail(failed.cause, None, failed.where)
        except user_code_raises() as error:
            self.fail(error, None)

    def _bind(self) -> None:
        """Take the function's methods, with event times of what they yield if the next operator reads them."""
        function = self._function
        process, on_timer = getattr(function, self.METHOD), getattr(function, "on_timer", None)
        if self._elements is not None and self._elements.has_times and on_timer is not None:
            process, on_timer = with_times(function, process), with_times(function, on_timer)
        self._process, self._on_timer = process, on_timer

    def _loaded(self, function: bytes, partition: int) -> Any:
        """The function itself, out of the step chain that it may come with."""
        loaded = cloudpickle.loads(function)
        if not isinstance(loaded, ElementOperator):
            return self._of_mode(loaded)
        request = self._request
        place = ChainPlace(partition, request.parallelism, request.max_parallelism, request.job_parameters)
        self._elements = self._writer = OperatorElements(loaded, request.operator, place, self._runtime_context.metrics)
        return self._of_mode(self._elements.function)

    def _of_mode(self, function: Any) -> Any:
        """The function in the job's mode: in BATCH a reduction gives only the last result."""
        return function.in_batch() if self._request.is_batch and isinstance(function, KeyedReduce) else function

    def metrics(self) -> tuple[UserMetric, ...]:
        """The metrics of the functions since the last call."""
        registry = self._runtime_context.metrics
        return () if registry is None else registry.take()

    @property
    def fires_first(self) -> bool:
        """Do due timers fire before the rows of a batch, too?"""
        return getattr(self._function, "fires_first", False)

    @property
    def late_rows(self) -> int:
        """Rows of the batch that were dropped, because they came behind the watermark."""
        if self._grouped is not None:
            return self._grouped.late_rows
        return self._function.late_rows if isinstance(self._function, WindowOperator) else 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for the user about the function."""
        warnings = {*self._timers.warnings, *getattr(self._function, "warnings", ())}
        warnings.update(
            f"a value of state {state!r} was changed after it was read, and the state was not updated, so this "
            "change is lost: call update (or put). If that is meant, change a copy. (PyFlink's cache keeps such a "
            "change for a while. Only the first reads of a state are looked at.)"
            for state in self._backend.changed_in_place
        )
        return tuple(sorted(warnings)) if warnings else ()

    @property
    def broadcast_digest(self) -> str:
        """Hash of the broadcast rows of the batch; empty if there are none."""
        return ""

    def start(self, time_ms: int, watermark_ms: int | None, late_watermark_ms: int | None = None) -> None:
        """A new batch begins.

        What another operator has yielded at the watermark of the batch is not late for this one: so the watermark comes
        after the rows (`end_rows`), and until then it is the one of the batch before. Spark's functions tell the two
        apart by themselves.

        Args:
            time_ms: Time of the batch.
            watermark_ms: Its watermark.
            late_watermark_ms: That of the batch before.
        """
        self.event_time_max_ms = None
        if isinstance(self._function, WindowOperator):
            self._function.late_rows = 0
        self._watermark_ms = watermark_ms
        self._move_to(time_ms, late_watermark_ms if self._request.follows else watermark_ms)
        if self._grouped is not None:
            self._grouped.begin(time_ms, watermark_ms, late_watermark_ms)

    def end_rows(self) -> None:
        """All rows of the batch have come: now its watermark has, for an operator behind another one, too."""
        if self._request.follows:
            self._move_to(self._timers.current_processing_time(), self._watermark_ms)

    def end_input(self) -> None:
        """No element comes any more: the watermark passes all times, and in BATCH mode so does processing time."""
        self._move_to(self._timers.current_processing_time(), TIME_MAX_MS)
        if self._request.is_batch:
            self._timers.end_time()

    def _move_to(self, time_ms: int, watermark_ms: int | None) -> None:
        self._context.begin_batch(time_ms, watermark_ms)
        self._timers.begin_batch(time_ms, watermark_ms)

    def run(self, batch: pa.RecordBatch) -> list[Any]:
        """Execute the function for every row, by key group; returns its output, in order. After an error: nothing."""
        if self.error is not None or self._process is None:
            return []
        if self._input_schema is None or not self._input_schema.equals(batch.schema):
            self._prepare_input(batch.schema)
        if self._grouped is None and self._request.parallelism > 1:
            batch = in_key_group_order(batch, self._key_group_index)
        self._backend.records += batch.num_rows
        out: list[Any] = []
        try:
            key_groups, keys, timestamps, rows = self._read(batch)
        except UnreadableInputError as error:
            self.fail(error.cause, None, READING)
            return out
        if self._grouped is None:
            self._backend.prefetch(key_groups, keys)
            self._loop(zip(key_groups, keys, rows, strict=True), timestamps, out)
        return out

    def _read(self, batch: pa.RecordBatch) -> tuple[list[int], list[Any], list[int | None] | None, list[Any]]:
        """Key groups, keys, timestamps and rows of a batch; of a function on groups these have the rows."""
        key_reader, grouped = self._key_reader, self._grouped
        with reading(batch, self._request.key_columns, key_reader.keys):
            keys = key_reader.keys(batch)
        key_groups: Any = batch.column(self._key_group_index).to_pylist()
        timestamps = self._timestamps(batch)
        if grouped is None:
            with reading(batch, self._columns, self._row_reader.rows):
                return key_groups, keys, timestamps, self._row_reader.rows(batch)
        with reading(batch, self._columns, lambda rows: grouped.read(rows.select(self._columns))):
            grouped.add(batch, key_groups, keys, grouped.is_late(timestamps or ()), self._columns)
        return key_groups, keys, timestamps, []

    def _loop(self, items: Iterator[tuple[int, Any, Any]], timestamps: list[int | None] | None, out: list[Any]) -> None:
        process, context, extend = self._process, self._context, out.extend
        if process is None:
            raise InvariantError("the function was not opened", operator=self._request.operator)
        set_current_key = self._backend.set_current_key
        thaw = self._thaw_key
        key: Any = None
        stamps = iter(timestamps) if timestamps is not None else None
        try:
            for key_group, key, row in items:
                set_current_key(key_group, key)
                context.key = key if thaw is None else thaw(key)
                if stamps is not None:
                    context.element_timestamp = next(stamps)
                result = process(row, context)
                if result is not None:
                    extend(result if type(result) is GeneratorType else returned(result))
        except user_code_raises() as error:
            self.fail(error, self._named(key), self._hint(error))

    def _hint(self, error: BaseException) -> str:
        """Advice beside an error that arithmetic with a missing time stamp makes."""
        if isinstance(error, TypeError) and "NoneType" in str(error) and self._context.element_timestamp is None:
            return (
                "(the rows have no time stamps, so ctx.timestamp() is None; call with_watermark(column, delay) right "
                "after from_dataframe)"
            )
        return ""

    def _named(self, key: Any) -> Any:
        """A key as an error names it: as the function got it, or in its stored form where it cannot be read."""
        try:
            return key if self._thaw_key is None else self._thaw_key(key)
        except InvalidRequestError:
            return key

    def fire_timers(self) -> Iterator[list[Any]]:
        """After the last row: groups of rows and every due timer; the rows that the function yields, in pieces."""
        if self.error is not None:
            return
        self._context.element_timestamp = None  # event time is now the watermark, to which these timers were due
        if self._grouped is not None:
            yield from self._grouped.finish(self.fail)
        elif self._function is not None:
            yield from self._firing.fire(self._on_timer, self.fail)

    def snapshot(self, checkpoint_id: int, time_ms: int) -> None:
        """The batch ends: let a `CheckpointedFunction` bring its state up to date.

        Args:
            checkpoint_id: Seq of the commit that the batch will have.
            time_ms: Time of the batch.
        """
        if self.error is not None:
            return
        self._backend.unset_current_key()
        try:
            self._checkpoint.snapshot(checkpoint_id, time_ms)
        except user_code_raises() as error:
            self.fail(error, None, "in snapshot_state")

    def _prepare_input(self, schema: pa.Schema) -> None:
        self._input_schema = schema
        self._key_reader = KeyReader(self._request, schema)
        key_type = parse_type_string(self._request.key_type)
        self._thaw_key = None if key_type.immutable else partial(_thaw_key, key_type)
        self._columns = [n for n in schema.names if n not in INTERNAL_COLUMNS]
        self._row_reader = self._elements.reader(schema) if self._elements else RowReader(schema, self._columns)
        self._key_group_index = schema.get_field_index(KEY_GROUP_COLUMN)

    def _timestamps(self, batch: pa.RecordBatch) -> list[int | None] | None:
        """Event time of each row, milliseconds; None if the stream has no timestamp column."""
        column = self._event_times(batch)
        if column is None:
            return None
        times: Any = column.to_pylist()
        self.event_time_max_ms = _latest(self.event_time_max_ms, times)
        return times

    def _event_times(self, batch: pa.RecordBatch) -> pa.Array[Any] | None:
        name = self._request.timestamp_column
        if name is None:
            return None
        return event_times_ms(batch.column(batch.schema.get_field_index(name)))

    def answer(self, rows: list[Any], tag: str) -> pa.RecordBatch | None:
        """Output rows, after the functions that follow the operator, as an answer batch.

        None if they do not fit the declared schema or a function raised; `error` is set then.
        """
        try:
            try:
                columns = self._writer.columns(rows)
            except InvalidRequestError:
                kept = untagged(rows)
                if len(kept) == len(rows):
                    raise
                columns = self._writer.columns(kept)  # for side outputs that are not read
        except InvalidRequestError as error:
            self.fail(error, None)
            return None
        except StepError as failed:
            self.fail(failed.cause, None, failed.where)
            return None
        count = len(columns[0])
        tags = pa.repeat(pa.scalar(row_tag(tag), pa.int64()), count)
        return pa.RecordBatch.from_arrays([*columns, tags, pa.nulls(count, pa.binary())], schema=self.answer_schema)

    def summary_batch(self, summary: bytes, tag: str) -> pa.RecordBatch:
        """The one summary row of the attempt."""
        columns = [pa.nulls(1, field.type) for field in self._output_schema]
        row = [pa.array([row_tag(tag)], pa.int64()), pa.array([summary], pa.binary())]
        return pa.RecordBatch.from_arrays([*columns, *row], schema=self.answer_schema)

    def fail(self, error: BaseException, key: Any, where: str = "") -> None:
        """Keep the first error of the attempt; one of the local state, which is not the function's, is raised."""
        if isinstance(error, LocalDataError | RetryableError):
            raise error
        if self.error is None:
            self.error = user_error(error, None if key is None else repr(key)[:200], where)

    def close(self) -> None:
        """Close the functions; they are not used afterwards. What `close` raises is only logged by the caller."""
        try:
            if self._function is not None:
                self._function.close()
        finally:
            if self._elements is not None:
                self._elements.close()


def _thaw_key(key_type: TypeInformation, key: Any) -> Any:
    """The key of a row. That one cannot be read says nothing of state: it has just been made of what the user gave."""
    try:
        return None if key is None else key_type.thaw(key)
    except CorruptDataError as error:
        raise InvalidRequestError(
            f"the key {key!r} of a row cannot be read ({error.message}): let the key function return something else, "
            "or pass key_type to key_by"
        ) from error


def _latest(before: int | None, times: list[int | None]) -> int | None:
    """The largest of them; None if there is none."""
    return max((t for t in (before, *times) if t is not None), default=None)
