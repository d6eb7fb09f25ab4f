"""varve: keyed state with an append-only changelog for PySpark Structured Streaming.

The public names of the library; everything else is imported by its full name, such as `varve.storage.errors`. Names
are loaded when they are first used, so that a process that needs no Spark, such as the materializer, loads none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from varve.changelog.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
    )
    from varve.changelog.functions import AggregateFunction, ReduceFunction
    from varve.changelog.operator_state import BroadcastState, OperatorStateStore, ReadOnlyBroadcastState
    from varve.changelog.row import Row
    from varve.changelog.state import AggregatingState, ListState, MapState, ReducingState, ValueState
    from varve.changelog.state_reader import open_state
    from varve.changelog.table_store import StoreTarget, TableStore
    from varve.changelog.timer_state import TimeDomain
    from varve.changelog.ttl_config import StateTtlConfig, Time
    from varve.changelog.types import Types
    from varve.spark_integration.aggregations import Aggregation
    from varve.spark_integration.broadcast_functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
    from varve.spark_integration.checkpoint_config import (
        CheckpointConfig,
        CheckpointingMode,
        ExternalizedCheckpointRetention,
    )
    from varve.spark_integration.checkpoint_storage import FileSystemCheckpointStorage, JobManagerCheckpointStorage
    from varve.spark_integration.checkpointed_function import (
        CheckpointedFunction,
        FunctionInitializationContext,
        FunctionSnapshotContext,
    )
    from varve.spark_integration.data_sources import register_data_sources
    from varve.spark_integration.deprecated_backends import FsStateBackend, MemoryStateBackend, RocksDBStateBackend
    from varve.spark_integration.environment import StreamExecutionEnvironment
    from varve.spark_integration.functions import KeyedProcessFunction, RuntimeContext
    from varve.spark_integration.predefined_options import PredefinedOptions
    from varve.spark_integration.sinks import Sink
    from varve.spark_integration.state_backends import (
        CustomStateBackend,
        EmbeddedRocksDBStateBackend,
        HashMapStateBackend,
    )
    from varve.spark_integration.timer_service import TimerService
    from varve.spark_integration.vectorized_functions import VectorizedProcessFunction
    from varve.storage.errors import VarveError

__version__ = "0.1.0"

_MODULE_OF: Final = {
    "AggregateFunction": "varve.changelog.functions",
    "AggregatingState": "varve.changelog.state",
    "AggregatingStateDescriptor": "varve.changelog.descriptors",
    "Aggregation": "varve.spark_integration.aggregations",
    "BroadcastProcessFunction": "varve.spark_integration.broadcast_functions",
    "BroadcastState": "varve.changelog.operator_state",
    "CheckpointConfig": "varve.spark_integration.checkpoint_config",
    "CheckpointedFunction": "varve.spark_integration.checkpointed_function",
    "CheckpointingMode": "varve.spark_integration.checkpoint_config",
    "CustomStateBackend": "varve.spark_integration.state_backends",
    "EmbeddedRocksDBStateBackend": "varve.spark_integration.state_backends",
    "ExternalizedCheckpointRetention": "varve.spark_integration.checkpoint_config",
    "FileSystemCheckpointStorage": "varve.spark_integration.checkpoint_storage",
    "FsStateBackend": "varve.spark_integration.deprecated_backends",
    "FunctionInitializationContext": "varve.spark_integration.checkpointed_function",
    "FunctionSnapshotContext": "varve.spark_integration.checkpointed_function",
    "HashMapStateBackend": "varve.spark_integration.state_backends",
    "JobManagerCheckpointStorage": "varve.spark_integration.checkpoint_storage",
    "KeyedBroadcastProcessFunction": "varve.spark_integration.broadcast_functions",
    "KeyedProcessFunction": "varve.spark_integration.functions",
    "ListState": "varve.changelog.state",
    "ListStateDescriptor": "varve.changelog.descriptors",
    "MapState": "varve.changelog.state",
    "MapStateDescriptor": "varve.changelog.descriptors",
    "MemoryStateBackend": "varve.spark_integration.deprecated_backends",
    "OperatorStateStore": "varve.changelog.operator_state",
    "PredefinedOptions": "varve.spark_integration.predefined_options",
    "ReadOnlyBroadcastState": "varve.changelog.operator_state",
    "ReduceFunction": "varve.changelog.functions",
    "ReducingState": "varve.changelog.state",
    "ReducingStateDescriptor": "varve.changelog.descriptors",
    "RocksDBStateBackend": "varve.spark_integration.deprecated_backends",
    "Row": "varve.changelog.row",
    "RuntimeContext": "varve.spark_integration.functions",
    "Sink": "varve.spark_integration.sinks",
    "StoreTarget": "varve.changelog.table_store",
    "StateTtlConfig": "varve.changelog.ttl_config",
    "StreamExecutionEnvironment": "varve.spark_integration.environment",
    "TableStore": "varve.changelog.table_store",
    "TimeDomain": "varve.changelog.timer_state",
    "TimerService": "varve.spark_integration.timer_service",
    "Time": "varve.changelog.ttl_config",
    "Types": "varve.changelog.types",
    "ValueState": "varve.changelog.state",
    "ValueStateDescriptor": "varve.changelog.descriptors",
    "VarveError": "varve.storage.errors",
    "VectorizedProcessFunction": "varve.spark_integration.vectorized_functions",
    "open_state": "varve.changelog.state_reader",
    "register_data_sources": "varve.spark_integration.data_sources",
}

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "Aggregation",
    "BroadcastProcessFunction",
    "BroadcastState",
    "CheckpointConfig",
    "CheckpointedFunction",
    "CheckpointingMode",
    "CustomStateBackend",
    "EmbeddedRocksDBStateBackend",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FsStateBackend",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "HashMapStateBackend",
    "JobManagerCheckpointStorage",
    "KeyedBroadcastProcessFunction",
    "KeyedProcessFunction",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MemoryStateBackend",
    "OperatorStateStore",
    "PredefinedOptions",
    "ReadOnlyBroadcastState",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "RocksDBStateBackend",
    "Row",
    "RuntimeContext",
    "Sink",
    "StateTtlConfig",
    "StoreTarget",
    "StreamExecutionEnvironment",
    "TableStore",
    "Time",
    "TimeDomain",
    "TimerService",
    "Types",
    "ValueState",
    "ValueStateDescriptor",
    "VarveError",
    "VectorizedProcessFunction",
    "__version__",
    "open_state",
    "register_data_sources",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
