"""`pyflink.datastream.window`'s names; what cannot be used says so when it is used."""

from typing import Any

from varvite.changelog.api.descriptors import ReducingStateDescriptor, StateDescriptor, ValueStateDescriptor
from varvite.changelog.api.functions import ReduceFunction
from varvite.changelog.api.state import ReducingState, State
from varvite.changelog.api.time_spans import Time
from varvite.changelog.types.factory import Types
from varvite.common.serializer import TypeSerializer
from varvite.spark_integration.functions.keyed import RuntimeContext
from varvite.spark_integration.functions.output_tag import OutputTag
from varvite.spark_integration.functions.window import IN, KEY, OUT, W2, W
from varvite.spark_integration.operators.windows.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    CountWindow,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindow,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
    WindowAssigner,
)
from varvite.spark_integration.operators.windows.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from varvite.spark_integration.operators.windows.trigger import T, Trigger, TriggerResult
from varvite.spark_integration.options.absent import NO_ASSIGNER, absent
from varvite.spark_integration.options.flink_values import MAX_LONG_VALUE, MIN_LONG_VALUE

__all__ = [
    "IN",
    "KEY",
    "MAX_LONG_VALUE",
    "MIN_LONG_VALUE",
    "OUT",
    "W2",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountSlidingWindowAssigner",
    "CountTrigger",
    "CountTumblingWindowAssigner",
    "CountWindow",
    "CountWindowSerializer",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "GlobalWindow",
    "GlobalWindowSerializer",
    "GlobalWindows",
    "MergingWindowAssigner",
    "NeverTrigger",
    "OutputTag",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "RuntimeContext",
    "SessionWindowTimeGapExtractor",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "State",
    "StateDescriptor",
    "T",
    "Time",
    "TimeWindow",
    "TimeWindowSerializer",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "TypeSerializer",
    "Types",
    "ValueStateDescriptor",
    "W",
    "Window",
    "WindowAssigner",
]

CountWindowSerializer: Any = absent("CountWindowSerializer", NO_ASSIGNER)
GlobalWindowSerializer: Any = absent("GlobalWindowSerializer", NO_ASSIGNER)
MergingWindowAssigner: Any = absent("MergingWindowAssigner", NO_ASSIGNER)
TimeWindowSerializer: Any = absent("TimeWindowSerializer", NO_ASSIGNER)
