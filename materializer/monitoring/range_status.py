"""The status of a range and of its job, for metrics, health and the watchdog; and the watchdog's decision.

The watchdog reports a log that is longer than its policy ever lets it get, whatever the reason: the materializer is too
slow, starved, or failing. It changes nothing; people and monitoring act on it (I10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from varvite.materializer.options.policy import MaterializePolicy
    from varvite.materializer.ranges import LogLength, RangeKey, RangeLoad

OVERDUE_FACTOR: Final = 3
"""Multiple of a range's limits at which its log is overdue."""


@dataclass(frozen=True, kw_only=True)
class RangeStatus:
    """One range of a job."""

    key: RangeKey
    base_seq: int
    """The commit of the base."""
    base_bytes: int | None
    """Its stored bytes; None: not known."""
    log: LogLength
    """The log that a restore of the newest checkpoint replays after it."""
    newest_bytes: int
    """Bytes of the log that the newest checkpoint added."""
    log_age_ms: int
    """Time for which this process has seen something to fold after this base."""
    recovery_ms: int
    """Estimated time to restore the newest checkpoint."""
    failures: int = 0
    """Failed materializations in a row."""
    failing: bool = False
    """Are they more than the policy allows?"""
    overdue: str = ""
    """The watchdog's complaint; empty if there is none."""


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """One job, at its last step."""

    job: str
    seq: int = 0
    """The newest checkpoint; 0: none yet."""
    batch: int = 0
    retained_from: int = 0
    """Seq of the oldest checkpoint that the job retains, not counting pins; where the chain does not say it, the seq
    below which no checkpoint needs anything."""
    trouble: str = ""
    """The error that kept the job from being followed at its last step; empty if there was none."""
    ranges: tuple[RangeStatus, ...] = ()
    failing_steps: tuple[str, ...] = ()
    """Errors of the whole job's steps that failed more often in a row than the policy allows: collecting garbage, for
    instance."""


def overdue(load: RangeLoad, age_ms: int, policy: MaterializePolicy) -> str:
    """The reason that a log which can be folded is overdue, as a sentence; empty if it is not.

    Args:
        load: The log up to the newest final commit.
        age_ms: Time for which there has been something to fold.
        policy: Its limits.
    """
    if load.log.segments == 0:
        return ""
    measures = (
        ("log bytes", load.log.size_bytes, policy.log_bytes),
        ("log batches", load.log.batches, policy.log_batches),
        ("milliseconds of replay", load.replay_ms, policy.replay_ms),
        ("milliseconds since the log began", age_ms, policy.interval_ms),
    )
    for unit, value, limit in measures:
        if limit is not None and value >= OVERDUE_FACTOR * limit:
            return f"{value} {unit}, {OVERDUE_FACTOR} times the limit of {limit} or more"
    return ""
