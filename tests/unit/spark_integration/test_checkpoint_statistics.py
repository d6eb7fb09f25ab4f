"""Percentiles of checkpoint figures."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from varve.spark_integration.checkpoint_statistics import percentile


@pytest.mark.parametrize("percent", [1, 7, 28, 50, 57, 75, 95, 99, 100])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 20, 99, 100, 101, 1000])
def test_a_percentile_is_the_value_at_the_nearest_rank(percent: int, count: int) -> None:
    """Fractions such as 0.07 and 0.57 are not exact, but their ranks are."""
    values = [float(n) for n in range(count, 0, -1)]
    assert percentile(values, percent / 100) == math.ceil(Fraction(percent, 100) * count)


def test_the_median_of_two_is_the_smaller() -> None:
    """It was the larger one in the benchmarks."""
    assert percentile([2.0, 1.0], 0.5) == 1.0


def test_fractions_finer_than_a_thousandth_count() -> None:
    assert percentile([float(n) for n in range(1, 10_001)], 0.9999) == 9_999.0


def test_nothing_has_percentiles_of_zero() -> None:
    assert percentile([], 0.99) == 0.0
