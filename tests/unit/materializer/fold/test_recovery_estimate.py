from __future__ import annotations

import pytest

from varvite.materializer.fold.recovery_estimate import NEWEST_PART, SAMPLE_BYTES_MIN, RecoveryRates


def test_the_estimate_is_the_time_for_the_base_and_the_log() -> None:
    rates = RecoveryRates(replay_bytes_per_s=1_000, fetch_bytes_per_s=10_000)
    assert rates.replay_ms(500) == 500
    assert rates.recovery_ms(20_000, 500) == 2_500


def test_measurements_move_the_rates() -> None:
    rates = RecoveryRates(replay_bytes_per_s=1e6, fetch_bytes_per_s=1e6)
    faster = rates.replayed(4_000_000, 1.0)
    assert faster.replay_bytes_per_s == pytest.approx(1e6 + NEWEST_PART * 3e6)
    assert faster.fetch_bytes_per_s == 1e6
    for _ in range(40):
        rates = rates.fetched(4_000_000, 2.0)
    assert rates.fetch_bytes_per_s == pytest.approx(2e6, rel=1e-3)


@pytest.mark.parametrize(("size_bytes", "seconds"), [(SAMPLE_BYTES_MIN - 1, 1.0), (10**9, 0.0)])
def test_what_says_nothing_is_not_counted(size_bytes: int, seconds: float) -> None:
    assert RecoveryRates().replayed(size_bytes, seconds).fetched(size_bytes, seconds) == RecoveryRates()
