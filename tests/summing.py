"""A function for tests of state workers: it keeps what it is given, and yields the sum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from varve.changelog.descriptors import ListStateDescriptor
from varve.spark_integration.functions import KeyedProcessFunction, RuntimeContext


class Summing(KeyedProcessFunction[int, Any, tuple[int]]):
    """Yields the sum of all values so far, which it keeps in a list; one value is an error."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.values = runtime_context.get_list_state(ListStateDescriptor("values", "bigint"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int]]:
        if value.value == 13:
            raise ArithmeticError("13 is unlucky")
        self.values.add(value.value)
        yield (sum(self.values.get()),)
