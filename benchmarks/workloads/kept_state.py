"""The job of `benchmarks.changelog_cost`, with its changelog and without writing anything."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.workloads.jobs import CountAndSum
from varvite import RuntimeContext
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.segments.segment import SegmentHeader
from varvite.spark_integration.worker.state import log_parts as segment_parts


class KeptCountAndSum(CountAndSum):
    """The same function in a state worker that makes no segments from then on.

    All else goes on: the overlay, the net effect of the batch, the fold. A segment of no bytes is never uploaded, and
    the driver commits it as no changes, so this state could not be restored: no product code may do this.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        segment_parts.encode_segment = _nothing
        super().open(runtime_context)


def _nothing(header: SegmentHeader, changes: Sequence[StateChanges]) -> bytes:  # noqa: ARG001
    return b""
