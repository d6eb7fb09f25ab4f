"""The log of a commit's view, grouped so that the length of any range's part is told quickly; pure.

A job may have thousands of ranges and a log of many segments per range; most of them lie in exactly one range.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

from varve.materializer.materialize_policy import LogLength

if TYPE_CHECKING:
    from varve.storage.line_view import LineView
    from varve.storage.records import SegmentRef


class LogIndex:
    """The log of one view; None is the log of no commit."""

    def __init__(self, view: LineView | None) -> None:
        self._line = () if view is None else tuple(link.seq for link in view.line)
        self._groups: dict[str, dict[tuple[int, int], list[SegmentRef]]] = defaultdict(dict)
        for ref in () if view is None else view.segments:
            self._groups[ref.operator].setdefault((ref.low, ref.high), []).append(ref)

    def after(self, operator: str, low: int, high: int, seq: int) -> LogLength:
        """The log of key groups `[low, high)` after commit `seq`, up to the view's commit.

        Where a reference stands for a run of segments or for more key groups, it is counted whole: an upper bound.
        """
        sizes = [
            ref.data.length
            for (first, end), refs in self._groups.get(operator, {}).items()
            if first < high and low < end
            for ref in refs
            if ref.seq_last > seq
        ]
        return LogLength(len(self._line) - bisect_right(self._line, seq), len(sizes), sum(sizes))
