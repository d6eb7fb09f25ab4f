"""Counts of a state worker's uploads between two summaries."""

from __future__ import annotations

from varvite.spark_integration.messages.worker_figures import SAMPLES_MAX, UploadFigures, UploadRecorder
from varvite.storage.transfer.upload import UploadOutcome


def end(size_bytes: int, *, succeeded: bool = True) -> UploadOutcome:
    return UploadOutcome(size_bytes, succeeded, 1 if succeeded else 0, 2, 0.5)


def test_nothing_is_sent_if_nothing_was_uploaded() -> None:
    assert UploadRecorder().take() is None


def test_counts_and_the_most_at_the_same_time_are_kept_until_they_are_taken() -> None:
    recorder = UploadRecorder()
    recorder.queued(10)
    recorder.queued(20)
    recorder.ended(end(10))
    recorder.queued(5)
    recorder.ended(end(20, succeeded=False))
    recorder.ended(end(5))
    assert recorder.take() == UploadFigures(3, 1, 2, 30, (end(10), end(20, succeeded=False), end(5)))
    assert recorder.take() is None


def test_what_is_still_open_counts_for_the_next_summary() -> None:
    """The upload of an attempt that was given up ends late."""
    recorder = UploadRecorder()
    recorder.queued(10)
    assert recorder.take() == UploadFigures(1, 0, 1, 10)
    recorder.queued(20)
    recorder.ended(end(10))
    assert recorder.take() == UploadFigures(1, 0, 2, 30, (end(10),))


def test_samples_are_bounded_and_counts_are_not() -> None:
    recorder = UploadRecorder()
    for _ in range(SAMPLES_MAX + 7):
        recorder.queued(1)
        recorder.ended(end(1))
    figures = recorder.take()
    assert figures is not None
    assert (figures.requests, len(figures.ended)) == (SAMPLES_MAX + 7, SAMPLES_MAX)
