"""The comparison of two variants that were measured in turn."""

from __future__ import annotations

import pytest

from benchmarks.harness.paired import in_turn, paired_change


def test_a_drift_of_the_machine_cancels_out() -> None:
    less = [100.0 * 1.1**n for n in range(20)]
    change = paired_change([x * 1.03 for x in less], less)
    assert change == pytest.approx((0.03, 0.03, 0.03))
    assert str(change) == "+3.0% (+3.0% to +3.0%)"


def test_the_interval_holds_the_median_and_grows_with_the_noise() -> None:
    less = [100.0] * 30
    quiet = paired_change([100.0 + n % 3 for n in range(30)], less)
    loud = paired_change([100.0 + 10 * (n % 3) for n in range(30)], less)
    assert quiet.low <= quiet.median <= quiet.high
    assert loud.high - loud.low > quiet.high - quiet.low > 0


def test_one_slow_batch_does_not_count() -> None:
    assert paired_change([101.0] * 9 + [5_000.0], [100.0] * 10).median == pytest.approx(0.01)


def test_each_variant_goes_first_as_often_as_the_other() -> None:
    assert in_turn(4) == [(0, 1), (1, 0), (0, 1), (1, 0)]
