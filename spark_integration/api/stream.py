"""`DataStream` and `KeyedStream`: the calls of a program, each of which adds a node to the graph.

The methods are signatures and docstrings; the nodes are made in `plan`, which knows no streams. Each call checks at
once what can be checked, and returns a new stream. Nothing runs before `start()` or `execute()`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Self, overload

from varvite.changelog.api.functions import ReduceFunction
from varvite.changelog.types.composites import TupleType
from varvite.changelog.types.factory import Types
from varvite.spark_integration.api.broadcast import BroadcastConnectedStream, BroadcastStream
from varvite.spark_integration.api.connected import ConnectedStreams
from varvite.spark_integration.api.data_stream_sink import DataStreamSink
from varvite.spark_integration.api.spelling import with_spark_keywords
from varvite.spark_integration.api.windowed import AllWindowedStream, WindowedStream
from varvite.spark_integration.api.writer import StreamWriter
from varvite.spark_integration.connectors.sink import ElementSink, Sink
from varvite.spark_integration.functions.keyed_operations import (
    AccumulateFunction,
    KeyedFilter,
    KeyedFlatMap,
    KeyedMap,
    KeyedReduce,
)
from varvite.spark_integration.functions.stateless import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ProcessFunction,
    check_function,
)
from varvite.spark_integration.operators.windows.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
)
from varvite.spark_integration.options.absent import WRITE_WITH_SPARK
from varvite.spark_integration.options.flink_values import log_without_effect
from varvite.spark_integration.plan.column_operators import (
    aggregate_operator,
    group_state_operator,
    processor_operator,
)
from varvite.spark_integration.plan.keyed import keyed_operator, output_elements, partitioned, set_uid, stream_key
from varvite.spark_integration.plan.operator import elements_of
from varvite.spark_integration.plan.stateless import side_output, step, timestamps, union, with_watermark
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, GroupedData
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import StructType

    from varvite.changelog.api.descriptors import MapStateDescriptor
    from varvite.changelog.api.time_spans import TimeLike
    from varvite.changelog.types.contract import TypeInformation
    from varvite.changelog.types.factory import TypeLike
    from varvite.spark_integration.api.environment import StreamExecutionEnvironment
    from varvite.spark_integration.connectors.driver_sinks.element_sinks import CloseableIterator
    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.functions.keyed import KeyedProcessFunction
    from varvite.spark_integration.functions.keyed_operations import Accumulation
    from varvite.spark_integration.functions.output_tag import OutputTag
    from varvite.spark_integration.functions.stateless import Partitioner
    from varvite.spark_integration.functions.vectorized import VectorizedProcessFunction
    from varvite.spark_integration.functions.watermark_strategy import WatermarkStrategy
    from varvite.spark_integration.operators.windows.assigners import WindowAssigner
    from varvite.spark_integration.options.execution_config import ExecutionConfig
    from varvite.spark_integration.options.flink_values import SlotSharingGroup
    from varvite.spark_integration.plan.transformations import StreamKey, Transformation


class DataStream:
    """A stream of elements; the environment's `from_dataframe` and `from_collection` make one."""

    def __init__(self, environment: StreamExecutionEnvironment, transformation: Transformation) -> None:
        self._environment = environment
        self._transformation = transformation

    @property
    def schema(self) -> StructType:
        """Columns of the stream's DataFrame; see `varvite.spark_integration.elements.types`."""
        return self._transformation.elements.schema

    @property
    def transformation(self) -> Transformation:
        """The last node."""
        return self._transformation

    @property
    def key(self) -> StreamKey | None:
        """The key of the stream; None: it is not keyed."""
        return None

    def followed_by(self, node: Transformation, uid: str | None = None, name: str | None = None) -> DataStream:
        """The stream that ends with a node after this one, named if names are given."""
        stream = DataStream(self._environment, node)
        if name is not None:
            stream.name(name)
        return stream if uid is None else stream.uid(uid)

    # --- about the last step -----------------------------------------------------------------------------------------

    def uid(self, uid: str) -> Self:
        """Name the operator's state for ever. Raises `InvalidRequestError` if the uid is taken or cannot be one."""
        set_uid(self._environment.graph_settings, self._transformation, uid)
        return self

    def name(self, name: str) -> Self:
        """Name the step for people: in errors and in `RuntimeContext.get_task_name`."""
        self._environment.graph_settings.update(self._transformation, name=name)
        return self

    def get_name(self) -> str:
        """The name that `name` set, else the kind of the step."""
        return self._environment.graph_settings.of(self._transformation).name or self._transformation.kind

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the partitions of a stateful operator. It has no effect on stateless steps, which run with their input.

        Raises:
            InvalidRequestError: Below 1.
        """
        if not isinstance(parallelism, int) or parallelism < 1:
            raise InvalidRequestError(f"a parallelism is an int of at least 1, not {parallelism!r}")
        self._environment.graph_settings.update(self._transformation, parallelism=parallelism)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups in the environment: all operators of a job share it.

        Raises:
            InvalidRequestError: Outside 1 to 32768, or another number was set before.
        """
        self._environment.agree_on_max_parallelism(max_parallelism)
        return self

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment."""
        return self._environment

    def get_type(self) -> TypeInformation:
        """Type of the elements; that of rows for columns."""
        return self._transformation.elements.state_type

    def get_execution_config(self) -> ExecutionConfig:
        """The environment's settings of execution."""
        return self._environment.get_config()

    # --- hints -------------------------------------------------------------------------------------------------------

    def force_non_parallel(self) -> Self:
        """Let the operator have one partition. It has no effect on stateless steps."""
        return self.set_parallelism(1)

    def set_description(self, description: str) -> Self:
        """A hint without effect, as are the others here: each is logged."""
        return self._hint(f"set_description({description!r})", "name() names a step in errors and logs")

    def set_uid_hash(self, uid_hash: str) -> Self:
        """A hint without effect."""
        return self._hint(f"set_uid_hash({uid_hash!r})", "uid() names the state of an operator")

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """A hint without effect."""
        return self._hint(f"set_buffer_timeout({timeout_millis})", "a batch is sent as a whole")

    def start_new_chain(self) -> Self:
        """A hint without effect."""
        return self._hint("start_new_chain()", "stateless functions run fused")

    def disable_chaining(self) -> Self:
        """A hint without effect."""
        return self._hint("disable_chaining()", "stateless functions run fused")

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """A hint without effect."""
        return self._hint(f"slot_sharing_group({slot_sharing_group!r})", "Spark's executors have no such slots")

    def shuffle(self) -> DataStream:
        """A hint without effect, as the next three: the elements are the same, wherever they are."""
        return self._hint("shuffle()", "stateless functions run where their input is")

    def rebalance(self) -> DataStream:
        """A hint without effect."""
        return self._hint("rebalance()", "call repartition() on the DataFrame before from_dataframe")

    def rescale(self) -> DataStream:
        """A hint without effect."""
        return self._hint("rescale()", "call repartition() on the DataFrame before from_dataframe")

    def forward(self) -> DataStream:
        """A hint without effect."""
        return self._hint("forward()", "stateless functions run where their input is")

    def cache(self) -> CachedDataStream:
        """The same elements; nothing is kept from one `execute` to the next."""
        self._hint("cache()", "each execute() reads the sources anew; write the stream, and read what was written")
        return CachedDataStream(self._environment, self._transformation)

    def _hint(self, call: str, reason: str) -> Self:
        log_without_effect(call, reason)
        return self

    # --- stateless steps ---------------------------------------------------------------------------------------------

    def map(self, func: MapFunction[Any, Any] | Callable[[Any], Any], output_type: Any = None) -> DataStream:
        """One element for each element.

        Args:
            func: A `MapFunction` or a callable; copied (pickled) now.
            output_type: Type of the output: a `TypeInformation`, or columns as a `StructType` or DDL string. None:
                any objects, pickled.

        Raises (as do the other steps):
            InvalidRequestError: Any of these cannot be right.
        """
        check_function(func, MapFunction, "map")
        return self.followed_by(step(self._transformation, "map", func, elements_of(output_type)))

    def flat_map(self, func: FlatMapFunction[Any, Any] | Callable[[Any], Any], output_type: Any = None) -> DataStream:
        """Any number of elements for each element."""
        check_function(func, FlatMapFunction, "flat_map")
        return self.followed_by(step(self._transformation, "flat_map", func, elements_of(output_type)))

    def filter(self, func: FilterFunction[Any] | Callable[[Any], bool]) -> DataStream:
        """The elements for which the function is true."""
        check_function(func, FilterFunction, "filter")
        return self.followed_by(step(self._transformation, "filter", func, self._transformation.elements))

    def process(self, func: ProcessFunction[Any, Any], output_type: Any = None) -> DataStream:
        """Any number of elements for each element, with its timestamp."""
        check_function(func, ProcessFunction, "process", callables=False)
        return self.followed_by(step(self._transformation, "process", func, elements_of(output_type)))

    def project(self, *field_indexes: int) -> DataStream:
        """Tuples of some fields, in this order.

        Raises:
            InvalidRequestError: The elements are not of a TUPLE type, or have no such fields.
        """
        kind = self.get_type()
        if not isinstance(kind, TupleType):
            raise InvalidRequestError(f"project takes elements of a Types.TUPLE, not of {kind}; map() takes any")
        if not field_indexes or not all(isinstance(i, int) and 0 <= i < kind.arity for i in field_indexes):
            raise InvalidRequestError(f"project{field_indexes} of tuples with {kind.arity} fields: give positions")
        output = Types.TUPLE([kind.types[index] for index in field_indexes])
        return self.map(lambda value: tuple([value[index] for index in field_indexes]), output).name("Projection")

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Give each element a timestamp. Possible before the first stateful operator.

        Raises:
            InvalidRequestError: Not a strategy.
        """
        node = timestamps(self._transformation, watermark_strategy)
        return self.followed_by(node) if node is not self._transformation else self

    def with_watermark(self, column: str, delay: str | int | TimeLike) -> DataStream:
        """Let a column be the event time of the rows, and the watermark follow it.

        The watermark of a batch is `delay` behind the largest event time of all batches before it. Rows behind the
        watermark are late; they are processed like all others. Spark's `withWatermark` on the DataFrame does the same.

        Args:
            column: Name of a timestamp column.
            delay: Time to wait for late rows: "10 seconds", a `Time`, `Duration` or timedelta, or milliseconds.

        Raises:
            InvalidRequestError: No such column, no timestamps, no delay; the stream has event times already, or is
                not the input.
        """
        return self.followed_by(with_watermark(self._transformation, column, delay))

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """The elements that the function of this operator yields as `(output_tag, value)`.

        That of a stateful operator may go through stateless functions and be printed or written, beside the main
        output or alone. That of a process function without keys is a stream like any other; the function is called once
        for each of its outputs that is read.

        Raises:
            InvalidRequestError: Not an `OutputTag`, or the stream is not the output of such a function.
        """
        return self.followed_by(side_output(self._transformation, output_tag))

    # --- several streams ---------------------------------------------------------------------------------------------

    def union(self, *streams: DataStream) -> DataStream:
        """The elements of this stream and of others with the same type.

        Raises:
            InvalidRequestError: Elements of another type or columns, or another environment.
        """
        return self.followed_by(union([self._checked_input(stream, "union") for stream in (self, *streams)]))

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...

    def connect(self, ds: DataStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """This stream beside another of any type, or a broadcast one, to be read by one function.

        Raises:
            InvalidRequestError: Another environment.
        """
        self._checked_input(ds.input_stream if isinstance(ds, BroadcastStream) else ds, "connect")
        return BroadcastConnectedStream(self, ds) if isinstance(ds, BroadcastStream) else ConnectedStreams(self, ds)

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream:
        """This stream, for `connect`: every instance of the function there gets all its elements.

        Args:
            broadcast_state_descriptor: A state that the elements change.
            *other_broadcast_state_descriptors: More such states.

        Raises:
            InvalidRequestError: None, not a `MapStateDescriptor`, one with a time to live, or two of one name.
        """
        if broadcast_state_descriptor is None:
            raise InvalidRequestError(
                "broadcast needs a MapStateDescriptor, and connect a function that keeps what was broadcast: other "
                "functions cannot get every element in every instance"
            )
        return BroadcastStream(self, broadcast_state_descriptor, *other_broadcast_state_descriptors)

    def _checked_input(self, stream: Any, caller: str) -> Transformation:
        if not isinstance(stream, DataStream):
            raise InvalidRequestError(f"{caller} takes streams, not {type(stream).__name__}")
        if stream.get_execution_environment() is not self._environment:
            raise InvalidRequestError(f"{caller}: the streams are of different environments; make all with one")
        return stream.transformation

    def partition_custom(self, partitioner: Partitioner | Callable[[Any, int], int], key_selector: Any) -> DataStream:
        """The same elements, each in the partition that a partitioner chooses: the functions that follow run there.

        There are as many partitions as the next function has (`set_parallelism`), else as the job has. The partitioner
        must give the same partition for the same key every time.

        Args:
            partitioner: A `Partitioner`, or a callable: from a key and the number of partitions to a partition, from 0.
            key_selector: A `KeySelector`, or a callable from an element to its key, which may be anything.

        Raises:
            InvalidRequestError: They are no such functions, or the stream is keyed.
        """
        return self.followed_by(partitioned(self._transformation, partitioner, key_selector))

    # --- keys --------------------------------------------------------------------------------------------------------

    def key_by(self, *key: Any, key_type: TypeLike | None = None, key_selector: Any = None) -> KeyedStream:
        """Divide the elements by key: all elements of a key go to the same partition, in the order of the batches.

        Args:
            key: Names of columns: one, whose value is the key, or several, for a tuple of their values. Or a
                `KeySelector` or a callable from an element to its key, which a type may follow, as in PyFlink.
            key_type: Of the keys that a function gives. None: they may be None, bool, int, float, str, bytes, date,
                time, datetime, timedelta, Decimal, and tuples or Rows of these; keys of different types are different
                keys, so 1, 1.0, True and "1" are four.
            key_selector: The key by PyFlink's keyword.

        Raises:
            InvalidRequestError: A column is missing, or its type cannot be a key (floating point, map, array).
        """
        key = key if key_selector is None else (key_selector, *key)
        return KeyedStream(self._environment, self._transformation, stream_key(self._transformation, key, key_type))

    def window_all(self, window_assigner: WindowAssigner) -> AllWindowedStream:
        """Divide all elements together by time; one task gets them all. Raises `InvalidRequestError` for no windows."""
        keyed = self.key_by(lambda _: 0, key_type=Types.LONG())
        return AllWindowedStream(self._transformation.elements, keyed.add_operator, window_assigner, self._environment)

    # --- output ------------------------------------------------------------------------------------------------------

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
        """Print every element on the driver when the environment executes.

        The text is PyFlink's: `(a,1)` for a tuple of a declared type, `+I[a,1]` for a row, and `str(element)` without
        a type. With a parallelism above 1 the partition precedes it, from 1, as in `2> ...`.

        Args:
            sink_identifier: Precedes the partition.
        """
        # Late: only a running job needs it.
        from varvite.spark_integration.connectors.driver_sinks.element_sinks import PrintSink

        self._environment.add_sink(self._transformation, PrintSink(self._transformation.elements, sink_identifier))
        return DataStreamSink()

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Write every batch to a sink when the environment executes.

        Args:
            sink: A `varvite.Sink`, or one that PyFlink's `KafkaSink`, `FileSink` or `JdbcSink` has built.

        Raises:
            InvalidRequestError: It is none, or does not take such elements.
        """
        if not isinstance(sink, Sink):
            raise InvalidRequestError(f"sink_to takes a varvite.Sink, not {type(sink).__name__}: {WRITE_WITH_SPARK}")
        end = self._transformation
        if isinstance(sink, ElementSink):
            end = sink.before(end)
            self._environment.graph_settings.update(end, name=sink.title)
        self._environment.add_sink(end, sink)
        return DataStreamSink()

    def add_sink(self, sink_func: Sink) -> DataStreamSink:
        """As `sink_to`. Raises as `sink_to`."""
        return self.sink_to(sink_func)

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Start the job and return its elements as they come; see `CloseableIterator`.

        Args:
            job_execution_name: Name of the job.
            limit: Return a list of at most this many elements instead, and end the job.
        """
        return self._environment.collect(self._transformation, job_execution_name, limit)


class CachedDataStream(DataStream):
    """A stream that `cache` has returned; nothing of it is kept."""

    def invalidate(self) -> None:
        """Nothing is kept that could be dropped."""


class KeyedStream(DataStream):
    """A stream divided by key."""

    class AccumulateType(Enum):
        """Rolling aggregations; PyFlink's numbers."""

        MIN = 1
        MAX = 2
        MIN_BY = 3
        MAX_BY = 4
        SUM = 5

    def __init__(self, environment: StreamExecutionEnvironment, transformation: Transformation, key: StreamKey) -> None:
        super().__init__(environment, transformation)
        self._key = key

    @property
    def key(self) -> StreamKey:
        return self._key

    # As in PyFlink: the stream is no operator, and the step before it would get these.

    def uid(self, uid: str) -> Self:
        """Not possible. Raises `InvalidRequestError`."""
        raise _no_operator(f"uid({uid!r})")

    def name(self, name: str) -> Self:
        """Not possible. Raises `InvalidRequestError`."""
        raise _no_operator(f"name({name!r})")

    def get_name(self) -> str:
        """Not possible. Raises `InvalidRequestError`."""
        raise _no_operator("get_name()")

    def set_parallelism(self, parallelism: int) -> Self:
        """Not possible. Raises `InvalidRequestError`."""
        raise _no_operator(f"set_parallelism({parallelism!r})")

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Not possible. Raises `InvalidRequestError`."""
        raise _no_operator(f"set_max_parallelism({max_parallelism!r})")

    def partition_custom(self, partitioner: Any, key_selector: Any) -> DataStream:
        """Not possible: the key says where an element goes. Raises `InvalidRequestError`."""
        del partitioner, key_selector
        raise _no_operator("partition_custom(...)")

    def _hint(self, call: str, reason: str) -> Self:
        del reason
        raise _no_operator(call)

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
            output_type: Type of what it yields. Columns: a `StructType`, or a DDL string such as "tailnum string,
                flights bigint". Or a `TypeInformation`. None: any objects, pickled.
            uid: Names the operator's state for ever: keep it when everything else changes. Required if the output type
                is columns. Otherwise it may also be set with `uid()`; without one, one is made from the operator's
                place in the graph: the kinds of the stateful operators before it.
            name: For people; the uid by default.

        Raises:
            InvalidRequestError: Any of these cannot be right, or the uid is taken.
        """
        return self.add_operator("process", func, output_elements(output_type, uid), uid, name)

    def map(self, func: Any, output_type: Any = None) -> DataStream:
        """One element for each element; a `MapFunction` may keep state."""
        check_function(func, MapFunction, "map")
        return self.add_operator("map", KeyedMap(func), elements_of(output_type))

    def flat_map(self, func: Any, output_type: Any = None) -> DataStream:
        """Any number of elements for each element; a `FlatMapFunction` may keep state."""
        check_function(func, FlatMapFunction, "flat_map")
        return self.add_operator("flat_map", KeyedFlatMap(func), elements_of(output_type))

    def filter(self, func: Any) -> DataStream:
        """The elements for which the function is true; a `FilterFunction` may keep state."""
        check_function(func, FilterFunction, "filter")
        return self.add_operator("filter", KeyedFilter(func), self._transformation.elements)

    def reduce(self, func: ReduceFunction[Any] | Callable[[Any, Any], Any]) -> DataStream:
        """For each element the combination of the key's elements so far, of which one is kept as state."""
        check_function(func, ReduceFunction, "reduce")
        elements = self._transformation.elements
        return self.add_operator("reduce", KeyedReduce(func, elements), elements)

    def window(self, window_assigner: WindowAssigner) -> WindowedStream:
        """Divide each key's elements by time (docs/guide/windows.md). Raises `InvalidRequestError` for no windows."""
        return WindowedStream(self._transformation.elements, self.add_operator, window_assigner, self._environment)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Windows of this many elements of a key, which fire when they are full.

        Args:
            size: Elements of a window.
            slide: Elements from the begin of one to the begin of the next; 0: they follow one another.

        Raises:
            InvalidRequestError: The size is below 1, or the slide below 0.
        """
        assigner = CountSlidingWindowAssigner(size, slide) if slide else CountTumblingWindowAssigner(size)
        return self.window(assigner)

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """For each element the first one with the sum so far at a position.

        Args:
            position_to_sum: Position or name of a field; 0 for elements that have no fields.
        """
        return self._accumulated("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """For each element the first one with the smallest value so far at a position."""
        return self._accumulated("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """For each element the first one with the largest value so far at a position."""
        return self._accumulated("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """For each element the first of those so far with the smallest value at a position."""
        return self._accumulated("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """For each element the first of those so far with the largest value at a position."""
        return self._accumulated("max_by", position_to_max_by)

    def _accumulated(self, kind: Accumulation, position: Any) -> DataStream:
        elements = self._transformation.elements
        function = KeyedReduce(AccumulateFunction(kind, position), elements)
        return self.add_operator("reduce", function, elements)

    def aggregate(
        self,
        aggregations: Mapping[str, Any] | None = None,
        /,
        *,
        uid: str | None = None,
        name: str | None = None,
        **columns: Any,
    ) -> DataStream:
        """Keep aggregates of all rows of each key, and yield those of every key that has rows in a micro-batch.

        An output row has the key columns and a column for each aggregation, typed as by Spark's `groupBy().agg()`.

        Args:
            aggregations: Output column → aggregation, for names that are no Python names, or are `uid` or `name`.
            uid: Required. Names the operator's state for ever; other aggregations are another state, which needs
                another uid.
            name: For people; the uid by default.
            columns: Output column = aggregation: "count" (of rows), `("amount", "sum")`, `("amount", "top", 10)` or an
                `Aggregation`, which names the functions.

        Raises:
            InvalidRequestError: Any of these cannot be right, the uid is taken, or the stream is not keyed by columns.
        """
        node = aggregate_operator(self._transformation, self._key, {**(aggregations or {}), **columns}, uid, name)
        return self.followed_by(node, uid, name)

    @with_spark_keywords(eventTimeColumnName="event_time_column")
    def transform_with_state(
        self,
        stateful_processor: StatefulProcessor,
        output_struct_type: StructType | str,
        output_mode: str = "Append",
        time_mode: str = "None",
        initial_state: GroupedData | None = None,
        event_time_column: str = "",
        *,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Spark's `transformWithState`: a processor that gets all rows of a key in a batch at once.

        See `docs/guide/spark-programs.md`.

        Args:
            stateful_processor: An instance; it is copied (pickled) now.
            output_struct_type: Columns of the Rows that it yields.
            output_mode: "Append" or "Update", which are the same.
            time_mode: "None", "ProcessingTime" or "EventTime".
            initial_state: A grouped DataFrame, which the job's first batch gives to `handleInitialState`.
            event_time_column: Output column with the event time, for the operators that follow.
            uid: Names the operator's state for ever; without one, one is made from the place in the graph.
            name: For people; the uid by default.

        Raises:
            InvalidRequestError: Any of these cannot be right.
        """
        node = processor_operator(
            self._transformation,
            self._key,
            stateful_processor,
            output_struct_type,
            (output_mode, time_mode),
            initial_state=initial_state,
            event_time_column=event_time_column,
            uid=uid,
            name=name,
            in_pandas=False,
        )
        return self.followed_by(node, uid, name)

    @with_spark_keywords(eventTimeColumnName="event_time_column")
    def transform_with_state_in_pandas(
        self,
        stateful_processor: StatefulProcessor,
        output_struct_type: StructType | str,
        output_mode: str = "Append",
        time_mode: str = "None",
        initial_state: GroupedData | None = None,
        event_time_column: str = "",
        *,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Spark's `transformWithStateInPandas`: as `transform_with_state`, with pandas DataFrames in place of Rows."""
        node = processor_operator(
            self._transformation,
            self._key,
            stateful_processor,
            output_struct_type,
            (output_mode, time_mode),
            initial_state=initial_state,
            event_time_column=event_time_column,
            uid=uid,
            name=name,
            in_pandas=True,
        )
        return self.followed_by(node, uid, name)

    @with_spark_keywords(outputStructType="output_struct_type")
    def apply_in_pandas_with_state(
        self,
        func: Callable[..., Any],
        output_struct_type: StructType | str,
        state_struct_type: StructType | str,
        output_mode: str = "Append",
        timeout_conf: str = "NoTimeout",
        *,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Spark's `applyInPandasWithState`: a function of (key, iterator of DataFrames, `GroupState`).

        Args:
            func: Yields DataFrames; it is copied (pickled) now.
            output_struct_type: Their columns.
            state_struct_type: Columns of the group's state.
            output_mode: "Append" or "Update", which are the same.
            timeout_conf: One of `GroupStateTimeout`.
            uid: As in `transform_with_state`.
            name: For people; the uid by default.

        Raises:
            InvalidRequestError: Any of these cannot be right.
        """
        node = group_state_operator(
            self._transformation,
            self._key,
            func,
            (output_struct_type, state_struct_type),
            (output_mode, timeout_conf),
            uid=uid,
            name=name,
        )
        return self.followed_by(node, uid, name)

    def add_operator(
        self,
        kind: str,
        func: Any,
        elements: ElementType,
        uid: str | None = None,
        name: str | None = None,
        late_output: str | None = None,
    ) -> DataStream:
        """Add a stateful operator with a function of these elements; the methods above and windows do.

        Raises:
            InvalidRequestError: Any of these cannot be right, or the uid is taken.
        """
        node = keyed_operator(
            self._transformation, self._key, kind, func, elements, uid=uid, name=name, late_output=late_output
        )
        return self.followed_by(node, uid, name)


def _no_operator(call: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{call} is not possible on a KeyedStream, which is no operator; call it on the stream that process, map, "
        "reduce or another operator returns"
    )
