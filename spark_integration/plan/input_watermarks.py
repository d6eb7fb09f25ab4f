"""The watermark of a job with several inputs: the least of theirs, as in Flink.

The progress of an input is not in checkpoints, as in Flink: after a restart the watermark stays where it was until
every input has had elements or is idle. It never goes back, because the chain's entries hold it (I5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.accumulators import AccumulatorParam

from varvite.changelog.working_stores.timer_form import held_ms

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class InputDelay:
    """The watermark of one input."""

    delay_ms: int | None
    """Distance behind the largest event time; None: the input has no watermark."""
    idle_timeout_ms: int | None = None
    """Time without elements after which the input is idle and holds nothing back; None: it never is."""


@dataclass(frozen=True, slots=True)
class InputProgress:
    """The progress of one input."""

    latest_ms: int | None = None
    """Its largest event time in this run; None: it had none yet."""
    active_ms: int | None = None
    """Time of the last batch in which it had one; of the run's first batch if there was none."""


@dataclass(frozen=True, slots=True)
class InputWatermarks:
    """The progress of all inputs."""

    delays: tuple[InputDelay, ...]
    progress: tuple[InputProgress, ...]
    time_ms: int = 0
    """Time of the last batch."""

    @staticmethod
    def before_the_first_batch(delays: tuple[InputDelay, ...]) -> InputWatermarks:
        """No input has progress."""
        return InputWatermarks(delays, (InputProgress(),) * len(delays))

    def after(self, latest_ms: Mapping[int, int], time_ms: int) -> InputWatermarks:
        """The progress after a batch of this time with these largest event times, by input."""
        progress = tuple(_after(before, latest_ms.get(i), time_ms) for i, before in enumerate(self.progress))
        return replace(self, progress=progress, time_ms=time_ms)

    @property
    def watermark_ms(self) -> int | None:
        """The least of the watermarks of all inputs but idle ones; None as long as one of them has none."""
        reached = [
            None if delay.delay_ms is None or at.latest_ms is None else held_ms(at.latest_ms - delay.delay_ms)
            for delay, at in zip(self.delays, self.progress, strict=True)
            if not self._is_idle(delay, at)
        ]
        times = [time for time in reached if time is not None]
        return min(times) if times and len(times) == len(reached) else None

    def _is_idle(self, delay: InputDelay, at: InputProgress) -> bool:
        if delay.idle_timeout_ms is None or at.active_ms is None:
            return False
        return self.time_ms - at.active_ms >= delay.idle_timeout_ms


def _after(before: InputProgress, latest_ms: int | None, time_ms: int) -> InputProgress:
    if latest_ms is None:
        return before if before.active_ms is not None else replace(before, active_ms=time_ms)
    return InputProgress(latest_ms if before.latest_ms is None else max(latest_ms, before.latest_ms), time_ms)


class LatestEventTimes(AccumulatorParam[dict[int, int]]):
    """Accumulates the largest event time of each input; idempotent, for tasks that run twice."""

    def zero(self, value: dict[int, int]) -> dict[int, int]:
        """No event times, for any value."""
        del value
        return {}

    def addInPlace(self, value1: dict[int, int], value2: dict[int, int]) -> dict[int, int]:  # noqa: N802
        """The larger times, in a new dict, as that of `zero` may be shared."""
        return {i: max(t for t in (value1.get(i), value2.get(i)) if t is not None) for i in {**value1, **value2}}
