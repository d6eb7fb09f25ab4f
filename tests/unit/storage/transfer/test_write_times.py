"""Which way the parts of a download are written."""

from __future__ import annotations

import pytest

from varvite.storage.transfer.write_times import TRIALS, PartTime, WriteTimes, is_direct_next

MB = 1 << 20


def parts(number: int, *, read_ms: float, write_ms: float, cpu_ms: float) -> PartTime:
    """What so many parts of 8 MiB have taken, each the same."""
    return PartTime(number, number * 8 * MB, number * read_ms / 1e3, number * write_ms / 1e3, number * cpu_ms / 1e3)


DEAR_PAGES = parts(2, read_ms=240, write_ms=110, cpu_ms=12)
USUAL_PAGES = parts(2, read_ms=100, write_ms=5, cpu_ms=3)


@pytest.mark.parametrize(
    ("direct", "cached", "is_direct"),
    [
        (parts(2, read_ms=240, write_ms=28, cpu_ms=1.7), DEAR_PAGES, True),  # a new virtual machine, fast disk
        (parts(2, read_ms=100, write_ms=10, cpu_ms=1.7), USUAL_PAGES, False),  # pages cost little
        (parts(2, read_ms=100, write_ms=1000, cpu_ms=1.7), DEAR_PAGES, False),  # a network volume of 125 MB/s
        (parts(2, read_ms=240, write_ms=121, cpu_ms=1.7), DEAR_PAGES, False),  # the disk will soon be too slow
        (parts(50, read_ms=240, write_ms=28, cpu_ms=1.7), DEAR_PAGES, True),  # by part, not in sum
        (parts(2, read_ms=240, write_ms=28, cpu_ms=0), parts(2, read_ms=240, write_ms=5, cpu_ms=0), True),
    ],
)
def test_the_way_that_saves_cpu_while_the_disk_keeps_up(direct: PartTime, cached: PartTime, *, is_direct: bool) -> None:
    assert is_direct_next(100, direct, cached) is is_direct


def test_both_ways_are_tried_first() -> None:
    few = parts(TRIALS - 1, read_ms=240, write_ms=28, cpu_ms=1.7)
    for direct, cached in ((PartTime(), PartTime()), (few, DEAR_PAGES), (DEAR_PAGES, few)):
        assert [is_direct_next(number, direct, cached) for number in range(4)] == [False, True, False, True]


def test_a_disk_that_becomes_slow_is_left_alone() -> None:
    times = WriteTimes()
    for _ in range(TRIALS):
        times.add(PartTime(1, 8 * MB, 0.24, 0.11, 0.012), is_direct=False)
        times.add(PartTime(1, 8 * MB, 0.24, 0.03, 0.0017), is_direct=True)
    assert times.is_direct_next()
    for _ in range(8):
        times.add(PartTime(1, 8 * MB, 0.24, 0.5, 0.0017), is_direct=True)
    assert not times.is_direct_next()
    assert not times.is_direct_next()
