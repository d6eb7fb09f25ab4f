"""The watermark of several inputs is the least of theirs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from varvite.changelog.api.time_spans import Duration
from varvite.spark_integration.functions.watermark_strategy import WatermarkStrategy
from varvite.spark_integration.plan.input_watermarks import InputDelay, InputWatermarks, LatestEventTimes
from varvite.storage.errors import InvalidRequestError


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
        ((10,), [{0: -(1 << 63) + 5}], -(1 << 63)),
        ((-1, 0), [{0: (1 << 63) - 1, 1: (1 << 63) - 1}], (1 << 63) - 1),
    ],
    ids=["nothing", "one-silent", "least", "late", "other", "without", "negative", "first time", "last time"],
)
def test_the_least_counts(delays: tuple[int | None, ...], batches: list[dict[int, int]], watermark: int | None) -> None:
    inputs = InputWatermarks.before_the_first_batch(tuple(map(InputDelay, delays)))
    for time_ms, batch in enumerate(batches):
        inputs = inputs.after(batch, time_ms)
    assert inputs.watermark_ms == watermark


def test_an_input_without_elements_for_long_is_left_out() -> None:
    def watermarks(*batches: tuple[int, dict[int, int]]) -> list[int | None]:
        inputs = InputWatermarks.before_the_first_batch((InputDelay(0), InputDelay(0, 10)))
        found: list[int | None] = []
        for time_ms, latest_ms in batches:
            inputs = inputs.after(latest_ms, time_ms)
            found.append(inputs.watermark_ms)
        return found

    assert watermarks((1000, {0: 5}), (1009, {0: 6}), (1010, {0: 7})) == [None, None, 7], "it never had any"
    assert watermarks((1000, {0: 5, 1: 2}), (1009, {0: 6}), (1010, {})) == [2, 2, 6]
    assert watermarks((0, {0: 5, 1: 2}), (10, {}), (11, {1: 3}), (20, {}), (21, {})) == [2, 5, 3, 3, 5]
    assert watermarks((0, {1: 2}), (100, {1: 3})) == [None, None], "the other one is never idle"


def test_when_all_inputs_are_idle_nothing_is_known() -> None:
    inputs = InputWatermarks.before_the_first_batch((InputDelay(0, 10),))
    assert inputs.after({0: 5}, 0).after({}, 10).watermark_ms is None, "the job keeps the watermark it has"


@pytest.mark.parametrize("timeout", [Duration.of_millis(0), Duration.of_seconds(-1), 5])
def test_idleness_needs_a_span_of_time(timeout: Any) -> None:
    with pytest.raises(InvalidRequestError, match="no span of time"):
        WatermarkStrategy.for_monotonous_timestamps().with_idleness(timeout)
    assert WatermarkStrategy.no_watermarks().with_idleness(timedelta(seconds=2)).idle_timeout_ms == 2000


def test_event_times_of_tasks_are_merged() -> None:
    times = LatestEventTimes()
    zero = times.zero({})
    assert times.addInPlace({0: 3, 1: 7}, {0: 5, 2: -1}) == {0: 5, 1: 7, 2: -1}
    assert times.addInPlace(zero, {}) == {}
