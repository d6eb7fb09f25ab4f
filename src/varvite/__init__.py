"""varvite: keyed state with an append-only changelog for PySpark Structured Streaming.

The public names of the library; everything else is imported by its full name, such as `varvite.storage.errors`. Names
are loaded when they are first used, so that a process that needs no Spark, such as the materializer, loads none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from varvite.changelog.api.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
    )
    from varvite.changelog.api.functions import AggregateFunction, ReduceFunction
    from varvite.changelog.api.operator_state import BroadcastState, OperatorStateStore, ReadOnlyBroadcastState
    from varvite.changelog.api.state import (
        AggregatingState,
        AppendingState,
        ListState,
        MapState,
        MergingState,
        ReducingState,
        ValueState,
    )
    from varvite.changelog.api.time_spans import Duration, Time
    from varvite.changelog.api.ttl_config import StateTtlConfig
    from varvite.changelog.keyed.timers import TimeDomain
    from varvite.changelog.reading.reader import open_state
    from varvite.changelog.row import Row
    from varvite.changelog.types.contract import TypeInformation
    from varvite.changelog.types.factory import Types
    from varvite.changelog.working_stores.rocksdb.settings.predefined import PredefinedOptions
    from varvite.changelog.working_stores.table_store import StoreTarget, TableStore
    from varvite.spark_integration.api.async_data_stream import AsyncDataStream
    from varvite.spark_integration.api.environment import StreamExecutionEnvironment
    from varvite.spark_integration.api.job_client import JobExecutionResult
    from varvite.spark_integration.api.stream import DataStream, KeyedStream
    from varvite.spark_integration.connectors.kafka.sink import KafkaSink
    from varvite.spark_integration.connectors.sink import Sink
    from varvite.spark_integration.connectors.state_table.data_sources import register_data_sources
    from varvite.spark_integration.connectors.tables.delta_sink import DeltaSink
    from varvite.spark_integration.connectors.tables.iceberg_sink import IcebergSink
    from varvite.spark_integration.connectors.tables.postgres_sink import PostgresSink
    from varvite.spark_integration.functions.async_io import AsyncFunction, AsyncRetryPredicate, AsyncRetryStrategy
    from varvite.spark_integration.functions.broadcast import BroadcastProcessFunction, KeyedBroadcastProcessFunction
    from varvite.spark_integration.functions.checkpointed import (
        CheckpointedFunction,
        FunctionInitializationContext,
        FunctionSnapshotContext,
    )
    from varvite.spark_integration.functions.connected import (
        CoFlatMapFunction,
        CoMapFunction,
        CoProcessFunction,
        KeyedCoProcessFunction,
    )
    from varvite.spark_integration.functions.keyed import KeyedProcessFunction, KeyedStateStore, RuntimeContext
    from varvite.spark_integration.functions.output_tag import OutputTag
    from varvite.spark_integration.functions.stateless import (
        FilterFunction,
        FlatMapFunction,
        KeySelector,
        MapFunction,
        ProcessFunction,
    )
    from varvite.spark_integration.functions.timers import TimerService
    from varvite.spark_integration.functions.vectorized import VectorizedProcessFunction
    from varvite.spark_integration.functions.watermark_strategy import TimestampAssigner, WatermarkStrategy
    from varvite.spark_integration.functions.window import (
        AllWindowFunction,
        ProcessAllWindowFunction,
        ProcessWindowFunction,
        WindowFunction,
    )
    from varvite.spark_integration.operators.aggregation.aggregations import Aggregation
    from varvite.spark_integration.operators.windows.assigners import (
        CountSlidingWindowAssigner,
        CountTumblingWindowAssigner,
        CountWindow,
        DynamicEventTimeSessionWindows,
        DynamicProcessingTimeSessionWindows,
        EventTimeSessionWindows,
        GlobalWindow,
        GlobalWindows,
        ProcessingTimeSessionWindows,
        SessionWindowTimeGapExtractor,
        SlidingEventTimeWindows,
        SlidingProcessingTimeWindows,
        TimeWindow,
        TumblingEventTimeWindows,
        TumblingProcessingTimeWindows,
        Window,
        WindowAssigner,
    )
    from varvite.spark_integration.operators.windows.builtin_triggers import (
        ContinuousEventTimeTrigger,
        ContinuousProcessingTimeTrigger,
        CountTrigger,
        EventTimeTrigger,
        NeverTrigger,
        ProcessingTimeTrigger,
        PurgingTrigger,
    )
    from varvite.spark_integration.operators.windows.trigger import Trigger, TriggerResult
    from varvite.spark_integration.options.checkpoint_config import (
        CheckpointConfig,
        CheckpointingMode,
        ExternalizedCheckpointRetention,
    )
    from varvite.spark_integration.options.checkpoint_storage import (
        CheckpointStorage,
        FileSystemCheckpointStorage,
        JobManagerCheckpointStorage,
    )
    from varvite.spark_integration.options.configuration import Configuration, RuntimeExecutionMode
    from varvite.spark_integration.options.state_backends import (
        CustomStateBackend,
        EmbeddedRocksDBStateBackend,
        FsStateBackend,
        HashMapStateBackend,
        MemoryStateBackend,
        RocksDBStateBackend,
        StateBackend,
    )
    from varvite.storage.errors import VarviteError

__version__ = "0.1.0"

_MODULE_OF: Final = {
    "AggregateFunction": "varvite.changelog.api.functions",
    "AggregatingState": "varvite.changelog.api.state",
    "AggregatingStateDescriptor": "varvite.changelog.api.descriptors",
    "Aggregation": "varvite.spark_integration.operators.aggregation.aggregations",
    "AllWindowFunction": "varvite.spark_integration.functions.window",
    "AppendingState": "varvite.changelog.api.state",
    "AsyncDataStream": "varvite.spark_integration.api.async_data_stream",
    "AsyncFunction": "varvite.spark_integration.functions.async_io",
    "AsyncRetryPredicate": "varvite.spark_integration.functions.async_io",
    "AsyncRetryStrategy": "varvite.spark_integration.functions.async_io",
    "BroadcastProcessFunction": "varvite.spark_integration.functions.broadcast",
    "BroadcastState": "varvite.changelog.api.operator_state",
    "CheckpointConfig": "varvite.spark_integration.options.checkpoint_config",
    "CheckpointStorage": "varvite.spark_integration.options.checkpoint_storage",
    "CheckpointedFunction": "varvite.spark_integration.functions.checkpointed",
    "CheckpointingMode": "varvite.spark_integration.options.checkpoint_config",
    "CoFlatMapFunction": "varvite.spark_integration.functions.connected",
    "CoMapFunction": "varvite.spark_integration.functions.connected",
    "CoProcessFunction": "varvite.spark_integration.functions.connected",
    "Configuration": "varvite.spark_integration.options.configuration",
    "ContinuousEventTimeTrigger": "varvite.spark_integration.operators.windows.builtin_triggers",
    "ContinuousProcessingTimeTrigger": "varvite.spark_integration.operators.windows.builtin_triggers",
    "CountSlidingWindowAssigner": "varvite.spark_integration.operators.windows.assigners",
    "CountTrigger": "varvite.spark_integration.operators.windows.builtin_triggers",
    "CountTumblingWindowAssigner": "varvite.spark_integration.operators.windows.assigners",
    "CountWindow": "varvite.spark_integration.operators.windows.assigners",
    "CustomStateBackend": "varvite.spark_integration.options.state_backends",
    "DataStream": "varvite.spark_integration.api.stream",
    "DeltaSink": "varvite.spark_integration.connectors.tables.delta_sink",
    "Duration": "varvite.changelog.api.time_spans",
    "DynamicEventTimeSessionWindows": "varvite.spark_integration.operators.windows.assigners",
    "DynamicProcessingTimeSessionWindows": "varvite.spark_integration.operators.windows.assigners",
    "EmbeddedRocksDBStateBackend": "varvite.spark_integration.options.state_backends",
    "EventTimeSessionWindows": "varvite.spark_integration.operators.windows.assigners",
    "EventTimeTrigger": "varvite.spark_integration.operators.windows.builtin_triggers",
    "ExternalizedCheckpointRetention": "varvite.spark_integration.options.checkpoint_config",
    "FileSystemCheckpointStorage": "varvite.spark_integration.options.checkpoint_storage",
    "FilterFunction": "varvite.spark_integration.functions.stateless",
    "FlatMapFunction": "varvite.spark_integration.functions.stateless",
    "FsStateBackend": "varvite.spark_integration.options.state_backends",
    "FunctionInitializationContext": "varvite.spark_integration.functions.checkpointed",
    "FunctionSnapshotContext": "varvite.spark_integration.functions.checkpointed",
    "GlobalWindow": "varvite.spark_integration.operators.windows.assigners",
    "GlobalWindows": "varvite.spark_integration.operators.windows.assigners",
    "HashMapStateBackend": "varvite.spark_integration.options.state_backends",
    "IcebergSink": "varvite.spark_integration.connectors.tables.iceberg_sink",
    "JobExecutionResult": "varvite.spark_integration.api.job_client",
    "JobManagerCheckpointStorage": "varvite.spark_integration.options.checkpoint_storage",
    "KafkaSink": "varvite.spark_integration.connectors.kafka.sink",
    "KeySelector": "varvite.spark_integration.functions.stateless",
    "KeyedBroadcastProcessFunction": "varvite.spark_integration.functions.broadcast",
    "KeyedCoProcessFunction": "varvite.spark_integration.functions.connected",
    "KeyedProcessFunction": "varvite.spark_integration.functions.keyed",
    "KeyedStateStore": "varvite.spark_integration.functions.keyed",
    "KeyedStream": "varvite.spark_integration.api.stream",
    "ListState": "varvite.changelog.api.state",
    "ListStateDescriptor": "varvite.changelog.api.descriptors",
    "MapFunction": "varvite.spark_integration.functions.stateless",
    "MapState": "varvite.changelog.api.state",
    "MapStateDescriptor": "varvite.changelog.api.descriptors",
    "MemoryStateBackend": "varvite.spark_integration.options.state_backends",
    "MergingState": "varvite.changelog.api.state",
    "NeverTrigger": "varvite.spark_integration.operators.windows.builtin_triggers",
    "OperatorStateStore": "varvite.changelog.api.operator_state",
    "OutputTag": "varvite.spark_integration.functions.output_tag",
    "PostgresSink": "varvite.spark_integration.connectors.tables.postgres_sink",
    "PredefinedOptions": "varvite.changelog.working_stores.rocksdb.settings.predefined",
    "ProcessAllWindowFunction": "varvite.spark_integration.functions.window",
    "ProcessFunction": "varvite.spark_integration.functions.stateless",
    "ProcessWindowFunction": "varvite.spark_integration.functions.window",
    "ProcessingTimeSessionWindows": "varvite.spark_integration.operators.windows.assigners",
    "ProcessingTimeTrigger": "varvite.spark_integration.operators.windows.builtin_triggers",
    "PurgingTrigger": "varvite.spark_integration.operators.windows.builtin_triggers",
    "ReadOnlyBroadcastState": "varvite.changelog.api.operator_state",
    "ReduceFunction": "varvite.changelog.api.functions",
    "ReducingState": "varvite.changelog.api.state",
    "ReducingStateDescriptor": "varvite.changelog.api.descriptors",
    "RocksDBStateBackend": "varvite.spark_integration.options.state_backends",
    "Row": "varvite.changelog.row",
    "RuntimeContext": "varvite.spark_integration.functions.keyed",
    "RuntimeExecutionMode": "varvite.spark_integration.options.configuration",
    "SessionWindowTimeGapExtractor": "varvite.spark_integration.operators.windows.assigners",
    "Sink": "varvite.spark_integration.connectors.sink",
    "SlidingEventTimeWindows": "varvite.spark_integration.operators.windows.assigners",
    "SlidingProcessingTimeWindows": "varvite.spark_integration.operators.windows.assigners",
    "StateBackend": "varvite.spark_integration.options.state_backends",
    "StateTtlConfig": "varvite.changelog.api.ttl_config",
    "StoreTarget": "varvite.changelog.working_stores.table_store",
    "StreamExecutionEnvironment": "varvite.spark_integration.api.environment",
    "TableStore": "varvite.changelog.working_stores.table_store",
    "Time": "varvite.changelog.api.time_spans",
    "TimeDomain": "varvite.changelog.keyed.timers",
    "TimeWindow": "varvite.spark_integration.operators.windows.assigners",
    "TimerService": "varvite.spark_integration.functions.timers",
    "TimestampAssigner": "varvite.spark_integration.functions.watermark_strategy",
    "Trigger": "varvite.spark_integration.operators.windows.trigger",
    "TriggerResult": "varvite.spark_integration.operators.windows.trigger",
    "TumblingEventTimeWindows": "varvite.spark_integration.operators.windows.assigners",
    "TumblingProcessingTimeWindows": "varvite.spark_integration.operators.windows.assigners",
    "TypeInformation": "varvite.changelog.types.contract",
    "Types": "varvite.changelog.types.factory",
    "ValueState": "varvite.changelog.api.state",
    "ValueStateDescriptor": "varvite.changelog.api.descriptors",
    "VarviteError": "varvite.storage.errors",
    "VectorizedProcessFunction": "varvite.spark_integration.functions.vectorized",
    "WatermarkStrategy": "varvite.spark_integration.functions.watermark_strategy",
    "Window": "varvite.spark_integration.operators.windows.assigners",
    "WindowAssigner": "varvite.spark_integration.operators.windows.assigners",
    "WindowFunction": "varvite.spark_integration.functions.window",
    "open_state": "varvite.changelog.reading.reader",
    "register_data_sources": "varvite.spark_integration.connectors.state_table.data_sources",
}

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "Aggregation",
    "AllWindowFunction",
    "AppendingState",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BroadcastProcessFunction",
    "BroadcastState",
    "CheckpointConfig",
    "CheckpointStorage",
    "CheckpointedFunction",
    "CheckpointingMode",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "Configuration",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountSlidingWindowAssigner",
    "CountTrigger",
    "CountTumblingWindowAssigner",
    "CountWindow",
    "CustomStateBackend",
    "DataStream",
    "DeltaSink",
    "Duration",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EmbeddedRocksDBStateBackend",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatMapFunction",
    "FsStateBackend",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "GlobalWindow",
    "GlobalWindows",
    "HashMapStateBackend",
    "IcebergSink",
    "JobExecutionResult",
    "JobManagerCheckpointStorage",
    "KafkaSink",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "KeyedStream",
    "ListState",
    "ListStateDescriptor",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "MemoryStateBackend",
    "MergingState",
    "NeverTrigger",
    "OperatorStateStore",
    "OutputTag",
    "PostgresSink",
    "PredefinedOptions",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "ReadOnlyBroadcastState",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "RocksDBStateBackend",
    "Row",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SessionWindowTimeGapExtractor",
    "Sink",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "StateBackend",
    "StateTtlConfig",
    "StoreTarget",
    "StreamExecutionEnvironment",
    "TableStore",
    "Time",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "TimestampAssigner",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "TypeInformation",
    "Types",
    "ValueState",
    "ValueStateDescriptor",
    "VarviteError",
    "VectorizedProcessFunction",
    "WatermarkStrategy",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "__version__",
    "open_state",
    "register_data_sources",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_hint(name)}", name=name)
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def _hint(name: str) -> str:
    """The nearest public name; empty if none is like this one, or if Python itself asks."""
    if name.startswith("_"):
        return ""
    from difflib import get_close_matches

    close = get_close_matches(name, __all__, 1)
    return f"; did you mean {close[0]!r}?" if close else "; docs/guide/pyflink.md lists what there is"


def __dir__() -> list[str]:
    return sorted(__all__)
