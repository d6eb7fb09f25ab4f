"""When a range of an operator is materialized: a pure decision over what the service knows and the time it gives.

Flink's rules (FLIP-158): the first materialization of a range comes after a jitter, a stable hash of the range modulo
the interval, so that many ranges do not fold at once; later ones come an interval after the last finished one. On top
of that a range is due when its log is long: in bytes, in batches or in estimated replay time, so that a restore stays
short, or compared with its base, so that the storage holds little more than the state (I10).

Failures are counted and delay the next try of that range only; they never reach the job.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.options.declaration import ConfigOption, check_options
from varvite.storage.options.kinds import DURATION, INTEGER, MEMORY_SIZE, number_above

RATIO_LOG_BYTES_MIN: Final = 1 << 20
"""A shorter log is not long compared with its base: a small state would be materialized all the time."""
SLOW_LOG_BYTES_MIN: Final = 128 << 10
"""The same of a range that changes little in an interval."""
SLOW_RATIO_PART: Final = 0.3
"""Such a range's log is long from this part of what the ratio says on ..."""
SLOW_CHANGES_PART: Final = 0.12
"""... and this part of an interval's changes."""
SLOW_CHANGES_PART_OF_MANY: Final = 0.3
"""The same of one of many ranges: they are rewritten at different times, so that each may have more log."""
SLOW_SHARE_MIN: Final = 1 / 8
"""A smaller part of an operator is one of many."""
EARLY_PART: Final = 0.4
"""By this part, at most, a range is due earlier, lest all ranges of an operator are rewritten at once."""
GOLDEN_RATIO: Final = (5**0.5 - 1) / 2
PAUSE_SPREAD: Final = 0.25
"""Part of a pause that is added, at most, so that what failed together is not tried again together."""
FAILURE_BACKOFF: Final = Backoff(attempts=1, initial_s=1.0, maximum_s=300.0)


def spread_of(name: str) -> float:
    """The place of what has this name, at least 0 and below 1; the same in every process."""
    return _hash(name) / (1 << 32)


def _hash(name: str) -> int:
    return zlib.crc32(name.encode())


class Trigger(StrEnum):
    """Why a range is due."""

    INTERVAL = "interval"
    LOG_BYTES = "log-bytes"
    LOG_BATCHES = "log-batches"
    LOG_RATIO = "log-ratio"
    REPLAY_TIME = "replay-time"
    DEMAND = "demand"


@dataclass(frozen=True, order=True)
class RangeKey:
    """One operator's key groups `[low, high)` of a job."""

    job_id: str
    operator: str
    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.operator}[{self.low},{self.high})"

    def jitter_ms(self, interval_ms: int) -> int:
        """Delay of the first materialization: the same in every process, at least 0, below `interval_ms`."""
        return _hash(self._identity) % interval_ms

    @property
    def spread(self) -> float:
        """See `RangeSchedule`."""
        return spread_of(self._identity)

    @property
    def _identity(self) -> str:
        return f"{self.job_id}/{self.operator}/{self.low}-{self.high}"


@dataclass(frozen=True)
class LogLength:
    """What a restore has to replay for a range, on top of its tile."""

    batches: int = 0
    """Commits of the line after the tile."""
    segments: int = 0
    """Segments of the range among them."""
    size_bytes: int = 0
    """Their stored bytes."""


@dataclass(frozen=True)
class RangeLoad:
    """What a range's state and log weigh."""

    log: LogLength = LogLength()
    base_bytes: int | None = None
    """Stored bytes of the base; None: not known."""
    replay_ms: int = 0
    """Estimated time to replay the log."""
    share: float = 1.0
    """Its part of the operator's key groups, above 0."""


@dataclass(frozen=True)
class MaterializePolicy:
    """The triggers and the pauses after failures."""

    interval_ms: int | None = ConfigOption(
        key="state.changelog.periodic-materialize.interval",
        type=DURATION,
        default=600_000,
        at_least=1,
        command_name="--interval",
        description="Time from one materialization to the next. Shorter: shorter replay at a restart, more background "
        "work.",
    ).field()
    """None: no periodic materialization, only the other triggers."""
    log_bytes: int | None = ConfigOption(
        key="materializer.log-bytes",
        type=MEMORY_SIZE,
        default=256 << 20,
        at_least=1,
        command_name="--log-bytes",
        description="Materialize a range of key groups at once when its log has this size.",
    ).field()
    """None: no limit."""
    log_batches: int | None = ConfigOption(
        key="materializer.log-batches",
        type=INTEGER,
        default=1_000,
        at_least=1,
        command_name="--log-batches",
        description="Materialize a range of key groups at once when this many batches follow its last snapshot, "
        "changed or not.",
    ).field()
    """None: no limit."""
    log_ratio: float | None = ConfigOption(
        key="materializer.log-ratio",
        type=number_above(0),
        default=0.05,
        command_name="--log-ratio",
        description="Materialize a range of key groups at once when its log has this many bytes per byte of its last "
        "snapshot, and at least 1 mb; sooner if it changes little within the interval. Smaller: less storage, more "
        "background work.",
    ).field()
    """None: no limit."""
    replay_ms: int | None = ConfigOption(
        key="materializer.replay-time",
        type=DURATION,
        default=60_000,
        at_least=1,
        command_name="--replay-time",
        description="Materialize a range of key groups at once when replaying its log would take about this time. "
        "Shorter: shorter recovery, more background work.",
    ).field()
    """None: no limit."""
    backoff: Backoff = FAILURE_BACKOFF
    """Pauses after failures; the number of attempts is not limited."""
    max_failures_allowed: int = ConfigOption(
        key="state.changelog.max-failures-allowed",
        type=INTEGER,
        default=3,
        at_least=0,
        command_name="--max-failures-allowed",
        description="Report the state as failing after more consecutive failed materializations than this. Unlike in "
        "Flink the job continues: its log only gets longer.",
    ).field()

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class RangeSchedule:
    """What is remembered of one range; times in ms of one monotonic clock."""

    seen_ms: int
    """When this process first saw the range."""
    finished_ms: int | None = None
    """When it was last brought to an end, with or without something to publish."""
    failed_ms: int | None = None
    """When it last failed."""
    failures: int = 0
    """Failures since the last success."""
    demanded: bool = False
    """Whether somebody asked for a materialization that has not come to an end yet."""
    spread: float = 0.0
    """Place among others that may fail together, at least 0 and below 1: their pauses are not equally long."""

    def succeeded(self, now_ms: int) -> RangeSchedule:
        """A materialization, or the finding that there is nothing to do, finished at `now_ms`."""
        return replace(self, finished_ms=now_ms, failed_ms=None, failures=0, demanded=False)

    def failed(self, now_ms: int) -> RangeSchedule:
        """A try failed at `now_ms`."""
        return replace(self, failed_ms=now_ms, failures=self.failures + 1)

    def demand(self) -> RangeSchedule:
        """Somebody asks for a materialization: it is due as soon as there is something to fold."""
        return replace(self, demanded=True)

    def elapsed_ms(self, now_ms: int) -> int:
        """Time since it was last brought to an end, or first seen."""
        return now_ms - (self.seen_ms if self.finished_ms is None else self.finished_ms)

    def is_failing(self, policy: MaterializePolicy) -> bool:
        """Whether it failed more often in a row than is allowed."""
        return self.failures > policy.max_failures_allowed


def early_part(key: RangeKey, share: float) -> float:
    """At which part of its limits a range is due, above 0 and at most 1: another one for each range of an operator.

    Otherwise all ranges, whose keys mostly change alike, would be folded and rewritten at the same time for ever.
    Multiples of the golden ratio lie evenly between 0 and 1, however many there are (Knuth's multiplicative hashing).
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
    """Why the range is to be materialized now, or None if it is not.

    Args:
        key: The range.
        schedule: What happened to it so far.
        load: Its log up to the newest final commit, and its base.
        policy: The limits.
        now_ms: The time, by the clock of the schedule.
        on_demand: Do not wait for a trigger; also ends the pause after a failure.
    """
    if load.log.batches == 0:
        return None
    if on_demand:
        return Trigger.DEMAND
    if is_pausing(schedule, policy, now_ms):
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
    """Whether the storage would hold too much if the log grew on.

    A fold of c log per base makes c of the base dead, and a part of the base (`varvite.materializer.fold.parts`) is
    stored twice then: 1.2 + 5c in all, about; it shall be below 1.3 times of the state and an interval's changes. So
    what changes much in an interval may fold as much as the ratio says, and what changes little must fold less.
    """
    if policy.log_ratio is None or load.base_bytes is None:
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


def is_pausing(schedule: RangeSchedule, policy: MaterializePolicy, now_ms: int) -> bool:
    """Whether the pause after the last failure is not over."""
    return schedule.failed_ms is not None and now_ms < schedule.failed_ms + pause_ms(schedule, policy)


def pause_ms(schedule: RangeSchedule, policy: MaterializePolicy) -> int:
    """Pause after the last failure, up to `PAUSE_SPREAD` longer than the policy's; 0 if there was none."""
    if schedule.failures == 0:
        return 0
    return round(policy.backoff.pause_s(schedule.failures) * 1_000 * (1 + PAUSE_SPREAD * schedule.spread))
