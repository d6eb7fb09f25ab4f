"""`pyflink.datastream.data_stream`'s names."""

from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from varvite.changelog.api.functions import AggregateFunction, Function, ReduceFunction
from varvite.changelog.api.state import ReducingState
from varvite.changelog.row import Row
from varvite.changelog.types.contract import TypeInformation
from varvite.changelog.types.factory import Types
from varvite.datastream.connectors.base import Sink
from varvite.datastream.functions import SinkFunction
from varvite.datastream.window import MergingWindowAssigner
from varvite.spark_integration.api.broadcast import BroadcastConnectedStream, BroadcastStream
from varvite.spark_integration.api.connected import ConnectedStreams
from varvite.spark_integration.api.data_stream_sink import DataStreamSink
from varvite.spark_integration.api.stream import CachedDataStream, DataStream, KeyedStream
from varvite.spark_integration.api.windowed import AllWindowedStream, WindowedStream
from varvite.spark_integration.connectors.driver_sinks.element_sinks import CloseableIterator
from varvite.spark_integration.elements.flink_types import RowTypeInfo
from varvite.spark_integration.functions.broadcast import BroadcastProcessFunction, KeyedBroadcastProcessFunction
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
from varvite.spark_integration.functions.watermark_strategy import TimestampAssigner, WatermarkStrategy
from varvite.spark_integration.functions.window import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from varvite.spark_integration.operators.windows.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    WindowAssigner,
)
from varvite.spark_integration.operators.windows.trigger import Trigger
from varvite.spark_integration.options.execution_config import ExecutionConfig
from varvite.spark_integration.options.flink_values import SlotSharingGroup

__all__ = [
    "AggregateFunction",
    "AggregatingStateDescriptor",
    "AllWindowFunction",
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "CountSlidingWindowAssigner",
    "CountTumblingWindowAssigner",
    "DataStream",
    "DataStreamSink",
    "ExecutionConfig",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListStateDescriptor",
    "MapFunction",
    "MapStateDescriptor",
    "MergingWindowAssigner",
    "OutputTag",
    "Partitioner",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "Row",
    "RowTypeInfo",
    "RuntimeContext",
    "Sink",
    "SinkFunction",
    "SlotSharingGroup",
    "StateDescriptor",
    "TimestampAssigner",
    "Trigger",
    "TypeInformation",
    "Types",
    "WatermarkStrategy",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
]
