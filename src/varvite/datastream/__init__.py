"""`pyflink.datastream`'s names, where its users look for them (docs/guide/pyflink.md); no code.

| module | owns |
|---|---|
| `async_data_stream` | `AsyncDataStream` |
| `async_retry_predicates` | predicates for it |
| `async_retry_strategies` | strategies for it |
| `checkpoint_config` | settings of checkpoints |
| `checkpoint_storage` | checkpoint storages |
| `checkpointing_mode` | `CheckpointingMode` |
| `connectors` | sources and sinks |
| `data_stream` | streams |
| `execution_mode` | `RuntimeExecutionMode` |
| `externalized_checkpoint_retention` | `ExternalizedCheckpointRetention` |
| `formats` | formats of records |
| `functions` | functions and their contexts |
| `output_tag` | `OutputTag` |
| `slot_sharing_group` | `SlotSharingGroup` |
| `state` | states and their descriptors |
| `state_backend` | state backends |
| `stream_execution_environment` | `StreamExecutionEnvironment` |
| `time_characteristic` | `TimeCharacteristic` of Flink 1 |
| `time_domain` | `TimeDomain` |
| `timerservice` | `TimerService` |
| `utils` | `ResultTypeQueryable` |
| `window` | windows and triggers |
"""

from varvite.changelog.api.functions import AggregateFunction, Function, ReduceFunction
from varvite.changelog.keyed.timers import TimeDomain
from varvite.changelog.working_stores.rocksdb.settings.predefined import PredefinedOptions
from varvite.datastream.async_data_stream import AsyncDataStream
from varvite.datastream.functions import (
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    SinkFunction,
    SourceFunction,
)
from varvite.datastream.window import MergingWindowAssigner
from varvite.spark_integration.api.broadcast import BroadcastConnectedStream, BroadcastStream
from varvite.spark_integration.api.connected import ConnectedStreams
from varvite.spark_integration.api.data_stream_sink import DataStreamSink
from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.api.stream import DataStream, KeyedStream
from varvite.spark_integration.api.windowed import AllWindowedStream, WindowedStream
from varvite.spark_integration.functions.broadcast import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
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
from varvite.spark_integration.functions.keyed import KeyedProcessFunction, RuntimeContext
from varvite.spark_integration.functions.output_tag import OutputTag
from varvite.spark_integration.functions.stateless import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
)
from varvite.spark_integration.functions.timers import TimerService
from varvite.spark_integration.functions.window import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from varvite.spark_integration.operators.windows.assigners import (
    CountWindow,
    GlobalWindow,
    TimeWindow,
    Window,
    WindowAssigner,
)
from varvite.spark_integration.operators.windows.trigger import Trigger, TriggerResult
from varvite.spark_integration.options.checkpoint_config import (
    CheckpointConfig,
    CheckpointingMode,
    ExternalizedCheckpointRetention,
)
from varvite.spark_integration.options.checkpoint_config import (
    ExternalizedCheckpointRetention as ExternalizedCheckpointCleanup,
)
from varvite.spark_integration.options.checkpoint_storage import (
    CheckpointStorage,
    CustomCheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from varvite.spark_integration.options.configuration import RuntimeExecutionMode
from varvite.spark_integration.options.flink_values import MemorySize, SlotSharingGroup, TimeCharacteristic
from varvite.spark_integration.options.state_backends import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    MemoryStateBackend,
    RocksDBStateBackend,
    StateBackend,
)

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AllWindowedStream",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CheckpointConfig",
    "CheckpointStorage",
    "CheckpointedFunction",
    "CheckpointingMode",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "CountWindow",
    "CustomCheckpointStorage",
    "CustomStateBackend",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatMapFunction",
    "FsStateBackend",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "GlobalWindow",
    "HashMapStateBackend",
    "JobManagerCheckpointStorage",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "MemorySize",
    "MemoryStateBackend",
    "MergingWindowAssigner",
    "OutputTag",
    "Partitioner",
    "PredefinedOptions",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RocksDBStateBackend",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SinkFunction",
    "SlotSharingGroup",
    "SourceFunction",
    "StateBackend",
    "StreamExecutionEnvironment",
    "TimeCharacteristic",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "Trigger",
    "TriggerResult",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
]
