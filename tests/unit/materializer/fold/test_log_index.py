"""Lengths of the logs of ranges."""

from __future__ import annotations

import random

from varvite.changelog.chain.view import LineView
from varvite.materializer.fold.log_index import LogIndex
from varvite.materializer.ranges import LogLength
from varvite.storage.format.records import Link, ObjectSlice, SegmentRef


def ref(operator: str, low: int, high: int, seq: int, last: int, size_bytes: int) -> SegmentRef:
    return SegmentRef(operator, low, high, seq, last, ObjectSlice("x", 0, size_bytes, 0))


def test_the_log_of_no_commit_is_empty() -> None:
    assert LogIndex(None).after("op", 0, 8, 0) == LogLength()


def test_lengths_are_those_of_looking_at_every_segment() -> None:
    rng = random.Random(4)
    seqs = sorted(rng.sample(range(1, 60), 40))
    segments = tuple(
        ref(rng.choice("ab"), low := rng.randrange(8), rng.randint(low + 1, 8), seq, seq + rng.randint(0, 3), seq)
        for seq in seqs
        for _ in range(3)
    )
    view = LineView(max_parallelism=8, segments=segments, line=tuple(Link(seq, "t") for seq in seqs))
    index = LogIndex(view)
    for _ in range(200):
        operator, low, seq = rng.choice("abc"), rng.randrange(8), rng.randrange(65)
        high = rng.randint(low + 1, 8)
        found = [s for s in segments if s.operator == operator and s.low < high and low < s.high and s.seq_last > seq]
        expected = LogLength(sum(s > seq for s in seqs), len(found), sum(s.data.length for s in found))
        assert index.after(operator, low, high, seq) == expected
