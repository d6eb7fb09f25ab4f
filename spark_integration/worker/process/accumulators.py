"""The user's accumulators in a state worker: what one attempt has added, which the driver takes over once it counts.

PySpark keeps the accumulators of a process in a registry, and reads it at the end of a task. A state worker lives
longer than a task. So its registry gives every attempt accumulators that are zero, and the attempt's summary takes them
along.

Invariants: I2 (what an attempt adds counts with its commit alone), I3 (each attempt begins at zero).
"""

from __future__ import annotations

import pickle
from typing import Any

from pyspark import accumulators, cloudpickle


class WorkerAccumulators(dict[int, Any]):
    """The registry of this process, which remembers with what an accumulator began."""

    def __init__(self) -> None:
        super().__init__()
        self._zeros: dict[int, bytes] = {}

    def __setitem__(self, accumulator_id: int, accumulator: Any) -> None:
        # Pickled together: the zero may be a list that belongs to the parameter, and is added to in place.
        self._zeros[accumulator_id] = _content(accumulator)
        super().__setitem__(accumulator_id, accumulator)

    def reset(self) -> None:
        """Set all to zero."""
        for accumulator_id, zero in self._zeros.items():
            accumulator = self[accumulator_id]
            # The user's own class, which came with the function.
            accumulator._value, accumulator.accum_param = pickle.loads(zero)  # noqa: S301, SLF001

    def added(self) -> tuple[bytes, ...]:
        """Id and value of each that is not zero, pickled as Spark's Python workers do."""
        return tuple(
            cloudpickle.dumps((accumulator_id, accumulator._value))  # noqa: SLF001
            for accumulator_id, accumulator in self.items()
            if _content(accumulator) != self._zeros[accumulator_id]
        )


def _content(accumulator: Any) -> bytes:
    return cloudpickle.dumps((accumulator._value, accumulator.accum_param))  # noqa: SLF001


def reset_accumulators() -> None:
    """Begin an attempt: in a state worker's process, all accumulators are zero from now on."""
    registry: Any = accumulators._accumulatorRegistry  # noqa: SLF001  there is no other way to it
    if isinstance(registry, WorkerAccumulators):
        registry.reset()
    else:
        accumulators._accumulatorRegistry = WorkerAccumulators()  # noqa: SLF001


def added_to_accumulators() -> tuple[bytes, ...]:
    """The values that the attempt has added; none outside of a state worker's process, where they count at once.

    Raises:
        Exception: A value cannot be pickled.
    """
    registry: Any = accumulators._accumulatorRegistry  # noqa: SLF001
    return registry.added() if isinstance(registry, WorkerAccumulators) else ()
