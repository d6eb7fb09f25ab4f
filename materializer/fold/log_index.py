"""The log of a commit's view, indexed by key groups, so that the length of a range's log is found quickly; pure.

A job may have thousands of ranges and a log of many segments per range; most of them lie in exactly one range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

from varvite.materializer.ranges import LogLength

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from varvite.changelog.chain.view import LineView
    from varvite.storage.format.records import SegmentRef


class LogIndex:
    """The log of one view; None: an empty log."""

    def __init__(self, view: LineView | None) -> None:
        self._line = () if view is None else tuple(link.seq for link in view.line)
        by_operator: dict[str, dict[tuple[int, int], list[SegmentRef]]] = defaultdict(dict)
        for ref in () if view is None else view.segments:
            by_operator[ref.operator].setdefault((ref.low, ref.high), []).append(ref)
        self._groups = {operator: _Groups(groups) for operator, groups in by_operator.items()}

    def after(self, operator: str, low: int, high: int, seq: int) -> LogLength:
        """The log of key groups `[low, high)` after commit `seq`, up to the view's commit.

        Where a reference stands for a run of segments or for more key groups, it is counted whole: an upper bound.
        """
        groups = self._groups.get(operator)
        touching = () if groups is None else groups.touching(low, high)
        sizes = [ref.data.length for ref in touching if ref.seq_last > seq]
        return LogLength(len(self._line) - bisect_right(self._line, seq), len(sizes), sum(sizes))


class _Groups:
    """The references of one operator by their key groups, in order of the first."""

    def __init__(self, refs: Mapping[tuple[int, int], list[SegmentRef]]) -> None:
        self._spans = sorted(refs)
        self._refs = refs
        self._widest = max(high - low for low, high in self._spans)

    def touching(self, low: int, high: int) -> Iterator[SegmentRef]:
        """The references that share a key group with `[low, high)`."""
        start = bisect_right(self._spans, (low - self._widest, 0))
        for span in self._spans[start : bisect_left(self._spans, (high, 0))]:
            if low < span[1]:
                yield from self._refs[span]
