"""The decision if the rows of a large batch come to the driver together with the summaries; pure.

They do for sinks that bring all rows to the driver anyway. So there is one Spark job, and no cache, if the rows are few
enough. Their size is known after the batch only; so it is expected from the batch before.

Invariants: I10 (rows in the driver are limited by size: tasks drop what is more, and the batch is executed again).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from varvite.spark_integration.connectors.output.rows import SMALL_BYTES

ANSWER_MAX_BYTES: Final = 4 * SMALL_BYTES
"""Rows of an answer that the tasks send to the driver at most; each partition has an equal part."""
GROWTH: Final = 2
"""The answer of the next batch may be as many times as large as that of the last one."""
REST_BATCHES: Final = 100
"""Batches whose answers stay with Spark after one that was larger than the driver takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAnswers:
    """The driver's memory of the answers of a job's last operator."""

    size_bytes: int | None = None
    """About the size of the last one; None: there was none."""
    rest: int = 0
    """Batches whose rows are cached from now on, whatever their size."""

    @property
    def is_next_small(self) -> bool:
        """Are the rows of the next batch expected to be few enough for the driver?"""
        return not self.rest and self.size_bytes is not None and self.size_bytes * GROWTH <= SMALL_BYTES

    def after(self, size_bytes: int) -> PastAnswers:
        """The memory after an answer of about that size."""
        return PastAnswers(size_bytes=size_bytes, rest=max(0, self.rest - 1))

    def after_refusal(self) -> PastAnswers:
        """The memory after an attempt whose rows were more than the driver takes."""
        return PastAnswers(size_bytes=self.size_bytes, rest=REST_BATCHES)
