"""Cutting of a part of a batch's changes: pure decisions."""

from __future__ import annotations

import math

from varvite.spark_integration.worker.state.part_decision import (
    COUNTS_PER_PART,
    PARTS_PER_DOUBLING,
    ChangeSizes,
    GrowingPart,
)

MIB = 1 << 20


def counts_and_cuts(batches: int, input_bytes: int, rows: int, sizes: ChangeSizes, keys: int = 1 << 40) -> list[str]:
    """Decisions after each of so many input batches that each change `rows` other rows of at most `keys`."""
    growing, pending, found = GrowingPart(5 * MIB), 0, list[str]()
    for _ in range(batches):
        pending = min(keys, pending + rows)
        growing = growing.after_input(input_bytes)
        if not growing.is_count_due(sizes):
            found.append("")
        elif growing.is_full(pending, sizes):
            found.append("cut")
            growing, pending = growing.after_cut(), 0
        else:
            found.append("count")
            growing = growing.after_count()
    return found


def test_a_small_batch_is_not_even_counted() -> None:
    assert set(counts_and_cuts(12, 100_000, 1000, ChangeSizes())) == {""}


def test_changes_of_the_size_of_the_input_are_cut_at_the_threshold_and_counted_four_times_before() -> None:
    found = counts_and_cuts(1000, MIB // 10, 1000, ChangeSizes(row_bytes=MIB / 10_000, input_ratio=1.0))
    cuts = [i for i, what in enumerate(found) if what == "cut"]
    assert 10 < len(cuts) <= 20
    assert found.count("count") <= (COUNTS_PER_PART - 1) * (len(cuts) + 1)
    assert cuts[0] + 1 >= 50


def test_a_function_that_changes_the_same_keys_again_and_again_never_cuts() -> None:
    found = counts_and_cuts(1000, MIB // 10, 1000, ChangeSizes(row_bytes=100.0, input_ratio=0.001), keys=1000)
    assert found.count("cut") == 0
    assert found.count("count") <= 1000 / 10 / 5 * COUNTS_PER_PART


def test_a_function_that_makes_much_of_little_input_is_counted_by_what_it_makes() -> None:
    sizes = ChangeSizes(row_bytes=10_000.0, input_ratio=100.0)
    found = counts_and_cuts(100, 10_000, 100, sizes)
    assert found[:6] == ["", "count", "", "count", "", "cut"]


def test_nothing_pending_is_no_part_even_with_a_tiny_threshold() -> None:
    assert not GrowingPart(1).is_full(0, ChangeSizes())
    assert GrowingPart(1).after_input(1).is_count_due(ChangeSizes())
    assert GrowingPart(1).is_full(1, ChangeSizes())


def test_sizes_are_learnt_from_segments_that_are_not_mostly_header() -> None:
    assert ChangeSizes().learnt(10, 900, 100) == ChangeSizes()
    assert ChangeSizes().learnt(10_000, 50_000, 100_000) == ChangeSizes(row_bytes=5.0, input_ratio=0.5)
    assert ChangeSizes().learnt(10_000, 50_000, 0).input_ratio == 50_000.0


def test_the_number_of_parts_grows_with_the_logarithm_of_the_changes() -> None:
    growing, size_bytes = GrowingPart(5 * MIB), 0
    while size_bytes < 1 << 40:
        size_bytes += growing.target_bytes
        growing = growing.after_cut()
    assert growing.parts <= PARTS_PER_DOUBLING * (math.log2((1 << 40) / (5 * MIB)) + 1)
