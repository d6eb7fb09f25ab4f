"""When the rows of a key are combined before the shuffle."""

from __future__ import annotations

from varve.spark_integration.map_side_combine import COMBINED_BATCHES_MAX, ROWS_PER_KEY_MIN, MapSideCombining
from varve.spark_integration.protocol import Summary


def summary(rows: int, keys: int, operator: str = "totals", partition: int = 0) -> Summary:
    return Summary(
        operator=operator, partition=partition, low=0, high=64, tag="0" * 32, slot=1, rows_in=rows, rows_out=keys
    )


def test_nothing_is_combined_before_many_rows_per_key_were_seen() -> None:
    combining = MapSideCombining()
    assert not combining.combines("totals")
    combining.after([summary(ROWS_PER_KEY_MIN * 5 - 1, 5)])
    assert not combining.combines("totals")
    combining.after([summary(ROWS_PER_KEY_MIN * 5, 5), summary(10, 10, "other")])
    assert combining.combines("totals")
    assert not combining.combines("other")


def test_all_partitions_count() -> None:
    combining = MapSideCombining()
    combining.after([summary(ROWS_PER_KEY_MIN * 5, 5), summary(5, 5, partition=1)])
    assert not combining.combines("totals")


def test_combined_batches_say_nothing_until_one_is_not_combined_again() -> None:
    combining = MapSideCombining()
    combining.after([summary(ROWS_PER_KEY_MIN, 1)])
    for _ in range(COMBINED_BATCHES_MAX):
        assert combining.combines("totals")
        combining.after([summary(1, 1)])
    assert not combining.combines("totals")
    combining.after([summary(ROWS_PER_KEY_MIN, 1)])
    assert combining.combines("totals")


def test_a_batch_without_rows_changes_nothing() -> None:
    combining = MapSideCombining()
    combining.after([summary(0, 0)])
    assert not combining.combines("totals")
