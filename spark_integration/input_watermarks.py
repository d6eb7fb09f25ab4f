"""The watermark of a job with several inputs: the least of theirs, as in Flink.

What an input has reached is not in checkpoints, as in Flink: after a restart the watermark stays where it was until
every input has had elements. It never goes back, because the chain's entries keep it (I5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.accumulators import AccumulatorParam

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class InputWatermarks:
    """How far each input is."""

    delays_ms: tuple[int | None, ...]
    """By input: how far its watermark is behind its largest event time; None: it has no watermark."""
    latest_ms: tuple[int | None, ...]
    """By input: its largest event time in this run; None: it had none yet."""

    @staticmethod
    def before_the_first_batch(delays_ms: tuple[int | None, ...]) -> InputWatermarks:
        """Nothing is known of any input."""
        return InputWatermarks(delays_ms, (None,) * len(delays_ms))

    def after(self, latest_ms: Mapping[int, int]) -> InputWatermarks:
        """After a batch with these largest event times, by input."""
        found = [latest_ms.get(i) for i in range(len(self.delays_ms))]
        return replace(self, latest_ms=tuple(map(_later, self.latest_ms, found)))

    @property
    def watermark_ms(self) -> int | None:
        """The least of the inputs' watermarks; None as long as one of them has none."""
        reached = [
            None if delay is None or latest is None else latest - delay
            for delay, latest in zip(self.delays_ms, self.latest_ms, strict=True)
        ]
        known = [time for time in reached if time is not None]
        return min(known) if known and len(known) == len(reached) else None


class LatestEventTimes(AccumulatorParam[dict[int, int]]):
    """Accumulates the largest event time of each input; a task that runs twice changes nothing."""

    def zero(self, value: dict[int, int]) -> dict[int, int]:
        """No input has had an element, whatever the value was."""
        del value
        return {}

    def addInPlace(self, value1: dict[int, int], value2: dict[int, int]) -> dict[int, int]:  # noqa: N802
        """The larger ones; a new dict, since `zero`'s may be shared."""
        return {i: max(t for t in (value1.get(i), value2.get(i)) if t is not None) for i in {**value1, **value2}}


def _later(one: int | None, other: int | None) -> int | None:
    return max((t for t in (one, other) if t is not None), default=None)
