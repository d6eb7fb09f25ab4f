"""`pyflink.datastream.functions`' names; what cannot be used says so when it is used."""

from typing import Any

from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.api.functions import AggregateFunction, Function, ReduceFunction
from varvite.changelog.api.operator_state import BroadcastState, ReadOnlyBroadcastState
from varvite.changelog.api.state import AggregatingState, ListState, MapState, ReducingState, ValueState
from varvite.changelog.keyed.timers import TimeDomain
from varvite.spark_integration.functions.async_io import AsyncFunction, AsyncRetryPredicate, AsyncRetryStrategy
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
    IN1,
    IN2,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
)
from varvite.spark_integration.functions.keyed import KeyedProcessFunction, KeyedStateStore, RuntimeContext
from varvite.spark_integration.functions.metrics import MetricGroup
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
    IN,
    KEY,
    OUT,
    W2,
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    W,
    WindowFunction,
)
from varvite.spark_integration.options.absent import READ_WITH_SPARK, WRITE_WITH_SPARK, absent

__all__ = [
    "IN",
    "IN1",
    "IN2",
    "KEY",
    "OUT",
    "W2",
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AllWindowFunction",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "BroadcastState",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "ListState",
    "ListStateDescriptor",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "MetricGroup",
    "Partitioner",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ReadOnlyBroadcastState",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "RuntimeContext",
    "SinkFunction",
    "SourceFunction",
    "TimeDomain",
    "TimerService",
    "ValueState",
    "ValueStateDescriptor",
    "W",
    "WindowFunction",
]

SinkFunction: Any = absent("SinkFunction", WRITE_WITH_SPARK)
SourceFunction: Any = absent("SourceFunction", READ_WITH_SPARK)
