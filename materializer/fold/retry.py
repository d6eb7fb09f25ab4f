"""Failures in a row of a range or of a job's step, and the pause before the next try; pure.

Failures delay the next try of that range or step only; they never reach the job.

Invariants: I10 (what fails is retried with exponential backoff and jitter).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from varvite.materializer.options.policy import MaterializePolicy

PAUSE_JITTER: Final = 0.25
"""Largest part of a pause that is added to it, so that what failed together is not retried together."""


@dataclass(frozen=True)
class RetryState:
    """Failures of one range or step since its last success; times in ms of one monotonic clock."""

    jitter: float = 0.0
    """Its place among others that may fail together, at least 0 and below 1: their pauses differ."""
    failures: int = 0
    """Failures since the last success."""
    failed_ms: int | None = None
    """Time of the last failure."""

    def failed(self, now_ms: int) -> RetryState:
        """The state after a failure."""
        return replace(self, failures=self.failures + 1, failed_ms=now_ms)

    def succeeded(self) -> RetryState:
        """The state after a success."""
        return replace(self, failures=0, failed_ms=None)

    def is_failing(self, policy: MaterializePolicy) -> bool:
        """Were there more failures in a row than the policy allows?"""
        return self.failures > policy.max_failures_allowed

    def is_pausing(self, policy: MaterializePolicy, now_ms: int) -> bool:
        """Is the pause after the last failure not over yet?"""
        return self.failed_ms is not None and now_ms < self.failed_ms + self.pause_ms(policy)

    def pause_ms(self, policy: MaterializePolicy) -> int:
        """Pause after the last failure, up to `PAUSE_JITTER` longer than the policy's; 0 if there was none."""
        if self.failures == 0:
            return 0
        return round(policy.backoff.pause_s(self.failures) * 1_000 * (1 + PAUSE_JITTER * self.jitter))
