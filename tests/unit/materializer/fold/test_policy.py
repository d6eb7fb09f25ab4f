from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from varvite.materializer.fold.policy import (
    EARLY_PART,
    RATIO_LOG_BYTES_MIN,
    SLOW_LOG_BYTES_MIN,
    SLOW_SHARE_MIN,
    RangeSchedule,
    Trigger,
    due,
    early_part,
)
from varvite.materializer.options.policy import MaterializePolicy
from varvite.materializer.ranges import LogLength, RangeKey, RangeLoad
from varvite.storage.errors import InvalidRequestError
from varvite.storage.object_stores.backoff import Backoff
from varvite.storage.options.declaration import options_of

KEY = RangeKey("job", "op", 0, 64)
LOG = RangeLoad(LogLength(batches=3, segments=2, size_bytes=100))
POLICY = MaterializePolicy(interval_ms=10_000, log_bytes=1_000, log_batches=10)


def test_first_materialization_comes_after_the_jitter_of_the_range() -> None:
    jitter = KEY.jitter_ms(10_000)
    fresh = RangeSchedule(seen_ms=5_000)
    assert 0 < jitter < 10_000
    assert due(KEY, fresh, LOG, POLICY, 5_000 + jitter - 1) is None
    assert due(KEY, fresh, LOG, POLICY, 5_000 + jitter) is Trigger.INTERVAL


def test_jitter_is_the_same_in_every_process() -> None:
    """The number itself: a hash that is salted per process would change it."""
    assert KEY.jitter_ms(10_000) == 2_559


def test_jitter_spreads_the_ranges_of_an_operator() -> None:
    jitters = {RangeKey("job", "op", low, low + 1).jitter_ms(600_000) for low in range(64)}
    assert len(jitters) == 64
    assert min(jitters) < 100_000
    assert max(jitters) > 500_000


def test_later_ones_come_an_interval_after_the_last_finished_one() -> None:
    schedule = RangeSchedule(seen_ms=0).succeeded(20_000)
    assert due(KEY, schedule, LOG, POLICY, 29_999) is None
    assert due(KEY, schedule, LOG, POLICY, 30_000) is Trigger.INTERVAL


@pytest.mark.parametrize(
    ("log", "trigger"),
    [
        (LogLength(1, 1, 999), None),
        (LogLength(1, 1, 1_000), Trigger.LOG_BYTES),
        (LogLength(9, 9, 10), None),
        (LogLength(10, 0, 0), Trigger.LOG_BATCHES),
    ],
)
def test_a_long_log_is_due_at_once(log: LogLength, trigger: Trigger | None) -> None:
    assert due(KEY, RangeSchedule(seen_ms=0).succeeded(0), RangeLoad(log), POLICY, 1) is trigger


@pytest.mark.parametrize(
    ("load", "trigger"),
    [
        (RangeLoad(LogLength(9, 9, RATIO_LOG_BYTES_MIN), 4 * RATIO_LOG_BYTES_MIN), Trigger.LOG_RATIO),
        (RangeLoad(LogLength(9, 9, RATIO_LOG_BYTES_MIN), 4 * RATIO_LOG_BYTES_MIN + 1), None),
        (RangeLoad(LogLength(9, 9, RATIO_LOG_BYTES_MIN - 1), 0), None),
        (RangeLoad(LogLength(9, 9, RATIO_LOG_BYTES_MIN), None), None),
        (RangeLoad(LogLength(9, 9, 999), 0, 59_999), None),
        (RangeLoad(LogLength(9, 9, 999), 0, 60_000), Trigger.REPLAY_TIME),
    ],
)
def test_a_log_that_is_long_for_its_base_or_to_replay_is_due_at_once(load: RangeLoad, trigger: Trigger | None) -> None:
    policy = MaterializePolicy(
        interval_ms=None, log_bytes=None, log_batches=None, log_ratio=0.25, space_min_bytes=0, replay_ms=60_000
    )
    assert due(KEY, RangeSchedule(seen_ms=0).succeeded(0), load, policy, 1) is trigger


@pytest.mark.parametrize(("share", "size_bytes"), [(1.0, 16 << 20), (0.25, 4 << 20), (1 / 64, RATIO_LOG_BYTES_MIN)])
def test_the_ratio_does_not_count_before_the_operators_log_is_worth_the_requests(share: float, size_bytes: int) -> None:
    policy = MaterializePolicy(interval_ms=None, log_bytes=None, log_batches=None, replay_ms=None)

    def trigger(size_bytes: int) -> Trigger | None:
        load = RangeLoad(LogLength(9, 9, size_bytes), 1 << 20, share=share)
        return due(KEY, RangeSchedule(seen_ms=0).succeeded(0), load, policy, 1)

    assert trigger(size_bytes - 1) is None
    assert trigger(size_bytes) is Trigger.LOG_RATIO


INTERVAL_MS = 600_000
BASE_BYTES = 100 << 20


def ratio_due_s(
    changes: float,
    base_bytes: int = BASE_BYTES,
    interval_ms: int | None = INTERVAL_MS,
    key: RangeKey = KEY,
    **load: Any,
) -> int:
    """Seconds after which a range is due by its ratio, if it changes such a part of its base within 10 minutes."""
    policy = MaterializePolicy(
        interval_ms=interval_ms, log_bytes=None, log_batches=None, log_ratio=0.05, space_min_bytes=0
    )
    schedule = RangeSchedule(seen_ms=0).succeeded(0)

    def is_due(second: int) -> bool:
        log = LogLength(9, 9, int(changes * base_bytes * second / 600))
        return due(key, schedule, RangeLoad(log, base_bytes, **load), policy, second * 1_000) is Trigger.LOG_RATIO

    return next((second for second in range(1, 6_000) if is_due(second)), 6_000)


@pytest.mark.parametrize(("changes", "log_per_base"), [(5.0, 0.05), (0.4, 0.05), (0.2, 0.04), (0.06, 0.022)])
def test_the_less_a_range_changes_in_an_interval_the_less_log_is_long(changes: float, log_per_base: float) -> None:
    assert ratio_due_s(changes) * changes / 600 == pytest.approx(log_per_base, rel=0.15)


def test_without_an_interval_only_the_ratio_counts() -> None:
    assert ratio_due_s(0.06, interval_ms=None) == 500


def test_little_log_of_a_slowly_changing_range_is_not_long() -> None:
    seconds = ratio_due_s(0.06, base_bytes=16 * SLOW_LOG_BYTES_MIN)
    assert seconds * 0.06 / 600 * 16 == pytest.approx(1, rel=0.01)


def test_one_of_many_ranges_may_have_more_log() -> None:
    assert ratio_due_s(0.06, share=SLOW_SHARE_MIN / 2) > 1.3 * ratio_due_s(0.06, share=SLOW_SHARE_MIN)


@pytest.mark.parametrize("changes", [0.2, 0.05])
def test_ranges_that_change_little_are_due_at_different_times_in_an_interval(changes: float) -> None:
    """They were due together: an interval's changes followed from their different limits, not from the log."""
    keys = [RangeKey("job", "op", low, low + 4) for low in range(0, 128, 4)]
    seconds = sorted(ratio_due_s(changes, key=key, share=1 / 32) for key in keys)
    assert seconds[0] < 0.7 * seconds[-1]
    assert max(later - earlier for earlier, later in pairwise(seconds)) < 0.1 * (seconds[-1] - seconds[0])


def test_the_ranges_of_an_operator_are_due_at_different_times() -> None:
    keys = [RangeKey("job", "op", low, low + 8) for low in range(0, 64, 8)]
    parts = [early_part(key, 1 / 8) for key in keys]
    assert min(later - earlier for earlier, later in pairwise(sorted(parts))) > EARLY_PART / 20
    assert all(1 - EARLY_PART < part <= 1 for part in parts)
    assert early_part(RangeKey("job", "op", 0, 64), 1.0) == 1
    policy = MaterializePolicy(interval_ms=None, log_ratio=0.05, space_min_bytes=0)
    log = [LogLength(9, 9, int(0.05 * BASE_BYTES * part) + 1) for part in sorted(parts)]
    found = [
        [due(key, RangeSchedule(0), RangeLoad(one, BASE_BYTES, 0, 1 / 8), policy, 1) for one in log] for key in keys
    ]
    assert sorted(row.count(None) for row in found) == list(range(8))


def test_a_demand_holds_until_the_range_was_brought_to_an_end() -> None:
    asked = RangeSchedule(seen_ms=0).succeeded(0).demand()
    assert due(KEY, asked, RangeLoad(), POLICY, 1) is None
    assert due(KEY, asked, LOG, POLICY, 1) is Trigger.DEMAND
    failed = asked.failed(1)
    assert due(KEY, failed, LOG, POLICY, 2) is None, "a request does not make failures come faster"
    assert due(KEY, failed, LOG, POLICY, 1_001) is Trigger.DEMAND
    assert due(KEY, failed.succeeded(1_001), LOG, POLICY, 1_002) is None


def test_nothing_is_due_without_a_batch_after_the_base() -> None:
    schedule = RangeSchedule(seen_ms=0)
    assert due(KEY, schedule, RangeLoad(), POLICY, 10**9) is None
    assert due(KEY, schedule, RangeLoad(), POLICY, 10**9, on_demand=True) is None


def test_triggers_can_be_switched_off() -> None:
    off = MaterializePolicy(interval_ms=None, log_bytes=None, log_batches=None, log_ratio=None, replay_ms=None)
    endless = RangeLoad(LogLength(10**6, 10**6, 10**12), 1, 10**12)
    assert due(KEY, RangeSchedule(seen_ms=0), endless, off, 10**12) is None
    assert due(KEY, RangeSchedule(seen_ms=0), LOG, off, 1, on_demand=True) is Trigger.DEMAND


def test_a_failed_range_pauses_longer_after_each_failure_and_not_for_ever() -> None:
    policy = MaterializePolicy(interval_ms=10_000, log_bytes=1, backoff=Backoff(1, 1.0, 8.0))
    schedule = RangeSchedule(seen_ms=0)
    pauses: list[int] = []
    for _ in range(5):
        schedule = schedule.failed(0)
        pauses.append(next(ms for ms in range(20_000) if due(KEY, schedule, LOG, policy, ms)))
    assert pauses == [1_000, 2_000, 4_000, 8_000, 8_000]


def test_demand_does_not_wait_for_the_pause() -> None:
    schedule = RangeSchedule(seen_ms=0).failed(100)
    assert due(KEY, schedule, LOG, POLICY, 101, on_demand=True) is Trigger.DEMAND


def test_a_success_ends_the_row_of_failures() -> None:
    policy = MaterializePolicy(max_failures_allowed=2)
    schedule = RangeSchedule(seen_ms=0).failed(1).failed(2)
    assert not schedule.retry.is_failing(policy)
    assert schedule.failed(3).retry.is_failing(policy)
    assert schedule.failed(3).succeeded(4) == RangeSchedule(seen_ms=0, finished_ms=4)


@pytest.mark.parametrize(
    "limits",
    [
        {"interval_ms": 0},
        {"log_bytes": 0},
        {"log_batches": -1},
        {"max_failures_allowed": -1},
        {"replay_ms": 0},
        {"log_ratio": 0.0},
        {"log_ratio": float("nan")},
    ],
)
def test_impossible_limits_are_refused(limits: dict[str, Any]) -> None:
    [field] = limits
    with pytest.raises(InvalidRequestError, match=options_of(MaterializePolicy)[field].key):
        MaterializePolicy(**limits)
