"""How a range and its job stand, for metrics, health and the watchdog: frozen values, and the watchdog's decision.

The watchdog says when a log is longer than its policy ever lets it get, whatever the reason: the materializer is too
slow, starved, or failing. It changes nothing; people and monitoring act on it (I10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from varvite.materializer.options.policy import MaterializePolicy
    from varvite.materializer.ranges import LogLength, RangeKey, RangeLoad

OVERDUE_FACTOR: Final = 3
"""A log is overdue at so many times the limit at which its range is materialized."""


@dataclass(frozen=True, kw_only=True)
class RangeStatus:
    """One range of a job."""

    key: RangeKey
    base_seq: int
    """The commit of the base."""
    base_bytes: int | None
    """Its stored bytes; None: not known."""
    log: LogLength
    """What a restore of the newest checkpoint replays after it."""
    newest_bytes: int
    """What of the log the newest checkpoint added."""
    log_age_ms: int
    """How long this process has seen something to fold after this base."""
    recovery_ms: int
    """Estimated time to restore the newest checkpoint."""
    failures: int = 0
    """Failed materializations in a row."""
    failing: bool = False
    """Whether they are more than allowed."""
    overdue: str = ""
    """Why the watchdog complains; empty if it does not."""


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """One job, at the last look at it."""

    job: str
    seq: int = 0
    """The newest checkpoint; 0: none yet."""
    batch: int = 0
    retained_from: int = 0
    """Seq of the oldest checkpoint that the job retains, whatever pins keep besides; or, where the chain does not say
    it, the one below which none needs anything."""
    trouble: str = ""
    """Why the job could not be followed at the last look; empty if it could."""
    ranges: tuple[RangeStatus, ...] = ()
    failing_steps: tuple[str, ...] = ()
    """Why steps of the whole job, such as collecting garbage, failed more often in a row than is allowed."""


def overdue(load: RangeLoad, age_ms: int, policy: MaterializePolicy) -> str:
    """Why a log that can be folded is overdue, as a sentence; empty if it is not.

    Args:
        load: The log up to the newest final commit.
        age_ms: How long there has been something to fold.
        policy: Its limits.
    """
    if load.log.segments == 0:
        return ""
    found = (
        ("log bytes", load.log.size_bytes, policy.log_bytes),
        ("log batches", load.log.batches, policy.log_batches),
        ("milliseconds of replay", load.replay_ms, policy.replay_ms),
        ("milliseconds since the log began", age_ms, policy.interval_ms),
    )
    for what, value, limit in found:
        if limit is not None and value >= OVERDUE_FACTOR * limit:
            return f"{value} {what}, {OVERDUE_FACTOR} times the limit of {limit} or more"
    return ""
