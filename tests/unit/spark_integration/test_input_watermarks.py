"""The watermark of several inputs is the least of theirs."""

from __future__ import annotations

import pytest

from varve.spark_integration.input_watermarks import InputWatermarks, LatestEventTimes


@pytest.mark.parametrize(
    ("delays", "batches", "watermark"),
    [
        ((1, 5), [], None),
        ((1, 5), [{0: 100}], None),
        ((1, 5), [{0: 100}, {1: 50}], 45),
        ((1, 5), [{0: 100, 1: 50}, {1: 40}], 45),
        ((1, 5), [{0: 100, 1: 50}, {1: 400}], 99),
        ((1, None), [{0: 100, 1: 50}], None),
        ((0,), [{0: -3}], -3),
    ],
    ids=["nothing", "one-silent", "least", "late", "other", "without", "negative"],
)
def test_the_least_counts(delays: tuple[int | None, ...], batches: list[dict[int, int]], watermark: int | None) -> None:
    inputs = InputWatermarks.before_the_first_batch(delays)
    for batch in batches:
        inputs = inputs.after(batch)
    assert inputs.watermark_ms == watermark


def test_event_times_of_tasks_are_merged() -> None:
    times = LatestEventTimes()
    zero = times.zero({})
    assert times.addInPlace({0: 3, 1: 7}, {0: 5, 2: -1}) == {0: 5, 1: 7, 2: -1}
    assert times.addInPlace(zero, {}) == {}
