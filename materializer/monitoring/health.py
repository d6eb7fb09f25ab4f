"""The health of a materializer: the answers of `/healthz` and `/readyz`.

Alive: the loop has begun, or finished a job's step, within `ALIVE_WITHIN_MS`; otherwise the process hangs and should be
restarted. Ready: the storage and every job could be read at the last step, and no range is failing or overdue;
otherwise people are needed, not a restart. No job depends on either (I9).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varvite.materializer.monitoring.range_status import JobStatus

ALIVE_WITHIN_MS: Final = 300_000
"""A job's step ends long before, even if every request of it times out."""
REASONS_MAX: Final = 20
"""Reasons that one answer names."""


class Verdict(NamedTuple):
    """An answer of `/healthz` or `/readyz`."""

    ok: bool
    reasons: tuple[str, ...] = ()
    """Reasons of a negative answer, for people; at most `REASONS_MAX`."""


class Health:
    """State of the loop and of the jobs; written by the loop, read by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moved_ms: int | None = None
        self._trouble = "the storage was not looked at yet"
        self._jobs: dict[str, JobStatus] = {}

    def moved(self, now_ms: int) -> None:
        """Note that the loop begins, or has finished one more job's step."""
        with self._lock:
            self._moved_ms = now_ms

    def turned(self, now_ms: int, trouble: str) -> None:
        """Note the end of a round; `trouble` says why the jobs could not be listed, and is empty if they could."""
        with self._lock:
            self._moved_ms = now_ms
            self._trouble = trouble

    def show(self, status: JobStatus) -> None:
        """Take the newest status of a job."""
        with self._lock:
            self._jobs[status.job] = status

    def forget(self, job: str) -> None:
        """Forget a job that is gone."""
        with self._lock:
            self._jobs.pop(job, None)

    def alive(self, now_ms: int) -> Verdict:
        """Does the loop move on? True until it begins."""
        with self._lock:
            moved_ms = self._moved_ms
        if moved_ms is None or now_ms - moved_ms < ALIVE_WITHIN_MS:
            return Verdict(ok=True)
        return Verdict(False, (f"the last look at the storage ended {(now_ms - moved_ms) // 1_000} s ago",))

    def ready(self, now_ms: int) -> Verdict:
        """Is all work being done?"""
        with self._lock:
            reasons = [self._trouble] if self._trouble else []
            for job in self._jobs.values():
                reasons += _reasons(job)
        reasons += self.alive(now_ms).reasons
        return Verdict(not reasons, tuple(reasons[:REASONS_MAX]))


def _reasons(job: JobStatus) -> Iterable[str]:
    if job.trouble:
        yield f"{job.job}: {job.trouble}"
    for failing in job.failing_steps:
        yield f"{job.job}: {failing}"
    for status in job.ranges:
        if status.failing:
            yield f"{job.job} {status.key}: {status.failures} failed materializations in a row"
        if status.overdue:
            yield f"{job.job} {status.key}: the log is overdue: {status.overdue}"
