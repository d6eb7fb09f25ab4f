"""Intervals, and how they compare with Spark's."""

from __future__ import annotations

import pytest

from benchmarks.trigger_interval import (
    INTERVAL_MS_MAX,
    Trial,
    findings,
    found_trial,
    limit_s,
    next_guess,
    next_trial,
    whole_steps,
)


def test_an_interval_is_rounded_up_to_whole_steps() -> None:
    assert [whole_steps(ms) for ms in (0.5, 10, 10.1, 333)] == [10, 10, 20, 340]


def test_batches_that_take_as_long_as_the_longest_interval_are_waited_for() -> None:
    """Spark's 21 batches of 20 s each were given up after 300 s, and the case failed."""
    assert limit_s(1_000, 35) == 300
    assert limit_s(INTERVAL_MS_MAX, 21) == 630


@pytest.mark.parametrize(
    ("fixed_ms", "per_ms", "guess"),
    [(200, 0.5, 400), (200, 0.0, 200), (210, 0.9, 2_100), (200, 1.0, 2_000), (100, 1.5, 2_000), (3_000, 0.9, 2_000)],
)
def test_a_guess_is_where_a_batch_takes_as_long_as_its_interval(fixed_ms: float, per_ms: float, guess: int) -> None:
    assert INTERVAL_MS_MAX == 20_000
    assert next_guess([(700, 999.0), (1_000, fixed_ms + 1_000 * per_ms), (400, fixed_ms + 400 * per_ms)]) == guess


def test_a_slow_batch_does_not_make_a_rate_too_high() -> None:
    """Found on a machine that stood still now and then: of 15 batches the slowest but one is the p95."""
    disturbed = [(1_000, 1_300.0), (400, 650.0)]
    assert next_guess(disturbed) == 2_000
    assert next_guess([*disturbed, (2_000, 1_500.0)]) == 940
    assert next_guess([(1_000, 900.0), (400, 250.0)]) == 250, "an interval that was long enough is one"
    assert next_guess([(1_000, 900.0), (400, 450.0), (900, 900.0), (900, 950.0)]) == 900


def test_a_rate_is_too_high_if_longer_intervals_say_so_too() -> None:
    overloaded = [(interval, 100 + 1.5 * interval) for interval in (1_000, 400, 2_000, 4_000)]
    assert [next_guess(overloaded[:count]) for count in (2, 3, 4)] == [2_000, 4_000, None]


def trial(interval_ms: float, p95: float) -> Trial:
    return {"interval_ms": interval_ms, "p95": p95}


@pytest.mark.parametrize(
    ("tried", "following", "found_ms"),
    [
        ([(400, 380)], None, 400),
        ([(400, 300)], 320, 400),
        ([(400, 405)], 440, 400),
        ([(400, 500)], 500, 400),
        ([(400, 300), (320, 340)], None, 400),
        ([(400, 300), (320, 280)], 300, 320),
        ([(400, 405), (440, 300)], 320, 440),
        ([(400, 405), (440, 375)], None, 440),
        ([(400, 900), (900, 1000), (1000, 1100), (1100, 1200), (1320, 1400)], None, 1320),
    ],
)
def test_intervals_are_tried_until_the_smallest_is_found(
    tried: list[tuple[float, float]], following: int | None, found_ms: float
) -> None:
    trials = [trial(*pair) for pair in tried]
    assert next_trial(trials) == following
    assert found_trial(trials)["interval_ms"] == found_ms


def test_without_trials_there_is_nothing() -> None:
    assert found_trial([]) == {}


def found(storage: str, system: str, interval_ms: float | None) -> dict[str, object]:
    return {
        "job": "function", "storage": storage, "rows_per_s": 2_000, "system": system, "interval_ms": interval_ms
    }  # fmt: skip


def test_the_target_is_for_s3_alone() -> None:
    local, s3 = findings([
        found("local", "varvite-rocksdb", 300), found("local", "spark-changelog", 400),
        found("s3", "varvite-rocksdb", 300), found("s3", "spark-changelog", 700),
    ])  # fmt: skip
    assert local == ("function, 2,000 rows/s, varvite-rocksdb on local: 300 ms, spark-changelog 400 ms: 1.33x shorter")
    assert s3.startswith("met: ")


def test_a_rate_that_only_one_keeps_up_with() -> None:
    own, peer = "varvite-rocksdb", "spark-changelog"
    (ahead,) = findings([found("s3", own, 300), found("s3", peer, None)])
    assert ahead.startswith("met: ")
    assert ahead.endswith("300 ms, spark-changelog over 20,000 ms")
    (behind,) = findings([found("s3", own, None), found("s3", peer, 900)])
    assert behind.startswith("NOT met: ")
