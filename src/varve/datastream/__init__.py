"""`pyflink.datastream`'s names that varve has; see docs/pyflink.md."""

from varve.changelog.functions import AggregateFunction, Function, ReduceFunction
from varve.spark_integration.broadcast_functions import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from varve.spark_integration.broadcast_streams import BroadcastConnectedStream, BroadcastStream
from varve.spark_integration.checkpoint_config import (
    CheckpointConfig,
    CheckpointingMode,
    ExternalizedCheckpointRetention,
)
from varve.spark_integration.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from varve.spark_integration.checkpointed_function import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from varve.spark_integration.co_functions import CoFlatMapFunction, CoMapFunction, KeyedCoProcessFunction
from varve.spark_integration.configuration import RuntimeExecutionMode
from varve.spark_integration.connected_streams import ConnectedStreams
from varve.spark_integration.deprecated_backends import FsStateBackend, MemoryStateBackend, RocksDBStateBackend
from varve.spark_integration.environment import StreamExecutionEnvironment
from varve.spark_integration.functions import KeyedProcessFunction, RuntimeContext
from varve.spark_integration.output_tag import OutputTag
from varve.spark_integration.predefined_options import PredefinedOptions
from varve.spark_integration.state_backends import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    StateBackend,
)
from varve.spark_integration.stream_functions import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
)
from varve.spark_integration.stream_sink import DataStreamSink
from varve.spark_integration.streams import DataStream, KeyedStream
from varve.spark_integration.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from varve.spark_integration.windowed_stream import AllWindowedStream, WindowedStream

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AllWindowedStream",
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
    "ConnectedStreams",
    "CustomStateBackend",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatMapFunction",
    "FsStateBackend",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "HashMapStateBackend",
    "JobManagerCheckpointStorage",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "MemoryStateBackend",
    "OutputTag",
    "PredefinedOptions",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RocksDBStateBackend",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "StateBackend",
    "StreamExecutionEnvironment",
    "WindowFunction",
    "WindowedStream",
]
