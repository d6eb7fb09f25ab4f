"""Which key groups a partition has; pure."""

from __future__ import annotations


def key_range(partition: int, parallelism: int, max_parallelism: int) -> tuple[int, int]:
    """Key groups `[low, high)` of a partition: those with `kg * parallelism // max_parallelism == partition`."""
    low = -(-partition * max_parallelism // parallelism)
    high = -(-(partition + 1) * max_parallelism // parallelism)
    return low, high
