"""Functions on broadcast streams that tests send to state workers; here, so that the workers can import them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from varvite.common import Types
from varvite.datastream import BroadcastProcessFunction, KeyedBroadcastProcessFunction, OutputTag, RuntimeContext
from varvite.datastream.state import MapStateDescriptor, ValueStateDescriptor

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
"""Name → limit, and `*` → how often a rule has come so far."""
SEEN = OutputTag("seen", Types.STRING())


def put(state: Any, rule: Any) -> None:
    """Change the state by a rule."""
    state.put("*", (state.get("*") or 0) + 1)
    if rule.limit is None:
        state.remove(rule.name)
    else:
        state.put(rule.name, rule.limit)


def text(state: Any) -> str:
    """Content of a state."""
    return " ".join(f"{name}={limit}" for name, limit in sorted(state.items()))


class Checked(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """(key, sum so far, rules); for every rule in every instance ("rule", partition, rules)."""

    def __init__(self, marker: Path | None = None, die_at: Any = None) -> None:
        self.marker = marker
        self.die_at = die_at

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))
        self.partition = runtime_context.get_index_of_this_subtask()

    def _maybe_die(self, at: Any) -> None:
        """Kill the own process, the state worker, once."""
        if self.marker is not None and at == self.die_at and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        self._maybe_die(value.v)
        self.sum.update((self.sum.value() or 0) + value.v)
        yield ctx.get_current_key(), self.sum.value(), text(ctx.get_broadcast_state(RULES))

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Iterator[Any]:
        state = ctx.get_broadcast_state(RULES)
        put(state, value)
        yield "rule", self.partition, text(state)
        self._maybe_die(value.name)


class Spread(BroadcastProcessFunction[Any, Any, Any]):
    """(key, partition, rules), and to the side the keys."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.partition = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        yield value.k, self.partition, text(ctx.get_broadcast_state(RULES))
        yield SEEN, value.k

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> None:
        put(ctx.get_broadcast_state(RULES), value)


ORDER = MapStateDescriptor("order", Types.STRING(), Types.LONG())


class InOrder(BroadcastProcessFunction[int, int, Any]):
    """(partition, number of broadcast elements, a checksum of their order) for every element."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.partition = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: int, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        state = ctx.get_broadcast_state(ORDER)
        yield self.partition, state.get("n"), state.get("sum"), value

    def process_broadcast_element(self, value: int, ctx: BroadcastProcessFunction.Context) -> None:
        state = ctx.get_broadcast_state(ORDER)
        state.put("n", (state.get("n") or 0) + 1)
        state.put("sum", order_sum((state.get("sum") or 0), value))


def order_sum(before: int, value: int) -> int:
    """A checksum in which the order counts."""
    return (before * 31 + value) % 1_000_000_007
