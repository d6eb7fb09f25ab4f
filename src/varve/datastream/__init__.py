"""`pyflink.datastream`'s names that varve has; see docs/pyflink.md."""

from varve.changelog.functions import AggregateFunction, Function, ReduceFunction
from varve.spark_integration.checkpoint_config import CheckpointConfig, FileSystemCheckpointStorage
from varve.spark_integration.co_functions import CoFlatMapFunction, CoMapFunction, KeyedCoProcessFunction
from varve.spark_integration.configuration import RuntimeExecutionMode
from varve.spark_integration.connected_streams import ConnectedStreams
from varve.spark_integration.environment import StreamExecutionEnvironment
from varve.spark_integration.functions import KeyedProcessFunction, RuntimeContext
from varve.spark_integration.output_tag import OutputTag
from varve.spark_integration.state_backends import EmbeddedRocksDBStateBackend, HashMapStateBackend, StateBackend
from varve.spark_integration.stream_functions import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
)
from varve.spark_integration.stream_sink import DataStreamSink
from varve.spark_integration.streams import DataStream, KeyedStream

__all__ = [
    "AggregateFunction",
    "CheckpointConfig",
    "CoFlatMapFunction",
    "CoMapFunction",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "HashMapStateBackend",
    "KeySelector",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "OutputTag",
    "ProcessFunction",
    "ReduceFunction",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "StateBackend",
    "StreamExecutionEnvironment",
]
