"""Warnings about a job's input and functions."""

from __future__ import annotations

import logging

import pytest

from tests.workers.checkpoint_figures import commit
from tests.workers.summaries import grouped, summary
from varvite.spark_integration.driver.monitoring.warnings import FAR_AHEAD_MS, BatchWarnings, warnings_of

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("ahead_ms", "is_far"), [(0, False), (-HOUR_MS * 24, False), (FAR_AHEAD_MS, False), (FAR_AHEAD_MS + 1, True)]
)
def test_a_time_stamp_far_in_the_future_is_warned_of(ahead_ms: int, is_far: bool) -> None:
    """Found as a job that seemed to hang: one wrong clock had moved the watermark, and all other rows were late."""
    batch = commit()
    stamped = grouped([summary(event_time_max_ms=batch.time_ms + ahead_ms), summary(partition=1)])
    assert ("far ahead" in dict(warnings_of(batch, stamped))) is is_far


def test_a_time_stamp_beyond_the_calendar_can_be_shown() -> None:
    texts = dict(warnings_of(commit(), grouped([summary(event_time_max_ms=2**62)])))
    assert "146140482-" in texts["far ahead"]


def test_late_rows_and_notes_of_functions_are_said_once_per_run(caplog: pytest.LogCaptureFixture) -> None:
    summaries = grouped([
        summary(operator="a", late_rows=3, warnings=("beware",)), summary(operator="a", partition=1, late_rows=4),
        summary(operator="b"),
    ])  # fmt: skip
    log = BatchWarnings("job")
    with caplog.at_level(logging.WARNING):
        log.after(commit(), grouped([summary(operator="a"), summary(operator="b")]))
        assert not caplog.records
        log.after(commit(), summaries)
        log.after(commit(), summaries)
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2
    assert "operator a: beware" in texts[0]
    assert "operator a: 7 rows" in texts[1]
