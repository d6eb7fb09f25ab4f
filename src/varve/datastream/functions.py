"""`pyflink.datastream.functions`' names that varve has."""

from varve.changelog.functions import AggregateFunction, Function, ReduceFunction
from varve.spark_integration.co_functions import CoFlatMapFunction, CoMapFunction, KeyedCoProcessFunction
from varve.spark_integration.functions import KeyedProcessFunction, KeyedStateStore, RuntimeContext
from varve.spark_integration.stream_functions import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
)
from varve.spark_integration.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "CoFlatMapFunction",
    "CoMapFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "KeySelector",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "MapFunction",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "WindowFunction",
]
