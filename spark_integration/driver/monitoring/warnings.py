"""Warnings about a job's input and functions, each of which the driver's log says once per run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
    from varvite.storage.format.records import Commit

_log: Final = logging.getLogger(__name__)
FAR_AHEAD_MS: Final = 3_600_000
"""A time stamp so far after the batch's own time is likely to be a mistake."""
_FAR_AHEAD: Final = (
    "more than an hour after now. The watermark follows it, so rows with right times may be late: filter such rows "
    "before from_dataframe"
)
_LATE: Final = (
    "behind the watermark and were dropped. The metric varvite_late_rows_total and late_rows in the statistics of "
    "checkpoints count them"
)


def warnings_of(commit: Commit, summaries: Sequence[OperatorSummaries]) -> Iterator[tuple[str, str]]:
    """For each warning about a batch its kind and its text; pure."""
    for of_operator in summaries:
        name = of_operator.operator
        for text in sorted({text for note in of_operator.notes for text in note.warnings}):
            yield f"{name}: {text}", f"operator {name}: {text}"
        late = of_operator.total("late_rows")
        if late:
            yield f"late {name}", f"operator {name}: {late} rows came {_LATE}"
    latest_ms = summaries[0].largest("event_time_max_ms") if summaries else None
    if latest_ms is not None and latest_ms > commit.time_ms + FAR_AHEAD_MS:
        yield "far ahead", f"a row has the time stamp {np.datetime64(latest_ms, 'ms')} UTC, {_FAR_AHEAD}"


class BatchWarnings:
    """Logs the warnings of a run's batches, each kind once."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._said: set[str] = set()

    def after(self, commit: Commit, summaries: Sequence[OperatorSummaries]) -> None:
        """Log what is new after a batch."""
        for kind, text in warnings_of(commit, summaries):
            if kind not in self._said:
                self._said.add(kind)
                _log.warning("job %s, batch %d: %s", self._job, commit.batch, text)
