"""A mean as an aggregate function, for tests of what keeps accumulators."""

from __future__ import annotations

from typing import Final

from varvite.changelog.api.functions import AggregateFunction
from varvite.changelog.types.factory import Types

MEAN_TYPE: Final = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
"""Of its accumulators: count and sum."""


class Mean(AggregateFunction[float, tuple[int, float], float]):
    """A mean cannot be merged of results."""

    def create_accumulator(self) -> tuple[int, float]:
        return 0, 0.0

    def add(self, value: float, accumulator: tuple[int, float]) -> tuple[int, float]:
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator: tuple[int, float]) -> float:
        return accumulator[1] / accumulator[0]

    def merge(self, acc_a: tuple[int, float], acc_b: tuple[int, float]) -> tuple[int, float]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]
