"""Streams and what is done to them: `DataStream`, `KeyedStream`.

Every step makes a new value and checks what can be checked at that line; nothing runs before `start()` or `execute()`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.types import StringType, StructField, StructType

from varvite.changelog.api.functions import ReduceFunction
from varvite.changelog.types.dynamic_key import DynamicKeyType
from varvite.changelog.types.factory import Types, as_type
from varvite.spark_integration.api.aggregate_operation import AggregateOperation
from varvite.spark_integration.api.meeting import StreamMeeting
from varvite.spark_integration.api.spark_operations import SparkOperations, event_time_before
from varvite.spark_integration.api.windowed import AllWindowedStream, WindowedStream
from varvite.spark_integration.api.writer import DataStreamSink, StreamWriter
from varvite.spark_integration.elements.types import ElementType, TypedElements
from varvite.spark_integration.functions.keyed_operations import KeyedFilter, KeyedFlatMap, KeyedMap, KeyedReduce
from varvite.spark_integration.functions.output_tag import OutputTag
from varvite.spark_integration.functions.pickling import pickle_step
from varvite.spark_integration.functions.stateless import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    check_function,
)
from varvite.spark_integration.functions.watermark_strategy import WatermarkStrategy
from varvite.spark_integration.messages.protocol import KEY_COLUMN
from varvite.spark_integration.operators.windows.assigners import GlobalWindows
from varvite.spark_integration.operators.windows.builtin_triggers import CountTrigger, PurgingTrigger
from varvite.spark_integration.plan.job import event_time_column
from varvite.spark_integration.plan.operator import UNNAMED, check_uid, elements_of, key_type_of, plan_operator
from varvite.spark_integration.plan.transformations import (
    DataFrameSource,
    KeyedTransformation,
    KeyFunction,
    SideOutputTransformation,
    StepTransformation,
    StreamKey,
    Transformation,
    operator_uids,
)
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from pyspark.sql import DataFrame

    from varvite.changelog.types.factory import TypeLike
    from varvite.spark_integration.api.environment import StreamExecutionEnvironment
    from varvite.spark_integration.connectors.element_sinks import CloseableIterator
    from varvite.spark_integration.connectors.sink import Sink
    from varvite.spark_integration.functions.keyed import KeyedProcessFunction
    from varvite.spark_integration.functions.vectorized import VectorizedProcessFunction
    from varvite.spark_integration.operators.aggregation.map_side_combine import MapSideCombine
    from varvite.spark_integration.operators.windows.assigners import WindowAssigner
    from varvite.spark_integration.plan.function_chain import StepKind
    from varvite.spark_integration.plan.initial_state import InitialState


class DataStream(StreamMeeting):
    """A stream of elements; the environment's `from_dataframe` and `from_collection` make one."""

    def __init__(self, environment: StreamExecutionEnvironment, transformation: Transformation) -> None:
        self._environment = environment
        self._transformation = transformation

    @property
    def schema(self) -> StructType:
        """Columns of the stream's DataFrame; see `varvite.spark_integration.elements.types`."""
        return self._elements.schema

    @property
    def transformation(self) -> Transformation:
        """The last step."""
        return self._transformation

    def followed_by(self, node: Transformation) -> DataStream:
        """The stream that a transformation makes of this one."""
        return DataStream(self._environment, node)

    @property
    def _elements(self) -> ElementType:
        return self._transformation.elements

    # --- about the last step -----------------------------------------------------------------------------------------

    def uid(self, uid: str) -> Self:
        """Name the operator's state for ever. Raises `InvalidRequestError` if the uid is taken or cannot be one."""
        settings = self._environment.graph_settings
        before = settings.of(self._transformation)
        settings.update(self._transformation, uid=check_uid(uid))
        try:
            operator_uids(self._transformation, settings)
        except InvalidRequestError:
            settings.update(self._transformation, uid=before.uid)
            raise
        return self

    def name(self, name: str) -> Self:
        """Name the step for people: in errors and in `RuntimeContext.get_task_name`."""
        self._environment.graph_settings.update(self._transformation, name=name)
        return self

    def get_name(self) -> str:
        """What `name` set, else what the step does."""
        return self._environment.graph_settings.of(self._transformation).name or self._transformation.kind

    def set_parallelism(self, parallelism: int) -> Self:
        """Partitions of a stateful operator. Stateless steps run where their input is, and take it without effect.

        Raises:
            InvalidRequestError: Below 1.
        """
        if not isinstance(parallelism, int) or parallelism < 1:
            raise InvalidRequestError(f"a parallelism is an int of at least 1, not {parallelism!r}")
        self._environment.graph_settings.update(self._transformation, parallelism=parallelism)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Number of key groups, which all operators of a job share: sets that of the environment.

        Raises:
            InvalidRequestError: Outside 1 to 32768, or another number was set before.
        """
        self._environment.agree_on_max_parallelism(max_parallelism)
        return self

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment."""
        return self._environment

    # --- stateless steps ---------------------------------------------------------------------------------------------

    def map(self, func: MapFunction[Any, Any] | Callable[[Any], Any], output_type: Any = None) -> DataStream:
        """One element for each element.

        Args:
            func: A `MapFunction` or a callable; copied (pickled) now.
            output_type: What comes out: a `TypeInformation`, or columns as a `StructType` or DDL string. None: any
                objects, pickled.

        Raises (as do the other steps):
            InvalidRequestError: Any of these cannot be right.
        """
        check_function(func, MapFunction, "map")
        return self._step("map", func, elements_of(output_type))

    def flat_map(self, func: FlatMapFunction[Any, Any] | Callable[[Any], Any], output_type: Any = None) -> DataStream:
        """Any number of elements for each element."""
        check_function(func, FlatMapFunction, "flat_map")
        return self._step("flat_map", func, elements_of(output_type))

    def filter(self, func: FilterFunction[Any] | Callable[[Any], bool]) -> DataStream:
        """The elements for which the function is true."""
        check_function(func, FilterFunction, "filter")
        return self._step("filter", func, self._elements)

    def process(self, func: ProcessFunction[Any, Any], output_type: Any = None) -> DataStream:
        """Any number of elements for each element, with its time stamp."""
        check_function(func, ProcessFunction, "process", callables=False)
        return self._step("process", func, elements_of(output_type))

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Give each element a time stamp. Possible before the first stateful operator.

        Raises:
            InvalidRequestError: Not a strategy, or one without a time stamp assigner.
        """
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise InvalidRequestError(f"a WatermarkStrategy is needed, not {watermark_strategy!r}")
        if watermark_strategy.assigner is None:
            raise InvalidRequestError(
                "the strategy does not say where time stamps come from: add with_timestamp_assigner(...)"
            )
        return self._step("timestamps", watermark_strategy.assigner, self._elements, watermark_strategy)

    def _step(
        self, kind: StepKind, func: Any, elements: ElementType, strategy: WatermarkStrategy | None = None
    ) -> DataStream:
        node = StepTransformation(
            kind=kind,
            inputs=(self._transformation,),
            elements=elements,
            step=kind,
            function=pickle_step(func, kind),
            watermark_delay_ms=strategy.delay_ms if strategy else None,
            idle_timeout_ms=strategy.idle_timeout_ms if strategy else None,
        )
        return DataStream(self._environment, node)

    def with_watermark(self, column: str, delay: str | int | timedelta) -> DataStream:
        """Let a column be the event time of the rows, and the watermark follow it.

        The watermark of a batch is `delay` behind the largest event time of all batches before it. Rows behind the
        watermark are late; they are processed like all others. Spark's `withWatermark` on the DataFrame does the same.

        Args:
            column: Name of a timestamp column.
            delay: How long to wait for rows that come late: "10 seconds", a timedelta, or milliseconds.

        Raises:
            InvalidRequestError: No such column, no timestamps, no delay; the stream has event times already, or is
                not the input.
        """
        source = self._transformation
        if not isinstance(source, DataFrameSource):
            raise InvalidRequestError(
                "a watermark belongs to the input: call with_watermark right after from_dataframe, or "
                "assign_timestamps_and_watermarks before the first stateful operator"
            )
        if source.event_time is not None:
            raise InvalidRequestError(
                f"the stream has the event time column {source.event_time.column!r} already; call with_watermark once"
            )
        return DataStream(self._environment, replace(source, event_time=event_time_column(self.schema, column, delay)))

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """What the function of this stateful operator yields as `(output_tag, value)`.

        It may go through stateless functions and be printed or written, beside the main output or alone.

        Raises:
            InvalidRequestError: Not an `OutputTag`, or the stream is not what a stateful operator yields.
        """
        if not isinstance(output_tag, OutputTag):
            raise InvalidRequestError(f"get_side_output takes an OutputTag, not {output_tag!r}")
        operator = self._transformation
        if not isinstance(operator, KeyedTransformation):
            raise InvalidRequestError(
                f"{operator.kind} has no side outputs: call get_side_output on what a function on a keyed or connected "
                "stream has made"
            )
        is_late = output_tag.type_info is None and output_tag.tag_id == operator.late_output
        elements = operator.inputs[0].elements if is_late else elements_of(output_tag.type_info)
        node = SideOutputTransformation(inputs=(operator,), elements=elements, tag_id=output_tag.tag_id)
        return DataStream(self._environment, node)

    # --- keys --------------------------------------------------------------------------------------------------------

    def key_by(self, *key: Any, key_type: TypeLike | None = None) -> KeyedStream:
        """Divide the elements by key: all elements of a key go to the same partition, in the order of the batches.

        Args:
            key: Names of columns: one, whose value is the key, or several, for a tuple of their values. Or a
                `KeySelector` or a callable from an element to its key, which a type may follow, as in PyFlink.
            key_type: Of the keys that a function gives. None: they may be None, bool, int, float, str, bytes, date,
                time, datetime, timedelta, Decimal, and tuples or Rows of these; keys of different types are different
                keys, so 1, 1.0, True and "1" are four.

        Raises:
            InvalidRequestError: A column is missing, or its type cannot be a key (floating point, map, array).
        """
        if len(key) == 2 and key_type is None and not isinstance(key[0], str) and not isinstance(key[1], str):  # noqa: PLR2004
            key, key_type = key[:1], key[1]
        if len(key) != 1 or isinstance(key[0], str):
            if key_type is not None:
                raise InvalidRequestError("key_type goes with a key function; columns have their own types")
            self._check_key_columns(key)
            return KeyedStream(self._environment, self._transformation, key, None)
        if not isinstance(key[0], KeySelector) and not callable(key[0]):
            raise InvalidRequestError(
                f"key_by takes names of columns or a function, not {key[0]!r}; make a column with withColumn first"
            )
        check_function(key[0], KeySelector, "key_by")
        kind = DynamicKeyType() if key_type is None else as_type(key_type)
        if not kind.hashable:
            raise InvalidRequestError(f"{kind} cannot be the type of a key: its values have no canonical bytes")
        return KeyedStream(
            self._environment, self._transformation, (KEY_COLUMN,), KeyFunction(pickle_step(key[0], "key_by"), kind)
        )

    def window_all(self, window_assigner: WindowAssigner) -> AllWindowedStream:
        """Divide all elements together by time; one task gets them all. Raises `InvalidRequestError` for no windows."""
        keyed = self.key_by(lambda _: 0, key_type=Types.LONG())
        return AllWindowedStream(keyed._elements, keyed._operator, window_assigner)  # noqa: SLF001  of this module

    def _check_key_columns(self, columns: tuple[str, ...]) -> None:
        found = key_type_of(self.schema, columns)
        elements = self._elements
        if not isinstance(elements, TypedElements):
            return
        declared = elements.declared_types()
        wrong = [c for c in columns if as_type(self.schema[c].dataType) != declared[c]]
        if wrong:
            raise InvalidRequestError(
                f"columns {wrong} hold values of {[str(declared[c]) for c in wrong]}, not of the key type {found}: "
                "give a key function, key_by(lambda value: ..., key_type)"
            )

    # --- where it goes -----------------------------------------------------------------------------------------------

    def foreach_batch(self, func: Callable[[DataFrame, int], None] | Sink) -> StreamWriter:
        """Write with a function of (rows, batch id), as Spark's `foreachBatch`, or with a `Sink`."""
        return self.write_stream.foreach_batch(func)

    def format(self, source: str) -> StreamWriter:
        """Write files: csv, json, orc or parquet; exactly once."""
        return self.write_stream.format(source)

    @property
    def write_stream(self) -> StreamWriter:
        """A writer, as Spark's `writeStream`. It writes the stream's columns, see `schema`."""
        return StreamWriter(self._environment, self._transformation)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print every element on the driver when the environment executes: `str(element)`.

        With a parallelism above 1 the partition stands before it, from 1, as in `2> ...`.

        Args:
            sink_identifier: Stands before that.
        """
        from varvite.spark_integration.connectors.element_sinks import (
            PrintSink,  # late: it loads what only a running job needs
        )

        self._environment.add_sink(self._transformation, PrintSink(self._elements, sink_identifier))
        return DataStreamSink(self._environment, self._transformation)

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Start the job and give its elements as they come; see `CloseableIterator`.

        Args:
            job_execution_name: Name of the job.
            limit: Give a list of at most so many elements instead, and end the job.
        """
        return self._environment.collect(self._transformation, job_execution_name, limit)


class KeyedStream(SparkOperations, AggregateOperation, DataStream):
    """A stream divided by key."""

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        transformation: Transformation,
        columns: tuple[str, ...],
        key: KeyFunction | None,
    ) -> None:
        super().__init__(environment, transformation)
        self._columns = columns
        self._key = key

    def process(  # pyright: ignore[reportIncompatibleMethodOverride]  PyFlink's streams differ in it as well
        self,
        func: KeyedProcessFunction[Any, Any, Any] | VectorizedProcessFunction,
        output_type: StructType | str | TypeLike | None = None,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Call a function for every element, with the state of its key; a vectorised one for every batch of rows.

        Args:
            func: An instance; it is copied (pickled) now.
            output_type: What it yields. Columns: a `StructType`, or a DDL string such as "tailnum string, flights
                bigint". Or a `TypeInformation`. None: any objects, pickled.
            uid: Names the operator's state for ever: keep it when everything else changes. Required if the output type
                is columns. Otherwise it may also be set with `uid()`; without one, one is made from the place in the
                graph: of what kind the stateful operators before this one are.
            name: For people; the uid unless given.

        Raises:
            InvalidRequestError: Any of these cannot be right, or the uid is taken.
        """
        if isinstance(output_type, (str, StructType)):
            check_uid(uid)
        elements = elements_of(output_type, uid)
        return self._operator("process", func, elements, uid, name)

    def map(self, func: Any, output_type: Any = None) -> DataStream:
        """One element for each element; a `MapFunction` may keep state."""
        check_function(func, MapFunction, "map")
        return self._operator("map", KeyedMap(func), elements_of(output_type))

    def flat_map(self, func: Any, output_type: Any = None) -> DataStream:
        """Any number of elements for each element; a `FlatMapFunction` may keep state."""
        check_function(func, FlatMapFunction, "flat_map")
        return self._operator("flat_map", KeyedFlatMap(func), elements_of(output_type))

    def filter(self, func: Any) -> DataStream:
        """The elements for which the function is true; a `FilterFunction` may keep state."""
        check_function(func, FilterFunction, "filter")
        return self._operator("filter", KeyedFilter(func), self._elements)

    def reduce(self, func: ReduceFunction[Any] | Callable[[Any, Any], Any]) -> DataStream:
        """For each element the combination of the key's elements so far, of which one is kept as state."""
        check_function(func, ReduceFunction, "reduce")
        return self._operator("reduce", KeyedReduce(func, self._elements), self._elements)

    @property
    def is_keyed(self) -> bool:
        return True

    def stream_key(self) -> StreamKey:
        key_type = self._key.key_type if self._key else key_type_of(self.schema, self._columns)
        return StreamKey(self._columns, self._key, key_type)

    def window(self, window_assigner: WindowAssigner) -> WindowedStream:
        """Divide each key's elements by time (docs/guide/windows.md). Raises `InvalidRequestError` for no windows."""
        return WindowedStream(self._elements, self._operator, window_assigner)

    def count_window(self, size: int) -> WindowedStream:
        """Windows of so many elements of a key. Raises `InvalidRequestError` below 1."""
        return self.window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(size)))

    def _operator(  # noqa: PLR0913  what operators have
        self,
        kind: str,
        func: Any,
        elements: ElementType,
        uid: str | None = None,
        name: str | None = None,
        late_output: str | None = None,
        *,
        initial_state: InitialState | None = None,
        event_time_column: str | None = None,
        prepare: MapSideCombine | None = None,
    ) -> DataStream:
        schema = self.schema
        if self._key is not None:
            # Of any type that may be a key; the plan gets the key function's below.
            schema = StructType([*schema.fields, StructField(KEY_COLUMN, StringType())])
        plan = plan_operator(
            schema,
            self._columns,
            func,
            elements.schema,
            uid=UNNAMED if uid is None else uid,
            name=name,
            event_time=event_time_before(self._transformation),
            prepare=prepare,
        )
        if self._key is not None:
            plan = replace(plan, key_type=self._key.key_type.type_string())
        node = KeyedTransformation(
            kind=kind,
            inputs=(self._transformation,),
            elements=elements,
            key=self._key,
            plan=replace(plan, initial_state=initial_state),
            event_time_column=event_time_column,
            late_output=late_output,
        )
        made = DataStream(self._environment, node)
        if name is not None:
            made.name(name)
        return made if uid is None else made.uid(uid)
