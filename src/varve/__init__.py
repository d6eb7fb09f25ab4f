"""varve: keyed state with an append-only changelog for PySpark Structured Streaming.

The public names of the library; everything else is imported by its full name, such as `varve.storage.errors`. Names
are loaded when they are first used, so that a process that needs no Spark, such as the materializer, loads none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from varve.changelog.api.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
    )
    from varve.changelog.api.functions import AggregateFunction, ReduceFunction
    from varve.changelog.api.operator_state import BroadcastState, OperatorStateStore, ReadOnlyBroadcastState
    from varve.changelog.api.state import AggregatingState, ListState, MapState, ReducingState, ValueState
    from varve.changelog.api.ttl_config import StateTtlConfig, Time
    from varve.changelog.keyed.timers import TimeDomain
    from varve.changelog.reading.reader import open_state
    from varve.changelog.row import Row
    from varve.changelog.types.factory import Types
    from varve.changelog.working_stores.table_store import StoreTarget, TableStore
    from varve.spark_integration.api.environment import StreamExecutionEnvironment
    from varve.spark_integration.connectors.sink import Sink
    from varve.spark_integration.connectors.state_table.data_sources import register_data_sources
    from varve.spark_integration.functions.broadcast import BroadcastProcessFunction, KeyedBroadcastProcessFunction
    from varve.spark_integration.functions.checkpointed import (
        CheckpointedFunction,
        FunctionInitializationContext,
        FunctionSnapshotContext,
    )
    from varve.spark_integration.functions.keyed import KeyedProcessFunction, RuntimeContext
    from varve.spark_integration.functions.timers import TimerService
    from varve.spark_integration.functions.vectorized import VectorizedProcessFunction
    from varve.spark_integration.operators.aggregation.aggregations import Aggregation
    from varve.spark_integration.options.checkpoint_config import (
        CheckpointConfig,
        CheckpointingMode,
        ExternalizedCheckpointRetention,
    )
    from varve.spark_integration.options.checkpoint_storage import (
        FileSystemCheckpointStorage,
        JobManagerCheckpointStorage,
    )
    from varve.spark_integration.options.predefined_options import PredefinedOptions
    from varve.spark_integration.options.state_backends import (
        CustomStateBackend,
        EmbeddedRocksDBStateBackend,
        FsStateBackend,
        HashMapStateBackend,
        MemoryStateBackend,
        RocksDBStateBackend,
    )
    from varve.storage.errors import VarveError

__version__ = "0.1.0"

_MODULE_OF: Final = {
    "AggregateFunction": "varve.changelog.api.functions",
    "AggregatingState": "varve.changelog.api.state",
    "AggregatingStateDescriptor": "varve.changelog.api.descriptors",
    "Aggregation": "varve.spark_integration.operators.aggregation.aggregations",
    "BroadcastProcessFunction": "varve.spark_integration.functions.broadcast",
    "BroadcastState": "varve.changelog.api.operator_state",
    "CheckpointConfig": "varve.spark_integration.options.checkpoint_config",
    "CheckpointedFunction": "varve.spark_integration.functions.checkpointed",
    "CheckpointingMode": "varve.spark_integration.options.checkpoint_config",
    "CustomStateBackend": "varve.spark_integration.options.state_backends",
    "EmbeddedRocksDBStateBackend": "varve.spark_integration.options.state_backends",
    "ExternalizedCheckpointRetention": "varve.spark_integration.options.checkpoint_config",
    "FileSystemCheckpointStorage": "varve.spark_integration.options.checkpoint_storage",
    "FsStateBackend": "varve.spark_integration.options.state_backends",
    "FunctionInitializationContext": "varve.spark_integration.functions.checkpointed",
    "FunctionSnapshotContext": "varve.spark_integration.functions.checkpointed",
    "HashMapStateBackend": "varve.spark_integration.options.state_backends",
    "JobManagerCheckpointStorage": "varve.spark_integration.options.checkpoint_storage",
    "KeyedBroadcastProcessFunction": "varve.spark_integration.functions.broadcast",
    "KeyedProcessFunction": "varve.spark_integration.functions.keyed",
    "ListState": "varve.changelog.api.state",
    "ListStateDescriptor": "varve.changelog.api.descriptors",
    "MapState": "varve.changelog.api.state",
    "MapStateDescriptor": "varve.changelog.api.descriptors",
    "MemoryStateBackend": "varve.spark_integration.options.state_backends",
    "OperatorStateStore": "varve.changelog.api.operator_state",
    "PredefinedOptions": "varve.spark_integration.options.predefined_options",
    "ReadOnlyBroadcastState": "varve.changelog.api.operator_state",
    "ReduceFunction": "varve.changelog.api.functions",
    "ReducingState": "varve.changelog.api.state",
    "ReducingStateDescriptor": "varve.changelog.api.descriptors",
    "RocksDBStateBackend": "varve.spark_integration.options.state_backends",
    "Row": "varve.changelog.row",
    "RuntimeContext": "varve.spark_integration.functions.keyed",
    "Sink": "varve.spark_integration.connectors.sink",
    "StoreTarget": "varve.changelog.working_stores.table_store",
    "StateTtlConfig": "varve.changelog.api.ttl_config",
    "StreamExecutionEnvironment": "varve.spark_integration.api.environment",
    "TableStore": "varve.changelog.working_stores.table_store",
    "TimeDomain": "varve.changelog.keyed.timers",
    "TimerService": "varve.spark_integration.functions.timers",
    "Time": "varve.changelog.api.ttl_config",
    "Types": "varve.changelog.types.factory",
    "ValueState": "varve.changelog.api.state",
    "ValueStateDescriptor": "varve.changelog.api.descriptors",
    "VarveError": "varve.storage.errors",
    "VectorizedProcessFunction": "varve.spark_integration.functions.vectorized",
    "open_state": "varve.changelog.reading.reader",
    "register_data_sources": "varve.spark_integration.connectors.state_table.data_sources",
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
