"""Evenness of partitions over executors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def unevenness(executors: Iterable[str], alive: int) -> int:
    """Most minus fewest partitions of an executor.

    Args:
        executors: By partition.
        alive: Executors that there are; some may have no partition.
    """
    counts = list(Counter(executors).values())
    return max(counts, default=0) - (min(counts, default=0) if len(counts) >= alive else 0)
