"""The ratio of stored bytes and live state."""

from __future__ import annotations

from benchmarks.space import figures_of, findings, logical_bytes


def test_each_second_is_compared_with_the_live_state_before_it() -> None:
    found = figures_of(stored=[9, 9, 100, 150, 400, 300], live=[(2, 100), (4, 200)], begin=2)
    assert found["ratios"] == [(2, 1.0), (3, 1.5), (4, 2.0), (5, 1.5)]
    assert (found["ratio_mean"], found["ratio_max"], found["live_bytes_p50"]) == (1.5, 2.0, 100)


def test_the_mean_counts_for_the_target() -> None:
    case = {"contents": "elements", "ratio_mean": 1.6, "ratio_p99": 1.9}
    assert findings([case])[0].startswith("NOT met")
    assert findings([case | {"ratio_mean": 1.5}])[0].startswith("met")


def test_sums_weigh_no_more_than_one_per_key_and_pane() -> None:
    most = logical_bytes({"contents": "sums", "rows_per_s": 10**6})
    assert most == logical_bytes({"contents": "sums", "rows_per_s": 10**7}) < 10**7
    assert logical_bytes({"contents": "elements", "rows_per_s": 10}) > 10 * 300 * 300
