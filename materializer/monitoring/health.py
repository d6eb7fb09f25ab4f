"""Whether a materializer is alive and does its work: what `/healthz` and `/readyz` answer.

Alive: the loop has begun, or finished its look at a job, within `ALIVE_WITHIN_MS`; else the process hangs and is best
started again. Ready: the storage and every job could be read at the last look, and no range is failing or overdue; what
is not ready needs people, not a restart. Neither is ever asked by a job (I9).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from varvite.materializer.monitoring.range_status import JobStatus

ALIVE_WITHIN_MS: Final = 300_000
"""A look at a job ends long before, even if every request of it times out."""
REASONS_MAX: Final = 20
"""Reasons that one answer names."""


class Verdict(NamedTuple):
    """An answer."""

    ok: bool
    reasons: tuple[str, ...] = ()
    """Why not, for people; at most `REASONS_MAX`."""


class Health:
    """What is known of the loop and of the jobs; written by the loop, read by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moved_ms: int | None = None
        self._trouble = "the storage was not looked at yet"
        self._jobs: dict[str, JobStatus] = {}

    def moved(self, now_ms: int) -> None:
        """The loop begins, or has looked at one more job."""
        with self._lock:
            self._moved_ms = now_ms

    def turned(self, now_ms: int, trouble: str) -> None:
        """The loop came around; `trouble` is why the jobs could not be listed, empty if they could."""
        with self._lock:
            self._moved_ms = now_ms
            self._trouble = trouble

    def show(self, status: JobStatus) -> None:
        """A new look at a job."""
        with self._lock:
            self._jobs[status.job] = status

    def forget(self, job: str) -> None:
        """The job is gone."""
        with self._lock:
            self._jobs.pop(job, None)

    def alive(self, now_ms: int) -> Verdict:
        """Whether the loop moves on; true until it begins."""
        with self._lock:
            moved_ms = self._moved_ms
        if moved_ms is None or now_ms - moved_ms < ALIVE_WITHIN_MS:
            return Verdict(ok=True)
        return Verdict(False, (f"the last look at the storage ended {(now_ms - moved_ms) // 1_000} s ago",))

    def ready(self, now_ms: int) -> Verdict:
        """Whether all work is being done."""
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
    for one in job.ranges:
        if one.failing:
            yield f"{job.job} {one.key}: {one.failures} failed materializations in a row"
        if one.overdue:
            yield f"{job.job} {one.key}: the log is overdue: {one.overdue}"
