"""A value that is changed in place and not updated is lost, as Flink's contract says, and is warned of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from varvite import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from varvite.testing import OperatorHarness

NUMBERS = Types.LIST(Types.LONG())
OBJECTS = Types.PICKLED_BYTE_ARRAY()


def descriptor(kind: str, values: Any, ttl: bool) -> Any:
    made: Any = {
        "value": lambda: ValueStateDescriptor("kept", values),
        "map": lambda: MapStateDescriptor("kept", Types.STRING(), values),
        "list": lambda: ListStateDescriptor("kept", values),
    }[kind]()
    if ttl:
        made.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
    return made


class Program(KeyedProcessFunction[Any, Any, Any]):
    """Does something with a state for each row."""

    def __init__(self, described: Any, step: Callable[[Any, int], None]) -> None:
        self.described, self.step = described, step

    def open(self, runtime_context: Any) -> None:
        kind = type(self.described).__name__.removesuffix("StateDescriptor").lower()
        get = {"value": "get_state", "map": "get_map_state", "list": "get_list_state"}[kind]
        self.state = getattr(runtime_context, get)(self.described)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.step(self.state, value[1])
        yield (value[0],)


def warnings_of(described: Any, step: Callable[[Any, int], None], batches: list[list[tuple[str, int]]]) -> set[str]:
    with OperatorHarness.of_function(Program(described, step), "k", "k string, n bigint", "k string") as harness:
        for batch in batches:
            harness.process_batch(batch)
        return {text for text in harness._job.warnings if "changed after it was read" in text}


def lose_value(state: Any, n: int) -> None:
    numbers = state.value()
    if numbers is None:
        state.update([n])
    else:
        numbers.append(n)


def keep_value(state: Any, n: int) -> None:
    numbers = state.value() or []
    numbers.append(n)
    state.update(numbers)


def empty_value(state: Any, n: int) -> None:
    numbers = state.value()
    if numbers is None:
        state.update([n])
    else:
        numbers.pop()
        state.clear()


def lose_entry(state: Any, n: int) -> None:
    if state.get("x") is None:
        state.put("x", [n])
        state.put("y", [n])
    else:
        state.get("x").append(n)


def lose_any_entry(state: Any, n: int) -> None:
    if state.is_empty():
        state.put("x", [n])
    for numbers in state.values():
        numbers.append(n)


def keep_entry(state: Any, n: int) -> None:
    for name in ("x", "y"):
        numbers = state.get(name) or []
        state.get("y")
        numbers.append(n)
        state.put(name, numbers)


def remove_entry(state: Any, n: int) -> None:
    numbers = state.get("x")
    if numbers is None:
        state.put("x", [n])
    else:
        numbers.append(n)
        state.remove("x")


def lose_element(state: Any, n: int) -> None:
    for numbers in state.get():
        numbers.append(n)
    state.add([n, n])


def keep_elements(state: Any, n: int) -> None:
    elements = list(state.get())
    for numbers in elements:
        numbers.append(n)
    state.update([*elements, [n]])


ONE_BATCH = [[("a", 1), ("b", 1), ("a", 2), ("a", 3)]]
TWO_BATCHES = [[("a", 1), ("b", 1)], [("a", 2), ("b", 3)], [("a", 4)]]


@pytest.mark.parametrize("batches", [ONE_BATCH, TWO_BATCHES], ids=["one batch", "several"])
@pytest.mark.parametrize("ttl", [False, True], ids=["", "ttl"])
@pytest.mark.parametrize("values", [NUMBERS, OBJECTS], ids=["typed", "pickled"])
@pytest.mark.parametrize(
    ("kind", "step"),
    [("value", lose_value), ("map", lose_entry), ("map", lose_any_entry), ("list", lose_element)],
    ids=["value", "get", "values", "list"],
)
def test_a_change_in_place_that_is_lost_is_warned_of_once(
    kind: str, step: Any, values: Any, ttl: bool, batches: Any
) -> None:
    (text,) = warnings_of(descriptor(kind, values, ttl), step, batches)
    assert "state 'kept'" in text


@pytest.mark.parametrize("batches", [ONE_BATCH, TWO_BATCHES], ids=["one batch", "several"])
@pytest.mark.parametrize("ttl", [False, True], ids=["", "ttl"])
@pytest.mark.parametrize("values", [NUMBERS, OBJECTS], ids=["typed", "pickled"])
@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("value", keep_value),
        ("value", empty_value),
        ("map", keep_entry),
        ("map", remove_entry),
        ("list", keep_elements),
        ("value", lambda state, n: state.value() or state.update([n])),
    ],
    ids=["update", "clear", "put", "remove", "list update", "read only"],
)
def test_a_change_in_place_that_is_written_is_not_warned_of(
    kind: str, step: Any, values: Any, ttl: bool, batches: Any
) -> None:
    assert not warnings_of(descriptor(kind, values, ttl), step, batches)
