"""Tells if a function does something when its timers fire."""

from __future__ import annotations

from typing import Any, Final

from varvite.spark_integration.functions.broadcast import KeyedBroadcastProcessFunction
from varvite.spark_integration.functions.connected import KeyedCoProcessFunction
from varvite.spark_integration.functions.keyed import KeyedProcessFunction
from varvite.spark_integration.functions.keyed_operations import KeyedFunction

_BASES: Final = (KeyedProcessFunction, KeyedCoProcessFunction, KeyedBroadcastProcessFunction)


def hears_timers(function: Any) -> bool:
    """False if its `on_timer` is the one that does nothing."""
    inner = getattr(function, "function", function) if isinstance(function, KeyedFunction) else function
    on_timer = getattr(inner, "on_timer", None)
    return getattr(on_timer, "__func__", on_timer) not in [base.on_timer for base in _BASES]
