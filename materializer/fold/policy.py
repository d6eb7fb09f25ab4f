"""The decision that a range is due for materialization: pure, over what the service knows and the time it passes.

Flink's rules (FLIP-158): the first materialization of a range comes after a jitter, a stable hash of the range modulo
the interval, so that many ranges do not fold at once; later ones come an interval after the last finished one. Besides,
a range is due when its log is long: in bytes, in batches or in estimated replay time, which bounds a restore, or
compared with its base, which bounds the space in the storage (I10).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from varvite.materializer.fold.retry import RetryState

if TYPE_CHECKING:
    from varvite.materializer.options.policy import MaterializePolicy
    from varvite.materializer.ranges import RangeKey, RangeLoad

RATIO_LOG_BYTES_MIN: Final = 1 << 20
"""Shortest log that is compared with its base: otherwise a small state would be materialized all the time."""
SLOW_LOG_BYTES_MIN: Final = 128 << 10
"""The same for a range that changes little in an interval."""
SLOW_RATIO_PART: Final = 0.3
"""Part of the policy's ratio in the limit of such a range."""
SLOW_CHANGES_PART: Final = 0.12
"""Part of an interval's changes in that limit."""
SLOW_CHANGES_PART_OF_MANY: Final = 0.3
"""The same for one of many ranges: they are rewritten at different times, so each may have more log."""
SLOW_SHARE_MIN: Final = 1 / 8
"""Share of an operator below which a range is one of many."""
EARLY_PART: Final = 0.4
"""Largest part by which the limits of a range are lowered, so that an operator's ranges are rewritten by turns."""
GOLDEN_RATIO: Final = (5**0.5 - 1) / 2


class Trigger(StrEnum):
    """The reason that a range is due."""

    INTERVAL = "interval"
    LOG_BYTES = "log-bytes"
    LOG_BATCHES = "log-batches"
    LOG_RATIO = "log-ratio"
    REPLAY_TIME = "replay-time"
    DEMAND = "demand"


@dataclass(frozen=True)
class RangeSchedule:
    """History of one range in this process; times in ms of one monotonic clock."""

    seen_ms: int
    """Time at which this process first saw the range."""
    finished_ms: int | None = None
    """Time of the last materialization that succeeded, with or without something to publish."""
    demanded: bool = False
    """Is a requested materialization still to be done?"""
    retry: RetryState = field(default_factory=RetryState)

    def succeeded(self, now_ms: int) -> RangeSchedule:
        """The schedule after a materialization, or the finding that there is nothing to do."""
        return replace(self, finished_ms=now_ms, demanded=False, retry=self.retry.succeeded())

    def failed(self, now_ms: int) -> RangeSchedule:
        """The schedule after a failure."""
        return replace(self, retry=self.retry.failed(now_ms))

    def demand(self) -> RangeSchedule:
        """The schedule after a request: the range is due as soon as there is something to fold."""
        return replace(self, demanded=True)

    def elapsed_ms(self, now_ms: int) -> int:
        """Time since the last materialization, or since the range was first seen."""
        return now_ms - (self.seen_ms if self.finished_ms is None else self.finished_ms)


def early_part(key: RangeKey, share: float) -> float:
    """The part of its limits at which a range is due, above 0 and at most 1: a different one for each of an operator.

    The keys of all ranges mostly change alike, so with equal limits all would be folded and rewritten at the same time
    for ever. Multiples of the golden ratio lie evenly between 0 and 1, however many there are (Knuth's multiplicative
    hashing).
    """
    place = key.low / (key.high - key.low) * GOLDEN_RATIO % 1
    return 1 - EARLY_PART * place * (1 - share)


def due(
    key: RangeKey,
    schedule: RangeSchedule,
    load: RangeLoad,
    policy: MaterializePolicy,
    now_ms: int,
    *,
    on_demand: bool = False,
) -> Trigger | None:
    """The reason to materialize the range now, or None.

    Args:
        key: The range.
        schedule: Its history.
        load: Its log up to the newest final commit, and its base.
        policy: The limits.
        now_ms: The time, by the clock of the schedule.
        on_demand: Do not wait for a trigger; also ends the pause after a failure.
    """
    if load.log.batches == 0:
        return None
    if on_demand:
        return Trigger.DEMAND
    if schedule.retry.is_pausing(policy, now_ms):
        return None
    if schedule.demanded:
        return Trigger.DEMAND
    return _by_length(key, schedule, load, policy, now_ms) or _by_time(key, schedule, policy, now_ms)


def _by_length(
    key: RangeKey, schedule: RangeSchedule, load: RangeLoad, policy: MaterializePolicy, now_ms: int
) -> Trigger | None:
    log = load.log
    if policy.log_bytes is not None and log.size_bytes >= policy.log_bytes:
        return Trigger.LOG_BYTES
    if policy.log_batches is not None and log.batches >= policy.log_batches:
        return Trigger.LOG_BATCHES
    if policy.replay_ms is not None and load.replay_ms >= policy.replay_ms:
        return Trigger.REPLAY_TIME
    return Trigger.LOG_RATIO if _is_long_for_its_base(key, schedule, load, policy, now_ms) else None


def _is_long_for_its_base(
    key: RangeKey, schedule: RangeSchedule, load: RangeLoad, policy: MaterializePolicy, now_ms: int
) -> bool:
    """Would the storage hold too much if the log grew on? Derivation: docs/internals/space.md#fold-limit.

    Let `c` be the log per byte of base at which a range folds. A fold makes about `c` of the base dead, and while a
    part of the base is rewritten it is stored twice. Dead rows, the rewritten part and the log come to about
    `1.2 + 5c` times the state. The bound is 1.3 times the state and an interval's changes. So a range is due at the
    lower of two limits, both lowered by `early_part`:

    - `policy.log_ratio` of the base, however fast it changes; at least 1 MiB;
    - `0.3 * policy.log_ratio` of the base plus `0.12` (of one of many ranges `0.3`) of an interval's changes; at least
      128 KiB. This one is lower for a range that changes little in an interval.

    Before the operator's whole log has `policy.space_min_bytes`, the requests of folds would cost more than the
    space that they save.
    """
    if policy.log_ratio is None or load.base_bytes is None:
        return False
    if load.log.size_bytes < policy.space_min_bytes * load.share:
        return False
    log_bytes = load.log.size_bytes / early_part(key, load.share)
    ratio_bytes = policy.log_ratio * load.base_bytes
    if log_bytes >= max(RATIO_LOG_BYTES_MIN, ratio_bytes):
        return True
    if policy.interval_ms is None or log_bytes < SLOW_LOG_BYTES_MIN:
        return False
    interval_bytes = load.log.size_bytes * policy.interval_ms / max(1, schedule.elapsed_ms(now_ms))
    changes_part = SLOW_CHANGES_PART if load.share >= SLOW_SHARE_MIN else SLOW_CHANGES_PART_OF_MANY
    return log_bytes >= SLOW_RATIO_PART * ratio_bytes + changes_part * interval_bytes


def _by_time(key: RangeKey, schedule: RangeSchedule, policy: MaterializePolicy, now_ms: int) -> Trigger | None:
    if policy.interval_ms is not None and now_ms >= _interval_due_ms(key, schedule, policy.interval_ms):
        return Trigger.INTERVAL
    return None


def _interval_due_ms(key: RangeKey, schedule: RangeSchedule, interval_ms: int) -> int:
    if schedule.finished_ms is None:
        return schedule.seen_ms + key.jitter_ms(interval_ms)
    return schedule.finished_ms + interval_ms
