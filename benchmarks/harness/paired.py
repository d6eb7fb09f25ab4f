"""Two variants that were measured in turn: how much slower one is, and how sure that is."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple

RESAMPLES = 2_000


class Change(NamedTuple):
    """Extra cost of one variant over the other, as a part of the other: 0.05 is 5 %."""

    median: float
    low: float
    high: float
    """With `low`: the 95 % interval of the median, by bootstrap."""

    def __str__(self) -> str:
        return f"{self.median:+.1%} ({self.low:+.1%} to {self.high:+.1%})"


def paired_change(more: Sequence[float], less: Sequence[float], seed: int = 1) -> Change:
    """The median of `more[i] / less[i] - 1`: neighbours in time are compared, so that a drift cancels out.

    Args:
        more: Figures of the variant that does more, at least one.
        less: Those of the other, each measured beside the one at its place.
        seed: Of the bootstrap.
    """
    changes = [a / b - 1 for a, b in zip(more, less, strict=True)]
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(changes, k=len(changes))) for _ in range(RESAMPLES))
    tail = RESAMPLES // 40
    return Change(statistics.median(changes), medians[tail], medians[-tail - 1])


def in_turn(pairs: int) -> list[tuple[int, int]]:
    """(0, 1), (1, 0), (0, 1), ...: which variant goes first changes, so that being first does not count."""
    return [(pair % 2, 1 - pair % 2) for pair in range(pairs)]
