"""`pyflink.datastream.state`'s names."""

from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.api.operator_state import BroadcastState, OperatorStateStore, ReadOnlyBroadcastState
from varvite.changelog.api.state import (
    AggregatingState,
    AppendingState,
    ListState,
    MapState,
    MergingState,
    ReducingState,
    State,
    ValueState,
)
from varvite.changelog.api.time_spans import Duration, Time
from varvite.changelog.api.ttl_config import StateTtlConfig
from varvite.changelog.types.contract import TypeInformation
from varvite.changelog.types.factory import Types
from varvite.spark_integration.functions.keyed import K
from varvite.spark_integration.functions.window import IN, OUT
from varvite.spark_integration.operators.windows.trigger import T

__all__ = [
    "IN",
    "OUT",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "Duration",
    "K",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "OperatorStateStore",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "T",
    "Time",
    "TypeInformation",
    "Types",
    "ValueState",
    "ValueStateDescriptor",
]
