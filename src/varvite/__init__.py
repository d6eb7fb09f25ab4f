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
    from varvite.changelog.api.state import AggregatingState, ListState, MapState, ReducingState, ValueState
    from varvite.changelog.api.time_spans import Time
    from varvite.changelog.api.ttl_config import StateTtlConfig
    from varvite.changelog.keyed.timers import TimeDomain
    from varvite.changelog.reading.reader import open_state
    from varvite.changelog.row import Row
    from varvite.changelog.types.factory import Types
    from varvite.changelog.working_stores.rocksdb.settings.predefined import PredefinedOptions
    from varvite.changelog.working_stores.table_store import StoreTarget, TableStore
    from varvite.spark_integration.api.environment import StreamExecutionEnvironment
    from varvite.spark_integration.connectors.sink import Sink
    from varvite.spark_integration.connectors.state_table.data_sources import register_data_sources
    from varvite.spark_integration.functions.broadcast import BroadcastProcessFunction, KeyedBroadcastProcessFunction
    from varvite.spark_integration.functions.checkpointed import (
        CheckpointedFunction,
        FunctionInitializationContext,
        FunctionSnapshotContext,
    )
    from varvite.spark_integration.functions.keyed import KeyedProcessFunction, RuntimeContext
    from varvite.spark_integration.functions.timers import TimerService
    from varvite.spark_integration.functions.vectorized import VectorizedProcessFunction
    from varvite.spark_integration.operators.aggregation.aggregations import Aggregation
    from varvite.spark_integration.options.checkpoint_config import (
        CheckpointConfig,
        CheckpointingMode,
        ExternalizedCheckpointRetention,
    )
    from varvite.spark_integration.options.checkpoint_storage import (
        FileSystemCheckpointStorage,
        JobManagerCheckpointStorage,
    )
    from varvite.spark_integration.options.state_backends import (
        CustomStateBackend,
        EmbeddedRocksDBStateBackend,
        FsStateBackend,
        HashMapStateBackend,
        MemoryStateBackend,
        RocksDBStateBackend,
    )
    from varvite.storage.errors import VarviteError

__version__ = "0.1.0"

_MODULE_OF: Final = {
    "AggregateFunction": "varvite.changelog.api.functions",
    "AggregatingState": "varvite.changelog.api.state",
    "AggregatingStateDescriptor": "varvite.changelog.api.descriptors",
    "Aggregation": "varvite.spark_integration.operators.aggregation.aggregations",
    "BroadcastProcessFunction": "varvite.spark_integration.functions.broadcast",
    "BroadcastState": "varvite.changelog.api.operator_state",
    "CheckpointConfig": "varvite.spark_integration.options.checkpoint_config",
    "CheckpointedFunction": "varvite.spark_integration.functions.checkpointed",
    "CheckpointingMode": "varvite.spark_integration.options.checkpoint_config",
    "CustomStateBackend": "varvite.spark_integration.options.state_backends",
    "EmbeddedRocksDBStateBackend": "varvite.spark_integration.options.state_backends",
    "ExternalizedCheckpointRetention": "varvite.spark_integration.options.checkpoint_config",
    "FileSystemCheckpointStorage": "varvite.spark_integration.options.checkpoint_storage",
    "FsStateBackend": "varvite.spark_integration.options.state_backends",
    "FunctionInitializationContext": "varvite.spark_integration.functions.checkpointed",
    "FunctionSnapshotContext": "varvite.spark_integration.functions.checkpointed",
    "HashMapStateBackend": "varvite.spark_integration.options.state_backends",
    "JobManagerCheckpointStorage": "varvite.spark_integration.options.checkpoint_storage",
    "KeyedBroadcastProcessFunction": "varvite.spark_integration.functions.broadcast",
    "KeyedProcessFunction": "varvite.spark_integration.functions.keyed",
    "ListState": "varvite.changelog.api.state",
    "ListStateDescriptor": "varvite.changelog.api.descriptors",
    "MapState": "varvite.changelog.api.state",
    "MapStateDescriptor": "varvite.changelog.api.descriptors",
    "MemoryStateBackend": "varvite.spark_integration.options.state_backends",
    "OperatorStateStore": "varvite.changelog.api.operator_state",
    "PredefinedOptions": "varvite.changelog.working_stores.rocksdb.settings.predefined",
    "ReadOnlyBroadcastState": "varvite.changelog.api.operator_state",
    "ReduceFunction": "varvite.changelog.api.functions",
    "ReducingState": "varvite.changelog.api.state",
    "ReducingStateDescriptor": "varvite.changelog.api.descriptors",
    "RocksDBStateBackend": "varvite.spark_integration.options.state_backends",
    "Row": "varvite.changelog.row",
    "RuntimeContext": "varvite.spark_integration.functions.keyed",
    "Sink": "varvite.spark_integration.connectors.sink",
    "StoreTarget": "varvite.changelog.working_stores.table_store",
    "StateTtlConfig": "varvite.changelog.api.ttl_config",
    "StreamExecutionEnvironment": "varvite.spark_integration.api.environment",
    "TableStore": "varvite.changelog.working_stores.table_store",
    "TimeDomain": "varvite.changelog.keyed.timers",
    "TimerService": "varvite.spark_integration.functions.timers",
    "Time": "varvite.changelog.api.time_spans",
    "Types": "varvite.changelog.types.factory",
    "ValueState": "varvite.changelog.api.state",
    "ValueStateDescriptor": "varvite.changelog.api.descriptors",
    "VarviteError": "varvite.storage.errors",
    "VectorizedProcessFunction": "varvite.spark_integration.functions.vectorized",
    "open_state": "varvite.changelog.reading.reader",
    "register_data_sources": "varvite.spark_integration.connectors.state_table.data_sources",
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
    "VarviteError",
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
